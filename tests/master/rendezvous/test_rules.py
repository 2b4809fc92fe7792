"""The rules of a round, each as a table or a short story."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from elasticjob.api.rpc.nodes import Kept, Order
from elasticjob.api.rpc.rendezvous import Join
from elasticjob.api.sizes.role import Range
from elasticjob.master.state.errors import Refused, Stale, Stopping
from elasticjob.master.state.job import NAMED, End
from elasticjob.master.state.node import Phase
from lab.virtual.master import (
    Played,
    Step,
    act,
    cut,
    finish,
    forms,
    hears,
    join,
    leave,
    plain,
    played,
    pod,
    report,
    wait,
    watch,
)

NODES = [f"node-{index}" for index in range(9)]


@pytest.mark.parametrize(
    ("minimum", "maximum", "unit", "lo", "hi"),
    [(1, 4, 1, 1, 4), (1, 4, 2, 2, 4), (3, 7, 2, 4, 6), (1, 1, 1, 1, 1), (2, 5, 5, 5, 5)],
)
def test_bounds_are_rounded_inwards_to_the_unit(
    minimum: int, maximum: int, unit: int, lo: int, hi: int
) -> None:
    bounds = Range(least=minimum, most=maximum, unit=unit)
    assert (bounds.smallest, bounds.largest, bounds.problem("nodes")) == (lo, hi, "")


def test_bounds_that_fit_no_world_say_both_numbers() -> None:
    problem = Range(least=3, most=3, unit=2).problem("nodes")
    assert problem == "no multiple of nodeUnit 2 lies from 3 to 3 nodes"


@pytest.mark.parametrize(
    ("minimum", "maximum", "unit", "joined", "size"),
    [
        (1, 4, 1, 1, 1),  # everybody who lives has joined: at once
        (2, 4, 1, 1, 0),  # fewer than the minimum
        (1, 4, 2, 1, 0),  # enough for min, not for the unit
        (1, 4, 2, 3, 2),  # rounded down, one waits
        (3, 8, 2, 3, 0),  # rounded down it would be below the minimum
        (1, 5, 2, 5, 4),  # the maximum is no multiple of the unit
        (1, 2, 1, 4, 2),  # never more than the maximum
    ],
)
def test_a_world_is_complete_at_once_when_all_who_live_have_joined(
    minimum: int, maximum: int, unit: int, joined: int, size: int
) -> None:
    game = Played(minimum, maximum, unit)
    game.ask(*(watch(name) for name in NODES[:joined]))
    game.ask(*(join(name) for name in NODES[:joined]))
    assert len(game.names()) == size


ZERO, ONE, TWO, THREE = NODES[:4]
RUNS = tuple(map(pod, NODES[:4]))
SECOND = pod(ONE, Phase.PENDING, name="node-1-1", relaunch=1)
ON: dict[str, Any] = {"order": Order.TRAIN}
ANEW: dict[str, Any] = {"order": Order.REGROUP}


@act
def is_in(game: Played, name: str, phase: Phase) -> None:
    assert game.job.nodes[name].phase is phase


@act
def ages(game: Played, *rounds: int) -> None:
    """The rounds since which the members of the last world have its state, in rank order."""
    assert game.job.world
    assert [member.since for member in game.job.world.members] == [*rounds]


HISTORIES: dict[str, tuple[int, dict[str, Any], tuple[Step, ...]]] = {
    "a first world waits for nodes that live until last call": (
        0, {"maximum": 3},
        (watch(ZERO), watch(ONE), join(ZERO, wait=60.0), wait(29, ZERO, ONE),
         hears(ZERO, says="waiting for node-1"), wait(1.5, ZERO, ONE), forms(ZERO))),
    "running pods hold up the first world, pending ones do not": (
        0, {"maximum": 3},
        ((RUNS[0], RUNS[1], pod(TWO, Phase.PENDING)), join(ZERO), forms(), join(ONE), forms(ZERO, ONE))),
    "an agent may come before its pod is seen": (
        0, {"maximum": 1},
        ((pod(ZERO, Phase.FAILED),), watch(ZERO, pod="node-0-1"), join(ZERO), forms(ZERO))),
    "ranks go by place first, and by age later": (
        0, {"maximum": 3},
        (watch(ONE), watch(TWO), join(TWO), join(ONE), forms(ONE, TWO), watch(ZERO), join(ZERO),
         hears(ONE, **ANEW), join(TWO, after=1), join(ONE, after=1), forms(ONE, TWO, ZERO), ages(1, 1, 2))),
    "a replaced rank 0 comes back as the youngest": (
        2, {},
        (join(ZERO, "second", after=0), hears(ONE, lost=(ZERO,)), join(ONE, after=1), forms(ONE, ZERO))),
    "survivors do not wait for a node whose worker died, and it is cut in at a boundary": (
        2, {},
        (leave(ONE, 1), hears(ZERO, lost=(ONE,)), join(ZERO, after=1, wait=90.0), forms(ZERO),
         join(ONE, after=1), hears(ZERO, **ANEW, lost=(), round=2), join(ZERO, after=2), forms(ZERO, ONE))),
    "newcomers are cut in by the unit, and only where there is room": (
        2, {"unit": 2, "maximum": 4},
        (watch(TWO), join(TWO), hears(ZERO, **ON), watch(THREE), join(THREE), hears(ZERO, **ANEW),
         join(ZERO, after=1), join(ONE, after=1), watch(NODES[4]), watch(NODES[5]), join(NODES[4]),
         join(NODES[5]), hears(ZERO, **ON), forms(*NODES[:4]))),
    "a planned leaver is not waited for": (
        2, {},
        (leave(ONE, 1, planned=True), hears(ZERO, **ANEW, lost=(), reason="node-1 leaves"),
         hears(ONE, **ANEW), join(ZERO, after=1, wait=90.0), forms(ZERO))),
    "a world that would fall below the minimum pauses with its state": (
        2, {"minimum": 2},
        (cut(watch(ONE)), join(ZERO, after=1, wait=60.0), hears(ZERO, **ANEW), join(ONE, "second"),
         forms(ZERO, ONE), ages(1, 2))),
    "a broken join interrupts the others at once, and keeps its age": (
        2, {},
        (join(ZERO, after=1, broken=True), hears(ONE, lost=(ZERO,)), join(ONE, after=1), forms(ZERO, ONE),
         ages(1, 1))),
    "a withdrawn join is in no world": (
        0, {"minimum": 2}, (watch(ZERO), join(ZERO), cut(join(ZERO)), join(ONE), forms())),
    "a newcomer does not take the world while its members, who hold the model, are on a long step": (
        1, {"maximum": 2},
        (watch(ONE), join(ONE, wait=600), wait(120, ZERO, ONE), hears(ZERO, **ANEW, round=1),
         join(ZERO, after=1, wait=90.0), forms(ZERO, ONE))),
    "members that never come are waited for no longer than the join timeout": (
        1, {"maximum": 2}, (watch(ONE), join(ONE, wait=2000), wait(901, ZERO, ONE), forms(ONE))),
    "who is lost in the same moment is in no world in between": (
        3, {},
        (join(ZERO, after=1, wait=60), join(TWO, after=1, wait=60), wait(6, ZERO), forms(ZERO),
         hears(ZERO, round=2))),
    "a world of its own, until the others find it, does not make a newcomer the oldest": (
        0, {"maximum": 3},
        (watch(ZERO), join(ZERO), watch(ONE, round=5), watch(TWO, round=5), join(ZERO, after=1, wait=90.0),
         wait(60, ZERO, ONE, TWO), hears(ONE, round=5), join(ONE, after=5), join(TWO, after=5),
         forms(ONE, TWO, ZERO))),
    "a script that is not known to be elastic comes after those that are, whose store listens": (
        0, {"maximum": 3},
        (watch(ZERO), plain(ZERO), forms(ZERO), watch(ONE), join(ONE), plain(ZERO, after=1),
         forms(ONE, ZERO), join(ZERO, after=2), join(ONE, after=2), forms(ZERO, ONE))),
    "a script that is started again does not keep those that wait for it to enter": (
        0, {"maximum": 3},
        (watch(ZERO), watch(ONE), join(ZERO), plain(ONE), forms(ZERO, ONE), watch(TWO), join(TWO, wait=60.0),
         hears(ZERO, lost=()), plain(ONE, after=1), hears(ZERO, lost=(ONE,)),  # there is no next step
         join(ZERO, after=1, broken=True), forms(ZERO, TWO, ONE))),
    "silence is a loss after five seconds": (
        2, {}, (wait(5, ZERO), hears(ZERO, **ON), wait(0.5, ZERO),
                hears(ZERO, lost=(ONE,), reason="node-1 is silent"))),
    "a cut line is one at once": (2, {}, (cut(watch(ONE)), hears(ZERO, lost=(ONE,)))),
    "who was given up and comes back is told to regroup": (
        2, {},
        (wait(6, ZERO), join(ZERO, after=1), watch(ONE, round=1, seen=1),
         hears(ONE, number=1, **ANEW, round=1, lost=(ONE,)), join(ONE, after=1), join(ZERO, after=2),
         forms(ZERO, ONE))),
    "a pod that is deleted leaves at a boundary": (
        2, {}, (RUNS[:2], (RUNS[0], pod(ONE, leaving=True)),
                hears(ZERO, **ANEW, lost=(), reason="pod node-1 is being deleted"))),
    "a pod that vanished is lost": (
        2, {}, (RUNS[:2], RUNS[:1], hears(ZERO, lost=(ONE,)), is_in(ONE, Phase.DELETED))),
    "an agent that has yet to name its pod is lost with it": (
        0, {"minimum": 2}, (RUNS[:2], join(ONE), RUNS[:1], watch(ZERO), join(ZERO), forms())),
    "unless that had ended before it came": (
        0, {"minimum": 2},
        ((pod(ONE, Phase.FAILED),), join(ONE), (pod(ONE, Phase.FAILED),), watch(ZERO), join(ZERO),
         forms(ZERO, ONE))),
    "an agent whose pod is not listed yet is not lost with an older one": (
        0, {"minimum": 2},
        (watch(ONE, pod="node-1-1"), join(ONE), RUNS[:2], RUNS[:1], watch(ZERO), join(ZERO),
         forms(ZERO, ONE))),
    "one that is not listed yet is not": (2, {}, ((), RUNS[:1], hears(ZERO, **ON))),
    "a replacement does not end the life that it replaces": (
        2, {}, ((pod(ONE, leaving=True), SECOND), hears(ZERO, lost=()), join(ONE, "second"),
                join(ZERO, after=1), forms(ZERO, ONE))),
    "a member that leaves has not finished when its pod ends well": (
        2, {}, (RUNS[:2], leave(ONE, 1, planned=True), (RUNS[0], pod(ONE, Phase.SUCCEEDED)),
                hears(ZERO, lost=(ONE,)))),
    "the end of an older pod does not speak for an agent whose pod is not seen yet": (
        2, {},
        (RUNS[:2], (RUNS[0], pod(ONE, Phase.FAILED)), watch(ONE, "second", pod="node-1-1"),
         join(ONE, "second"), join(ZERO, after=1), forms(ZERO, ONE), (RUNS[0], pod(ONE, Phase.FAILED)),
         watch(ONE, "second", pod="node-1-1", round=2), hears(ZERO, **ON),
         hears(ONE, "second", **ON, round=2))),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "options", "steps"), HISTORIES.values(), ids=HISTORIES)
def test_history(nodes: int, options: dict[str, Any], steps: tuple[Step, ...]) -> None:
    played(*NODES[:nodes], **options).play(*steps)


def test_a_trickle_of_joins_cannot_stretch_last_call_beyond_the_join_timeout() -> None:
    game = Played(maximum=9, minimum=2)
    game.job = game.job.but(
        spec=game.job.spec.but(limits=game.job.spec.limits.but(join_timeout=game.job.spec.limits.last_call))
    )
    game.ask(*(watch(name) for name in NODES))
    for name in NODES[:4]:
        if not game.names():
            game.ask(join(name, wait=600.0))
            game.wait(12, *NODES)
    assert game.names() == NODES[:3]


def test_newcomers_never_push_out_a_survivor_who_is_still_on_its_way() -> None:
    game = played("node-0", "node-1")
    game.ask(leave("node-1", 1), watch("node-2"), join("node-2"), watch("node-3"), join("node-3"))
    assert game.job.running is None
    game.ask(join("node-0", after=1, wait=90.0))
    assert game.names()[0] == "node-0"


def test_a_repeated_join_is_answered_with_the_same_world() -> None:
    game = played("node-0", "node-1")
    before = game.job
    assert game.ask(join("node-0")) == game.ask(join("node-1")) == before.world
    assert game.job == before


def test_a_late_copy_of_a_leave_does_not_undo_a_join() -> None:
    game = played("node-0", "node-1", minimum=2)
    game.ask(leave("node-1", 1), join("node-1", after=1))
    game.ask(leave("node-1", 1))
    assert game.job.nodes["node-1"].joined
    game.ask(join("node-0", after=1, wait=90.0))
    assert game.job.round == 2
    assert game.ask(leave("node-1", 1)) is not None
    assert game.job.running


def test_an_older_round_is_refused() -> None:
    game = played("node-0", "node-1")
    game.ask(join("node-0", after=1), join("node-1", after=1))
    with pytest.raises(Stale, match="round 1 is over for node-0"):
        game.ask(leave("node-0", 1))


def test_an_older_incarnation_is_refused() -> None:
    game = played("node-0", "node-1")
    game.ask(watch("node-0", "second"))
    for request in (watch("node-0"), join("node-0"), leave("node-0", 1)):
        with pytest.raises(Stale, match="was replaced by second"):
            game.ask(request)


def test_a_leaver_and_a_finished_node_cannot_join() -> None:
    game = played("node-0", "node-1")
    game.ask(leave("node-1", 1, planned=True))
    with pytest.raises(Refused, match="node-1 is leaving"):
        game.ask(join("node-1", after=1))
    game = played("node-0", "node-1")
    game.ask(finish("node-1", 1))
    with pytest.raises(Refused, match="node-1 has finished"):
        game.ask(join("node-1", after=1))


def test_nobody_is_cut_into_a_world_that_is_finishing() -> None:
    game = played("node-0", "node-1", maximum=3)
    game.ask(finish("node-0", 1), watch("node-2"), join("node-2"))
    assert game.order("node-1") is Order.TRAIN
    game.ask(finish("node-1", 1))
    assert game.order("node-2") is Order.STOP
    with pytest.raises(Stopping, match="all 2 nodes of round 1 finished"):
        game.ask(join("node-2"))


def test_new_bounds_count_from_the_next_round_on() -> None:
    game = played("node-0", "node-1")
    game.job = game.job.but(spec=game.job.spec.but(bounds=Range(least=1, most=1)))
    game.wait(1, "node-0", "node-1")
    assert game.order("node-0") is Order.TRAIN
    game.ask(join("node-0", after=1), join("node-1", after=1))
    assert game.names() == ["node-0"]


def test_the_global_batch_never_shrinks() -> None:
    game = played("node-0", "node-1")
    assert game.job.world.batch_slots == 2  # type: ignore[union-attr]
    game.job = game.job.but(spec=game.job.spec.but(bounds=Range(least=1, most=1)))
    game.ask(join("node-0", after=1), join("node-1", after=1))
    assert game.job.world.batch_slots == 2  # type: ignore[union-attr]


def test_a_node_may_come_back_with_fewer_workers() -> None:
    game = Played()
    game.ask(watch("node-0"), watch("node-1"), join("node-0", slots=2), join("node-1", slots=2))
    game.ask(join("node-0", after=1, slots=1, broken=True), join("node-1", after=1, slots=2))
    world = game.job.world
    assert world is not None
    assert (world.size, world.first_rank("node-1"), world.batch_slots) == (3, 1, 4)


@pytest.mark.parametrize("enter", [plain, join], ids=["not known to be elastic", "elastic"])
@pytest.mark.parametrize("came", ["at first", "later"])
@pytest.mark.parametrize("stored", [0, 8])
def test_who_is_lost_after_the_last_step_does_its_part_again(
    enter: Callable[..., Join], came: str, stored: int
) -> None:
    game = played("node-0", enter=enter, maximum=2) if came == "later" else played(*NODES[:2], enter=enter)
    if came == "later":
        game.ask(report("node-0", 1, 3), watch("node-1"), enter("node-1"))
        game.wait(5, "node-0", "node-1")
        game.ask(enter("node-0", after=1))
    assert game.names() == NODES[:2]
    number = game.job.round
    kept = Kept(in_memory=8, stored=stored)
    game.ask(msgspec.structs.replace(report("node-1", number, 9), kept=kept))
    game.ask(finish("node-0", number))
    game.cut(watch("node-1"))
    game.see(pod("node-0", Phase.SUCCEEDED), pod("node-1", Phase.FAILED))
    game.wait(60)
    assert game.ended() is None
    game.see(pod("node-0", Phase.SUCCEEDED), pod("node-1", name="node-1-1", relaunch=1))
    game.ask(watch("node-1", "second"), enter("node-1", "second"))
    assert game.names() == ["node-1"]
    (found,) = [each.message for each in game.job.health.findings]
    assert found.startswith("node-0 finished, and node-1 was lost before it had: it trains again, from the ")
    assert ("of step 8" in found) is bool(stored)
    game.ask(finish("node-1", game.job.round, "second"))
    assert game.verdict.end is End.SUCCEEDED


def test_late_nodes_of_a_plain_script_cost_one_restart_together() -> None:
    game = played("node-0", "node-1", maximum=9)
    for name in NODES[2:6]:
        game.ask(watch(name), plain(name))
        game.wait(2, *game.job.nodes)
        assert game.order("node-0") is Order.TRAIN
    game.wait(1.5, *NODES[:6])
    assert game.order("node-0") is Order.REGROUP
    game.ask(plain("node-0", after=1), plain("node-1", after=1))
    assert game.names() == NODES[:6]


def test_newcomers_of_a_plain_script_wait_no_longer_than_the_longest_window() -> None:
    game = played("node-0", maximum=20)
    names = [f"node-{index}" for index in range(20)]
    waited = 0
    while game.order("node-0") is Order.TRAIN:
        waited += 1
        game.ask(watch(names[waited]), plain(names[waited]))
        game.wait(2.5, *names[: waited + 1])
    assert waited == 12


@pytest.mark.parametrize("case", ["in-process", "full", "loss"])
def test_no_window_delays_what_cannot_wait(case: str) -> None:
    game = played("node-0", "node-1", maximum=3 if case == "full" else 9)
    game.ask(watch("node-2"), join("node-2") if case == "in-process" else plain("node-2"))
    if case == "loss":
        assert game.order("node-0") is Order.TRAIN
        game.cut(watch("node-1"))
        game.ask(plain("node-0", after=1))
        assert game.names() == ["node-0", "node-2"]
    assert (game.order("node-0") is Order.REGROUP) == (case != "loss")


def test_a_world_that_loses_very_many_says_so_with_a_few_names() -> None:
    names = [f"node-{index}" for index in range(40)]
    game = Played(maximum=40)
    game.ask(*(watch(name) for name in names), *(join(name) for name in names))
    version = game.job.version
    for name in names[10:]:
        game.cut(watch(name))
    assert len(game.orders("node-0").lost) == NAMED
    assert game.job.version - version == NAMED
    game.ask(*(watch(name, "second") for name in names[10:12]))
    game.ask(*(join(name, after=1) for name in names[:10]))
    assert sorted(game.names()) == names[:10]
    change = game.job.training.changes[-1]
    assert (len(change.lost), change.joined, change.others) == (4, (), 26)
    game.ask(*(join(name, "second") for name in names[10:12]), *(join(name, after=2) for name in names[:10]))
    assert sorted(game.job.training.changes[-1].joined) == names[10:12]


def test_a_spare_waits_while_the_world_is_as_large_as_it_should_be() -> None:
    """It may be larger, but for that the JobResource has to say so."""
    game = Played(maximum=4)

    def should_be(nodes: int) -> None:
        placed = game.job.scaling.placed.but(sizes={"worker": nodes})
        game.job = game.job.but(scaling=game.job.scaling.but(placed=placed))

    game.job = game.job.but(spec=game.job.spec.but(spares=1))
    should_be(2)
    game.ask(*(watch(name) for name in NODES[:3]), *(join(name) for name in NODES[:3]))
    assert game.names() == NODES[:2]
    game.ask(leave("node-1", 1, planned=True), join("node-0", after=1))
    assert game.names() == ["node-0", "node-2"]
    should_be(4)
    game.ask(join("node-3"))
    assert "can enter" in game.orders("node-0").reason
