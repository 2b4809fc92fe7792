"""What expressions are made of: scopes, nodes, optional values, kinds; and the ways to fail."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from elasticjob.kube.cel.addresses import Block, Link
from elasticjob.kube.cel.moments import Duration, Timestamp
from elasticjob.kube.cel.quantities import Quantity
from elasticjob.kube.cel.versions import Semver


class CelSyntaxError(ValueError):
    """The text is no expression of the supported subset. `told` is how servers say it of this `place`."""

    def __init__(self, message: str, place: int = 0, told: str = "") -> None:
        super().__init__(message)
        self.place = place
        self.told = told or message


class CelError(Exception):
    """The expression has no value for this input: no such key, wrong types, division by zero."""


class TooCostly(Exception):
    """An evaluation cost more than it may. It is no CelError: nothing within the expression may catch it."""


NO_OVERLOAD: Final = "no such overload"


class Meter:
    """What an evaluation has cost so far, as servers count: about one for each thing that is looked at."""

    def __init__(self, limit: int = 2**63 - 1) -> None:
        self.spent = 0
        self._limit = limit

    def add(self, cost: int) -> None:
        """Count more. Raises TooCostly beyond the limit."""
        self.spent += cost
        if self.spent > self._limit:
            raise TooCostly("operation cancelled: actual cost limit exceeded")

    def afford(self, cost: int) -> None:
        """Raise TooCostly where so much more would be beyond the limit; count nothing else."""
        if self.spent + cost > self._limit:
            self.add(cost)


@dataclass(frozen=True, slots=True)
class Scope:
    """The variables that an expression may read, and what counts its cost."""

    values: Mapping[str, Any]
    meter: Meter

    def having(self, name: str, value: Any) -> Scope:
        """Return a scope with one variable more."""
        return Scope({**self.values, name: value}, self.meter)


Node = Callable[[Scope], Any]


class Unordered(list[Any]):
    """A list whose order says nothing: a set, or items told apart by `keys`, as the schema says."""

    def __init__(self, items: Iterable[Any], keys: tuple[str, ...] = ()) -> None:
        super().__init__(items)
        self._keys = keys

    def identity(self, item: Any) -> Any:
        """Return what tells an item from others of the list."""
        return [item.get(key) for key in self._keys] if self._keys and isinstance(item, dict) else item

    def joined(self, others: Iterable[Any]) -> Unordered:
        """Return the list with others, which take the places of those that they are the same as."""
        found = self._by_identity()
        for other in others:
            found[hashed(self.identity(other))] = other
        return Unordered(found.values(), self._keys)

    def has_all(self, others: Iterable[Any], same: Callable[[Any, Any], bool]) -> bool:
        """Whether each of the others is in the list."""
        mine = self._by_identity()
        pairs = ((mine.get(hashed(self.identity(other)), _NOTHING), other) for other in others)
        return all(found is not _NOTHING and same(found, other) for found, other in pairs)

    def _by_identity(self) -> dict[Hashable, Any]:
        return {hashed(self.identity(each)): each for each in self}


_NOTHING: Final = object()


def hashed(value: Any) -> Hashable:
    """Return what is the same for two JSON values where they are, and can be looked up."""
    match value:
        case bool():
            return bool, value
        case list():
            return tuple(map(hashed, value))
        case dict():
            return frozenset((name, hashed(each)) for name, each in value.items())
    return cast(Hashable, value)


class TypeName(str):
    """The name of a type, as a value."""

    __slots__ = ()


class Uint(int):
    """A whole number without a sign, which is of a type of its own."""


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
        raise CelError(NO_OVERLOAD)
    return value


def number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CelError(NO_OVERLOAD)
    return value


_INTEGERS = range(-(2**63), 2**63)
_UNSIGNED = range(2**64)


def whole(value: int) -> int:
    """A whole number, if 64 bits hold it."""
    if isinstance(value, Uint):
        return unsigned(value)
    if value not in _INTEGERS:
        raise CelError("integer overflow")
    return value


def unsigned(value: int) -> Uint:
    """A whole number without a sign, if 64 bits hold it."""
    if value not in _UNSIGNED:
        raise CelError("unsigned integer overflow")
    return Uint(value)


_KINDS: Final[Mapping[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    list: "list",
    Unordered: "list",
    dict: "map",
    bytes: "bytes",
    type(None): "null_type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    Optional: "optional_type",
    TypeName: "type",
    Quantity: "kubernetes.Quantity",
    Block: "net.CIDR",
    Link: "kubernetes.URL",
    Semver: "kubernetes.Semver",
}


def kind(value: Any) -> TypeName:
    """Return the name of a value's type."""
    return TypeName(_KINDS.get(type(value), type(value).__name__))
