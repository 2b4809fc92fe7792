"""A plain script that is asked to end may save with the others: its world waits for it, and not longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elasticjob.api.rpc.nodes import Order
from elasticjob.api.rpc.rendezvous import Join, Leave
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
    wait,
    watch,
)

NAMES = ("node-0", "node-1", "node-2")


def leaving(*, grace: float = 30.0, who: tuple[str, ...] = ("node-1",), **more: object) -> Played:
    game = played(*NAMES, enter=plain, **more)
    game.ask(*(leave(name, 1, planned=True, grace=grace) for name in who))
    return game


ZERO, ONE, TWO = NAMES
RUN = tuple(map(pod, NAMES))
ON: dict[str, Any] = {"order": Order.TRAIN}
ANEW: dict[str, Any] = {"order": Order.REGROUP}
LATE = (RUN[0], pod(ONE, leaving=True, grace=30.0), RUN[2])
BOTH_ENTER = (plain(ZERO, after=1), plain(TWO, after=1))
SAVES = "waits for node-1, which leaves and may still save"


def leaves(name: str = ONE, grace: float = 30.0, number: int = 1) -> Leave:
    return leave(name, number, planned=True, grace=grace)


def nobody_leaves(game: Played) -> None:
    assert game.job.leaving == {}


@act
def left(game: Played, *names: str) -> None:
    """The world ends, and these have left it."""
    assert game.job.ending
    assert game.job.ending.left == names


HISTORIES: dict[str, tuple[Callable[[str], Join], dict[str, Any], tuple[Step, ...]]] = {
    "the others train on, and know who leaves": (
        plain, {},
        (leaves(), hears(ZERO, **ON, round=1, leaving=(ONE,)), watch("node-3"), hears("node-3", says=SAVES),
         wait(31, *NAMES), hears(ZERO, **ON))),
    "the last of many that leave ends the world": (
        plain, {},
        (leaves(), leaves(TWO), hears(ZERO, leaving=(ONE, TWO)), cut(watch(ONE)), hears(ZERO, **ON),
         cut(watch(TWO)), hears(ZERO, reason="node-1 leaves, and 1 more"), left(ONE, TWO))),
    "the time for which a broken world waits is no delay of the nodes": (
        plain, {},
        (leaves(grace=1200.0), leave(TWO, 1), plain(ZERO, after=1, wait=2000.0),
         plain(TWO, after=1, wait=2000.0), wait(1000, *NAMES), hears(ZERO, says=SAVES), wait(203, *NAMES),
         forms(ZERO, TWO))),
    "who is asked to leave after its world broke may save too": (
        plain, {}, (leave(TWO, 1), leaves(), *BOTH_ENTER, hears(ZERO, says=SAVES))),
    "but not one that has ended by then": (
        plain, {}, (leave(TWO, 1), plain(ONE, after=1), leaves(), *BOTH_ENTER, hears(ZERO, round=2))),
    "a deletion that is seen late does not keep the next world": (
        plain, {},
        (leaves(), RUN, leave(TWO, 1), finish(ONE, 1), LATE, *BOTH_ENTER[::-1], forms(ZERO, TWO))),
    "nor does it bring anybody back": (
        plain, {},
        (leaves(), leaves(TWO), RUN, cut(watch(ONE)), LATE, cut(watch(TWO)), hears(ZERO, **ANEW))),
    "the next master waits for those of a broken world, too": (
        plain, {},
        (leaves(), leave(TWO, 1), Played.another_master, *BOTH_ENTER, hears(ZERO, says=SAVES),
         cut(watch(ONE)), forms(ZERO, TWO))),
    "and as long as the last one": (
        plain, {},
        (leaves(), wait(10, *NAMES), Played.another_master, hears(ZERO, leaving=(ONE,)), wait(21, *NAMES),
         hears(ZERO, **ON), wait(2, *NAMES), hears(ZERO, **ANEW))),
    "elastic workers wait for nobody": (
        join, {}, (leaves(), leave(TWO, 1), join(TWO, after=1), join(ZERO, after=1), forms(ZERO, TWO))),
    "a loss ends the world at once, and who leaves is not lost": (
        plain, {}, (leaves(), cut(watch(TWO)), hears(ZERO, lost=(TWO,)), left(ONE))),
    "who has saved waits for the others, and newcomers do not break in": (
        plain, {"maximum": 4},
        (leaves(), plain(ZERO, after=1), watch("node-3"), plain("node-3"), wait(20, *NAMES, "node-3"),
         hears(TWO, **ON), cut(watch(ONE)), plain(TWO, after=1), forms(ZERO, TWO, "node-3"))),
    **{f"a peer that ends with 0 meanwhile is no success{' of the leader' * bool(leader)}": (
        plain, {"leader": leader},
        (leaves(), finish(ZERO, 1), finish(TWO, 1), cut(watch(ONE)),
         (pod(ZERO, Phase.SUCCEEDED), pod(ONE, Phase.SUCCEEDED, leaving=True), pod(TWO, Phase.SUCCEEDED)),
         watch(ONE, "second"), plain(ONE, "second"), forms(ONE), finish(ONE, 2, "second"),
         hears(ONE, "second", order=Order.STOP, failed=False))) for leader in ("", ZERO)},
    "nobody waits for elastic ones": (join, {}, (leaves(), hears(ZERO, **ANEW), nobody_leaves)),
    "nor where no time is asked for": (plain, {}, (leaves(grace=0.0), hears(ZERO, **ANEW), nobody_leaves)),
    "nor beside an elastic one": (
        lambda name: (join if name == ZERO else plain)(name), {},
        (leaves(), hears(ZERO, **ANEW), nobody_leaves)),
    "nor in a world that has ended": (
        plain, {}, (cut(watch(TWO)), leaves(), hears(ZERO, **ANEW), nobody_leaves)),
    "nor for one that is no member": (
        plain, {},
        (watch("node-3"), plain("node-3"), leaves("node-3", number=0), hears(ZERO, **ON), nobody_leaves)),
}  # fmt: skip


@pytest.mark.parametrize(("enter", "options", "steps"), HISTORIES.values(), ids=HISTORIES)
def test_history(enter: Callable[[str], Join], options: dict[str, Any], steps: tuple[Step, ...]) -> None:
    played(*NAMES, enter=enter, **options).play(*steps)


ENDS: dict[str, Step] = {
    "its connection is cut": cut(watch(ONE)),
    "it says that it has ended": leave(ONE, 1, planned=True),
    "its workers have ended with 0": finish(ONE, 1),
    "it is silent": wait(6, ZERO, TWO),
    "its time is over": wait(33, *NAMES),
    "its pod is gone": lambda game: game.play(RUN, (RUN[0], RUN[2])),
    "it lives again": watch(ONE, "second"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_world_ends_once_it_is_gone_and_it_was_no_loss(end: Step) -> None:
    game = leaving()
    game.play(end)
    orders, ending = game.orders("node-0"), game.job.ending
    assert (orders.order, orders.leaving) == (Order.REGROUP, ())
    assert ending is not None
    assert ending.left == ("node-1",)
    assert game.job.restarts == 0
    game.ask(plain("node-0", after=1), plain("node-2", after=1))
    assert game.names() == ["node-0", "node-2"]


def test_the_next_life_of_one_that_left_waits_for_the_others_that_leave() -> None:
    game = leaving(who=("node-1", "node-2"))
    game.ask(watch("node-1", "second"), plain("node-1", "second"))
    assert (game.order("node-0"), game.order("node-2")) == (Order.TRAIN, Order.TRAIN)
    orders = game.orders("node-1", "second")
    assert (orders.order, orders.round) == (Order.TRAIN, 0)
    assert "waits for node-2, which leaves and may still save" in orders.reason
    game.ask(plain("node-0", after=1))
    game.wait(5, *NAMES)
    assert game.job.round == 1
    game.cut(watch("node-1", "second"))  # of no world: nothing is lost
    assert game.job.nodes["node-1"].joined is None
    game.ask(watch("node-1", "third"), plain("node-1", "third"), watch("node-2", "second"))
    ending = game.job.ending
    assert ending is not None
    assert (ending.lost, ending.left) == ((), ("node-1", "node-2"))
    game.ask(plain("node-2", "second"))
    assert game.names() == list(NAMES)


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_no_world_is_formed_while_a_member_of_a_broken_one_saves(end: Step) -> None:
    game = leaving()
    game.ask(leave("node-2", 1))  # its worker was killed
    game.ask(plain("node-0", after=1), plain("node-2", after=1))
    game.wait(1, *NAMES)
    assert game.job.round == 1
    for name in ("node-0", "node-2"):
        assert "waits for node-1, which leaves and may still save" in game.orders(name).reason
    game.play(end)
    game.wait(1, "node-0", "node-2")
    assert set(game.names()) == {"node-0", "node-2"}
    assert game.job.training.changes[-1].lost == ("node-2",)
    assert not game.job.nodes["node-1"].finished


@pytest.mark.parametrize("first", ["the pod's deletion is seen", "the agent says so"])
def test_the_deletion_of_the_pod_says_how_long_it_has(first: str) -> None:
    game = played(*NAMES, enter=plain)
    game.see(*map(pod, NAMES))
    version, seen = game.job.version, pod("node-1", leaving=True, grace=120.0)
    said = leave("node-1", 1, planned=True, grace=29.0)
    if first == "the agent says so":
        game.ask(said)
    game.see(pod("node-0"), seen, pod("node-2"))
    game.ask(said)
    assert (game.orders("node-1").grace, game.orders("node-0").grace) == (120.0, None)
    assert game.orders("node-1").version > version
    game.wait(120, *NAMES)
    assert game.order("node-0") is Order.TRAIN
    game.wait(3, *NAMES)
    assert game.orders("node-0").reason in ("pod node-1 is being deleted", "node-1 leaves")
    assert game.orders("node-1").grace == 120.0
