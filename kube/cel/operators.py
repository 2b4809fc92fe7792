"""Variables, fields, indexes and operators, as nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from elasticjob.kube.cel.values import (
    NONE,
    CelError,
    Node,
    Optional,
    Scope,
    boolean,
    kind,
    number,
    whole,
)


def variable(scope: Scope, name: str) -> Any:
    if name not in scope:
        raise CelError(f"no such variable: {name}")
    return scope[name]


def select(node: Node, name: str, *, optional: bool) -> Node:
    def select(scope: Scope) -> Any:
        value = node(scope)
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
        lenient = optional or isinstance(value, Optional)
        inner = value.value if isinstance(value, Optional) else value
        try:
            found = inner[_place(key)] if isinstance(inner, list) else inner[key]
        except (KeyError, IndexError, TypeError):
            if lenient:
                return NONE
            raise CelError(f"no such key or index: {key}") from None
        return Optional(found) if lenient else found

    return at


def _place(key: Any) -> int:
    """An index of a list; CEL does not count from the end."""
    if isinstance(key, bool) or not isinstance(key, int) or key < 0:
        raise IndexError(key)
    return key


def decide(terms: list[Node], scope: Scope, deciding: bool) -> bool:
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


def binary(act: Callable[[Any, Any], Any], left: Node, right: Node) -> Node:
    def combine(scope: Scope) -> Any:
        first, second = left(scope), right(scope)
        try:
            return act(first, second)
        except (TypeError, ArithmeticError) as error:
            raise CelError(f"no such overload: {kind(first)} with {kind(second)}: {error}") from error

    return combine


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)


def _in(value: Any, container: Any) -> bool:
    if isinstance(container, list):
        return any(_equal(value, each) for each in container)
    if not isinstance(container, dict):
        raise TypeError("only lists and maps are searched")
    return value in container


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, bool) or isinstance(right, bool):
        raise TypeError("booleans are not added")
    return left + right


def _held(calculate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A calculation whose whole numbers have 64 bits."""

    def calculated(left: Any, right: Any) -> Any:
        answer = calculate(left, right)
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
        return number(left) / number(right)
    quotient = abs(number(left)) // abs(number(right))
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo(left: Any, right: Any) -> Any:
    return number(left) - number(right) * _divide(left, right)


RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _order(lambda left, right: left < right),
    "<=": _order(lambda left, right: left <= right),
    ">": _order(lambda left, right: left > right),
    ">=": _order(lambda left, right: left >= right),
    "in": _in,
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": _held(_add),
    "-": _held(lambda left, right: number(left) - number(right)),
    "*": _held(lambda left, right: number(left) * number(right)),
    "/": _held(_divide),
    "%": _held(_modulo),
}
