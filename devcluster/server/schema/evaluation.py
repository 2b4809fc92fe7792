"""Evaluation of the CEL rules of a kind on an object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.schemas import Schema, join
from elasticjob.devcluster.server.schema.expressions import Expression, NoValue, optional_old
from elasticjob.devcluster.server.schema.rules import RULES, compiled_rule, is_broken
from elasticjob.devcluster.server.schema.rulevalues import Reader, align, identity, reader
from elasticjob.kube.crd.schemas import reads_old

_ABSENT = object()


@dataclass(frozen=True)
class Step:
    """One level down from a value: a property, every value of a map, every element of a list."""

    kind: str
    name: str
    schema: Schema


@dataclass(frozen=True)
class Rule:
    """One rule, the way from the root to the values it is about, and their schema."""

    steps: tuple[Step, ...]
    spec: Mapping[str, Any]
    schema: Schema
    holds: Expression
    message: Expression | None
    read: Reader | None

    @property
    def is_transition(self) -> bool:
        return reads_old(self.spec["rule"])

    @property
    def label(self) -> str:
        """The rule's name in errors: its message, else its expression."""
        return str(self.spec.get("message") or self.spec["rule"]).strip()


def rules_of(schema: Schema) -> tuple[Rule, ...]:
    """All rules of a root schema, outer ones first."""
    return tuple(_collect(schema, (), set()))


def _collect(schema: Schema, steps: tuple[Step, ...], seen: set[int]) -> Iterator[Rule]:
    if id(schema) in seen:  # the schema of `metadata` may be recursive; nothing below repeats a rule
        return
    read = reader(schema) if schema.get(RULES) else None
    for spec in schema.get(RULES) or ():
        message = compiled_rule(spec, "messageExpression") if spec.get("messageExpression") else None
        yield Rule(steps, spec, schema, compiled_rule(spec), message, read)
    inside = seen | {id(schema)}
    for name, child in (schema.get("properties") or {}).items():
        yield from _collect(child, (*steps, Step("property", name, schema)), inside)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _collect(schema["additionalProperties"], (*steps, Step("map", "", schema)), inside)
    if isinstance(schema.get("items"), dict):
        yield from _collect(schema["items"], (*steps, Step("list", "", schema)), inside)


@dataclass(frozen=True)
class Place:
    """A value, its old value, and whether that, or else an enclosing one, is unchanged."""

    path: str
    value: Any
    former: Any
    same: bool

    def below(self, path: str, value: Any, former: Any) -> Place:
        return Place(path, value, former, self.same if former is _ABSENT else former == value)


def broken_rules(rules: Iterable[Rule], new: Any, old: Any) -> list[Cause]:
    """The violated rules of an object; transition rules need an old value."""
    before = _ABSENT if old is None else old
    root = Place("", new, before, same=before == new)
    return [cause for rule in rules for place in _places(rule.steps, root) for cause in _check(rule, place)]


def _places(steps: tuple[Step, ...], place: Place) -> Iterator[Place]:
    if not steps:
        yield place
        return
    for inner in _STEPS[steps[0].kind](steps[0], place):
        yield from _places(steps[1:], inner)


def _property(step: Step, place: Place) -> Iterator[Place]:
    value = place.value
    if isinstance(value, dict) and value.get(step.name) is not None:
        path = join(step.schema, place.path, step.name)
        yield place.below(path, value[step.name], _former(place.former, step.name))


def _values(step: Step, place: Place) -> Iterator[Place]:
    declared = step.schema.get("properties") or {}
    for name, child in (place.value if isinstance(place.value, dict) else {}).items():
        if name not in declared:
            yield place.below(join(step.schema, place.path, name), child, _former(place.former, name))


def _elements(step: Step, place: Place) -> Iterator[Place]:
    """Elements are the same as before by key only: other lists have no transitions."""
    keyed = step.schema.get("x-kubernetes-list-type") == "map"
    old = place.former if keyed and isinstance(place.former, list) else []
    former = {identity(step.schema, item): item for item in old}
    for index, child in enumerate(place.value if isinstance(place.value, list) else ()):
        match = former.get(identity(step.schema, child), _ABSENT) if former else _ABSENT
        yield place.below(f"{place.path}[{index}]", child, match)


def _former(old: Any, name: str) -> Any:
    return old.get(name, _ABSENT) if isinstance(old, dict) else _ABSENT


_STEPS: dict[str, Callable[[Step, Place], Iterator[Place]]] = {
    "property": _property,
    "map": _values,
    "list": _elements,
}


def _check(rule: Rule, place: Place) -> Iterator[Cause]:
    """The violation of a rule by a value; an unchanged value is not refused."""
    if rule.is_transition and place.former is _ABSENT and not rule.spec.get("optionalOldSelf"):
        return
    if place.value is None:
        return
    values = _variables(rule, place)
    try:
        holds = rule.holds.evaluate(values)
    except NoValue as error:
        why = f'Invalid value: "{rule.schema.get("type") or ""}": {error} evaluating rule: {rule.label}'
        yield Cause(place.path.lstrip("."), why, "FieldValueInvalid")
        return
    if holds is not True and (rule.is_transition or not place.same):
        yield _refusal(rule, place, _message(rule, values))


def _variables(rule: Rule, place: Place) -> dict[str, Any]:
    read = rule.read or (lambda value: value)
    values = {"self": read(place.value)}
    former = [] if place.former is _ABSENT else [read(align(place.former, place.value, rule.schema))]
    if rule.spec.get("optionalOldSelf"):
        return values | optional_old(*former)
    return values | dict(zip(["oldSelf"], former, strict=False))


def _refusal(rule: Rule, place: Place, why: str) -> Cause:
    where = (place.path + (rule.spec.get("fieldPath") or "")).lstrip(".")
    reason = str(rule.spec.get("reason") or "FieldValueInvalid")
    if reason == "FieldValueDuplicate":
        return Cause(where, "Duplicate value", reason)
    scalar = not isinstance(place.value, dict | list)
    message = f"{_show(place.value)}: {why}" if reason == "FieldValueInvalid" and scalar else why
    return Cause(where, f"{_PREFIX[reason]}: {message}", reason)


_PREFIX = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


def _show(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


_LONGEST_MESSAGE = 5 * 1024


def _message(rule: Rule, values: Mapping[str, Any]) -> str:
    """The result of the messageExpression; the plain message if it fails."""
    plain = (rule.spec.get("message") or "").strip() or f"failed rule: {rule.label}"
    if rule.message is None:
        return plain
    try:
        text = rule.message.evaluate(values)
    except NoValue:
        return plain
    text = text.strip() if isinstance(text, str) else ""
    return text if text and not is_broken(text) and len(text.encode()) <= _LONGEST_MESSAGE else plain
