"""What is written out in an expression and read before it is evaluated: spans, moments, patterns, lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from elasticjob.kube.cel.mistakes import Mistake, mismatch
from elasticjob.kube.cel.moments import duration, timestamp
from elasticjob.kube.cel.syntax import Call, ListOf, Literal, MapOf, Tree, branches
from elasticjob.kube.cel.types import Type
from elasticjob.kube.re2 import re2_problem

_EXEMPT: Final = "format"
"""The function whose list of arguments may hold anything."""


def misread(tree: Tree) -> Iterator[Mistake]:
    """Yield the arguments that cannot be read; only the first of a call is looked at, as servers do."""
    if isinstance(tree, Call) and tree.function in _READERS and tree.arguments:
        first = tree.arguments[0]
        if isinstance(first, Literal) and (why := _READERS[tree.function](first.value)):
            yield Mistake(first.place, f"invalid {tree.function} argument", why)
    for branch in branches(tree):
        yield from misread(branch)


def mixed(tree: Tree, kinds: Mapping[int, Type]) -> Iterator[Mistake]:
    """Yield the elements of written-out lists and maps that are of another type than the first one."""
    if isinstance(tree, Call) and tree.function == _EXEMPT:
        return
    if isinstance(tree, ListOf):
        yield from list(_unlike(tree.items, kinds))[:1]
    if isinstance(tree, MapOf):
        for parts in zip(*tree.pairs, strict=True):
            yield from _unlike(parts, kinds)
    for branch in branches(tree):
        yield from mixed(branch, kinds)


def _unlike(parts: Sequence[Tree], kinds: Mapping[int, Type]) -> Iterator[Mistake]:
    for part in parts[1:]:
        first, found = kinds[id(parts[0])], kinds[id(part)]
        if first != found:
            yield Mistake(
                part.place, mismatch(first, found), "write dyn(…) around each element, or two lists"
            )


def _unreadable(reader: Callable[[str], object]) -> Callable[[object], str]:
    def problem(value: object) -> str:
        try:
            reader(str(value))
        except (ValueError, OverflowError) as error:
            return str(error)
        return ""

    return problem


_MOMENT: Final = _unreadable(timestamp)
_READERS: Final[Mapping[str, Callable[[object], str]]] = {
    "duration": _unreadable(duration),
    "timestamp": lambda value: "" if isinstance(value, int) else _MOMENT(value),
    "matches": lambda pattern: (re2_problem(pattern) or "") if isinstance(pattern, str) else "",
}
"""Servers read whole numbers as moments, but not as spans, though the types allow both."""
