"""How much a rule costs at most, counted as API servers count before they accept a CustomResourceDefinition.

    cost_of(parsed("self.names.all(name, name != '')"), shape)   # → what the server estimates

The server adds up one for each name and field that is read, a tenth of each character that is looked at, ten
for each list that is made, and multiplies a loop's body by the most elements that the schema allows. Sizes
are found by the *path* of an expression from `self` through the schema; of what has no path (the result of a
call) the size is known only where the function's own row says it, else it has no bound.

Some of its estimates are odd, and kept: numbers, objects and the keys of maps have size 0 where the schema
tells it; an element of a list that is written out in the rule has the size of `self`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from elasticjob.kube.cel.shapes import DYN, Shape
from elasticjob.kube.cel.syntax import (
    TYPES,
    Binary,
    Call,
    Choice,
    Fold,
    Has,
    Index,
    ListOf,
    Literal,
    Logic,
    MapOf,
    Name,
    Select,
    Tree,
    Unary,
)
from elasticjob.kube.cel.values import CelSyntaxError

UNBOUNDED: Final = 2**64 - 1
TRAVERSAL: Final = 0.1
PATTERN: Final = 0.25
NEW_LIST: Final = 10
NEW_MAP: Final = 30

_ITEMS: Final = "@items"
_VALUES: Final = "@values"
_KEYS: Final = "@keys"
_STEPS: Final = (_ITEMS, _VALUES)


class Size(NamedTuple):
    """How many characters, elements or entries a value has."""

    least: int
    most: int

    def joined(self, other: Size) -> Size:
        """Return a size that holds both."""
        return Size(min(self.least, other.least), max(self.most, other.most))


UNKNOWN: Final = Size(0, UNBOUNDED)
ONE: Final = Size(1, 1)


@dataclass(frozen=True)
class Seen:
    """An expression, as far as its cost needs: what it costs, its kind, its path, its size if known."""

    cost: int
    shape: Shape = DYN
    path: tuple[str, ...] = ()
    size: Size | None = None
    element: Size | None = None
    literal: object = None

    @property
    def bound(self) -> Size:
        """The size, or that nothing is known of it."""
        return UNKNOWN if self.size is None else self.size


Scope = Mapping[str, Seen]


def cost_of(tree: Tree, root: Shape, *, optional_old: bool = False) -> int:
    """Return the most that one evaluation costs by the server's estimate; UNBOUNDED where it has none.

    Raises CelSyntaxError for a field that the schema does not have, and for a function or variable that no
    rule has.
    """
    old = Shape("optional", element=root) if optional_old else root
    scope = {"self": Seen(1, root, ("self",)), "oldSelf": Seen(1, old, ("oldSelf",))}
    return _Estimator(root).seen(tree, scope).cost


def plus(*costs: int) -> int:
    """Return a sum that stays UNBOUNDED."""
    return min(sum(costs), UNBOUNDED)


def times(first: int, second: int) -> int:
    """Return a product that stays UNBOUNDED."""
    return min(first * second, UNBOUNDED)


def per(size: int, factor: float) -> int:
    """Return a size times a factor, rounded up; it stays UNBOUNDED."""
    return min(math.ceil(size * factor), UNBOUNDED)


class _Estimator:
    """Estimates expressions over one root; every method returns what it saw of one."""

    def __init__(self, root: Shape) -> None:
        self._root = root

    def seen(self, tree: Tree, scope: Scope) -> Seen:
        """Return the estimate of a tree, its size included."""
        found = self._visit(tree, scope)
        return found if found.size is not None else replace(found, size=self._size(found))

    def _visit(self, tree: Tree, scope: Scope) -> Seen:
        match tree:
            case Literal(value):
                return _literal(value)
            case Name(name):
                return _named(name, scope)
            case Select():
                return self._select(tree, scope)
            case Has(operand, name):
                below = self.seen(operand, scope)
                _field(below.shape, name)
                return Seen(below.cost, BOOL, size=ONE)
            case Index():
                return self._index(tree, scope)
            case Unary(sign, operand):
                below = self.seen(operand, scope)
                return Seen(plus(1, below.cost), BOOL if sign == "!" else below.shape)
            case Binary(sign, left, right):
                return _binary(sign, self.seen(left, scope), self.seen(right, scope))
            case Logic(_, terms):
                return Seen(plus(*(self.seen(term, scope).cost for term in terms)), BOOL, size=ONE)
            case Choice():
                return self._choice(tree, scope)
            case Call():
                return self._call(tree, scope)
            case Fold():
                return self._fold(tree, scope)
            case ListOf(items):
                return _list([self.seen(item, scope) for item in items])
            case MapOf(pairs):
                return _map([(self.seen(key, scope), self.seen(value, scope)) for key, value in pairs])

    def _size(self, found: Seen) -> Size | None:
        """The size by the path through the schema, then by the kind."""
        if found.path and (shape := self._at(found.path[1:])) is not None:
            return Size(0, shape.most)
        return ONE if _is_scalar(found.shape) else None

    def _at(self, path: tuple[str, ...]) -> Shape | None:
        shape: Shape | None = self._root
        for step in path:
            if shape is None:
                return None
            if step in _STEPS:
                shape = shape.element
            else:
                shape = shape.key if step == _KEYS else shape.fields.get(step)
        return shape

    def _select(self, tree: Select, scope: Scope) -> Seen:
        below = self.seen(tree.operand, scope)
        shape = _field(below.shape, tree.field)
        if tree.optional or below.shape.kind == "optional":
            return Seen(plus(1, below.cost), _maybe(shape))
        step = 1 if below.shape.kind in ("object", "map") else 0
        return Seen(plus(step, below.cost), shape, (*below.path, tree.field))

    def _index(self, tree: Index, scope: Scope) -> Seen:
        below, key = self.seen(tree.operand, scope), self.seen(tree.key, scope)
        cost = plus(1, below.cost, key.cost)
        shape = _element(below.shape)
        if tree.optional or below.shape.kind == "optional":
            return Seen(cost, _maybe(shape))
        step = _VALUES if below.shape.kind == "map" else _ITEMS
        return Seen(cost, shape, (*below.path, step), below.element)

    def _choice(self, tree: Choice, scope: Scope) -> Seen:
        condition, then, otherwise = (
            self.seen(each, scope) for each in (tree.condition, tree.then, tree.otherwise)
        )
        element = None
        if then.element is not None and otherwise.element is not None:
            element = then.element.joined(otherwise.element)
        cost = plus(condition.cost, max(then.cost, otherwise.cost))
        return Seen(cost, then.shape, size=then.bound.joined(otherwise.bound), element=element)

    def _call(self, tree: Call, scope: Scope) -> Seen:
        target = None if tree.target is None else self.seen(tree.target, scope)
        arguments = [self.seen(each, scope) for each in tree.arguments]
        if tree.function == "dyn" and target is None and len(arguments) == 1:
            return replace(arguments[0], cost=plus(1, arguments[0].cost), shape=DYN, path=())
        own, size, shape = _row(tree, target, arguments)
        receivers = arguments if target is None else [target, *arguments]
        return Seen(plus(own, *(each.cost for each in receivers)), shape, size=size)

    def _fold(self, tree: Fold, scope: Scope) -> Seen:
        over = self.seen(tree.target, scope)
        is_map = over.shape.kind == "map"
        shape = over.shape.key if is_map else _element(over.shape)
        variable = Seen(
            1,
            shape or DYN,
            (*over.path, _KEYS if is_map else _ITEMS),
        )
        sized = self._size(variable) or over.element
        inner = {**scope, tree.variable: replace(variable, size=sized)}
        bodies = [self.seen(body, inner) for body in tree.bodies]
        loop = FOLDS[tree.macro]
        cost = plus(
            over.cost, loop.start, times(over.bound.most, plus(loop.round, *(b.cost for b in bodies)))
        )
        if tree.macro not in ("map", "filter"):
            return Seen(plus(cost, loop.end), BOOL, size=ONE)
        kept = bodies[-1] if tree.macro == "map" else inner[tree.variable]
        element = Size(0, kept.bound.most)
        return Seen(plus(cost, loop.end), _list_of(kept.shape), size=over.bound, element=element)


class Loop(NamedTuple):
    """What a macro costs beside its bodies: before the first round, in each round, after the last."""

    start: int
    round: int
    end: int


FOLDS: Final[Mapping[str, Loop]] = {
    "all": Loop(0, 3, 1),
    "exists": Loop(0, 4, 1),
    "exists_one": Loop(0, 2, 2),
    "map": Loop(NEW_LIST, 2 + NEW_LIST, 1),
    "filter": Loop(NEW_LIST, 3 + NEW_LIST, 1),
}

BOOL: Final = Shape("bool")
INT: Final = Shape("int")
DOUBLE: Final = Shape("double")
TEXT: Final = Shape("string")
_LITERALS: Final[Mapping[type, Shape]] = {
    bool: BOOL,
    int: INT,
    float: DOUBLE,
    str: TEXT,
    bytes: Shape("bytes"),
    type(None): Shape("null"),
}
_SCALARS: Final = frozenset({"bool", "int", "double", "timestamp", "duration"})


def _is_scalar(shape: Shape) -> bool:
    if shape.kind == "optional":
        return shape.element is not None and _is_scalar(shape.element)
    return shape.kind in _SCALARS


def _literal(value: object) -> Seen:
    length = len(value) if isinstance(value, str | bytes) else 1
    return Seen(0, _LITERALS[type(value)], size=Size(length, length), literal=value)


def _named(name: str, scope: Scope) -> Seen:
    if name in scope:
        return scope[name]
    if name in TYPES:
        return Seen(1, Shape("type"), (name,))
    raise CelSyntaxError(f"a rule has no variable {name}")


def _field(shape: Shape, name: str) -> Shape:
    """The shape of a field, or of a map's value under a constant key."""
    if shape.kind == "optional" and shape.element is not None:
        return _field(shape.element, name)
    if shape.kind == "map":
        return shape.element or DYN
    if shape.kind != "object":
        return DYN
    if name not in shape.fields:
        raise CelSyntaxError(f"undefined field '{name}': the schema tells rules of none")
    return shape.fields[name]


