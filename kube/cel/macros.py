"""all(), exists(), exists_one(), filter() and map().

What they cost beside their bodies is what the loops cost that servers make of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from elasticjob.kube.cel.seen import NEW_LIST
from elasticjob.kube.cel.values import NO_OVERLOAD, CelError, Node, Scope, boolean

Macro = Callable[[Node, str, list[Node]], Node]


def _each(node: Node, name: str, scope: Scope) -> Iterator[Scope]:
    """The scopes of a macro's body: elements of a list, keys of a map."""
    value = node(scope)
    if not isinstance(value, list | dict):
        raise CelError(NO_OVERLOAD)
    return (scope.having(name, each) for each in value)


def _quantifier(deciding: bool, round_cost: int) -> Macro:
    """`exists` (deciding = True) or `all`: a deciding element wins over errors, and ends the loop."""

    def macro(node: Node, name: str, bodies: list[Node]) -> Node:
        def quantified(scope: Scope) -> bool:
            failure: CelError | None = None
            decided = False
            for inner in _each(node, name, scope):
                if decided:
                    scope.meter.add(round_cost - 1)
                    break
                scope.meter.add(round_cost)
                try:
                    decided = boolean(bodies[0](inner)) is deciding
                except CelError as error:
                    failure = failure or error
            scope.meter.add(1)
            if failure and not decided:
                raise failure
            return decided is deciding

        return quantified

    return macro


def _exists_one(node: Node, name: str, bodies: list[Node]) -> Node:
    def exactly_one(scope: Scope) -> bool:
        found = 0
        for inner in _each(node, name, scope):
            holds = boolean(bodies[0](inner))
            found += holds
            scope.meter.add(2 * holds)
        scope.meter.add(2)
        return found == 1

    return exactly_one


def _filter(node: Node, name: str, bodies: list[Node]) -> Node:
    def kept(scope: Scope) -> list[Any]:
        found = []
        for inner in _each(node, name, scope):
            if boolean(bodies[0](inner)):
                scope.meter.add(NEW_LIST + 3)
                found.append(inner.values[name])
        scope.meter.add(1)
        return found

    return kept


def _map(node: Node, name: str, bodies: list[Node]) -> Node:
    """`map(x, value)` or `map(x, condition, value)`."""
    *conditions, value = bodies

    def mapped(scope: Scope) -> list[Any]:
        found = []
        for inner in _each(node, name, scope):
            if all(boolean(condition(inner)) for condition in conditions):
                scope.meter.add(NEW_LIST + 2)
                found.append(value(inner))
        scope.meter.add(1)
        return found

    return mapped


MACROS: Final[Mapping[str, Macro]] = {
    "all": _quantifier(False, 3),
    "exists": _quantifier(True, 4),
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _map,
}
