"""Rules of an object: what evaluating them may cost, and what is not asked again."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.devcluster.server import judging
from elasticjob.devcluster.server.judging import broken_rules, rules_of

RULES = "x-kubernetes-validations"
PAIRS = {"rule": "self.all(a, self.all(b, a + b >= 0))"}
TOLD = {"rule": "self == []", "messageExpression": f"({PAIRS['rule']}) ? 'a' : 'b'"}
EXHAUSTED = "validation failed due to running out of cost budget, no further validation rules will be run"

UNTOLD = EXHAUSTED.replace("validation failed", "messageExpression evaluation failed")


def lists(count: int, *rules: dict[str, Any]) -> dict[str, Any]:
    each = {"type": "array", "items": {"type": "integer"}, RULES: list(rules)}
    return {"type": "object", "properties": {f"l{index}": each for index in range(count)}}


def judged(schema: dict[str, Any], new: Any, old: Any = None) -> list[tuple[str, str]]:
    return [(cause.field, cause.message) for cause in broken_rules(rules_of(schema), new, old)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a small object comes to."""
    monkeypatch.setattr(judging, "PER_CALL", 1_000)
    monkeypatch.setattr(judging, "PER_OBJECT", 2_000)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("rule", "sizes", "expected"),
    [
        (PAIRS, [9], []),
        (
            PAIRS,
            [40, 1],
            [
                (
                    "l0",
                    "Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further "
                    "validation rules will be run due to call cost exceeds limit for rule: " + PAIRS["rule"],
                )
            ],
        ),
        (PAIRS, [10, 10, 10, 10], [("l2", f'Invalid value: "array": {EXHAUSTED}')]),
        (
            TOLD,
            [40, 1],
            [
                (
                    "l0",
                    'Invalid value: "array": no further validation rules will be run due to call cost '
                    f'exceeds limit for messageExpression: "{TOLD["messageExpression"]}"',
                )
            ],
        ),
        (
            TOLD,
            [10, 10, 10, 10],
            [
                *((f"l{index}", "Invalid value: a") for index in range(2)),
                ("l2", f'Invalid value: "array": {UNTOLD}'),
            ],
        ),
    ],
    ids=["cheap", "one rule", "all rules", "one message", "all messages"],
)
def test_what_costs_too_much_is_refused(
    rule: dict[str, Any], sizes: list[int], expected: list[tuple[str, str]]
) -> None:
    new = {f"l{index}": list(range(size)) for index, size in enumerate(sizes)}
    assert judged(lists(len(sizes), rule), new) == expected


def test_what_did_not_change_is_not_refused_again() -> None:
    schema = lists(1)
    schema["properties"]["l0"]["items"][RULES] = [{"rule": "self > 1"}]
    assert judged(schema, {"l0": [0]}) == [("l0[0]", "Invalid value: 0: failed rule: self > 1")]
    assert judged(schema, {"l0": [0], "n": 2}, {"l0": [0], "n": 1}) == []
    assert judged(schema, {"l0": [0, 5]}, {"l0": [0]}) != []


def test_elements_are_the_same_as_before_by_their_keys() -> None:
    schema = lists(1)
    items: dict[str, Any] = {"type": "object"}
    items["properties"] = {name: {"type": "integer"} for name in "kv"}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    schema["properties"]["l0"] = {"type": "array", "items": items, **keyed}
    items[RULES] = [{"rule": "self.v >= oldSelf.v"}]
    old = [{"k": each, "v": each} for each in range(5_000)]
    new = [{"k": 0, "v": -1}, {"k": -1, "v": 0}, *old[:0:-1]]
    assert judged(schema, {"l0": new}, {"l0": old}) == [
        ("l0[0]", "Invalid value: failed rule: self.v >= oldSelf.v")
    ]
