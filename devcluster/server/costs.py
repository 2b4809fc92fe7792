"""What the rules of a schema cost at most, and which old values they cannot have: why a CRD is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import wrong
from elasticjob.devcluster.server.schemas import Schema
from elasticjob.kube.cel import CelSyntaxError, free_names, parsed
from elasticjob.kube.cel.shapes import shape_of
from elasticjob.kube.cost import LOOPS, PER_RULE, PER_SCHEMA, cost_in, expressions, repeated

RULES = "x-kubernetes-validations"
_ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and "
    "strings are declared)"
)


def cost_problems(schema: Schema, path: str) -> Iterator[Cause]:
    """Rules that cost more than a server allows, or that do not compile for their schema."""
    total = 0
    for where, node, often, lost in _places(schema, path, 1, ""):
        for index, spec in enumerate(node[RULES]):
            rule = f"{where}.{RULES}[{index}]"
            try:
                costs = list(_costs(node, spec, often, root=where == path))
            except CelSyntaxError as error:
                yield wrong(f"{rule}.rule", spec["rule"], f"compilation failed: ERROR: <input>:1:1: {error}")
                continue
            total += sum(cost for _, cost in costs)
            yield from (
                _too_dear(f"{rule}.{field}", f"estimated {field} cost", cost, PER_RULE)
                for field, cost in costs
                if cost > PER_RULE
            )
            if lost and "oldSelf" in free_names(parsed(spec["rule"])):
                why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}"
                yield wrong(f"{rule}.rule", spec["rule"], why)
    if total > PER_SCHEMA:
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield _too_dear(path, name, total, PER_SCHEMA)


def _places(
    node: Schema, path: str, often: int | None, lost: str
) -> Iterator[tuple[str, Schema, int | None, str]]:
    """Schemas with rules: how often their values may occur, and what above them has no keys."""
    if node.get(RULES):
        yield path, node, often, lost
    within = lost or (path if node.get("x-kubernetes-map-type") == "atomic" else "")
    for name, child in (node.get("properties") or {}).items():
        yield from _places(child, f"{path}.properties[{name}]", often, within)
    for word, bound in LOOPS:
        if isinstance(node.get(word), dict):
            keyed = word != "items" or node.get("x-kubernetes-list-type") == "map"
            most = repeated(often, node, bound)
            yield from _places(node[word], f"{path}.{word}", most, within or ("" if keyed else path))


def _costs(
    node: Schema, spec: Mapping[str, Any], often: int | None, *, root: bool
) -> Iterator[tuple[str, int]]:
    """The cost of a rule, and of the expression of its message, with the field of each."""
    shape = shape_of(node, root=root)
    if shape is not None:
        yield from ((field, cost_in(spec, field, shape, often)) for field in expressions(spec))


def _too_dear(path: str, name: str, cost: int, limit: int) -> Cause:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:.6f}x" if factor < 1.5 else f"{factor:.1f}x"
    return Cause(
        path, f"Forbidden: {name} exceeds budget by factor of {shown} {_ADVICE}", "FieldValueForbidden"
    )
