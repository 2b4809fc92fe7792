"""From a tree to the function that evaluates it, and counts what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from elasticjob.kube.cel.functions import FUNCTIONS, METHODS, called
from elasticjob.kube.cel.macros import MACROS
from elasticjob.kube.cel.operators import binary, decide, every, has_field, index, select, variable
from elasticjob.kube.cel.seen import NEW_LIST, NEW_MAP
from elasticjob.kube.cel.spent import AHEAD, price_of
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
    branches,
)
from elasticjob.kube.cel.values import (
    NONE,
    CelError,
    CelSyntaxError,
    Meter,
    Node,
    Optional,
    Scope,
    TypeName,
    boolean,
    number,
    whole,
)
from elasticjob.kube.re2 import re2_problem


def runnable(tree: Tree) -> Node:
    """Return the function that evaluates a tree. Raises CelSyntaxError for a function that is not known."""
    return _constant(_runnable(tree)) if is_constant(tree) else _runnable(tree)


def is_constant(tree: Tree) -> bool:
    """Whether servers evaluate a tree once, before it is asked for, so that it costs nothing."""
    match tree:
        case Literal():
            return True
        case ListOf(items):
            return all(map(is_constant, items))
        case MapOf(pairs):
            return all(is_constant(key) and is_constant(value) for key, value in pairs)
        case Call(function, None, (argument,)):
            return function in _CONVERSIONS and is_constant(argument)
    return False


def impossible(tree: Tree) -> Iterator[str]:
    """Yield why parts of a tree never have a value: texts that convert to nothing, patterns that are none."""
    match tree:
        case Call("find" | "findAll" | "matches", target, arguments):
            pattern = arguments[min(target is None, len(arguments) - 1)]
            if isinstance(pattern, Literal) and (problem := re2_problem(str(pattern.value))):
                yield f"error parsing regexp: {problem}"
        case Call(_, None, (_,)) if is_constant(tree):
            try:
                runnable(tree)(_nobody())
            except CelError as error:
                yield str(error)
    for branch in branches(tree):
        yield from impossible(branch)


_CONVERSIONS: Final = frozenset(
    ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint")
)


def _constant(node: Node) -> Node:
    return lambda _: node(_nobody())


def _nobody() -> Scope:
    """A scope without variables, in which nothing is counted."""
    return Scope({}, Meter())


def _runnable(tree: Tree) -> Node:
    match tree:
        case Literal(value):
            return lambda _: value
        case Name(name):
            return _name(name)
        case Select(operand, name, optional):
            return select(_held(operand), name, optional=optional)
        case Has(operand, name):
            return _presence(_held(operand), name)
        case Index(operand, key, optional):
            return index(_held(operand), _way(key), optional=optional)
        case Unary(sign, operand):
            return _unary(sign, runnable(operand))
        case Binary(sign, left, right):
            is_set = sign == "in" and isinstance(right, ListOf) and is_constant(right)
            return binary(sign, runnable(left), runnable(right), is_set=is_set)
        case Logic(sign, terms):
            return _logic(sign == "||", [runnable(term) for term in terms])
        case Choice(condition, then, otherwise):
            return _choice(runnable(condition), _way(then), _way(otherwise))
        case Call("or" | "orValue", target, (_,)) if target is not None:
            return _otherwise(tree)
        case Call():
            return _call(tree)
        case Fold(macro, target, name, bodies):
            return MACROS[macro](runnable(target), name, [runnable(body) for body in bodies])
        case ListOf(items):
            return _list([runnable(item) for item in items])
        case MapOf(pairs):
            return _map([(runnable(key), runnable(value)) for key, value in pairs])


def _held(tree: Tree) -> Node:
    """What a field is read of: it costs one more where it is neither a variable nor a field itself."""
    return runnable(tree) if isinstance(tree, Name | Select | Index | Choice) else _priced(runnable(tree), 1)


def _way(tree: Tree) -> Node:
    """A key, or a branch of a choice: a variable there costs nothing, though its fields do."""
    return _priced(runnable(tree), -1) if isinstance(tree, Name | Select | Index) else runnable(tree)


def _priced(node: Node, more: int) -> Node:
    def priced(scope: Scope) -> Any:
        found = node(scope)
        scope.meter.add(more)
        return found

    return priced


def _name(name: str) -> Node:
    if name not in TYPES:
        return lambda scope: variable(scope, name)
    return lambda scope: variable(scope, name) if name in scope.values else TypeName(name)


def _presence(operand: Node, name: str) -> Node:
    return lambda scope: has_field(operand(scope), name)


def _unary(sign: str, operand: Node) -> Node:
    def act(scope: Scope) -> Any:
        value = operand(scope)
        scope.meter.add(1)
        if sign == "!":
            return not boolean(value)
        return -value if isinstance(value, float) else whole(-number(value))

    return act


def _logic(deciding: bool, terms: list[Node]) -> Node:
    return lambda scope: decide(terms, scope, deciding)


def _choice(condition: Node, then: Node, otherwise: Node) -> Node:
    return lambda scope: then(scope) if boolean(condition(scope)) else otherwise(scope)


def _call(tree: Call) -> Node:
    name, arguments = tree.function, [runnable(each) for each in tree.arguments]
    function = (FUNCTIONS if tree.target is None else METHODS).get(name)
    if function is None:
        raise CelSyntaxError(f"undeclared reference to function {name!r}")
    nodes = arguments if tree.target is None else [runnable(tree.target), *arguments]
    cost = price_of(name)

    def call(scope: Scope) -> Any:
        values = every(nodes, scope)
        if name in AHEAD:
            scope.meter.afford(cost(values, None))
        try:
            result = called(function, name, values)
        except CelError:
            scope.meter.add(1)
            raise
        scope.meter.add(cost(values, result))
        return result

    return call


def _otherwise(tree: Call) -> Node:
    """`optional.or(optional)`, `optional.orValue(value)`: the second is looked at only where it counts."""
    assert tree.target is not None
    value, (otherwise,) = runnable(tree.target), map(runnable, tree.arguments)

    def choose(scope: Scope) -> Any:
        found = value(scope)
        if found is NONE:
            return otherwise(scope)
        return found.value if tree.function == "orValue" and isinstance(found, Optional) else found

    return choose


def _list(items: list[Node]) -> Node:
    def items_of(scope: Scope) -> list[Any]:
        scope.meter.add(NEW_LIST)
        return [item(scope) for item in items]

    return items_of


def _map(pairs: list[tuple[Node, Node]]) -> Node:
    def pairs_of(scope: Scope) -> dict[Any, Any]:
        scope.meter.add(NEW_MAP)
        return {key(scope): value(scope) for key, value in pairs}

    return pairs_of
