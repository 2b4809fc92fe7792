"""Bytes that are no message end in one kind of error, wherever they are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from elasticjob.api.rpc.unreadable import UNREADABLE

FOLDERS = ("trainer", "master", "brain", "cli")
OWN = {"DecodeError", "MsgspecError", "ValidationError"}


@pytest.mark.parametrize("text", [b'{"a": "\x9d"}', b"[" * 10_000, b"{", b'"text"'], ids=str)
def test_whatever_the_bytes_are(text: bytes) -> None:
    with pytest.raises(UNREADABLE):
        msgspec.json.decode(text, type=dict[str, Any])


def caught(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the names in the handlers and in `suppress` of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            yield node.type
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "suppress":
            yield from node.args


def test_no_handler_forgets_the_errors_that_are_not_msgspecs_own() -> None:
    forgotten = [
        f"{path}:{each.lineno}"
        for folder in FOLDERS
        for path in sorted(Path(folder).rglob("*.py"))
        for name in caught(ast.parse(path.read_text()))
        for each in ast.walk(name)
        if isinstance(each, ast.Attribute) and each.attr in OWN
    ]
    assert not forgotten, "catch UNREADABLE instead"
