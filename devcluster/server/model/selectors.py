"""Label and field selectors: text → a predicate over an object."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob.devcluster.server.model.errors import bad_request
from elasticjob.devcluster.server.model.names import key_problem

Object = Mapping[str, Any]
Predicate = Callable[[Object], bool]

_IN = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)$")
_COMPARE = re.compile(r"^(?P<key>[^=!<>\s]+)\s*(?P<op>==|=|!=|>|<)\s*(?P<value>[^=!<>]*)$")
_KEY = re.compile(r"^!?\s*[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$")


@dataclass(frozen=True)
class Requirement:
    """One clause of a label selector."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        return _OPERATORS[self.operator](labels.get(self.key), self.values)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def _compare(value: str | None, bounds: frozenset[str], sign: int) -> bool:
    number, bound = _number(value), _number(next(iter(bounds)))
    return number is not None and bound is not None and (number - bound) * sign > 0


_OPERATORS: dict[str, Callable[[str | None, frozenset[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compare(value, values, 1),
    "Lt": lambda value, values: _compare(value, values, -1),
}
_SIGNS = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt", "in": "In", "notin": "NotIn"}


def label_requirements(text: str) -> tuple[Requirement, ...]:
    """Parse `a=b,c!=d,e in (f,g),!h,i`. Raises BadRequest where the text is no selector."""
    return tuple(_requirement(clause.strip(), text) for clause in _clauses(text) if clause.strip())


def _clauses(text: str) -> list[str]:
    return re.split(r",(?![^(]*\))", text)


def _requirement(clause: str, text: str) -> Requirement:
    if problem := _syntax_problem(clause):
        raise bad_request(f"unable to parse requirement: {problem}")
    if match := _IN.match(clause):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], _SIGNS[match["op"]], values)
    if match := _COMPARE.match(clause):
        words = match["value"].split()
        if len(words) > 1:
            raise bad_request(f"found '{words[1]}', expected: ',' or 'end of string'")
        return Requirement(match["key"], _SIGNS[match["op"]], frozenset({match["value"].strip()}))
    if not _KEY.match(clause):
        raise bad_request(f"unable to parse requirement: {clause!r} in label selector {text!r}")
    if clause.startswith("!"):
        return Requirement(clause[1:].strip(), "DoesNotExist")
    return Requirement(clause, "Exists")


def _syntax_problem(clause: str) -> str:
    """Problems of a clause's key, or of a set without its closing bracket."""
    if re.search(r"\s(in|notin)\s*\([^)]*$", clause):
        return "found '', expected: ',', ')' or identifier"
    key = re.split(r"[\s=!<>]", clause.lstrip("! "))[0]
    problem = key_problem(key)
    return f'<nil>: Invalid value: "{key}": {problem}' if key and problem else ""


def matches_labels(requirements: Iterable[Requirement], labels: Mapping[str, str] | None) -> bool:
    return all(requirement.holds(labels or {}) for requirement in requirements)


def label_selector(selector: Mapping[str, Any] | None) -> tuple[Requirement, ...]:
    """Requirements of a LabelSelector object (matchLabels, matchExpressions); an empty one holds for all."""
    chosen = selector or {}
    exact = [
        Requirement(key, "In", frozenset({value})) for key, value in (chosen.get("matchLabels") or {}).items()
    ]
    expressions = [
        Requirement(each["key"], each["operator"], frozenset(each.get("values") or ()))
        for each in chosen.get("matchExpressions") or ()
    ]
    return tuple(exact + expressions)


@dataclass(frozen=True)
class FieldClause:
    """`path=value` or `path!=value`."""

    path: str
    value: str
    negated: bool

    def holds(self, item: Object) -> bool:
        return (field_text(item, self.path) == self.value) != self.negated


def field_clauses(text: str, allowed: Iterable[str], *, plain: bool = False) -> tuple[FieldClause, ...]:
    """Parse a field selector; fields outside of `allowed` are refused as the real server refuses them."""
    clauses = tuple(_field_clause(clause.strip(), text) for clause in text.split(",") if clause.strip())
    more = set(allowed)
    for clause in clauses:
        if clause.path in more | {"metadata.name", "metadata.namespace"}:
            continue
        if plain and not more:
            known = 'only "metadata.name", "metadata.namespace"'
            raise bad_request(f'"{clause.path}" is not a known field selector: {known}')
        raise bad_request(f"field label not supported: {clause.path}")
    return clauses


def _field_clause(clause: str, text: str) -> FieldClause:
    match = re.match(r"^(?P<path>[^=!]+?)\s*(?P<op>==|=|!=)\s*(?P<value>.*)$", clause)
    if not match:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{clause}'")
    return FieldClause(match["path"], match["value"], match["op"] == "!=")


_DEFAULTS = {"status.phase": "", "spec.unschedulable": "false", "spec.hostNetwork": "false"}


def field_text(item: Object, path: str) -> str:
    """The text at a dotted path, as field selectors compare it; "" where there is nothing."""
    value: Any = item
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if value is None:
        return _DEFAULTS.get(path, "")
    return str(value).lower() if isinstance(value, bool) else str(value)


def predicate(labels: tuple[Requirement, ...], fields: tuple[FieldClause, ...]) -> Predicate | None:
    """One function for both selectors, or None when everything matches."""
    if not labels and not fields:
        return None

    def holds(item: Object) -> bool:
        found = item["metadata"].get("labels") if labels else None
        return matches_labels(labels, found) and all(clause.holds(item) for clause in fields)

    return holds
