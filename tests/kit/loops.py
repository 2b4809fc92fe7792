"""The endless loops of a program, and whether an error ends them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def endless(folder: Path) -> Iterator[tuple[str, bool]]:
    """Return each endless loop that waits, and whether its passes are `Passes.over` something."""
    for file in sorted(folder.rglob("*.py")):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.AsyncFunctionDef):
                for loop in ast.walk(function):
                    if isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant):
                        calls = (each.func for each in ast.walk(loop) if isinstance(each, ast.Call))
                        over = any(isinstance(each, ast.Attribute) and each.attr == "over" for each in calls)
                        yield f"{file.relative_to(folder)} {function.name}", over
