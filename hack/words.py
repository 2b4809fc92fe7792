"""List functions and classes of the product that are named by a participle: what happened, not what they are.

`python -m hack.words` prints those to be named anew, and counts different public names by the plain rule. A
predicate is no fault (`is_ready`, `has_failed`), nor is a rule that is a sentence, a word that only ends so
(`need`, `speed`), or a name that Kubernetes, HTTP or asyncio gave.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PARTICIPLE: Final = re.compile(
    r"(ed|told|met|kept|held|given|found|made|said|taken|shown|known|left|sent|begun)$", re.IGNORECASE
)
NO_FAULT: Final = re.compile(
    r"_*((is|has|have|was|are|can|may|not|until|why|how|on|wait|when)_\w+"  # questions, events, conditions
    r"|\w+_(when|what|which|while|that|is|are|be)_\w+"  # sentences
    r"|(\w+_)?(need|speed|feed|succeed|exceed|proceed|shed|seed|embed)"
    r"|\w*((Not|Method)[A-Z]\w+|Failed|Terminated|Unauthorized|Denied)"
    r"|(connection_made|data_received|eof_received|not_found|method_not_allowed|unauthorized))"
)
DEFINITION: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
EXEMPT: Final = {Path("api/core/models.py")}  # generated


class Name(NamedTuple):
    """A name, and where it is defined."""

    name: str
    place: str

    @property
    def is_public(self) -> bool:
        return not self.name.startswith("_")


def rooms() -> list[Path]:
    """Return the folders of the product, without examples."""
    links = (each for each in Path("elasticjob").iterdir() if each.is_symlink())
    return sorted(Path(each.name) for each in links if each.name != "examples")


def names(folders: list[Path]) -> Iterator[Name]:
    """Yield functions and classes that end in a participle, at any depth."""
    for file in (file for folder in folders for file in sorted(folder.rglob("*.py")) if file not in EXEMPT):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, DEFINITION) and PARTICIPLE.search(node.name):
                yield Name(node.name, f"{file}:{node.lineno}")


def is_no_fault(name: str) -> bool:
    """Whether a name that ends so says what it is."""
    return NO_FAULT.fullmatch(name) is not None


def main() -> None:
    """Print the faults, and the counts."""
    found = list(names(rooms()))
    for each in found:
        if not is_no_fault(each.name):
            print(f"{each.place}: {each.name}")
    public = {each.name for each in found if each.is_public}
    no_fault = {name for name in public if is_no_fault(name)}
    print(f"{len(public)} public names, {len(no_fault)} of them no fault; {len(found)} definitions in all")


if __name__ == "__main__":
    main()
