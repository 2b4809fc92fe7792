"""Judges of virtual time: what they are given, what they compare, and that devcluster ends alike."""

from __future__ import annotations

import asyncio

import pytest

from lab.simulation import judges
from lab.simulation.cluster import on_devcluster
from lab.simulation.history import History

SMALL = """
seed 3
0 submit job=a strategy=Local workers=2 least=1 most=4
1 crash write=4 when=after back=0.05
2 scale job=a workers=3
"""


@pytest.mark.parametrize("seed", range(20))
def test_judges_are_given_lines_that_they_know(seed: int) -> None:
    history = judges.drawn(seed)
    assert {each.name for each in history.lines} <= {*judges.ACTS, "restart", "crash", "cut"}
    assert not {*judges.UNKNOWN} & {name for each in history.lines for name in each.given}
    assert history == judges.drawn(seed)


def test_fields_that_only_a_server_adds_are_no_difference() -> None:
    virtual = {"Pod a": {"spec": {"containers": [{"name": "main"}]}}}
    real = {"Pod a": {"spec": {"containers": [{"name": "main", "imagePullPolicy": "Always"}], "priority": 0}}}
    assert judges.difference(virtual, real) == ""


@pytest.mark.parametrize("name", ["Pod a", "ElasticJob a"])
def test_other_values_are_a_difference(name: str) -> None:
    found = judges.difference({name: {"spec": {"size": 1}}}, {name: {"spec": {"size": 2}}})
    assert "-    size: 1" in found
    assert "+    size: 2" in found


def test_fields_of_our_kinds_that_virtual_time_lacks_are_a_difference() -> None:
    assert "+    more: 1" in judges.difference(
        {"ElasticJob a": {"spec": {}}}, {"ElasticJob a": {"spec": {"more": 1}}}
    )


def test_devcluster_comes_to_the_same_end() -> None:
    history, virtual = judges.expected(History.parse(SMALL))
    verdict = asyncio.run(judges.judged(virtual, history, on_devcluster))
    assert verdict.difference == ""
