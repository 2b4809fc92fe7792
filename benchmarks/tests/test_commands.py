"""Bounds of the numbers in the command lines of benchmarks."""

from __future__ import annotations

import ast
from typing import Final

import pytest
from typer import BadParameter

from benchmarks.commands import numbers
from lab.paths import ROOT

FILES: Final = [*(ROOT / "benchmarks").rglob("*.py")]
NODES: Final = [node for file in FILES for node in ast.walk(ast.parse(file.read_text()))]
COMMANDS: Final = {
    each.id
    for node in NODES
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "play"
    for each in node.args
    if isinstance(each, ast.Name)
}


def test_each_number_of_a_command_line_has_a_least() -> None:
    kinds = [
        ast.unparse(each.annotation)
        for node in NODES
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in COMMANDS
        for each in node.args.args[-len(node.args.defaults) or len(node.args.args) :]  # flags
        if each.annotation
    ]
    kinds += [ast.unparse(node) for node in NODES if isinstance(node, ast.Subscript)]
    plain = ("Annotated[int,", "Annotated[float,")
    assert [each for each in kinds if each in ("int", "float")] == []
    assert [each for each in kinds if each.startswith(plain) and "min=" not in each] == []


@pytest.mark.parametrize("words", ["x", "0", "-1", "5,,6", ""])
def test_a_list_of_numbers_has_no_other_words(words: str) -> None:
    assert numbers("5,10") == [5, 10]
    with pytest.raises(BadParameter, match="no number from 1 on"):
        numbers(words)
