"""`x-kubernetes-validations` of a schema: checked when a CRD is stored, evaluated when its objects are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import unsupported, wrong
from elasticjob.devcluster.server.schemas import Schema, item_key, join
from elasticjob.kube import cel
from elasticjob.kube.cel import CelError, CelSyntaxError, Program, compiled

RULES = "x-kubernetes-validations"
_REASONS = {"FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate"}
_ABSENT = object()


@dataclass(frozen=True)
class Step:
    """One level down from a value: a property, every value of a map, every element of a list."""

    kind: str
    name: str
    schema: Schema


@dataclass(frozen=True)
class Rule:
    """One rule, and the way from the root to the values it is about."""

    steps: tuple[Step, ...]
    program: Program
    spec: Mapping[str, Any]
    message: Program | None

    @property
    def is_transition(self) -> bool:
        return "oldSelf" in self.program.names


def rule_problems(schema: Schema, path: str) -> Iterator[Cause]:
    """Rules of a CRD that cannot be compiled."""
    for where, node in _nodes(schema, path):
        for index, spec in enumerate(node.get(RULES) or ()):
            yield from _spec_problems(spec, f"{where}.{RULES}[{index}]", node)


def _nodes(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, child in (schema.get("properties") or {}).items():
        yield from _nodes(child, f"{path}.properties[{name}]")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _nodes(schema[key], f"{path}.{key}")


def _spec_problems(spec: Mapping[str, Any], path: str, node: Schema) -> Iterator[Cause]:
    for name in ("rule", "messageExpression"):
        text = spec.get(name)
        if not text:
            if name == "rule":
                yield wrong(f"{path}.rule", "", "rule is not specified")
            continue
        try:
            program = compiled(text)
        except CelSyntaxError as error:
            yield wrong(f"{path}.{name}", text, f"compilation failed: {error}")
            continue
        unknown = sorted(program.names - {"self", "oldSelf"})
        if unknown:
            yield wrong(
                f"{path}.{name}", text, f"compilation failed: undeclared reference to {', '.join(unknown)}"
            )
        if name == "rule" and spec.get("optionalOldSelf") and "oldSelf" not in program.names:
            yield wrong(f"{path}.optionalOldSelf", True, "may not be set if oldSelf is not used in rule")
    if spec.get("reason") and spec["reason"] not in _REASONS:
        yield unsupported(f"{path}.reason", spec["reason"], sorted(_REASONS))
    if "\n" in (spec.get("message") or ""):
        yield wrong(f"{path}.message", spec["message"].replace("\n", "\\n"), "must not contain line breaks")
    if not _leads_somewhere(spec.get("fieldPath") or "", node):
        yield wrong(f"{path}.fieldPath", spec["fieldPath"], "must be a valid path")


_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\['([^']+)'\]")


def _leads_somewhere(path: str, node: Schema) -> bool:
    """Whether a field path (`.name`, `['name']`) ends in the schema."""
    here: Any = node
    for step in _STEP.finditer(path):
        more = here.get("additionalProperties")
        here = (here.get("properties") or {}).get(
            step[1] or step[2], more if isinstance(more, dict) else None
        )
        if here is None:
            return False
    return not path or "".join(step[0] for step in _STEP.finditer(path)) == path


def rules_of(schema: Schema) -> tuple[Rule, ...]:
    """All rules of a root schema."""
    return tuple(_collected(schema, (), set()))


def _collected(schema: Schema, steps: tuple[Step, ...], seen: set[int]) -> Iterator[Rule]:
    if id(schema) in seen:  # the schema of `metadata` may be recursive; nothing below repeats a rule
        return
    for spec in schema.get(RULES) or ():
        message = compiled(spec["messageExpression"]) if spec.get("messageExpression") else None
        yield Rule(steps, compiled(spec["rule"]), spec, message)
    inside = seen | {id(schema)}
    for name, child in (schema.get("properties") or {}).items():
        yield from _collected(child, (*steps, Step("property", name, schema)), inside)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _collected(schema["additionalProperties"], (*steps, Step("map", "", schema)), inside)
    if isinstance(schema.get("items"), dict):
        yield from _collected(schema["items"], (*steps, Step("list", "", schema)), inside)


def broken_rules(rules: Iterable[Rule], new: Any, old: Any) -> list[Cause]:
    """What the rules have against an object; transition rules count only where there is an old value."""
    before = _ABSENT if old is None else old
    return [
        cause
        for rule in rules
        for path, value, former in _places(rule.steps, new, before, "")
        if (cause := _checked(rule, path, value, former))
    ]


def _places(steps: tuple[Step, ...], value: Any, old: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if not steps:
        yield path, value, old
        return
    for inner, child, former in _STEPS[steps[0].kind](steps[0], value, old, path):
        yield from _places(steps[1:], child, former, inner)


def _property(step: Step, value: Any, old: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(value, dict) and value.get(step.name) is not None:
        yield join(step.schema, path, step.name), value[step.name], _former(old, step.name)


def _values(step: Step, value: Any, old: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    declared = step.schema.get("properties") or {}
    for name, child in (value if isinstance(value, dict) else {}).items():
        if name not in declared:
            yield join(step.schema, path, name), child, _former(old, name)


def _elements(step: Step, value: Any, old: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Elements are the same as before by key only: other lists have no transitions."""
    keyed = step.schema.get("x-kubernetes-list-type") == "map"
    former = [(item_key(step.schema, item), item) for item in old] if keyed and isinstance(old, list) else []
    for index, child in enumerate(value if isinstance(value, list) else ()):
        key = item_key(step.schema, child) if keyed else None
        yield f"{path}[{index}]", child, next((item for other, item in former if other == key), _ABSENT)


