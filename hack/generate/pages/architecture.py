"""The table of docs/architecture.md: packages and their rooms, by the first lines of their `__init__.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hack.generate.pages import filled, table
from lab.paths import ROOT

PACKAGES: Final = (
    "kube", "api", "webhooks", "controllers", "master", "brain", "trainer", "devcluster", "client", "cli"
)  # fmt: skip
"""In the order of the page: the lowest layer first, the programs after it."""


def architecture(page: Path) -> str:
    """Return the text of the page with its table as the folders are now."""
    return filled(page, {"rooms": table(("folder", "what it is"), _rows())})


def _rows() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        yield f"**`{package}/`**", first_line(ROOT / package)
        for room in sorted(path.parent for path in (ROOT / package).rglob("*/__init__.py")):
            yield f"`{room.relative_to(ROOT)}`", first_line(room)


def first_line(room: Path) -> str:
    """Return the first line of a room's docstring. SystemExit if it is no sentence."""
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    line = text.partition("\n")[0]
    if not line.endswith("."):
        name = (room / "__init__.py").relative_to(ROOT)
        raise SystemExit(f"error: {name}: begin the docstring with one line that says what the folder is")
    return line.replace("|", r"\|")
