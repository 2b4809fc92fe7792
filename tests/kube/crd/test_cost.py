"""The cost of rules: the estimate is the server's own, and a missing bound is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.kube.cel import CelSyntaxError, parsed
from elasticjob.kube.cel.cost import UNBOUNDED, cost_of
from elasticjob.kube.cel.shapes import Shape, shape_of
from elasticjob.kube.client import Client
from elasticjob.kube.cost import PER_RULE, PER_SCHEMA, refuse_costly_rules, rule_costs
from elasticjob.kube.crd.schemas import UnsupportedSchema
from elasticjob.kube.kinds import Manifest
from tests.kube.crd.costs import COSTS, INT, SCHEMA, entries, fields, items, text
from tests.kube.crd.posting import said, with_spec

KEY = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


def shape(schema: Manifest) -> Shape:
    found = shape_of(schema)
    assert found is not None
    return found


def ruled(schema: Manifest, *rules: str, **more: Any) -> Manifest:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, **more} for rule in rules]}


@pytest.mark.parametrize(("rule", "cost"), COSTS, ids=[row[0] for row in COSTS])
def test_the_estimate_is_the_servers(rule: str, cost: int) -> None:
    assert cost_of(parsed(rule), shape(SCHEMA)) == cost


def times(schema: Manifest, often: int) -> Manifest:
    """Under a map of so many entries."""
    return fields(it=entries(schema, often))


def verdicts() -> Iterator[tuple[str, int, bool]]:
    """Each rule as often as it may be, and once more often."""
    for rule, cost in COSTS:
        if cost > PER_RULE:
            yield rule, 1, False
        elif cost:
            yield rule, PER_RULE // cost, True
            yield rule, PER_RULE // cost + 1, False


async def test_servers_draw_the_line_where_the_estimate_does(client: Client) -> None:
    wrong = []
    for rule, often, taken in verdicts():
        answer = await said(client, with_spec(times(ruled(SCHEMA, rule), often)))
        if (answer == "") != taken or (answer and "exceeds budget" not in answer):
            wrong.append((rule, often, answer[:200]))
    assert wrong == []


WHOLE: list[tuple[str, Manifest, bool]] = [
    ("under an unbounded list of small items", items(ruled(fields(a=INT), "self.a > 1")), True),
    (
        "under an unbounded list of long items",
        items(ruled(fields("name", name=text()), "self.name != ''")),
        True,
    ),
    (
        "a loop under an unbounded list",
        items(ruled(fields(l=items(text(9), 40)), "self.l.all(a, a != 'x')")),
        False,
    ),
    (
        "the same where items are long",
        items(ruled(fields("l", "name", l=items(text(9), 40), **{"name": INT}), "self.l.all(a, a != 'x')")),
        False,
    ),
    ("in two maps", entries(entries(ruled(INT, "self > 1"), 1000), 1000), True),
    ("in two large maps", entries(entries(ruled(INT, "self > 1"), 10_000), 10_000), False),
    (
        "a message of known length",
        ruled(fields(s=text(63)), "self.s != ''", messageExpression="'no: ' + self.s"),
        True,
    ),
    (
        "a message with a number",
        ruled(fields(i=INT), "self.i > 1", messageExpression="'no: ' + string(self.i)"),
        False,
    ),
    (
        "what changed",
        ruled(fields(i=INT), "self.i >= oldSelf.i"),
        True,
    ),
    (
        "what changed, if it was there",
        ruled(fields(i=INT), "!oldSelf.hasValue() || self.i >= oldSelf.value().i", optionalOldSelf=True),
        True,
    ),
    (
        "ten rules that cost all that one kind may, and more",
        {
            "type": "object",
            "properties": {
                f"m{index}": entries(ruled(fields(i=INT), "self.i > 1 && self.i > 2 && self.i > 3"), 999_999)
                for index in range(12)
            },
        },
        False,
    ),
    (
        "nine of them",
        {
            "type": "object",
            "properties": {
                f"m{index}": entries(ruled(fields(i=INT), "self.i > 1 && self.i > 2 && self.i > 3"), 999_999)
                for index in range(9)
            },
        },
        True,
    ),
]


def whole(schema: Manifest) -> Manifest:
    return fields(spec=fields(it=schema))


@pytest.mark.parametrize(("schema", "taken"), [row[1:] for row in WHOLE], ids=[row[0] for row in WHOLE])
async def test_servers_and_the_generator_agree_about_whole_schemas(
    schema: Manifest, taken: bool, client: Client
) -> None:
    answer = await said(client, with_spec(fields(it=schema)))
    assert (answer == "") == taken, answer
    if taken:
        refuse_costly_rules(whole(schema))
        return
    with pytest.raises(UnsupportedSchema):
        refuse_costly_rules(whole(schema))


ADVICE: list[tuple[str, Manifest, str]] = [
    (
        "the list that the rule walks",
        ruled(fields(l=items(text(63))), "self.l.all(a, self.l.exists(b, a != b))"),
        r"^spec\.it: a Rule here costs too much: 'self\.l\.all.* may cost .* times what a server allows; "
        r"spec\.it\.l has no maxItems: write Field\(max_length=…\), 512 is enough$",
    ),
    (
        "the map above",
        {"type": "object", "additionalProperties": ruled(fields(l=items(INT, 100)), "self.l.all(a, a > 1)")},
        r"^spec\.it\[\*\]: .*; spec\.it has no maxProperties: write .*, 16384 is enough$",
    ),
    (
        "the text",
        items(ruled(fields(s=text()), "self.s.matches('^a+$')"), 100),
        r"^spec\.it\[\]: .*; spec\.it\[\]\.s has no maxLength: write .*, 65536 is enough$",
    ),
    (
        "nothing helps",
        entries(entries(ruled(fields(i=INT), "self.i > 1"), 10_000), 10_000),
        r"^spec\.it\[\*\]\[\*\]: .* write a simpler rule, or lower the bounds",
    ),
]


@pytest.mark.parametrize(("schema", "message"), [row[1:] for row in ADVICE], ids=[row[0] for row in ADVICE])
async def test_the_missing_bound_is_named_and_enough(schema: Manifest, message: str, client: Client) -> None:
    with pytest.raises(UnsupportedSchema, match=message):
        refuse_costly_rules(whole(schema))
    assert "exceeds budget" in await said(client, with_spec(fields(it=schema)))


def test_what_rules_cannot_read_is_named() -> None:
    with pytest.raises(CelSyntaxError, match="undefined field 'nope'"):
        cost_of(parsed("self.nope == 1"), shape(SCHEMA))
    with pytest.raises(CelSyntaxError, match=r"the cost of a function frob\(\) is not known"):
        cost_of(parsed("frob(self.s)"), shape(SCHEMA))
    with pytest.raises(CelSyntaxError, match="a rule has no variable nobody"):
        cost_of(parsed("nobody == 1"), shape(SCHEMA))


@given(rule=st.sampled_from([rule for rule, cost in COSTS if cost < UNBOUNDED]), most=st.integers(0, 200))
def test_a_lower_bound_never_costs_more(rule: str, most: int) -> None:
    def bounded(node: Manifest) -> Manifest:
        found = {key: bounded(value) if isinstance(value, dict) else value for key, value in node.items()}
        bounds = [
            word for word in ("maxItems", "maxLength", "maxProperties") if isinstance(node.get(word), int)
        ]
        return {**found, **{word: min(int(node[word]), most) for word in bounds}}

    assert cost_of(parsed(rule), shape(bounded(SCHEMA))) <= cost_of(parsed(rule), shape(SCHEMA))


def test_costs_are_listed_with_their_places() -> None:
    schema = whole(entries(ruled(fields(i=INT), "self.i > 1", "self.i < 9"), 10))
    assert [(one.path, one.text, one.cost) for one in rule_costs(schema)] == [
        ("spec.it[*]", "self.i > 1", 30),
        ("spec.it[*]", "self.i < 9", 30),
    ]
    assert PER_RULE * 10 == PER_SCHEMA
