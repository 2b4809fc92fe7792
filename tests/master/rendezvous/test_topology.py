"""The order of ranks by groups and switches, and groups that do not add up."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.master.rendezvous.topology import lay_out, spot_of
from elasticjob.master.state.job import Spot
from elasticjob.master.state.node import Node, Phase
from lab.virtual.master import Played, join, pod, watch

SPOTS = st.builds(Spot, group=st.none() | st.integers(0, 2), rack=st.sampled_from(["", "a", "b"]))


def laid_out(ages: Mapping[str, int], spots: Mapping[str, Spot]) -> str:
    """Lay out nodes of one letter each, given by age; return their names."""
    return "".join(node.name for node in lay_out([Node(name=n) for n in ages], spots, lambda n: ages[n.name]))


def grouped(names: str) -> dict[str, Spot]:
    """Return spots by `A0 B1`: a node's name and its group; `Ax` is a node in rack x."""
    return {w[0]: Spot(group=int(w[1])) if w[1].isdecimal() else Spot(rack=w[1]) for w in names.split()}


@pytest.mark.parametrize(
    ("ages", "spots", "expected"),
    [
        ("A1 B1 C1 D1", "", "ABCD"),
        ("A1 B1 C1 D1", "A1 B0 C1 D0", "BDAC"),  # the first world: ascending groups
        ("A1 B2 C2 D2", "A1 B0 C1 D0", "ACBD"),  # the oldest is rank 0, its group is first
        ("A1 B1 C2 D2", "A1 B0 C1 D0", "BDAC"),  # as in the world before
        ("A1 B2 C2 D2 E2", "A2 B1 C0 D1 E0", "ACEBD"),
        ("A1 B1 C1 D1", "Ax By Cx Dy", "ACBD"),
        ("A1 B1 C1 D1", "By Dy", "ABDC"),  # where A and C are is not known
        ("A1 B1 C1 D1", "B0 D0", "BDAC"),  # a node without a group is last
    ],
)
def test_ranks_follow_groups_and_switches(ages: str, spots: str, expected: str) -> None:
    assert laid_out({word[0]: int(word[1]) for word in ages.split()}, grouped(spots)) == expected


@given(
    spots=st.lists(SPOTS, min_size=1, max_size=10), ages=st.lists(st.integers(1, 3), min_size=10, max_size=10)
)
def test_rank_0_is_among_the_oldest_and_groups_are_contiguous(spots: list[Spot], ages: list[int]) -> None:
    names = "ABCDEFGHIJ"[: len(spots)]
    where, old = dict(zip(names, spots, strict=True)), dict(zip(names, sorted(ages), strict=False))
    order = laid_out(old, where)
    assert sorted(order) == sorted(names)
    assert old[order[0]] == min(old.values())
    groups = [where[name].group for name in order]
    assert len([1 for a, b in pairwise(groups) if a != b]) == len(set(groups)) - 1
    racks = [(spot.group, spot.rack) for spot in (where[name] for name in order) if spot.rack]
    assert len([1 for a, b in pairwise(racks) if a != b]) == max(0, len(set(racks)) - 1)
    assert laid_out({name: old[name] for name in sorted(order, key=lambda n: old[n])}, where)[0] == order[0]


def test_only_workers_have_groups_and_labels_are_not_trusted() -> None:
    labels = {"scheduling/rack-group": "1", "scheduling/rack-group-num": "2", "scheduling/rack-id": "r"}
    assert spot_of("worker", labels) == Spot(group=1, groups=2, rack="r")
    assert spot_of("evaluator", labels) is None
    assert spot_of("worker", {"scheduling/rack-group": "one"}) is None


@pytest.mark.parametrize(
    ("spots", "sentence"),
    [
        ([(0, 2), (1, 2), (0, 2), (1, 2)], ""),
        ([(0, None), (0, None), (3, None), (3, None)], ""),
        ([(0, 2), (1, 2), None, (1, 2)], "groups 0 (1), 1 (2) add up to 3 of 4 workers: node-2 is without"),
        (
            [(0, 3), (1, 3), (0, 3), (1, 3)],
            "says 3 groups from 0 on, but the workers are in groups 0 (2), 1 (2)",
        ),
        ([(0, 2), (1, 2), (0, 3), (1, 3)], "is 2 here and 3 there"),
    ],
)
def test_groups_that_do_not_add_up_end_the_job(
    spots: list[tuple[int, int | None] | None], sentence: str
) -> None:
    game = Played(4, 4, replicas=4)
    where = [spot and Spot(group=spot[0], groups=spot[1]) for spot in spots]
    game.see(*(pod(f"node-{index}", Phase.PENDING, spot=spot) for index, spot in enumerate(where)))
    assert game.ended() is None
    game.see(*(pod(f"node-{index}", spot=spot) for index, spot in enumerate(where)))
    verdict = game.ended()
    assert (verdict.reason if verdict else "") == ("InvalidNodeGroups" if sentence else "")
    assert sentence in (verdict.message if verdict else "")


def test_worlds_are_laid_out_by_the_labels_of_pods() -> None:
    game = Played(1, 4, replicas=4)
    game.see(*(pod(f"node-{index}", spot=Spot(group=1 - index % 2, groups=2)) for index in range(4)))
    game.ask(*(watch(f"node-{index}") for index in range(4)), *(join(f"node-{index}") for index in range(4)))
    assert game.names() == ["node-1", "node-3", "node-0", "node-2"]
    game.cut(watch("node-1"))
    game.ask(*(join(f"node-{index}", after=1) for index in (0, 2, 3)))
    assert game.names() == ["node-3", "node-0", "node-2"]
    game.ask(watch("node-1", "second"), join("node-1", "second"))
    game.ask(*(join(f"node-{index}", after=2) for index in (0, 2, 3)))
    assert game.names() == ["node-3", "node-1", "node-0", "node-2"]
