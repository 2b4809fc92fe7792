"""From a tree to the function that evaluates it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from elasticjob.kube.cel.functions import FUNCTIONS, METHODS, called
from elasticjob.kube.cel.macros import MACROS
from elasticjob.kube.cel.operators import (
    ARITHMETIC,
    RELATIONS,
    binary,
    decide,
    has_field,
    index,
    select,
    variable,
)
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
from elasticjob.kube.cel.values import NONE, CelSyntaxError, Node, Scope, boolean, number, wrapped

_BINARY: Final = {**RELATIONS, **ARITHMETIC}
_OPTIONALS: Final[dict[str, Callable[..., Any]]] = {
    "optional.none": lambda: NONE,
    "optional.of": lambda value: wrapped(value, True),
    "optional.ofNonZeroValue": lambda value: wrapped(value, False),
}


def runnable(tree: Tree) -> Node:
    """Return the function that evaluates a tree. Raises CelSyntaxError for a function that is not known."""
    match tree:
        case Literal(value):
            return lambda _: value
        case Name(name):
            return lambda scope: name if name in TYPES and name not in scope else variable(scope, name)
        case Select(operand, name, optional):
            return select(runnable(operand), name, optional=optional)
        case Has(operand, name):
            return _presence(runnable(operand), name)
        case Index(operand, key, optional):
            return index(runnable(operand), runnable(key), optional=optional)
        case Unary(sign, operand):
            return _unary(sign, runnable(operand))
        case Binary(sign, left, right):
            return binary(_BINARY[sign], runnable(left), runnable(right))
        case Logic(sign, terms):
            return _logic(sign == "||", [runnable(term) for term in terms])
        case Choice(condition, then, otherwise):
            return _choice(runnable(condition), runnable(then), runnable(otherwise))
        case Call():
            return _call(tree)
        case Fold(macro, target, name, bodies):
            return MACROS[macro](runnable(target), name, [runnable(body) for body in bodies])
        case ListOf(items):
            return _list([runnable(item) for item in items])
        case MapOf(pairs):
            return _map([(runnable(key), runnable(value)) for key, value in pairs])


def _presence(operand: Node, name: str) -> Node:
    return lambda scope: has_field(operand(scope), name)


def _unary(sign: str, operand: Node) -> Node:
    if sign == "!":
        return lambda scope: not boolean(operand(scope))
    return lambda scope: -number(operand(scope))


def _logic(deciding: bool, terms: list[Node]) -> Node:
    return lambda scope: decide(terms, scope, deciding)


def _choice(condition: Node, then: Node, otherwise: Node) -> Node:
    return lambda scope: then(scope) if boolean(condition(scope)) else otherwise(scope)


def _call(tree: Call) -> Node:
    name, arguments = tree.function, [runnable(each) for each in tree.arguments]
    function = (FUNCTIONS | _OPTIONALS if tree.target is None else METHODS).get(name)
    if function is None:
        raise CelSyntaxError(f"undeclared reference to function {name!r}")
    nodes = arguments if tree.target is None else [runnable(tree.target), *arguments]
    return lambda scope: called(function, name, [node(scope) for node in nodes])


def _list(items: list[Node]) -> Node:
    return lambda scope: [item(scope) for item in items]


def _map(pairs: list[tuple[Node, Node]]) -> Node:
    def pairs_of(scope: Scope) -> dict[Any, Any]:
        return {key(scope): value(scope) for key, value in pairs}

    return pairs_of
