"""Whether the rules of a schema are well-typed and cheap enough for API servers, or which bound is missing.

A rule may cost 10 million at most: what one evaluation costs (`kube.cel.cost`), times how often the value
that it is about can occur. That is the product of `maxItems` and `maxProperties` of the lists and maps above
it; where one has no such bound, as often as the shortest value fits into a request. All rules of a schema
together may cost 100 million. A server computes the same before it stores a CustomResourceDefinition.

When an object is written, a server counts what really happens: 1 million per rule and value, 10 million per
object. Those limits cannot be checked here; a rule whose estimate is below the first never meets it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from elasticjob.kube.cel import parsed
from elasticjob.kube.cel.compiling import refusal
from elasticjob.kube.cel.cost import UNBOUNDED, cost_of, times
from elasticjob.kube.cel.shapes import REQUEST_BYTES, Shape, shape_of
from elasticjob.kube.crd.schemas import RULES, Schema, UnsupportedSchema, nodes

PER_RULE: Final = 10_000_000
PER_SCHEMA: Final = 100_000_000
LOOPS: Final = (("items", "maxItems"), ("additionalProperties", "maxProperties"))
"""Words of a schema below which values occur more than once, and the bound of each."""


@dataclass(frozen=True)
class RuleCost:
    """What one rule, or the expression of its message, costs at most."""

    path: str
    text: str
    cost: int


def rule_costs(root: Schema) -> list[RuleCost]:
    """Return the cost of each rule and message of a root schema, as a server estimates it.

    Raises UnsupportedSchema for a rule that a server cannot compile.
    """
    return [cost for place in _places(root, "", 1) for cost in _costs(place)]


def refuse_costly_rules(root: Schema) -> None:
    """Raise UnsupportedSchema for a rule, or for rules together, that servers refuse for their cost."""
    costs = rule_costs(root)
    dear = next((one for one in costs if one.cost > PER_RULE), None)
    if dear is not None:
        raise UnsupportedSchema(dear.path, _advice(root, dear, PER_RULE, "a Rule here costs too much"))
    if (total := sum(one.cost for one in costs)) > PER_SCHEMA:
        dearest = max(costs, key=lambda one: one.cost)
        why = f"the Rules of this kind cost {_factor(total, PER_SCHEMA)} times what one kind may; the dearest"
        raise UnsupportedSchema(
            dearest.path, _advice(root, dearest, PER_SCHEMA // len(costs), f"{why} is here")
        )


@dataclass(frozen=True)
class _Place:
    """A schema with rules; `times` is how often its values may occur, None without an end."""

    path: str
    node: Schema
    times: int | None


def _places(node: Schema, path: str, times_above: int | None) -> Iterator[_Place]:
    if node.get(RULES):
        yield _Place(path, node, times_above)
    for name, child in node.get("properties", {}).items():
        yield from _places(child, f"{path}.{name}" if path else name, times_above)
    for word, bound in LOOPS:
        if isinstance(node.get(word), dict):
            mark = "[]" if word == "items" else "[*]"
            yield from _places(node[word], f"{path}{mark}", repeated(times_above, node, bound))


def repeated(often: int | None, node: Schema, bound: str) -> int | None:
    """How often the elements of a list or map occur that itself occurs so often; None: without an end."""
    return None if often is None or bound not in node else often * max(node[bound], 0)


def expressions(entry: Mapping[str, Any]) -> list[str]:
    """The fields of a rule that hold CEL."""
    return ["rule", *(["messageExpression"] if entry.get("messageExpression") else [])]


def cost_in(entry: Mapping[str, Any], field: str, shape: Shape, often: int | None) -> int:
    """What one field of a rule costs at most, whose value occurs so often. Raises CelSyntaxError.

    Messages are made once: only for the first value that is refused.
    """
    once = cost_of(parsed(entry[field]), shape, optional_old=bool(entry.get("optionalOldSelf")))
    if field != "rule":
        return once
    return times(once, often if often is not None else REQUEST_BYTES // (shape.shortest + 1))


def _costs(place: _Place) -> Iterator[RuleCost]:
    shape = shape_of(place.node, root=not place.path)
    if shape is None:
        raise UnsupportedSchema(place.path, "a Rule here has nothing to read: the schema says no type")
    for entry in place.node[RULES]:
        for field in expressions(entry):
            if (refused := refusal(entry, field, shape)) is not None:
                why = f"the Rule {entry[field]!r} cannot be compiled: {refused.advice}"
                raise UnsupportedSchema(place.path, why)
            yield RuleCost(place.path, entry[field], cost_in(entry, field, shape, place.times))


# What to write instead

_BOUNDS: Final[Mapping[str, str]] = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
_TRIALS: Final = tuple(2**power for power in range(16, -1, -1))
_COMFORTABLE: Final = 64
"""A bound that is smaller is asked for only where nothing else helps."""


def _advice(root: Schema, dear: RuleCost, limit: int, complaint: str) -> str:
    """Name the bounds that are missing, and the largest power of two that is enough for them."""
    words = {path: _bound_of(node) for path, node in nodes(root, "") if lacks_bound(node)}
    missing = [path for path in words if _may_matter(path, dear)]
    tries = [
        (_enough(root, dear, limit, paths), paths) for paths in (_needed(root, dear, limit, missing), missing)
    ]
    enough, needed = next((each for each in tries if each[0] >= _COMFORTABLE), max(tries))
    much = f"{complaint}: {dear.text!r} may cost {_factor(dear.cost, limit)} times what a server allows"
    if not enough:
        return f"{much}: write a simpler rule, or lower the bounds of what it reads and stands in"
    first = ", ".join(f"{path} has no {words[path]}" for path in needed)
    return f"{much}; {first}: write Field(max_length=…), {enough} is enough"


def _may_matter(path: str, dear: RuleCost) -> bool:
    """Whether a field holds the one with the rule, or is named in the rule."""
    if dear.path.startswith(path):
        return True
    return (
        path.startswith(dear.path)
        and re.search(rf"\b{path.split('.')[-1].rstrip('[]*')}\b", dear.text) is not None
    )


def lacks_bound(node: Schema) -> bool:
    """Whether a list, map or text may be as long as a request."""
    word = _bound_of(node)
    return bool(word) and word not in node and not node.get("enum") and "format" not in node


def _bound_of(node: Schema) -> str:
    kind = node.get("type", "")
    return "" if kind == "object" and "additionalProperties" not in node else _BOUNDS.get(kind, "")


def _needed(root: Schema, dear: RuleCost, limit: int, missing: list[str]) -> list[str]:
    """The fewest of the missing bounds without which the rule stays too dear."""
    needed = missing
    for path in missing:
        others = [other for other in needed if other != path]
        if _enough(root, dear, limit, others):
            needed = others
    return needed


def _enough(root: Schema, dear: RuleCost, limit: int, paths: Sequence[str]) -> int:
    """The largest power of two that is bound enough for all of the paths; 0 if none is."""
    return next((most for most in _TRIALS if _cost_with(root, dear, paths, most) <= limit), 0)


def _cost_with(root: Schema, dear: RuleCost, paths: Sequence[str], most: int) -> int:
    """What a rule would cost if the fields at `paths` had a bound."""
    trial = deepcopy(root)
    for path, node in nodes(trial, ""):
        if path in paths and (word := _bound_of(node)):
            node[word] = most
    return next(one.cost for one in rule_costs(trial) if (one.path, one.text) == (dear.path, dear.text))


def _factor(cost: int, limit: int) -> str:
    return "without end" if cost >= UNBOUNDED else f"{cost / limit:.3g}"
