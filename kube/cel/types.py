"""Types of expressions: how they are written, and which value may stand where another is wanted.

A type is a name with parameters, `list(int)`. Objects are told apart by their names; their fields come along.
Names that begin with `_` are variables: an Assignment finds types for them as calls are looked at, one after
the other, and takes back what it found for a call that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final


@dataclass(frozen=True)
class Type:
    name: str
    parameters: tuple[Type, ...] = ()
    fields: Mapping[str, Type] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        shown = _SHOWN.get(self.name, self.name)
        return f"{shown}({', '.join(map(str, self.parameters))})" if self.parameters else shown

    @property
    def is_variable(self) -> bool:
        return self.name.startswith("_")

    @property
    def is_open(self) -> bool:
        """Whether anything may be behind it, or it was complained about already."""
        return self.name in ("dyn", "error")


_SHOWN: Final[Mapping[str, str]] = {
    "google.protobuf.Duration": "duration",
    "google.protobuf.Timestamp": "timestamp",
    "error": "!error!",
    "null_type": "null",
}

DYN: Final = Type("dyn")
ERROR: Final = Type("error")
NULL: Final = Type("null_type")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
DURATION: Final = Type("google.protobuf.Duration")
TIMESTAMP: Final = Type("google.protobuf.Timestamp")


def list_of(item: Type) -> Type:
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def maybe(value: Type) -> Type:
    return Type("optional_type", (value,))


def unwrapped(kind: Type) -> tuple[Type, bool]:
    """What an optional type holds, and whether it was one."""
    return (kind.parameters[0], True) if kind.name == "optional_type" else (kind, False)


_GENERIC: Final = frozenset({"list", "map", "type"})
_SCALARS: Final = frozenset({"bool", "int", "uint", "double", "string", "bytes"})


def takes_null(kind: Type) -> bool:
    """Objects, moments, spans and the types of libraries may be null; scalars, lists and maps may not."""
    return kind.name not in _SCALARS and kind.name not in _GENERIC


class Assignment:
    """What is known of the variables in types."""

    def __init__(self) -> None:
        self._known: dict[str, Type] = {}
        self._fresh = 0

    def variable(self) -> Type:
        """Return a type of which nothing is known yet."""
        self._fresh += 1
        return Type(f"_var{self._fresh - 1}")

    def fresh(self, kinds: Iterable[Type]) -> list[Type]:
        """Return the types with their parameters (`A`, `T`) replaced by new variables."""
        return self._renamed(list(kinds), {})

    def _renamed(self, kinds: Sequence[Type], names: dict[str, Type]) -> list[Type]:
        return [
            names.setdefault(kind.name, self.variable())
            if len(kind.name) == 1
            else replace(kind, parameters=tuple(self._renamed(kind.parameters, names)))
            for kind in kinds
        ]

    def filled(self, kind: Type, *, dyn: bool = False) -> Type:
        """Return a type with its variables replaced by what is known of them; else by `dyn`, if asked."""
        if kind.name in self._known:
            return self.filled(self._known[kind.name], dyn=dyn)
        if dyn and kind.is_variable:
            return DYN
        return replace(kind, parameters=tuple(self.filled(each, dyn=dyn) for each in kind.parameters))

    def fits(self, given: Sequence[Type], wanted: Sequence[Type]) -> bool:
        """Whether values of the first types may stand where the second are wanted; if so, it is noted."""
        before = dict(self._known)
        if len(given) == len(wanted) and all(map(self._fits, given, wanted)):
            return True
        self._known = before
        return False

    def _fits(self, first: Type, second: Type) -> bool:
        if second.is_variable:
            valid, known = self._stands_for(first, second)
            if valid or known:
                return valid
        if first.is_variable:
            return self._stands_for(second, first)[0]
        if first.is_open or second.is_open:
            return True
        if "null_type" in (first.name, second.name):
            other = second if first.name == "null_type" else first
            return other.name == "null_type" or takes_null(other)
        if first.name == second.name == "type":
            return True
        return (
            first.name == second.name
            and len(first.parameters) == len(second.parameters)
            and all(map(self._fits, first.parameters, second.parameters))
        )

    def _stands_for(self, kind: Type, variable: Type) -> tuple[bool, bool]:
        """Whether a type may be what a variable is, and whether something was known of that variable."""
        if kind == variable:
            return True, True
        if (known := self._known.get(variable.name)) is not None:
            if kind == known:
                return True, True
            if not self._fits(kind, known):
                return False, True
            wider = most_general(kind, known)
            if not self._is_within(variable, wider):
                self._known[variable.name] = wider
            return True, True
        if self._is_within(variable, kind):
            return False, False
        self._known[variable.name] = kind
        return True, False

    def _is_within(self, variable: Type, kind: Type) -> bool:
        if kind == variable:
            return True
        if kind.is_variable:
            known = self._known.get(kind.name)
            return known is not None and self._is_within(variable, known)
        return any(self._is_within(variable, each) for each in kind.parameters)


def most_general(first: Type, second: Type) -> Type:
    """Return that of two types, which fit each other, that says less."""
    return first if _says_less(first, second) else second


def _says_less(first: Type, second: Type) -> bool:
    if first.name == "dyn" or first.is_variable:
        return True
    if second.name == "dyn" or second.is_variable:
        return False
    return (
        first.name == second.name
        and len(first.parameters) == len(second.parameters)
        and (first.name == "type" or all(map(_says_less, first.parameters, second.parameters)))
    )
