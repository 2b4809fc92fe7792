"""Who runs the payload with whom, and what the results say: tables, and laws that hold for all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.master.health.pairing import best, following, judge, needs_another_turn, opposites, pairs
from elasticjob.master.state.check import Outcome

ALPHABET = "ABCDEFGHIJKLMNOP"


def ran(text: str) -> dict[str, Outcome]:
    """Read `A1 B2.5 C!`: a node's name and its seconds, or that it failed."""
    words = text.split()
    return {
        w[0]: Outcome(seconds=0, error="no link") if w[1:] == "!" else Outcome(seconds=float(w[1:]))
        for w in words
    }


@pytest.mark.parametrize(
    ("names", "groups"),
    [("", ""), ("A", ""), ("AB", "AB"), ("ABC", "ABC"), ("ABCD", "AB CD"), ("ABCDE", "AB CDE")],
)
def test_adjacent_nodes_in_pairs(names: str, groups: str) -> None:
    assert ["".join(group) for group in pairs(names)] == groups.split()


@pytest.mark.parametrize(
    ("times", "groups"),
    [("A1 B2", "AB"), ("A3 B1 C2 D4", "BD CA"), ("A3 B1 C2 D4 E5", "BE CDA"), ("A! B1 C2 D9", "BA CD")],
)
def test_the_fastest_with_the_slowest(times: str, groups: str) -> None:
    seconds = {name: 3600 if one.error else one.seconds for name, one in ran(times).items()}
    assert ["".join(group) for group in opposites(seconds)] == groups.split()


@pytest.mark.parametrize("guilty", "ABC")
def test_of_three_nodes_the_guilty_one_is_found_by_trying_each_two(guilty: str) -> None:
    alone, turns, groups = ran("A1 B1 C1"), list[dict[str, Outcome]](), pairs("ABC")
    while groups:
        turns.append(
            {name: ran(f"{name}{'!' if guilty in group else 1}")[name] for group in groups for name in group}
        )
        groups = following(turns, best(alone, turns))
    assert [name for name, one in judge(alone, turns, {}).items() if one.fault] == [guilty]
    assert len(turns) <= 4


@given(st.dictionaries(st.sampled_from(ALPHABET), st.floats(0, 10), min_size=2))
def test_every_node_is_in_one_group_of_two_or_three(times: dict[str, float]) -> None:
    for groups in (pairs(sorted(times)), opposites(times)):
        assert sorted(name for group in groups for name in group) == sorted(times)
        assert {len(group) for group in groups} <= {2, 3}
        assert sum(len(group) == 3 for group in groups) == len(times) % 2


@pytest.mark.parametrize(
    ("results", "another"),
    [("A1 B1", False), ("A! B!", True), ("A1 B1 C3 D3", True), ("A.01 B.01 C.3 D.3", False)],
)
def test_a_second_turn_is_for_open_questions(results: str, another: bool) -> None:
    assert needs_another_turn(ran(results)) is another


@pytest.mark.parametrize(
    ("alone", "turns", "faults", "slow"),
    [
        ("A1 B1 C1 D1", ["A1 B1 C1 D1"], "", ""),
        ("A1 B! C1 D1", ["A1 C1 D1"], "B", ""),  # guilty alone
        ("A1 B1 C1 D1", ["A! B! C1 D1", "A1 D1 B! C!"], "B", ""),  # A, C are cleared by the other turn
        ("A1 B1 C1 D1", ["A! B! C! D!", "A1 D1 B! C!"], "BC", ""),
        ("A1 B1", ["A! B!", "A! B!"], "AB", ""),
        ("A1 B!", [], "B", ""),  # two nodes: the one that fails alone
        ("A1 B1 C5 D1", ["A1 B1 C1 D1"], "", "C"),
        ("A1 B1 C1 D1", ["A1 B1 C9 D9", "A1 D1 B9 C9"], "", "C"),  # a slow link: its partners are cleared
        ("A1 B5", ["A1 B1"], "", ""),  # of two, nobody can say who is usual
        ("A.1 B.1 C.4", [], "", ""),  # short payloads vary
    ],
)
def test_who_is_at_fault_and_who_is_slow(alone: str, turns: list[str], faults: str, slow: str) -> None:
    judged = judge(ran(alone), [ran(turn) for turn in turns], {})
    assert "".join(name for name, one in judged.items() if one.fault) == faults
    assert "".join(name for name, one in judged.items() if one.slow) == slow
    assert all(bool(one.sentence) == (one.fault or one.slow) for one in judged.values())


def test_two_nodes_and_one_are_compared_with_good_nodes_before() -> None:
    judged = judge(ran("A1 B5"), [], {"A": (1.0, None), "B": (1.0, None)})
    assert (judged["A"].slow, judged["B"].slow) == (False, True)
    assert judged["B"].sentence == "B is slow alone: 5.00 s, good nodes before took 1.00 s"
    assert judge(ran("A9"), [], {"A": (4.0, None)})["A"].slow


@given(st.sets(st.sampled_from(ALPHABET), min_size=4), st.data())
def test_one_broken_node_among_four_or_more_is_found_alone_guilty(
    names: set[str], data: st.DataObject
) -> None:
    """Whatever the times, the first two turns clear every node but the broken one."""
    guilty = data.draw(st.sampled_from(sorted(names)))
    alone = {name: Outcome(seconds=1.0) for name in names}
    turns: list[dict[str, Outcome]] = []
    times = dict.fromkeys(sorted(names), 1.0)
    for groups in (pairs(sorted(names)), None):
        turn = {}
        for group in groups or opposites(times):
            for name in group:
                error = "no link" if guilty in group else ""
                turn[name] = Outcome(seconds=data.draw(st.floats(1.0, 1.5)), error=error)
        turns.append(turn)
        times = {name: 3600.0 if turn[name].error else turn[name].seconds for name in turn}
    judged = judge(alone, turns, {})
    assert judged[guilty].fault
    accused = {name for name, one in judged.items() if one.fault}
    assert len(accused) <= (1 if len(names) % 2 == 0 else 3)
