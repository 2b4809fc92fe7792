"""Rules evaluated: what those of a kind have against an object, and what that may cost.

A rule may cost PER_CALL for one value, and all rules of an object PER_OBJECT together, as `kube.cel` counts;
beyond that nothing more is evaluated, and the object is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.rules import RULES, is_broken
from elasticjob.devcluster.server.schemas import Schema, item_key, join
from elasticjob.kube import cel
from elasticjob.kube.cel import NO_OVERLOAD, CelError, Meter, Program, Reader, TooCostly, compiled, reader

PER_CALL = 1_000_000
PER_OBJECT = 10_000_000
_ABSENT = object()


@dataclass(frozen=True)
class Step:
    """One level down from a value: a property, every value of a map, every element of a list."""

    kind: str
    name: str
    schema: Schema


@dataclass(frozen=True)
class Rule:
    """One rule, the way from the root to the values it is about, their kind, and what reads them."""

    steps: tuple[Step, ...]
    program: Program
    spec: Mapping[str, Any]
    message: Program | None
    kind: str
    read: Reader | None

    @property
    def is_transition(self) -> bool:
        return "oldSelf" in self.program.names

    @property
    def told(self) -> str:
        """What the rule is called in complaints: its message, else what it says."""
        return str(self.spec.get("message") or self.spec["rule"]).strip()

    def wrong(self, place: Place, why: str) -> Cause:
        """The complaint that it could not be evaluated."""
        return Cause(place.path.lstrip("."), f'Invalid value: "{self.kind}": {why}', "FieldValueInvalid")


def rules_of(schema: Schema) -> tuple[Rule, ...]:
    """All rules of a root schema, those of what is within others later."""
    return tuple(_collected(schema, (), set()))


def _collected(schema: Schema, steps: tuple[Step, ...], seen: set[int]) -> Iterator[Rule]:
    if id(schema) in seen:  # the schema of `metadata` may be recursive; nothing below repeats a rule
        return
    read = reader(schema) if schema.get(RULES) else None
    for spec in schema.get(RULES) or ():
        message = compiled(spec["messageExpression"]) if spec.get("messageExpression") else None
        yield Rule(steps, compiled(spec["rule"]), spec, message, schema.get("type") or "", read)
    inside = seen | {id(schema)}
    for name, child in (schema.get("properties") or {}).items():
        yield from _collected(child, (*steps, Step("property", name, schema)), inside)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _collected(schema["additionalProperties"], (*steps, Step("map", "", schema)), inside)
    if isinstance(schema.get("items"), dict):
        yield from _collected(schema["items"], (*steps, Step("list", "", schema)), inside)


@dataclass(frozen=True)
class Place:
    """A value, the one that was there before, and whether that, or else what is around it, is unchanged."""

    path: str
    value: Any
    former: Any
    same: bool

    def below(self, path: str, value: Any, former: Any) -> Place:
        return Place(path, value, former, self.same if former is _ABSENT else former == value)


class _Exhausted(Exception):
    """Nothing more is evaluated of an object; `cause` says why."""

    def __init__(self, place: Place, rule: Rule, why: str) -> None:
        super().__init__(why)
        self.cause = rule.wrong(place, why)


class _Budget:
    """What the rules of one object may cost together."""

    def __init__(self) -> None:
        self.left = PER_OBJECT

    def evaluate(self, program: Program, values: Mapping[str, Any], exceeded: str, exhausted: str) -> Any:
        """The value of an expression. Raises CelError, and TooCostly with one of the sentences."""
        meter = Meter(PER_CALL)
        try:
            return program.evaluate(values, meter)
        except TooCostly:
            raise TooCostly(exceeded) from None
        finally:
            self._take(meter.spent, exhausted)

    def _take(self, cost: int, exhausted: str) -> None:
        self.left -= cost
        if self.left < 0:
            raise TooCostly(exhausted)


def broken_rules(rules: Iterable[Rule], new: Any, old: Any) -> list[Cause]:
    """What the rules have against an object; transition rules count only where there is an old value."""
    before = _ABSENT if old is None else old
    root = Place("", new, before, same=before == new)
    found: list[Cause] = []
    budget = _Budget()
    try:
        for rule in rules:
            for place in _places(rule.steps, root):
                found += _checked(rule, place, budget)
    except _Exhausted as end:
        found.append(end.cause)
    return found


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
    former = {cel.hashed(item_key(step.schema, item)): item for item in old}
    for index, child in enumerate(place.value if isinstance(place.value, list) else ()):
        match = former.get(cel.hashed(item_key(step.schema, child)), _ABSENT) if former else _ABSENT
        yield place.below(f"{place.path}[{index}]", child, match)


def _former(old: Any, name: str) -> Any:
    return old.get(name, _ABSENT) if isinstance(old, dict) else _ABSENT


_STEPS: dict[str, Callable[[Step, Place], Iterator[Place]]] = {
    "property": _property,
    "map": _values,
    "list": _elements,
}


def _checked(rule: Rule, place: Place, budget: _Budget) -> Iterator[Cause]:
    """What a rule has against a value; nothing false is told of what did not change."""
    if rule.is_transition and place.former is _ABSENT and not rule.spec.get("optionalOldSelf"):
        return
    if place.value is None:
        return
    values = _variables(rule, place)
    exceeded = f"'operation cancelled: actual cost limit exceeded': {_NO_MORE} {_COST}rule: {rule.told}"
    exhausted = f"validation failed due to {_OUT_OF_BUDGET}, {_NO_MORE.removesuffix(' due to')}"
    try:
        holds = budget.evaluate(rule.program, values, exceeded, exhausted)
    except TooCostly as end:
        raise _Exhausted(place, rule, str(end)) from None
    except CelError as error:
        yield rule.wrong(place, _failure(error, rule))
        return
    if holds is True:
        return
    cause = _refusal(rule, place, _message(rule, place, values, budget))
    if rule.is_transition or not place.same:
        yield cause


_NO_MORE = "no further validation rules will be run due to"
_COST = "call cost exceeds limit for "
_OUT_OF_BUDGET = "running out of cost budget"


def _failure(error: CelError, rule: Rule) -> str:
    if str(error).startswith(NO_OVERLOAD):
        why = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{error}': {why}: {rule.told}"
    return f"{error} evaluating rule: {rule.told}"


def _variables(rule: Rule, place: Place) -> dict[str, Any]:
    read = rule.read or (lambda value: value)
    values = {"self": read(place.value)}
    if rule.spec.get("optionalOldSelf"):
        values["oldSelf"] = cel.ABSENT if place.former is _ABSENT else cel.optional(read(place.former))
    elif place.former is not _ABSENT:
        values["oldSelf"] = read(place.former)
    return values


def _refusal(rule: Rule, place: Place, why: str) -> Cause:
    where = (place.path + (rule.spec.get("fieldPath") or "")).lstrip(".")
    reason = str(rule.spec.get("reason") or "FieldValueInvalid")
    if reason == "FieldValueDuplicate":
        return Cause(where, "Duplicate value", reason)
    scalar = not isinstance(place.value, dict | list)
    told = f"{_shown(place.value)}: {why}" if reason == "FieldValueInvalid" and scalar else why
    return Cause(where, f"{_PREFIX[reason]}: {told}", reason)


_PREFIX = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


_LONGEST_MESSAGE = 5 * 1024


def _message(rule: Rule, place: Place, values: Mapping[str, Any], budget: _Budget) -> str:
    """What the message expression says; where it has no value, the plain message."""
    plain = (rule.spec.get("message") or "").strip() or f"failed rule: {rule.told}"
    if rule.message is None:
        return plain
    exceeded = f'{_NO_MORE} {_COST}messageExpression: "{rule.message.text}"'
    exhausted = (
        f"messageExpression evaluation failed due to {_OUT_OF_BUDGET}, {_NO_MORE.removesuffix(' due to')}"
    )
    try:
        text = budget.evaluate(rule.message, values, exceeded, exhausted)
    except TooCostly as end:
        raise _Exhausted(place, rule, str(end)) from None
    except CelError:
        return plain
    text = text.strip() if isinstance(text, str) else ""
    return text if text and not is_broken(text) and len(text.encode()) <= _LONGEST_MESSAGE else plain
