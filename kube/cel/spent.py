"""What operators and functions cost when they are evaluated: by the sizes of the values that they look at.

Servers count so while they evaluate a rule; before that they estimate the same from the schema (`prices`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

from elasticjob.kube.cel.addresses import Block
from elasticjob.kube.cel.formats import Format
from elasticjob.kube.cel.seen import NEW_LIST, PATTERN, TRAVERSAL
from elasticjob.kube.cel.values import Optional

Spent = Callable[[Sequence[Any], Any], int]


AHEAD: Final = frozenset(("distinct", "sort", "sets.contains", "sets.equivalent", "sets.intersects"))
"""Functions that compare all with all. Their costs do not depend on results: they are looked at before."""


def price_of(name: str) -> Spent:
    """Return what tells the cost of one call; the target of a method is its first argument."""
    return _TABLE.get(name, _one)


def _one(arguments: Sequence[Any], result: Any) -> int:
    return 1


def nothing(arguments: Sequence[Any], result: Any) -> int:
    """What is known before an expression is evaluated costs nothing."""
    return 0


def _size(value: Any) -> int:
    match value:
        case str() | bytes() | list() | dict():
            return len(value)
        case Optional(inner) if inner is not None:
            return _size(inner)
        case IPv4Address() | IPv6Address():
            return len(value.packed)
        case Block():
            return math.ceil(value.bits / 8)
    return 1


def _per(size: int, factor: float = TRAVERSAL) -> int:
    return math.ceil(size * factor)


def _walked(value: Any) -> int:
    """The cost of a walk through all that a value holds."""
    match value:
        case str():
            return int(len(value.encode()) * TRAVERSAL)
        case bytes():
            return int(len(value) * TRAVERSAL)
        case list():
            return sum(map(_walked, value))
        case dict():
            return sum(_walked(key) + _walked(each) for key, each in value.items())
    return 1


def _first(factor: float = TRAVERSAL) -> Spent:
    return lambda arguments, result: _per(_size(arguments[0]), factor)


def _shorter(arguments: Sequence[Any], result: Any) -> int:
    return _per(min(map(_size, arguments)))


def _equal(arguments: Sequence[Any], result: Any) -> int:
    is_address = isinstance(arguments[0], IPv4Address | IPv6Address | Block)
    return 1 if is_address else _shorter(arguments, result)


def _ordered(arguments: Sequence[Any], result: Any) -> int:
    return _shorter(arguments, result) if isinstance(arguments[0], str | bytes) else 1


def _sum(arguments: Sequence[Any], result: Any) -> int:
    return _per(sum(map(_size, arguments))) if isinstance(result, str | bytes) else 1


def _searched(arguments: Sequence[Any], result: Any) -> int:
    return len(arguments[1]) if isinstance(arguments[1], list) else 1


def _contains(arguments: Sequence[Any], result: Any) -> int:
    return _per(_size(arguments[0])) * _per(_size(arguments[1]))


def _matched(arguments: Sequence[Any], result: Any) -> int:
    return _per(1 + _size(arguments[0])) * _per(_size(arguments[1]), PATTERN)


def _converted(source: type) -> Spent:
    return lambda arguments, result: _per(_size(arguments[0])) if isinstance(arguments[0], source) else 1


def _validated(arguments: Sequence[Any], result: Any) -> int:
    form = arguments[0]
    size = form.pattern_size if isinstance(form, Format) else 0
    return _per(1 + _size(arguments[1])) * _per(size, PATTERN)


def _address(arguments: Sequence[Any], result: Any) -> int:
    return 1 if isinstance(arguments[0], Block) else _per(_size(arguments[0]))


def _has_address(arguments: Sequence[Any], result: Any) -> int:
    reading = _per(_size(arguments[1])) if isinstance(arguments[1], str) else 0
    return _per(2 * _size(arguments[0])) + reading


def _has_block(arguments: Sequence[Any], result: Any) -> int:
    return _has_address(arguments, result) + _per(_size(arguments[0])) + 1


def _made(arguments: Sequence[Any], result: Any) -> int:
    return _size(result) + 1 + NEW_LIST


def _flattened(arguments: Sequence[Any], result: Any) -> int:
    return _size(arguments[0]) * (arguments[1] if len(arguments) > 1 else 1) + 1 + NEW_LIST


def _compared(arguments: Sequence[Any], result: Any) -> int:
    items = arguments[0]
    factor = 2 + (TRAVERSAL if items and isinstance(items[0], str | bytes) else 0)
    return int(len(items) ** 2 * factor) + 1 + NEW_LIST


def _sets(factor: int) -> Spent:
    return lambda arguments, result: 1 + _size(arguments[0]) * _size(arguments[1]) * factor


def _words(names: str, spent: Spent) -> dict[str, Spent]:
    return dict.fromkeys(names.split(), spent)


_TABLE: Final[Mapping[str, Spent]] = {
    "==": _equal,
    "!=": _shorter,
    **_words("< <= > >=", _ordered),
    "+": _sum,
    "in": _searched,
    **_words("startsWith endsWith format strings.quote", _first()),
    **_words("url lowerAscii upperAscii substring trim", _first()),
    **_words("cidr isIP isCIDR quantity isQuantity semver isSemver", _first()),
    **_words("replace split ip.isCanonical", _first(2 * TRAVERSAL)),
    "ip": _address,
    "join": lambda arguments, result: _per(_size(result), 2 * TRAVERSAL),
    **_words("find findAll matches", _matched),
    "contains": _contains,
    "string": _converted(bytes),
    "bytes": _converted(str),
    **_words("isSorted sum max min indexOf lastIndexOf", lambda arguments, result: _walked(arguments[0])),
    "validate": _validated,
    "containsIP": _has_address,
    "containsCIDR": _has_block,
    **_words("slice lists.range reverse", _made),
    "flatten": _flattened,
    **_words("distinct sort", _compared),
    **_words("sets.contains sets.intersects", _sets(1)),
    "sets.equivalent": _sets(2),
}
