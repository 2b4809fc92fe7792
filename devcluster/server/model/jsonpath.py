"""The JSONPath subset of printer columns, selectable fields and scale paths.

`.a.b`, `.a['b']`, `.a[0]`, `.a[-1]`, `.a[*]`, `.a[?(@.type=="Ready")].status`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

Step = Callable[[Any], Iterable[Any]]

_TOKEN = re.compile(
    r"""
    \.?\[\s*\?\(\s*@(?P<where>[^=!<>]*?)\s*(?P<op>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[^)]*?)\s*\)\s*\]
  | \.?\[\s*(?P<index>-?\d+)\s*\]
  | \.?\[\s*(?P<all>\*)\s*\]
  | \.?\[\s*(?P<quoted>'[^']*'|"[^"]*")\s*\]
  | \.(?P<star>\*)
  | \.?(?P<name>(?:\\.|[^.\[\]\\])+)
    """,
    re.VERBOSE,
)


class BadPath(ValueError):
    """The text is not a JSONPath that we understand."""


def compile_path(text: str) -> Callable[[Any], list[Any]]:
    """Return a function that gives every value at the path, [] if absent. Raises BadPath."""
    steps = list(_steps(text.strip().removeprefix("{").removesuffix("}").removeprefix("$")))

    def find(item: Any) -> list[Any]:
        found = [item]
        for step in steps:
            found = [value for each in found for value in step(each)]
        return found

    return find


def _steps(text: str) -> Iterable[Step]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise BadPath(f"cannot read JSONPath {text!r} at {text[position:]!r}")
        yield _step(match)
        position = match.end()


def _step(match: re.Match[str]) -> Step:
    if match["op"]:
        return _filter(match["where"], match["op"], match["value"].strip("\"'"))
    if match["index"]:
        return _item(int(match["index"]))
    if match["all"] or match["star"]:
        return _children
    if match["quoted"]:
        return _member(match["quoted"][1:-1])
    return _member(match["name"].replace("\\.", "."))


def _member(name: str) -> Step:
    return lambda value: (value[name],) if isinstance(value, dict) and name in value else ()


def _item(index: int) -> Step:
    return lambda value: value[index:][:1] if isinstance(value, list) else ()


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _filter(where: str, operator: str, expected: str) -> Step:
    path = compile_path(where)

    def keep(item: Any) -> bool:
        equal = any(str(found) == expected for found in path(item))
        return equal == (operator == "==")

    return lambda value: [item for item in _children(value) if keep(item)]
