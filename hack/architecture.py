"""The maps of the packages, by the contracts of pyproject.toml and the first lines of their `__init__.py`."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
MAP: Final = re.compile(r"<!-- (layers|packages|rooms) -->\n.*?<!-- end -->", re.DOTALL)


def architecture(page: Path) -> str:
    """Return the text of a page with its maps as contracts and folders are now."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    by_id = {contract["id"]: contract for contract in contracts}
    text = page.read_text()
    return MAP.sub(lambda each: f"<!-- {each[1]} -->\n{MAPS[each[1]](by_id)}\n<!-- end -->", text)


def layers(contracts: Mapping[str, Any]) -> str:
    """Return the layers of packages as a picture, the highest first."""
    return "\n".join(["```text", *contracts["house"]["layers"], "```"])


def packages(contracts: Mapping[str, Any]) -> str:
    """Return the table of packages, the lowest first: a contract of its own says more than its layer."""
    rows, below = ["| folder | is | may import |", "| --- | --- | --- |"], list[str]()
    for names in _lowest_first(contracts):
        for name in names:
            may = contracts[name]["name"] if name in contracts else ", ".join(f"`{each}`" for each in below)
            rows.append(f"| `{name}/` | {first_line(ROOT / name)} | {may} |")
        below = [*names, *below]
    return "\n".join(rows)


def rooms(contracts: Mapping[str, Any]) -> str:
    """Return the table of packages and their rooms."""
    return "\n".join(["| folder | what it is |", "| --- | --- |", *_rows(contracts)])


def _rows(contracts: Mapping[str, Any]) -> Iterator[str]:
    for package in chain.from_iterable(_lowest_first(contracts)):
        yield f"| **`{package}/`** | {first_line(ROOT / package)} |"
        for room in sorted(path.parent for path in (ROOT / package).rglob("*/__init__.py")):
            yield f"| `{room.relative_to(ROOT)}` | {first_line(room)} |"


def _lowest_first(contracts: Mapping[str, Any]) -> list[list[str]]:
    return [layer.split(" | ") for layer in reversed(contracts["house"]["layers"])]


MAPS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "layers": layers,
    "packages": packages,
    "rooms": rooms,
}


def first_line(room: Path) -> str:
    """Return the first line of a room's docstring. SystemExit if it is no sentence."""
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    line = text.partition("\n")[0]
    if not line.endswith("."):
        name = (room / "__init__.py").relative_to(ROOT)
        raise SystemExit(f"error: {name}: begin the docstring with one line that says what the folder is")
    return line.replace("|", r"\|")
