"""Whatever is sent to di-server is a request within bounds, or a 400 with the field and what to write."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.api.resources import Resources
from elasticjob.controllers.diserver.asked import Ask, Limits, Refusal, Report, key_of, query_of
from elasticjob.controllers.diserver.server import VERBS, Answer

LIMITS: Final = Limits()
NAMED: Final = '"namespace": "lab", "coordinator": "j-coordinator"'
DEEP: Final = "[" * 900 + "]" * 900

EVERY: list[tuple[bytes, str, str]] = [
    (b"", "the body is empty", "send a JSON object"),
    (b"\x00" * 8, "the body is not JSON", "send a JSON object"),
    (b"\xff", "the body is not JSON", "send a JSON object"),
    (b"\x1f\x8b\x08\x00garbage", "the body is not JSON", "send a JSON object"),
    (("[" * 500_000).encode(), "the body is not JSON", "nested too deep"),
    (b"[]", "the body is not a JSON object", "send one with namespace"),
    (b'{"namespace": ' + b"1" * 5000 + b"}", "the body is not JSON", "send a JSON object"),
    (b'{"namespace": NaN}', "NaN is no number of JSON", "write one"),
    (b'{"namespace": -Infinity}', "-Infinity is no number of JSON", "write one"),
    (b'{"namespace": "a", "namespace": "b"}', "namespace is in one object twice", "write it once"),
    (b'{"collectors": {"replicas": 1, "replicas": 2}}', "replicas is in one object twice", "write it once"),
    (b'{"coordinator": "a"}', "namespace is missing", "write the name of a namespace"),
    (b'{"namespace": ""}', "namespace is empty", "write the name of a namespace"),
    (b'{"namespace": "A"}', "namespace is A", "write the name of a namespace"),
    (b'{"namespace": "%s"}' % (b"x" * 64), "namespace is xxx", "write the name of a namespace"),
    (b'{"namespace": "\\u0000"}', "namespace is ?", "write the name of a namespace"),
    (b'{"namespace": "\\ud800"}', "namespace is ?", "write the name of a namespace"),
    (b'{"namespace": "../../secrets"}', "namespace is ../../secrets", "write the name of a namespace"),
    (b'{"namespace": 1000000000}', "namespace is 1000000000", "write the name of a namespace"),
    (b'{"namespace": "%s"}' % (b"n" * 300), "namespace is nnn", "write the name of a namespace"),
    (b'{"namespace": "lab", "coordinator": "%s"}' % (b"n" * 300), "coordinator is nnn", "as in its pod"),
    (b'{"namespace": "lab"}', "coordinator is missing", "as in its pod"),
    (b'{"namespace": "lab", "coordinator": ["a"]}', "coordinator is [a]", "as in its pod"),
    (b'{"namespace": "lab", "coordinator": "a b"}', "coordinator is a b", "as in its pod"),
    (b'{"namespace": "lab", "coordinator": {"a": 1}}', "coordinator is {a: 1}", "as in its pod"),
    (b'{"%s": 1}' % (b"k" * 300), "kkk is not a field", "use namespace, coordinator"),
    (b'{"colectors": {}}', "colectors is not a field", "use namespace, coordinator"),
    (b'{"\\u0000": 1}', "? is not a field", "use namespace, coordinator"),
]
AMOUNTS: list[tuple[str, str, str]] = [
    ("10", " is 10", "write an object"),
    (DEEP, " is [[[[...]]]]", "write an object"),
    ("[]", " is []", "write an object"),
    ('"2"', " is 2", "write an object"),
    ('{"replica": 1}', "replica is not a field", "use replicas, cpus"),
    ('{"nodes": 1}', "nodes is not a field", "use replicas, cpus"),
    ('{"replicas": "two"}', "replicas is two", "write a whole number, such as 2"),
    ('{"replicas": 0.5}', "replicas is 0.5", "write a whole number, such as 2"),
    ('{"replicas": 1.5}', "replicas is 1.5", "write a whole number"),
    ('{"replicas": true}', "replicas is True", "write a whole number"),
    ('{"replicas": {}}', "replicas is {}", "write a whole number"),
    ('{"replicas": 1e31}', "replicas is 1e+31", "write "),
    ('{"replicas": "%s"}' % ("1" * 80), "replicas is 111", "write "),
    ('{"replicas": 1e400}', "replicas is inf", "write a whole number, such as 2"),
    ('{"replicas": -1}', "replicas is -1", "write 0 or more"),
    ('{"replicas": [1]}', "replicas is [1]", "write a whole number"),
    ('{"gpus": 0.5}', "gpus is 0.5", "write a whole number"),
    ('{"gpus": -1}', "gpus is -1", "write 0 or more"),
    ('{"gpus": 1000000000}', "gpus is 1000000000", "write at most 1024"),
    ('{"gpu": "1e9"}', "gpus is 1e9", "write at most 1024"),
    ('{"gpus": "\\u0000"}', "gpus is ?", "write a whole number, such as 2"),
    (f'{{"gpus": {DEEP}}}', "gpus is [[[[...]]]]", "write a whole number, such as 2"),
    ('{"gpus": 1, "gpu": 2}', "gpus is 1 and", "gpu 2: write one"),
    ('{"cpus": 1, "cpu": "2"}', "cpus is 1 and", "cpu 2: write one"),
    ('{"cpus": "-1"}', "cpus is -1", "write 0 or more"),
    ('{"cpu": []}', "cpus is []", "write 4, 0.5 or 500m"),
    ('{"cpus": 1000000000}', "cpus is 1000000000", "write at most 1048576"),
    ('{"cpu": "many"}', "cpus is many", "write 4, 0.5 or 500m"),
    ('{"memory": "8GB"}', "memory is 8GB", "write 8Gi or 512Mi"),
    ('{"memory": -5}', "memory is -5", "write 0 or more"),
    ('{"memory": {"a": 1}}', "memory is", "write 8Gi or 512Mi"),
    ('{"memory": "1e30"}', "memory is 1e30", "write at most 1Ei"),
    ('{"memory": "%s"}' % ("9" * 300), "memory is 999", "write 8Gi or 512Mi"),
]
LISTS: list[tuple[str, str, str]] = [
    ("1000000000", " is 1000000000", "write a list"),
    ('{"a": 1}', " is {a: 1}", "write a list"),
    ('"a"', " is a", "write a list"),
    (DEEP, " has [[[[...]]]]", "write the name of a pod"),
    ("[1]", " has 1", "write the name of a pod"),
    ('["%s"]' % ("n" * 300), " has nnn", "write the name of a pod"),
    ('["A B"]', " has A B", "write the name of a pod"),
    ("[null]", " has missing", "write the name of a pod"),
    ('["\\u0000"]', " has ?", "write the name of a pod"),
    (json.dumps(["a"] * 4097), " is [a, a, a, ", "write a list of at most 4096"),
]
HOSTILE = [(verb, *row) for verb in VERBS for row in EVERY] + [
    (verb, f'{{{NAMED}, "{role}": {text}}}'.encode(), f"{role}{'' if said[0] == ' ' else '.'}{said}", step)
    for verb in VERBS
    for role in ("collectors", "learners")
    for text, said, step in (LISTS if verb == "failed" else AMOUNTS)
]


@pytest.mark.parametrize(("verb", "body", "said", "step"), HOSTILE)
def test_a_hostile_body_is_refused_with_its_field_and_the_next_step(
    verb: str, body: bytes, said: str, step: str
) -> None:
    with pytest.raises(Refusal) as refused:
        VERBS[verb].question(body, LIMITS)
    assert refused.value.status == 400
    assert said in refused.value.message
    assert step in refused.value.message
    is_plain(refused.value)


def is_plain(refused: Refusal) -> None:
    """DI-engine's command line replaces quotes; the envelope takes whatever there is to say."""
    assert refused.status == 400
    assert refused.message.isprintable()
    assert not set("'\"`") & set(refused.message)
    assert len(refused.message) < 500
    Answer(refused.message, refused.done, refused.status, success=False).body()