def _element(shape: Shape) -> Shape:
    if shape.kind == "optional" and shape.element is not None:
        return _element(shape.element)
    return shape.element or DYN


def _maybe(shape: Shape) -> Shape:
    return shape if shape.kind == "optional" else Shape("optional", element=shape)


def _list_of(shape: Shape) -> Shape:
    return Shape("list", element=shape)


def _list(items: list[Seen]) -> Seen:
    size = Size(len(items), len(items))
    element = Size(UNBOUNDED, 0) if items else Size(0, 0)
    for item in items:
        element = element.joined(item.bound)
    cost = plus(NEW_LIST, *(item.cost for item in items))
    return Seen(cost, _list_of(items[0].shape if items else DYN), size=size, element=element)


def _map(pairs: list[tuple[Seen, Seen]]) -> Seen:
    element = Size(UNBOUNDED, 0) if pairs else Size(0, 0)
    for _, value in pairs:
        element = element.joined(value.bound)
    shape = Shape("map", key=pairs[0][0].shape, element=pairs[0][1].shape) if pairs else Shape("map")
    cost = plus(NEW_MAP, *(each.cost for pair in pairs for each in pair))
    return Seen(cost, shape, size=Size(len(pairs), len(pairs)), element=element)


def _binary(sign: str, left: Seen, right: Seen) -> Seen:
    cost = plus(left.cost, right.cost)
    if sign == "+":
        return _sum(left, right)
    if sign in ("-", "*", "/", "%"):
        return Seen(plus(1, cost), left.shape)
    return Seen(plus(_compared(sign, left, right), cost), BOOL, size=ONE)


