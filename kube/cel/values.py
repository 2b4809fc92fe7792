"""What expressions are made of: scopes, nodes, optional values, kinds; and the two ways to fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Scope = Mapping[str, Any]
Node = Callable[[Scope], Any]


class CelSyntaxError(ValueError):
    """The text is no expression of the supported subset."""


class CelError(Exception):
    """The expression has no value for this input: no such key, wrong types, division by zero."""


@dataclass(frozen=True)
class Optional:
    value: Any


NONE = Optional(None)


def wrapped(value: Any, always: bool) -> Optional:
    return Optional(value) if always or value else NONE


def optional(value: Any) -> Any:
    """An optional that holds a value, as `oldSelf` of rules with optionalOldSelf."""
    return Optional(value)


ABSENT: Any = NONE


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"no such overload: expected a boolean, got {kind(value)}")
    return value


def number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CelError(f"no such overload: expected a number, got {kind(value)}")
    return value


_INTEGERS = range(-(2**63), 2**63)


def whole(value: int) -> int:
    """A whole number, if 64 bits hold it."""
    if value not in _INTEGERS:
        raise CelError("integer overflow")
    return value


def kind(value: Any) -> str:
    kinds = {
        bool: "bool",
        int: "int",
        float: "double",
        str: "string",
        list: "list",
        dict: "map",
        bytes: "bytes",
        type(None): "null_type",
    }
    return kinds.get(type(value), type(value).__name__)
