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

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from elasticjob.kube.cel.prices import price
from elasticjob.kube.cel.seen import (
    BOOL,
    DOUBLE,
    INT,
    NEW_LIST,
    NEW_MAP,
    ONE,
    TEXT,
    TRAVERSAL,
    UNBOUNDED,
    Seen,
    Size,
    element_of,
    list_of,
    per,
    plus,
    times,
)
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
from elasticjob.kube.cel.values import CelSyntaxError, Uint

__all__ = ["UNBOUNDED", "cost_of", "times"]

_EQUAL_AT_ONCE: Final = ("quantity", "ip", "cidr", "semver")

_ITEMS: Final = "@items"
_VALUES: Final = "@values"
_KEYS: Final = "@keys"
_STEPS: Final = (_ITEMS, _VALUES)

Scope = Mapping[str, Seen]


def cost_of(tree: Tree, root: Shape, *, optional_old: bool = False) -> int:
    """Return the most that one evaluation costs by the server's estimate; UNBOUNDED where it has none.

    Raises CelSyntaxError for a field that the schema does not have, and for a function or variable that no
    rule has.
    """
    old = Shape("optional", element=root) if optional_old else root
    scope = {"self": Seen(1, root, ("self",)), "oldSelf": Seen(1, old, ("oldSelf",))}
    return _Estimator(root).seen(tree, scope).cost


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
            return Seen(plus(int(tree.optional), below.cost), _maybe(shape))
        step = 1 if below.shape.kind in ("object", "map") else 0
        return Seen(plus(step, below.cost), shape, (*below.path, tree.field))

    def _index(self, tree: Index, scope: Scope) -> Seen:
        below, key = self.seen(tree.operand, scope), self.seen(tree.key, scope)
        cost = plus(1, below.cost, key.cost)
        shape = element_of(below.shape)
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
        own, size, shape = price(tree, target, arguments)
        receivers = arguments if target is None else [target, *arguments]
        return Seen(plus(own, *(each.cost for each in receivers)), shape, size=size)

    def _fold(self, tree: Fold, scope: Scope) -> Seen:
        over = self.seen(tree.target, scope)
        is_map = over.shape.kind == "map"
        shape = over.shape.key if is_map else element_of(over.shape)
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
        return Seen(plus(cost, loop.end), list_of(kept.shape), size=over.bound, element=element)


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

_LITERALS: Final[Mapping[type, Shape]] = {
    bool: BOOL,
    int: INT,
    Uint: Shape("uint"),
    float: DOUBLE,
    str: TEXT,
    bytes: Shape("bytes"),
    type(None): Shape("null"),
}
_SCALARS: Final = frozenset({"bool", "int", "uint", "double", "timestamp", "duration"})


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


def _maybe(shape: Shape) -> Shape:
    return shape if shape.kind == "optional" else Shape("optional", element=shape)


def _list(items: list[Seen]) -> Seen:
    size = Size(len(items), len(items))
    element = Size(UNBOUNDED, 0) if items else Size(0, 0)
    for item in items:
        element = element.joined(item.bound)
    cost = plus(NEW_LIST, *(item.cost for item in items))
    return Seen(cost, list_of(items[0].shape if items else DYN), size=size, element=element)


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
    if sign == "==" and left.shape.kind == right.shape.kind in _EQUAL_AT_ONCE:
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
    if kinds & _SCALARS:
        return Seen(plus(1, cost), right.shape if left.shape.kind == "dyn" else left.shape)
    if kinds == {"list"}:
        both = left.element is not None and right.element is not None
        element = left.element.joined(right.element) if both and left.element and right.element else None
        return Seen(plus(1, cost), left.shape, size=size, element=element)
    own = per(size.most, TRAVERSAL)
    if kinds & {"string", "bytes"}:
        return Seen(plus(own, cost), right.shape if left.shape.kind == "dyn" else left.shape, size=size)
    return Seen(plus(max(1, own), cost), DYN, size=size)
