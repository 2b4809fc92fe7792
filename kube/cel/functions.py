"""Functions and methods that expressions may call: a table from names to what they do."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain, pairwise
from typing import Any

from elasticjob.kube.cel import texts
from elasticjob.kube.cel.addresses import (
    Address,
    Block,
    address,
    block,
    is_global_unicast,
    is_link_local_multicast,
    link,
)
from elasticjob.kube.cel.formats import FORMATS, Format
from elasticjob.kube.cel.moments import PARTS, SECOND, Duration, Timestamp, duration, timestamp
from elasticjob.kube.cel.operators import equal
from elasticjob.kube.cel.quantities import Quantity, quantity
from elasticjob.kube.cel.texts import text
from elasticjob.kube.cel.values import NO_OVERLOAD, NONE, CelError, Optional, kind, unsigned, whole, wrapped
from elasticjob.kube.cel.versions import semver
from elasticjob.kube.re2 import found, matches


def called(function: Callable[..., Any], name: str, arguments: list[Any]) -> Any:
    """Return what a function makes of its arguments. Raises CelError."""
    try:
        return function(*arguments)
    except (TypeError, AttributeError) as error:
        told = _UNTOLD.get(name, f": {name}({', '.join(map(kind, arguments))})")
        raise CelError(f"{NO_OVERLOAD}{told}") from error
    except (ValueError, IndexError, OverflowError) as error:
        raise CelError(str(error)) from error


_UNTOLD = {**dict.fromkeys(("startsWith", "endsWith", "contains", "matches"), ""), "size": ": size"}
"""What servers say of these functions where others are shown with the types that they were given."""


def _size(value: Any) -> int:
    if not isinstance(value, str | bytes | list | dict):
        raise TypeError(f"{kind(value)} has no size")
    return len(value)


_WHOLE = re.compile(r"[+-]?[0-9]+")


def _int(value: Any) -> int:
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise ValueError(f"{value!r} is no whole number")
    if isinstance(value, Duration):
        return value.nanoseconds
    if isinstance(value, Timestamp):
        return value.nanoseconds // SECOND
    return whole(int(value))


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"cannot convert {kind(value)} to a number")
    return float(value)


_TRUTHS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if text(value) not in _TRUTHS:
        raise ValueError(f"{value!r} is neither true nor false")
    return _TRUTHS[value]


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else text(value).encode()


def _duration(value: Any) -> Duration:
    return value if isinstance(value, Duration) else duration(text(value))


def _timestamp(value: Any) -> Timestamp:
    if isinstance(value, int) and not isinstance(value, bool):
        return Timestamp(value * SECOND)
    return value if isinstance(value, Timestamp) else timestamp(text(value))


def _from_text(convert: Callable[[Any], Any], target: str) -> Callable[[Any], Any]:
    """A conversion; what it has against a text is not told."""

    def converted(value: Any) -> Any:
        try:
            return convert(value)
        except ValueError as error:
            raise CelError(f"type conversion error from '{kind(value)}' to '{target}'") from error

    return converted


def _is(reader: Callable[..., Any]) -> Callable[..., bool]:
    """Whether a text can be read."""

    def check(value: str, *more: Any) -> bool:
        try:
            reader(text(value), *more)
        except (ValueError, OverflowError):
            return False
        return True

    return check


def _address(value: Any) -> Address:
    return value.address if isinstance(value, Block) else address(text(value))


def _has_address(value: Block, other: Any) -> bool:
    return value.has(address(other) if isinstance(other, str) else other)


def _has_block(value: Block, other: Any) -> bool:
    return value.covers(block(other) if isinstance(other, str) else other)


def _compared(value: Any, other: Any) -> int:
    if type(value) is not type(other):
        raise TypeError("only values of one kind compare")
    answer: int = value.compared(other)
    return answer


def _first_index(value: Any, part: Any, start: int = 0) -> int:
    if isinstance(value, str):
        return texts.first_place(value, part, start)
    return next((place for place, item in enumerate(value) if equal(item, part)), -1)


def _last_index(value: Any, part: Any, end: int | None = None) -> int:
    if isinstance(value, str):
        return texts.last_place(value, part, end)
    return max((place for place, item in enumerate(value) if equal(item, part)), default=-1)


def _sum(value: list[Any]) -> Any:
    """The sum of numbers, or of spans of time."""
    if value and isinstance(value[0], Duration):
        return Duration(sum(each.nanoseconds for each in value))
    total = sum(value)
    return whole(total) if isinstance(total, int) else total


def _extreme(choose: Callable[[list[Any]], Any], name: str) -> Callable[[list[Any]], Any]:
    def extreme(value: list[Any]) -> Any:
        if not value:
            raise ValueError(f"{name} called on empty list")
        return choose(value)

    return extreme


def _slice(value: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise ValueError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise ValueError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(value):
        raise ValueError(f"cannot slice({start}, {end}), list is length {len(value)}")
    return value[start:end]


def _flattened(value: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise ValueError("level must be non-negative")
    if not depth:
        return value
    parts = (_flattened(each, depth - 1) if isinstance(each, list) else [each] for each in value)
    return list(chain.from_iterable(parts))


def _distinct(value: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for each in value:
        if not any(equal(each, other) for other in kept):
            kept.append(each)
    return kept


def _all_in(first: list[Any], second: list[Any]) -> bool:
    return all(any(equal(item, other) for other in second) for item in first)


def _present(value: Optional) -> Any:
    if value is NONE:
        raise ValueError("optional.none() dereference")
    return value.value


def _problems(value: Format, checked: str) -> Optional:
    problems = value.problems(text(checked))
    return Optional(problems) if problems else NONE


def _found(value: str, pattern: str, most: int = -1) -> list[str]:
    every = list(found(pattern, text(value)))
    return every if most < 0 else every[:most]


METHODS: dict[str, Callable[..., Any]] = {
    **PARTS,
    "size": _size,
    "contains": lambda value, part: text(part) in text(value),
    "startsWith": lambda value, part: text(value).startswith(part),
    "endsWith": lambda value, part: text(value).endswith(part),
    "matches": lambda value, pattern: matches(pattern, text(value)),
    "lowerAscii": texts.lowered,
    "upperAscii": texts.raised,
    "trim": lambda value: text(value).strip(),
    "replace": texts.replaced,
    "split": texts.split,
    "join": texts.joined,
    "substring": texts.substring,
    "charAt": texts.character,
    "format": texts.formatted,
    "indexOf": _first_index,
    "lastIndexOf": _last_index,
    "find": lambda value, pattern: next(found(pattern, text(value)), ""),
    "findAll": _found,
    "reverse": lambda value: value[::-1],
    "isSorted": lambda value: all(first <= second for first, second in pairwise(value)),
    "sum": _sum,
    "min": _extreme(min, "min"),
    "max": _extreme(max, "max"),
    "slice": _slice,
    "flatten": _flattened,
    "distinct": _distinct,
    "sort": sorted,
    "first": lambda value: Optional(value[0]) if value else NONE,
    "last": lambda value: Optional(value[-1]) if value else NONE,
    "hasValue": lambda value: value is not NONE,
    "value": _present,
    "or": lambda value, otherwise: otherwise if value is NONE else value,
    "orValue": lambda value, otherwise: otherwise if value is NONE else value.value,
    "unwrapOpt": lambda value: [each.value for each in value if each is not NONE],
    "isInteger": lambda value: value.is_integer,
    "asInteger": Quantity.as_integer,
    "asApproximateFloat": lambda value: float(value.amount),
    "isGreaterThan": lambda value, other: _compared(value, other) > 0,
    "isLessThan": lambda value, other: _compared(value, other) < 0,
    "compareTo": _compared,
    "add": Quantity.added,
    "sub": Quantity.taken,
    "major": lambda value: value.major,
    "minor": lambda value: value.minor,
    "patch": lambda value: value.patch,
    "family": lambda value: value.version,
    "isUnspecified": lambda value: value.is_unspecified,
    "isLoopback": lambda value: value.is_loopback,
    "isLinkLocalMulticast": is_link_local_multicast,
    "isLinkLocalUnicast": lambda value: value.is_link_local,
    "isGlobalUnicast": is_global_unicast,
    "ip": _address,
    "containsIP": _has_address,
    "containsCIDR": _has_block,
    "prefixLength": lambda value: value.bits,
    "masked": Block.masked,
    "getScheme": lambda value: value.scheme,
    "getHost": lambda value: value.host,
    "getHostname": lambda value: value.hostname,
    "getPort": lambda value: value.port,
    "getEscapedPath": lambda value: value.path,
    "getQuery": lambda value: value.values(),
    "validate": _problems,
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": _size,
    "int": _from_text(_int, "int"),
    "uint": _from_text(lambda value: unsigned(_int(value)), "uint"),
    "double": _from_text(_double, "double"),
    "bool": _from_text(_bool, "bool"),
    "string": texts.written,
    "bytes": _bytes,
    "duration": _from_text(_duration, "google.protobuf.Duration"),
    "timestamp": _from_text(_timestamp, "google.protobuf.Timestamp"),
    "type": kind,
    "dyn": lambda value: value,
    "matches": lambda value, pattern: matches(pattern, text(value)),
    "strings.quote": texts.quoted,
    "lists.range": lambda size: list(range(size)),
    "sets.contains": lambda first, second: _all_in(second, first),
    "sets.intersects": lambda first, second: any(_all_in([item], second) for item in first),
    "sets.equivalent": lambda first, second: _all_in(first, second) and _all_in(second, first),
    "optional.none": lambda: NONE,
    "optional.of": lambda value: wrapped(value, True),
    "optional.ofNonZeroValue": lambda value: wrapped(value, False),
    "optional.unwrap": METHODS["unwrapOpt"],
    "quantity": quantity,
    "isQuantity": _is(quantity),
    "sign": lambda value: value.sign,
    "ip": _address,
    "isIP": _is(address),
    "ip.isCanonical": lambda value: str(address(value)) == value,
    "cidr": block,
    "isCIDR": _is(block),
    "url": link,
    "isURL": _is(link),
    "semver": semver,
    "isSemver": _is(semver),
    "format.named": lambda name: Optional(FORMATS[name]) if name in FORMATS else NONE,
    **{f"format.{name}": (lambda form=form: form) for name, form in FORMATS.items()},
}
