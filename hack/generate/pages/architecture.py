"""The maps of the packages, by the contracts of pyproject.toml and the first lines of their `__init__.py`."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from hack.generate.pages import filled, table
from lab.paths import ROOT

Contracts = Mapping[str, Any]


def architecture(page: Path) -> str:
    """Return the text of a page with its maps as contracts and folders are now."""
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contracts = {contract["id"]: contract for contract in found}
    maps = {
        "layers": "\n".join(["```text", *contracts["house"]["layers"], "```", ""]),
        "packages": table(("folder", "is", "may import"), _packages(contracts)),
        "rooms": table(("folder", "what it is"), _rooms(contracts)),
    }
    return filled(page, maps)


def _packages(contracts: Contracts) -> Iterator[tuple[str, str, str]]:
    """Yield the packages, the lowest first: a contract of its own says more than its layer."""
    below = list[str]()
    for names in _lowest_first(contracts):
        for name in names:
            may = contracts[name]["name"] if name in contracts else ", ".join(f"`{each}`" for each in below)
            yield f"`{name}/`", first_line(ROOT / name), may
        below = [*names, *below]


def _rooms(contracts: Contracts) -> Iterator[tuple[str, str]]:
    for package in chain.from_iterable(_lowest_first(contracts)):
        yield f"**`{package}/`**", first_line(ROOT / package)
        for room in sorted(path.parent for path in (ROOT / package).rglob("*/__init__.py")):
            yield f"`{room.relative_to(ROOT)}`", first_line(room)


def _lowest_first(contracts: Contracts) -> list[list[str]]:
    return [layer.split(" | ") for layer in reversed(contracts["house"]["layers"])]


def first_line(room: Path) -> str:
    """Return the first line of a room's docstring. SystemExit if it is no sentence."""
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    line = text.partition("\n")[0]
    if not line.endswith("."):
        name = (room / "__init__.py").relative_to(ROOT)
        raise SystemExit(f"error: {name}: begin the docstring with one line that says what the folder is")
    return line.replace("|", r"\|")
