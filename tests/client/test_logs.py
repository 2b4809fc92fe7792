"""Lines of many logs in one order; names of nodes; what is cut, and where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.client.logs import (
    LONGEST,
    Line,
    Lines,
    Selection,
    Source,
    answer,
    merge,
    nanoseconds,
    parse,
    unknown,
)
from elasticjob.kube.errors import Unreachable
from elasticjob.kube.objects.views import ObjectMeta, Pod

ZERO, ONE = Source("digits-worker-0", "worker", 0), Source("digits-worker-1-2", "worker", 1, 2)
MASTER = Source("digits-master", "master", 0)


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ("1970-01-01T00:00:01Z", 10**9),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("1970-01-01T00:00:00.5Z", 5 * 10**8),
        ("1970-01-01T01:00:00.25+01:00", 25 * 10**7),
    ],
)
def test_a_timestamp_keeps_its_nanoseconds(stamp: str, expected: int) -> None:
    assert nanoseconds(stamp) == expected


def test_a_line_without_a_timestamp_is_told_as_it_is() -> None:
    assert parse(b"no stamp here\n", ZERO) == Line(0, ZERO, "no stamp here")
    assert parse(b"1970-01-01T00:00:01Z  two  spaces\r\n", ZERO) == Line(10**9, ZERO, " two  spaces")
    assert parse(b"1970-01-01T00:00:01Z \xff", ZERO).text == "�"


@given(st.lists(st.binary(max_size=50)), st.integers(1, 7))
def test_lines_are_the_same_however_they_are_cut(parts: list[bytes], size: int) -> None:
    whole = b"\n".join(parts)
    cut = Lines()
    found = [
        line for at in range(0, len(whole), size) for line in cut.take(whole[at : at + size])
    ] + cut.end()
    expected = whole.split(b"\n")
    assert found == (expected if expected[-1] else expected[:-1])


def test_a_line_that_never_ends_is_told_in_pieces() -> None:
    cut = Lines()
    assert [len(piece) for piece in cut.take(b"x" * (2 * LONGEST + 1))] == [LONGEST, LONGEST]
    assert cut.end() == [b"x"]


@given(st.lists(st.lists(st.integers(0, 20), max_size=8), max_size=4))
def test_logs_are_merged_by_time_and_none_is_turned_around(logs: list[list[int]]) -> None:
    sources = [Source(f"pod-{number}", "worker", number) for number in range(len(logs))]
    given_ = [
        [Line(at, source, str(place)) for place, at in enumerate(log)]
        for source, log in zip(sources, logs, strict=True)
    ]
    found = merge(given_)
    for source, log in zip(sources, given_, strict=True):
        assert [line for line in found if line.source == source] == log
    if all(log == sorted(log) for log in logs):
        assert [line.at for line in found] == sorted(line.at for line in found)


@pytest.mark.parametrize(
    ("nodes", "shown"),
    [
        ((), {"worker-0", "worker-1.2"}),
        (("worker",), {"worker-0", "worker-1.2"}),
        (("worker-1",), {"worker-1.2"}),
        (("master", "worker-0"), {"master-0", "worker-0"}),
        (("dlrover-master",), {"master-0"}),
        (("ps",), set()),
    ],
)
def test_nodes_are_chosen_by_role_and_index(nodes: tuple[str, ...], shown: set[str]) -> None:
    assert {each.label for each in (ZERO, ONE, MASTER) if Selection(nodes).has(each)} == shown


@pytest.mark.parametrize(
    ("node", "is_known"),
    [("worker", True), ("worker-3", True), ("worker-4", False), ("worker-03", False), ("ps-0", False)],
)
def test_a_node_that_the_job_neither_has_nor_may_get_is_an_error(node: str, is_known: bool) -> None:
    workers = {"replicas": 2, "maxReplicas": 4, "minReplicas": 1}
    job = ElasticJob.model_validate(
        {"metadata": {"name": "digits"}, "spec": {"replicaSpecs": {"worker": workers}}}
    )
    error = unknown(job, Selection(("master", node)), [ZERO, ONE, MASTER])
    assert error is None if is_known else f"no node {node}: it has master-0, worker-0, worker-1" in str(error)


def test_a_machine_that_does_not_answer_costs_its_own_lines() -> None:
    pods = [Pod(metadata=ObjectMeta(name=name)) for name in ("a", "b")]
    away, line = Unreachable("node-7: no route"), Line(5, Source("b", "", 0), "step 1")
    told, other = answer(pods, [away, [line]])
    assert (told.source.pod, told.text) == ("a", "(the log cannot be read: node-7: no route)")
    assert other == line
    with pytest.raises(Unreachable):
        answer(pods, [away, away])
    assert answer([], []) == []
