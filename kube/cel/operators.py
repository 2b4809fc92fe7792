"""Variables, fields, indexes and operators, as nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from elasticjob.kube.cel.moments import Duration, Timestamp, added, taken_away
from elasticjob.kube.cel.spent import nothing, price_of
from elasticjob.kube.cel.values import (
    NO_OVERLOAD,
    NONE,
    CelError,
    Node,
    Optional,
    Scope,
    Uint,
    Unordered,
    boolean,
    number,
    unsigned,
    whole,
)


def variable(scope: Scope, name: str) -> Any:
    if name not in scope.values:
        raise CelError(f"no such attribute(s): {name}")
    scope.meter.add(1)
    return scope.values[name]


def select(node: Node, name: str, *, optional: bool) -> Node:
    def select(scope: Scope) -> Any:
        value = node(scope)
        scope.meter.add(1)
        if isinstance(value, Optional) or optional:
            inner = value.value if isinstance(value, Optional) else value
            return Optional(inner[name]) if isinstance(inner, dict) and name in inner else NONE
        if not isinstance(value, dict) or name not in value:
            raise CelError(f"no such key: {name}")
        return value[name]

    return select


def has_field(value: Any, name: str) -> bool:
    inner = value.value if isinstance(value, Optional) else value
    if not isinstance(inner, dict):
        raise CelError(f"no such key: {name}")
    return name in inner


def index(node: Node, index: Node, *, optional: bool) -> Node:
    def at(scope: Scope) -> Any:
        value, key = node(scope), index(scope)
        scope.meter.add(1)
        lenient = optional or isinstance(value, Optional)
        inner = value.value if isinstance(value, Optional) else value
        try:
            found = inner[_place(key)] if isinstance(inner, list) else inner[key]
        except (KeyError, IndexError, TypeError):
            if lenient:
                return NONE
            raise CelError(_missing(inner, key)) from None
        return Optional(found) if lenient else found

    return at


def _missing(inner: Any, key: Any) -> str:
    return f"index out of bounds: {key}" if isinstance(inner, list) else f"no such key: {key}"


def _place(key: Any) -> int:
    """An index of a list; CEL does not count from the end."""
    if isinstance(key, bool) or not isinstance(key, int) or key < 0:
        raise IndexError(key)
    return key


def decide(terms: Sequence[Node], scope: Scope, deciding: bool) -> bool:
    """`||` (deciding = True) or `&&`: a deciding term wins over errors in the others."""
    failure: CelError | None = None
    for term in terms:
        try:
            if boolean(term(scope)) is deciding:
                return deciding
        except CelError as error:
            failure = failure or error
    if failure:
        raise failure
    return not deciding


def binary(sign: str, left: Node, right: Node, *, is_set: bool = False) -> Node:
    """Both sides, calculated; it costs nothing to look into a set that is written out."""
    act = BINARY[sign]
    cost = nothing if is_set else price_of(sign)

    def combine(scope: Scope) -> Any:
        try:
            first = left(scope)
        except CelError:
            with suppress(CelError):
                right(scope)
            scope.meter.add(1)
            raise
        try:
            second = right(scope)
            found = act(first, second)
        except (OverflowError, TypeError, CelError) as error:
            scope.meter.add(1)
            raise CelError(NO_OVERLOAD if isinstance(error, TypeError) else str(error)) from error
        scope.meter.add(cost((first, second), found))
        return found

    return combine


def every(nodes: Sequence[Node], scope: Scope) -> list[Any]:
    """What a function is called with: all is evaluated and counted before the first mistake is told."""
    found, failure = [], None
    for node in nodes:
        try:
            found.append(node(scope))
        except CelError as error:
            failure = failure or error
    if failure is not None:
        scope.meter.add(1)
        raise failure
    return found


def equal(left: Any, right: Any) -> bool:
    """Whether two values are the same; numbers of all types compare, other types never are the same."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, Unordered) and isinstance(right, list):
        return len(left) == len(right) and left.has_all(right, equal)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(equal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(equal(left[key], right[key]) for key in left)
    return bool(left == right)


def _in(value: Any, container: Any) -> bool:
    if isinstance(container, list):
        return any(equal(value, each) for each in container)
    if not isinstance(container, dict):
        raise TypeError("only lists and maps are searched")
    return value in container


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, Duration | Timestamp):
        return added(left, right)
    if isinstance(left, Unordered) and isinstance(right, list):
        return left.joined(right)
    if isinstance(left, bool) or isinstance(right, bool):
        raise TypeError("booleans are not added")
    return left + right


def _subtract(left: Any, right: Any) -> Any:
    if isinstance(left, Duration | Timestamp):
        return taken_away(left, right)
    return number(left) - number(right)


def _held(calculate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A calculation whose whole numbers have 64 bits."""

    def calculated(left: Any, right: Any) -> Any:
        answer = calculate(left, right)
        if isinstance(left, Uint) and isinstance(right, Uint):
            return unsigned(answer)
        return whole(answer) if isinstance(answer, int) else answer

    return calculated


def _order(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def ordered(left: Any, right: Any) -> bool:
        if isinstance(left, list | dict):
            raise TypeError("only scalars are ordered")
        return compare(left, right)

    return ordered


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, float) or isinstance(right, float):
        return _quotient(float(number(left)), float(number(right)))
    if not number(right):
        raise CelError("division by zero")
    quotient = abs(number(left)) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _quotient(left: float, right: float) -> float:
    """A quotient of numbers with a point: by zero, it is without end."""
    if right:
        return left / right
    return float("nan") if not left or left != left else float("inf") if left > 0 else float("-inf")


def _modulo(left: Any, right: Any) -> Any:
    if not number(right):
        raise CelError("modulus by zero")
    return number(left) - right * _divide(left, right)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "==": equal,
    "!=": lambda left, right: not equal(left, right),
    "<": _order(lambda left, right: left < right),
    "<=": _order(lambda left, right: left <= right),
    ">": _order(lambda left, right: left > right),
    ">=": _order(lambda left, right: left >= right),
    "in": _in,
    "+": _held(_add),
    "-": _held(_subtract),
    "*": _held(lambda left, right: number(left) * number(right)),
    "/": _held(_divide),
    "%": _held(_modulo),
}
