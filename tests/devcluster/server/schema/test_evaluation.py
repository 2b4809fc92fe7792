"""Rules evaluated: the values that they see, what they answer, and which ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.devcluster.server.schema.evaluation import broken_rules, rules_of
from elasticjob.devcluster.server.schema.expressions import CompileError
from elasticjob.devcluster.server.schema.rules import expression_problems

RULES = "x-kubernetes-validations"
INT = {"type": "integer"}
TEXT = {"type": "string"}
FIELDS: dict[str, Any] = {
    "n": INT,
    "m": INT,
    "d": {"type": "number"},
    "s": TEXT,
    "l": {"type": "array", "items": INT},
    "set": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
    "map": {"type": "object", "additionalProperties": {"type": "number"}},
    "q": {"x-kubernetes-int-or-string": True},
    "when": {"type": "string", "format": "date-time"},
    "day": {"type": "string", "format": "date"},
    "span": {"type": "string", "format": "duration"},
    "raw": {"type": "string", "format": "byte"},
    "namespace": TEXT,
    "a-b": TEXT,
}
OBJECT = {
    "n": 3,
    "d": 2,
    "s": "10.1.2.3",
    "l": [3, 1, 2],
    "set": ["a", "b"],
    "map": {"a": 1},
    "q": "50%",
    "when": "2024-02-29T13:14:15.5Z",
    "day": "2024-03-01",
    "span": "1h30m",
    "raw": "YWJj",
    "namespace": "a",
    "a-b": "b",
}


def ruled(*rules: str | dict[str, Any]) -> dict[str, Any]:
    entries = [{"rule": each} if isinstance(each, str) else each for each in rules]
    return {"type": "object", "properties": FIELDS, RULES: entries}


def judged(schema: dict[str, Any], new: Any, old: Any = None) -> list[tuple[str, str]]:
    return [(cause.field, cause.message) for cause in broken_rules(rules_of(schema), new, old)]


@pytest.mark.parametrize(
    "rule",
    [
        "self.n / 2 == 1 && self.n < 3.5 && self.n + 9223372036854775804 == 9223372036854775807",
        "self.d / 2.0 == 1.0 && type(self.d) == double && self.map['a'] + 0.5 == 1.5",
        "has(self.n) && !has(self.m) && self.?m.orValue(9) == 9",
        "self.__namespace__ == 'a' && self.a__dash__b == 'b'",
        "self.when.getFullYear() == 2024 && self.when + self.span > self.when",
        "self.when > timestamp('2024-01-01T00:00:00Z') && self.day > self.when",
        "self.span == duration('90m') && self.raw == b'abc'",
        "type(self.q) == string ? self.q.endsWith('%') : self.q > 1",
        "self.s.matches('^[0-9.]+$') && self.s.find('[0-9]+') == '10' && self.s.findAll('[0-9]+')[1] == '1'",
        "self.l.all(x, x > 0) && self.l.exists_one(x, x == 3) && self.l.map(x, x * 2) == [6, 2, 4]",
        "self.l.sum() == 6 && self.l.min() == 1 && self.l.max() == 3 && !self.l.isSorted()",
        "self.s.split('.').size() == 4 && '%s: %d'.format([self.s, self.n]) == '10.1.2.3: 3'",
        "isURL('https://a/b') && isURL('/a') && !isURL('rel') && isIP('::1') && isCIDR('10.0.0.0/8')",
        "quantity('1000m') == quantity('1') && quantity('1Ki').isGreaterThan(quantity('1k'))",
        "isQuantity('1Gi') && !isQuantity('1gi') && quantity('1').compareTo(quantity('2')) == -1",
    ],
)
def test_a_rule_sees_the_values_that_the_schema_declares(rule: str) -> None:
    assert judged(ruled(rule), OBJECT) == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"rule": "self.n > 5"}, "failed rule: self.n > 5"),
        ({"rule": "self.n > 5", "message": "too few"}, "too few"),
        (
            {"rule": "self.n > 5", "message": "plain", "messageExpression": "'n is ' + string(self.n)"},
            "n is 3",
        ),
        ({"rule": "self.n > 5", "message": "plain", "messageExpression": "self.m + ''"}, "plain"),
        ({"rule": "self.n > 5", "message": "plain", "messageExpression": "self.n"}, "plain"),
        ({"rule": "self.m > 5"}, '"object": Key not found in map : "m" evaluating rule: self.m > 5'),
        ({"rule": "self.n / 0 == 1"}, '"object": divide by zero evaluating rule: self.n / 0 == 1'),
        ({"rule": "self.s.matches('(')", "message": "no"}, "invalid regular expression: missing ): ("),
        ({"rule": "optional.of(self.n)"}, "evaluating rule: optional.of(self.n)"),
    ],
)
def test_a_broken_rule_is_refused_with_its_message(rule: dict[str, Any], message: str) -> None:
    [(field, said)] = judged(ruled(rule), OBJECT)
    assert field == ""
    assert said.startswith("Invalid value: ")
    assert message in said


def test_a_rule_that_loops_too_often_refuses_the_object() -> None:
    [(_, said)] = judged(ruled("self.l.all(a, self.l.all(b, a + b >= 0))"), {"l": list(range(300))})
    assert "Iteration budget exceeded" in said


@pytest.mark.parametrize(
    ("rule", "old", "is_kept"),
    [
        ("self.n == oldSelf.n", None, True),
        ("self.n == oldSelf.n", {"n": 3}, True),
        ("self.n == oldSelf.n", {"n": 4}, False),
        ("self.set == oldSelf.set", {"set": ["b", "a"]}, True),
        ("self.set == oldSelf.set", {"set": ["b", "c"]}, False),
        ({"rule": "oldSelf.hasValue()", "optionalOldSelf": True}, None, False),
        ({"rule": "oldSelf.hasValue()", "optionalOldSelf": True}, {}, True),
        ({"rule": "oldSelf.?n.orValue(3) == self.n", "optionalOldSelf": True}, {"n": 4}, False),
        ({"rule": "oldSelf.?n.orValue(3) == self.n", "optionalOldSelf": True}, None, True),
    ],
)
def test_transition_rules_see_the_old_value(rule: str | dict[str, Any], old: Any, is_kept: bool) -> None:
    assert (judged(ruled(rule), OBJECT, old) == []) == is_kept


def lists() -> dict[str, Any]:
    return {"type": "object", "properties": {"l0": {"type": "array", "items": {"type": "integer"}}}}


def test_what_did_not_change_is_not_refused_again() -> None:
    schema = lists()
    schema["properties"]["l0"]["items"][RULES] = [{"rule": "self > 1"}]
    assert judged(schema, {"l0": [0]}) == [("l0[0]", "Invalid value: 0: failed rule: self > 1")]
    assert judged(schema, {"l0": [0], "n": 2}, {"l0": [0], "n": 1}) == []
    assert judged(schema, {"l0": [0, 5]}, {"l0": [0]}) != []


def test_elements_are_the_same_as_before_by_their_keys() -> None:
    schema = lists()
    items: dict[str, Any] = {"type": "object"}
    items["properties"] = {name: {"type": "integer"} for name in "kv"}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    schema["properties"]["l0"] = {"type": "array", "items": items, **keyed}
    items[RULES] = [{"rule": "self.v >= oldSelf.v"}]
    schema[RULES] = [{"rule": "self.l0.size() != oldSelf.l0.size() || self.l0 == oldSelf.l0"}]
    old = [{"k": each, "v": each} for each in range(1_500)]
    new = [{"k": 0, "v": -1}, {"k": -1, "v": 0}, *old[:0:-1]]
    assert judged(schema, {"l0": new}, {"l0": old}) == [
        ("l0[0]", "Invalid value: failed rule: self.v >= oldSelf.v")
    ]
    assert judged(schema, {"l0": old[::-1]}, {"l0": old}) == []


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"rule": "self >"}, "rule", "Syntax error"),
        ({"rule": "nope > 1"}, "rule", "undeclared reference to 'nope'"),
        ({"rule": "ip(self.s).family() == 4"}, "rule", "undeclared reference to 'ip'"),
        ({"rule": "true", "messageExpression": "frob()"}, "messageExpression", "undeclared reference"),
        ({"rule": "'oldSelf' == self.s", "optionalOldSelf": True}, "optionalOldSelf", "oldSelf is not used"),
        ({"rule": "oldSelf.hasValue()) || (true", "optionalOldSelf": True}, "rule", "Syntax error"),
    ],
)
def test_a_rule_that_cannot_be_evaluated_is_refused_with_the_definition(
    spec: dict[str, Any], field: str, message: str
) -> None:
    [cause] = expression_problems(ruled(spec), "schema")
    assert cause.field == f"schema.{RULES}[0].{field}"
    assert message in cause.message
    assert "\n" not in cause.message


def test_old_values_need_items_with_keys() -> None:
    schema = lists()
    schema["properties"]["l0"]["items"][RULES] = [{"rule": "self >= oldSelf"}]
    [cause] = expression_problems(schema, "schema")
    assert "uncorrelatable portion of the schema within schema.properties[l0]" in cause.message


def test_a_definition_that_skipped_the_check_does_not_compile_either() -> None:
    with pytest.raises(CompileError):
        rules_of(ruled("self >"))