def _compared(sign: str, left: Seen, right: Seen) -> int:
    if sign == "in":
        return 1 if right.shape.kind == "map" else max(right.bound.most, int(right.shape.kind == "dyn"))
    shorter = per(min(left.bound.most, right.bound.most), TRAVERSAL)
    if sign == "==" and left.shape.kind == right.shape.kind in EQUAL_AT_ONCE:
        return 1
    if sign in ("==", "!="):
        return shorter
    kinds = {left.shape.kind, right.shape.kind}
    if kinds <= {"string", "bytes"}:
        return shorter
    return max(1, shorter) if kinds & {"dyn", "optional"} else 1


def _sum(left: Seen, right: Seen) -> Seen:
    cost = plus(left.cost, right.cost)
    size = Size(plus(left.bound.least, right.bound.least), plus(left.bound.most, right.bound.most))
    kinds = {left.shape.kind, right.shape.kind}
    if kinds <= {"int", "double", "timestamp", "duration"}:
        return Seen(plus(1, cost), left.shape)
    if kinds == {"list"}:
        both = left.element is not None and right.element is not None
        element = left.element.joined(right.element) if both and left.element and right.element else None
        return Seen(plus(1, cost), left.shape, size=size, element=element)
    own = per(size.most, TRAVERSAL)
    if kinds <= {"string", "bytes"}:
        return Seen(plus(own, cost), left.shape, size=size)
    return Seen(plus(max(1, own), cost), DYN, size=size)


# Functions: (target, arguments) → own cost, size of the result where it is known, kind of the result.

Row = tuple[int, Size | None, Shape]
Estimate = Callable[[Seen, list[Seen]], Row]


def _row(tree: Call, target: Seen | None, arguments: list[Seen]) -> Row:
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
    return per(target.bound.most, 2 * TRAVERSAL), Size(0, most), _list_of(TEXT)


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


def _validated(target: Seen, arguments: list[Seen]) -> Row:
    return (
        per(per(_first(arguments).most, TRAVERSAL), 128 * PATTERN),
        None,
        Shape("optional", element=_list_of(TEXT)),
    )


def _first(arguments: list[Seen]) -> Size:
    return arguments[0].bound if arguments else UNKNOWN


def _unwrapped(target: Seen, arguments: list[Seen]) -> Row:
    return 1, None, _element(target.shape) if target.shape.kind == "optional" else DYN


def _wrapped(target: Seen, arguments: list[Seen]) -> Row:
    return 1, None, Shape("optional", element=target.shape)


def _words(names: str, estimate: Estimate) -> dict[str, Estimate]:
    return dict.fromkeys(names.split(), estimate)


EQUAL_AT_ONCE: Final = ("quantity", "ip", "cidr", "semver")
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
    "findAll": _matched(_list_of(TEXT)),
    **_words("lowerAscii upperAscii substring trim", _traversed(TEXT, same_size=True)),
    "charAt": _constant(TEXT),
    "reverse": _reversed,
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
    "getQuery": _constant(Shape("map", key=TEXT, element=_list_of(TEXT))),
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
    **_words("sets.contains sets.intersects", _sets(1)),
    "sets.equivalent": _sets(2),
}
