"""The loops of Brain: an error of one pass ends none of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import elasticjob.brain

FOLDER: Final = Path(elasticjob.brain.__file__).parent
INSIDE: Final = {"store.py _sweep"}
"""Loops of one pass, whose error is that pass's."""


def endless() -> Iterator[tuple[str, bool]]:
    """Return each endless loop that waits, and whether its passes are `Passes.over` something."""
    for file in sorted(FOLDER.rglob("*.py")):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.AsyncFunctionDef):
                for loop in ast.walk(function):
                    if isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant):
                        calls = (each.func for each in ast.walk(loop) if isinstance(each, ast.Call))
                        over = any(isinstance(each, ast.Attribute) and each.attr == "over" for each in calls)
                        yield f"{file.relative_to(FOLDER)} {function.name}", over


def test_no_loop_ends_with_a_pass() -> None:
    found = dict(endless())
    assert {"monitor/watch.py run", "sharing.py run"} <= found.keys()
    assert {name for name, over in found.items() if not over} == INSIDE
