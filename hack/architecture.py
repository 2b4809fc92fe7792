"""The table of docs/architecture.md: packages and their rooms, by the first lines of their `__init__.py`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = (
    "kube", "api", "webhooks", "controllers", "master", "brain", "trainer", "devcluster", "client", "cli"
)  # fmt: skip
"""In the order of the page: the lowest layer first, the programs after it."""
MARK: Final = re.compile(r"<!-- rooms -->\n.*?<!-- end -->", re.DOTALL)


def architecture(page: Path) -> str:
    """Return the text of the page with its table as the folders are now."""
    table = "\n".join(["| folder | what it is |", "| --- | --- |", *_rows(), ""])
    return MARK.sub(lambda _: f"<!-- rooms -->\n{table}<!-- end -->", page.read_text())


def _rows() -> Iterator[str]:
    for package in PACKAGES:
        yield f"| **`{package}/`** | {first_line(ROOT / package)} |"
        rooms = sorted(path.parent for path in (ROOT / package).rglob("*/__init__.py"))
        for room in rooms:
            yield f"| `{room.relative_to(ROOT)}` | {first_line(room)} |"


def first_line(room: Path) -> str:
    """Return the first line of a room's docstring. SystemExit if it is no sentence."""
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    line = text.partition("\n")[0]
    if not line.endswith("."):
        name = (room / "__init__.py").relative_to(ROOT)
        raise SystemExit(f"error: {name}: begin the docstring with one line that says what the folder is")
    return line.replace("|", r"\|")