@pytest.mark.parametrize("replicas", ["257", "1000000000", '"1e9"'])
@pytest.mark.parametrize("role", ["collectors", "learners"])
def test_more_than_a_call_may_ask_for_can_be_deleted_but_not_made(role: str, replicas: str) -> None:
    body = f'{{{NAMED}, "{role}": {{"replicas": {replicas}}}}}'.encode()
    with pytest.raises(Refusal, match=f"{role[:-1]}s are more than one call may ask for: 256"):
        VERBS["post"].question(body, LIMITS)
    assert VERBS["delete"].question(body, LIMITS).asked.caller == "j-coordinator"


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 300),
    st.floats(),
    st.text(max_size=300),
    st.sampled_from(["1e9", "-0", "1Ei", "10k", "0x10", "1_0", "٣", "\x00", "\ud800", "'", '"a"']),
)
VALUES = st.recursive(
    ODD, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5)
)
FIELDS = st.sampled_from(["replicas", "cpus", "cpu", "gpus", "gpu", "memory"])
ROLES = st.one_of(VALUES, st.dictionaries(FIELDS, VALUES), st.lists(st.text(max_size=70)))
BODIES = st.fixed_dictionaries(
    {"namespace": st.just("lab") | VALUES, "coordinator": st.just("j-coordinator") | VALUES},
    optional={"collectors": ROLES, "learners": ROLES, "more": VALUES},
)


