"""What functions cost at most, and how large their results may be: a table, as API servers have it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from elasticjob.kube.cel.seen import (
    BOOL,
    DOUBLE,
    INT,
    NEW_LIST,
    PATTERN,
    TEXT,
    TRAVERSAL,
    UNBOUNDED,
    UNKNOWN,
    Seen,
    Size,
    element_of,
    list_of,
    per,
    plus,
    times,
)
from elasticjob.kube.cel.shapes import DYN, Shape
from elasticjob.kube.cel.syntax import Call
from elasticjob.kube.cel.values import CelSyntaxError

# Functions: (target, arguments) → own cost, size of the result where it is known, kind of the result.

Row = tuple[int, Size | None, Shape]
Estimate = Callable[[Seen, list[Seen]], Row]


def price(tree: Call, target: Seen | None, arguments: list[Seen]) -> Row:
    """The estimate of a function; a global one is looked up with its first argument for a target."""
    table = GLOBALS if target is None else METHODS
    if tree.function not in table:
        raise CelSyntaxError(f"the cost of a function {tree.function}() is not known: leave it out")
    if target is None:
        first, *rest = arguments or [Seen(0)]
        return table[tree.function](first, rest)
    return table[tree.function](target, arguments)


def _constant(shape: Shape, cost: int = 1) -> Estimate:
    return lambda target, arguments: (cost, None, shape)


def _traversed(shape: Shape, factor: float = TRAVERSAL, *, same_size: bool = False) -> Estimate:
    return lambda target, arguments: (
        per(target.bound.most, factor),
        target.size if same_size else None,
        shape,
    )


def _argument_traversed(target: Seen, arguments: list[Seen]) -> Row:
    return per(_first(arguments).most, TRAVERSAL), None, BOOL


def _contains(target: Seen, arguments: list[Seen]) -> Row:
    part = per(_first(arguments).most, TRAVERSAL)
    return times(per(target.bound.most, TRAVERSAL), part), None, BOOL


def _matched(shape: Shape) -> Estimate:
    def estimate(target: Seen, arguments: list[Seen]) -> Row:
        text = per(plus(target.bound.most, 1), TRAVERSAL)
        size = Size(0, target.bound.most) if shape is not BOOL else None
        return times(text, per(_first(arguments).most, PATTERN)), size, shape

    return estimate


def _of_elements(shape: Shape | None) -> Estimate:
    """Functions that look at each element once: a text's characters, a list's items."""

    def estimate(target: Seen, arguments: list[Seen]) -> Row:
        item = target.shape.element
        if target.shape.kind == "string" or item is None:
            return per(target.bound.most, TRAVERSAL), None, shape or DYN
        each = 1
        if item.kind in ("string", "bytes"):
            most = item.most if target.path else UNBOUNDED
            each = plus(1, per(most, TRAVERSAL))
        return times(target.bound.most, each), None, shape or item

    return estimate


def _replaced(target: Seen, arguments: list[Seen]) -> Row:
    old, new = (*(each.bound for each in arguments[:2]), UNKNOWN, UNKNOWN)[:2]
    size = target.bound
    if old.least == 0:
        most = plus(times(plus(size.most, 1), new.most), size.most)
    elif new.most <= old.least:
        most = size.most
    else:
        most = times(math.ceil(size.most / old.least), new.most)
    return per(size.most, 2 * TRAVERSAL), Size(0, most), TEXT


def _split(target: Seen, arguments: list[Seen]) -> Row:
    most = target.bound.most
    if len(arguments) > 1 and isinstance(arguments[1].literal, int):
        most = max(arguments[1].literal, 0)
    return per(target.bound.most, 2 * TRAVERSAL), Size(0, most), list_of(TEXT)


def _joined(target: Seen, arguments: list[Seen]) -> Row:
    item = target.shape.element
    each = item.most if item is not None and target.path else UNBOUNDED
    most = times(target.bound.most, each)
    if arguments:
        most = plus(most, times(_first(arguments).most, max(target.bound.most - 1, 0)))
    return per(most, TRAVERSAL), Size(0, most), TEXT


def _converted(shape: Shape) -> Estimate:
    """Texts to bytes and back: four bytes a character; anything else is written at once, of unknown size."""

    def estimate(target: Seen, arguments: list[Seen]) -> Row:
        if target.shape.kind in ({"dyn", "bytes", "string"} - {shape.kind}):
            wide = 4 if shape.kind == "bytes" else 1
            size = Size(0, times(target.bound.most, wide))
            return (
                max(1, per(target.bound.most, TRAVERSAL)),
                size if target.shape.kind != "dyn" else None,
                shape,
            )
        return 1, None, shape

    return estimate


def _sets(factor: int) -> Estimate:
    return lambda target, arguments: (
        plus(1, times(times(target.bound.most, _first(arguments).most), factor)),
        None,
        BOOL,
    )


def _contained(compared: int) -> Estimate:
    """Addresses of 16 bytes are compared, after one was read if it is a text."""

    def estimate(target: Seen, arguments: list[Seen]) -> Row:
        reading = per(_first(arguments).most, TRAVERSAL)
        parsed = arguments and arguments[0].shape.kind in ("ip", "cidr")
        return plus(compared, 0 if parsed else reading), None, BOOL

    return estimate


def _reversed(target: Seen, arguments: list[Seen]) -> Row:
    return plus(1, NEW_LIST, target.bound.most), target.size, target.shape


def _sliced(target: Seen, arguments: list[Seen]) -> Row:
    """A part of a list, between places that are best written out."""
    start, end = (*arguments, Seen(0), Seen(0))[:2]
    first = start.literal if isinstance(start.literal, int) else 0
    last = end.literal if isinstance(end.literal, int) else target.bound.most
    return _new_list(UNBOUNDED if first > last else last - first, 1, target.shape)


def _ranged(target: Seen, arguments: list[Seen]) -> Row:
    return _new_list(target.literal if isinstance(target.literal, int) else UNBOUNDED, 1, list_of(INT))


def _flattened(target: Seen, arguments: list[Seen]) -> Row:
    depth = 1 if not arguments else arguments[0].literal
    shape = list_of(DYN) if arguments else element_of(target.shape)
    return _new_list(target.bound.most, depth if isinstance(depth, int) else UNBOUNDED, shape)


def _compared(target: Seen, arguments: list[Seen]) -> Row:
    """Each element is compared with each other; servers take that for the size of the result, too."""
    is_text = element_of(target.shape).kind in ("string", "bytes")
    most = target.bound.most
    return _new_list(times(most, most), 2 + TRAVERSAL * is_text, target.shape)


def _distinct(target: Seen, arguments: list[Seen]) -> Row:
    most = target.bound.most
    return _new_list(times(most, most), 2, target.shape)


def _new_list(size: int, factor: float, shape: Shape) -> Row:
    return plus(1, NEW_LIST, per(size, factor)), Size(0, size), shape


def _element(target: Seen, arguments: list[Seen]) -> Row:
    return 1, None, Shape("optional", element=element_of(target.shape))


def _validated(target: Seen, arguments: list[Seen]) -> Row:
    return (
        per(per(_first(arguments).most, TRAVERSAL), 128 * PATTERN),
        None,
        Shape("optional", element=list_of(TEXT)),
    )


def _first(arguments: list[Seen]) -> Size:
    return arguments[0].bound if arguments else UNKNOWN


def _unwrapped(target: Seen, arguments: list[Seen]) -> Row:
    return 1, None, element_of(target.shape) if target.shape.kind == "optional" else DYN


def _wrapped(target: Seen, arguments: list[Seen]) -> Row:
    return 1, None, Shape("optional", element=target.shape)


def _words(names: str, estimate: Estimate) -> dict[str, Estimate]:
    return dict.fromkeys(names.split(), estimate)


QUANTITY: Final = Shape("quantity")
ADDRESS: Final = Shape("ip")
BLOCK: Final = Shape("cidr")
LINK: Final = Shape("url")
FORMAT: Final = Shape("format")
SEMVER: Final = Shape("semver")

METHODS: Final[Mapping[str, Estimate]] = {
    **_words("size indexOf lastIndexOf", _of_elements(INT)),
    "size": _constant(INT),
    **_words("startsWith endsWith", _argument_traversed),
    "contains": _contains,
    "matches": _matched(BOOL),
    "find": _matched(TEXT),
    "findAll": _matched(list_of(TEXT)),
    **_words("lowerAscii upperAscii substring trim", _traversed(TEXT, same_size=True)),
    "charAt": _constant(TEXT),
    "reverse": _reversed,
    "slice": _sliced,
    "flatten": _flattened,
    "sort": _compared,
    "distinct": _distinct,
    **_words("first last", _element),
    "unwrapOpt": lambda target, arguments: (1, None, list_of(element_of(element_of(target.shape)))),
    "replace": _replaced,
    "split": _split,
    "join": _joined,
    "format": _traversed(TEXT),
    "isSorted": _of_elements(BOOL),
    **_words("sum min max", _of_elements(None)),
    "hasValue": _constant(BOOL),
    "value": _unwrapped,
    "orValue": _unwrapped,
    "or": lambda target, arguments: (1, None, target.shape),
    **_words("isInteger isGreaterThan isLessThan", _constant(BOOL)),
    **_words("sign asInteger compareTo major minor patch prefixLength family", _constant(INT)),
    "asApproximateFloat": _constant(DOUBLE),
    **_words("add sub", _constant(QUANTITY)),
    **_words("getHours getMinutes getSeconds getMilliseconds getFullYear getMonth getDate", _constant(INT)),
    **_words("getDayOfMonth getDayOfWeek getDayOfYear", _constant(INT)),
    **_words("getScheme getHost getHostname getPort getEscapedPath", _constant(TEXT)),
    "getQuery": _constant(Shape("map", key=TEXT, element=list_of(TEXT))),
    **_words("isUnspecified isLoopback isLinkLocalMulticast isLinkLocalUnicast", _constant(BOOL)),
    "isGlobalUnicast": _constant(BOOL),
    "containsIP": _contained(4),
    "containsCIDR": _contained(7),
    "masked": _constant(BLOCK),
    "ip": _constant(ADDRESS),
    "validate": _validated,
}

GLOBALS: Final[Mapping[str, Estimate]] = {
    "size": _constant(INT),
    **_words("matches isURL", _constant(BOOL)),
    **_words("int uint", _constant(INT)),
    "double": _constant(DOUBLE),
    "bool": _constant(BOOL),
    "string": _converted(TEXT),
    "bytes": _converted(Shape("bytes")),
    "duration": _constant(Shape("duration")),
    "timestamp": _constant(Shape("timestamp")),
    "type": _constant(Shape("type")),
    **_words("optional.of optional.ofNonZeroValue", _wrapped),
    "optional.none": _constant(Shape("optional")),
    "optional.unwrap": lambda target, arguments: (1, None, list_of(element_of(element_of(target.shape)))),
    "sign": _constant(INT),
    "strings.quote": _traversed(TEXT),
    "lists.range": _ranged,
    "quantity": _traversed(QUANTITY),
    "url": _traversed(LINK, same_size=True),
    "ip": _traversed(ADDRESS),
    "cidr": _traversed(BLOCK),
    "semver": _traversed(SEMVER),
    **_words("isQuantity isIP isCIDR isSemver", _traversed(BOOL)),
    "ip.isCanonical": _traversed(BOOL, 2 * TRAVERSAL),
    "format.named": _constant(Shape("optional", element=FORMAT)),
    **_words(
        "format.dns1123Label format.dns1123Subdomain format.dns1035Label format.qualifiedName",
        _constant(FORMAT),
    ),
    **_words("format.uri format.uuid format.byte format.date format.datetime", _constant(FORMAT)),
    **_words("format.labelValue format.dns1123LabelPrefix format.dns1035LabelPrefix", _constant(FORMAT)),
    "format.dns1123SubdomainPrefix": _constant(FORMAT),
    **_words("sets.contains sets.intersects", _sets(1)),
    "sets.equivalent": _sets(2),
}