def _former(old: Any, name: str) -> Any:
    return old.get(name, _ABSENT) if isinstance(old, dict) else _ABSENT


_STEPS: dict[str, Callable[[Step, Any, Any, str], Iterator[tuple[str, Any, Any]]]] = {
    "property": _property,
    "map": _values,
    "list": _elements,
}


def _checked(rule: Rule, path: str, value: Any, former: Any) -> Cause | None:
    values = {"self": value}
    if rule.spec.get("optionalOldSelf"):
        values["oldSelf"] = cel.ABSENT if former is _ABSENT else cel.optional(former)
    elif former is not _ABSENT:
        values["oldSelf"] = former
    elif rule.is_transition:
        return None
    if former == value and not rule.is_transition:  # ratcheting: what did not change is not asked again
        return None
    try:
        if rule.program.evaluate(values) is True:
            return None
    except CelError as error:
        failed = "division by zero" if "by zero" in str(error) else str(error)
        why = f"{failed} evaluating rule: {rule.program.text}"
        return Cause(path.lstrip("."), f'Invalid value: "{_kind(value)}": {why}', "FieldValueInvalid")
    why = _message(rule, values)
    where = path + (rule.spec.get("fieldPath") or "")
    reason = str(rule.spec.get("reason") or "FieldValueInvalid")
    if reason == "FieldValueDuplicate":
        return Cause(where.lstrip("."), "Duplicate value", reason)
    told = f"{_shown(value)}: {why}" if reason == "FieldValueInvalid" and _is_scalar(value) else why
    return Cause(where.lstrip("."), f"{_PREFIX[reason]}: {told}", reason)


_PREFIX = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


def _kind(value: Any) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(type(value), "null")


def _is_scalar(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def _message(rule: Rule, values: Mapping[str, Any]) -> str:
    """What the message expression says; where it has no value, the plain message."""
    plain = str(rule.spec.get("message") or f"failed rule: {rule.program.text}")
    if rule.message is None:
        return plain
    try:
        text = rule.message.evaluate(values)
    except CelError:
        return plain
    return text if isinstance(text, str) and text.strip() and "\n" not in text else plain