@settings(max_examples=60)
@given(st.sampled_from(sorted(VERBS)), BODIES, st.integers(0, 40), st.binary(max_size=3))
def test_every_body_is_within_bounds_or_refused(verb: str, body: Any, at: int, junk: bytes) -> None:
    text = json.dumps(body).encode()
    for sent in (text, text[:at] + junk + text[at:], junk):
        try:
            asked = VERBS[verb].question(sent, LIMITS).asked
        except Refusal as refused:
            is_plain(refused)
        else:
            is_within_bounds(asked, verb)


def is_within_bounds(asked: Ask | Report, verb: str) -> None:
    if isinstance(asked, Report):
        assert all(len(name) <= 63 for name in (*asked.collectors, *asked.learners))
        return
    for amounts in (asked.collectors, asked.learners):
        assert 0 <= amounts.gpus <= LIMITS.gpus
        assert amounts.replicas >= 0
        assert amounts.replicas <= LIMITS.per_request or verb == "delete"
        assert all(amount.value > 0 for amount in Resources.parse(dict(amounts.resources)).values())


PAIRS = st.lists(st.tuples(st.sampled_from(["namespace", "Name", "coordinator", "x"]) | st.text(), st.text()))


class Pairs(dict[str, str]):
    """A query, in which a key can come twice."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs

    def items(self) -> Any:
        return self.pairs


@given(PAIRS)
def test_every_query_names_objects_or_is_refused(pairs: list[tuple[str, str]]) -> None:
    try:
        query = query_of(Pairs(pairs))
    except Refusal as refused:
        is_plain(refused)
    else:
        given = (query.namespace, query.name, query.coordinator, query.aggregator)
        assert all(not each or (len(each) <= 63 and each.isascii() and "/" not in each) for each in given)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: query_of({"namespace": "../x"}), "namespace is ../x: write the name of a namespace"),
        (lambda: query_of({"aggregator": "n" * 300}), "write the name of a pod"),
        (lambda: query_of(Pairs([("name", "a"), ("Name", "b")])), "name is given twice: write it once"),
        (lambda: key_of({"Idempotency-Key": "k" * 256}), "longer than 255 characters: shorten it"),
        (lambda: key_of({"Idempotency-Key": "\udcff"}), "is not printable ASCII: write letters and digits"),
        (lambda: key_of({"Idempotency-Key": "\x00"}), "is not printable ASCII: write letters and digits"),
    ],
)
def test_queries_and_keys_are_bounded(call: Callable[[], object], said: str) -> None:
    with pytest.raises(Refusal) as refused:
        call()
    assert said in refused.value.message
    is_plain(refused.value)
