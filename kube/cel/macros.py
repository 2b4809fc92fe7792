"""all(), exists(), exists_one(), filter() and map()."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from elasticjob.kube.cel.operators import decide
from elasticjob.kube.cel.values import CelError, Node, Scope, boolean, kind


def _each(node: Node, name: str, scope: Scope) -> Iterator[Scope]:
    """The scopes of a macro's body: elements of a list, keys of a map."""
    value = node(scope)
    if not isinstance(value, list | dict):
        raise CelError(f"no such overload: a macro over {kind(value)}")
    return ({**scope, name: each} for each in value)


def _all(node: Node, name: str, bodies: list[Node]) -> Node:
    return lambda scope: decide(
        [_closed(bodies[0], inner) for inner in _each(node, name, scope)], scope, False
    )


def _exists(node: Node, name: str, bodies: list[Node]) -> Node:
    return lambda scope: decide(
        [_closed(bodies[0], inner) for inner in _each(node, name, scope)], scope, True
    )


def _closed(body: Node, inner: Scope) -> Node:
    return lambda _: body(inner)


def _exists_one(node: Node, name: str, bodies: list[Node]) -> Node:
    return lambda scope: sum(boolean(bodies[0](inner)) for inner in _each(node, name, scope)) == 1


def _filter(node: Node, name: str, bodies: list[Node]) -> Node:
    return lambda scope: [inner[name] for inner in _each(node, name, scope) if boolean(bodies[0](inner))]


def _map(node: Node, name: str, bodies: list[Node]) -> Node:
    """`map(x, value)` or `map(x, condition, value)`."""
    value = bodies[-1]
    conditions = bodies[:-1]
    return lambda scope: [
        value(inner)
        for inner in _each(node, name, scope)
        if all(boolean(condition(inner)) for condition in conditions)
    ]


MACROS: dict[str, Callable[[Node, str, list[Node]], Node]] = {
    "all": _all,
    "exists": _exists,
    "exists_one": _exists_one,
    "filter": _filter,
    "map": _map,
}
