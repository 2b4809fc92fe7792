"""Why the rules of a schema are refused: types, costs, and old values that they cannot have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import forbidden, wrong
from elasticjob.devcluster.server.rules import RULES
from elasticjob.devcluster.server.schemas import Schema
from elasticjob.kube.cel import UNBOUNDED, Shape, free_names, parsed, refusal, shape_of
from elasticjob.kube.cost import LOOPS, PER_RULE, PER_SCHEMA, cost_in, expressions, repeated

_ADVICE = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and "
    "strings are declared)"
)
_MOST_NAMED = 4


@dataclass
class _Total:
    """What all rules of a schema cost together, and those that cost the most."""

    cost: int = 0
    dearest: list[tuple[int, str]] = field(default_factory=list)

    def add(self, path: str, cost: int) -> None:
        self.cost = min(self.cost + cost, UNBOUNDED)
        if cost >= PER_SCHEMA // 100:
            self.dearest = sorted([*self.dearest, (cost, path)], reverse=True)[:_MOST_NAMED]


@dataclass(frozen=True)
class _Place:
    """A schema with rules: how often its values may occur, and what above it has no keys."""

    path: str
    node: Schema
    often: int | None
    lost: str
    shape: Shape


def cost_problems(schema: Schema, path: str) -> Iterator[Cause]:
    """Rules that do not compile for their schema, or cost more than a server allows."""
    total = _Total()
    for place in _places(schema, path, 1, ""):
        for index, spec in enumerate(place.node[RULES]):
            yield from _rule_problems(spec, place, f"{place.path}.{RULES}[{index}]", total)
    if total.cost > PER_SCHEMA:
        why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        yield from (forbidden(where, why) for _, where in total.dearest)
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield _too_dear(path, name, total.cost, PER_SCHEMA)


def _rule_problems(spec: Mapping[str, Any], place: _Place, path: str, total: _Total) -> Iterator[Cause]:
    names: set[str] = set()
    for name in expressions(spec):
        refused = refusal(spec, name, place.shape)
        if refused is not None:
            yield Cause(f"{path}.{name}", f"Invalid value: {_shown(spec)}: {refused.message}")
            break
        names = names or set(free_names(parsed(spec["rule"])))
        cost = cost_in(spec, name, place.shape, place.often)
        if cost > PER_RULE:
            yield _too_dear(f"{path}.{name}", f"estimated {name} cost", cost, PER_RULE)
        total.add(f"{path}.{name}", cost)
    yield from _old_self_problems(spec, place, path, "oldSelf" in names)


def _old_self_problems(spec: Mapping[str, Any], place: _Place, path: str, used: bool) -> Iterator[Cause]:
    """What is wrong with the use of the old value, of which a rule that does not compile makes none."""
    if not used:
        if spec.get("optionalOldSelf") is not None:
            why = "may not be set if oldSelf is not used in rule"
            yield wrong(f"{path}.optionalOldSelf", spec["optionalOldSelf"], why)
    elif place.lost:
        why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.lost}"
        yield wrong(f"{path}.rule", spec["rule"], why)


def _shown(spec: Mapping[str, Any]) -> str:
    """A rule as the server shows it: its own struct, with the letters escaped that HTML knows."""
    fields = {
        "Rule": spec["rule"],
        "Message": spec.get("message") or "",
        "MessageExpression": spec.get("messageExpression") or "",
        "Reason": spec.get("reason"),
        "FieldPath": spec.get("fieldPath") or "",
        "OptionalOldSelf": spec.get("optionalOldSelf"),
    }
    text = msgspec.json.encode(fields).decode()
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _places(node: Schema, path: str, often: int | None, lost: str, *, root: bool = True) -> Iterator[_Place]:
    """The schemas with rules, those within others first."""
    within = lost or (path if node.get("x-kubernetes-map-type") == "atomic" else "")
    for name, child in (node.get("properties") or {}).items():
        yield from _places(child, f"{path}.properties[{name}]", often, within, root=False)
    for word, bound in LOOPS:
        if isinstance(node.get(word), dict):
            keyed = word != "items" or node.get("x-kubernetes-list-type") == "map"
            most = repeated(often, node, bound)
            below = within or ("" if keyed else path)
            yield from _places(node[word], f"{path}.{word}", most, below, root=False)
    if node.get(RULES) and (shape := shape_of(node, root=root)) is not None:
        yield _Place(path, node, often, lost, shape)


def _too_dear(path: str, name: str, cost: int, limit: int) -> Cause:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:.6f}x" if factor < 1.5 else f"{factor:.1f}x"
    return forbidden(path, f"{name} exceeds budget by factor of {shown} {_ADVICE}")
