"""The script to run, and what can be learnt from its source before it runs.

An elastic worker is started before it has a world, any other script after; the agent decides by the imports
that the script uses. A script that sends Hello is treated as elastic from then on, so a wrong guess is
corrected.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LIBRARY: Final = "elasticjob.trainer.torch"

PRELOADED: Final = frozenset({"numpy", "pandas", "scipy", "sklearn", "torch", "torchaudio", "torchvision"})
"""Packages that the warm process imports if the script does: slow to import, and their import starts no
thread."""


@dataclass(frozen=True)
class Script:
    """A file, a module (`-m`), or with `python=False` any program; and its arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    python: bool = True

    def source(self) -> Path | None:
        """Return the file that holds the script, None if it cannot be found."""
        if not self.python:
            return None
        if not self.module:
            return Path(self.name)
        try:
            spec = importlib.util.find_spec(self.name)
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{self.name}.__main__")
        except ImportError:
            return None
        return Path(spec.origin) if spec is not None and spec.origin else None


def imports(script: Script) -> frozenset[str]:
    """Return the modules that the script's own source imports; empty if it cannot be read."""
    path = script.source()
    if path is None:
        return frozenset()
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return frozenset(name for node in nodes for name in imported(node, used))


def imported(node: ast.AST, used: set[str]) -> Iterator[str]:
    """Yield the modules that one statement imports; our library only if one of its names is in `used`."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names if alias.name != LIBRARY or bound(alias) in used)
        case ast.ImportFrom(module=str(module), names=names, level=0):
            if module == LIBRARY and not used & {bound(alias) for alias in names}:
                return
            yield module
            yield from (f"{module}.{alias.name}" for alias in names)


def bound(alias: ast.alias) -> str:
    """Return the name that an import defines; of all names of our library, the one that matters."""
    return alias.asname or ("Elastic" if alias.name == "*" else alias.name.partition(".")[0])


def is_elastic(names: frozenset[str]) -> bool:
    """Whether a script that imports `names` keeps its state between worlds."""
    return f"{LIBRARY}.Elastic" in names or LIBRARY in names


def preloads(names: frozenset[str]) -> tuple[str, ...]:
    """Return the modules that the warm process imports for a script that imports `names`; torch always."""
    wanted = {name for name in names if name.split(".")[0] in PRELOADED and is_module(name)}
    own = {LIBRARY} if is_elastic(names) else set()
    return tuple(sorted(wanted | own | {"torch"}))


def is_module(name: str) -> bool:
    """Whether a dotted name can be a module: a name with a capital letter is a class."""
    return name.islower()
