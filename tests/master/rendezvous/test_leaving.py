"""A plain script that is asked to end may save with the others: its world waits for it, and not longer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elasticjob.api.rpc.nodes import Order
from elasticjob.master.durable.store import restore, snapshot
from elasticjob.master.state.job import End
from elasticjob.master.state.node import Phase
from lab.virtual.master import Played, finish, join, leave, plain, played, pod, watch

NAMES = ("node-0", "node-1", "node-2")


def leaving(*, grace: float = 30.0, who: tuple[str, ...] = ("node-1",), **more: object) -> Played:
    game = played(*NAMES, enter=plain, **more)
    game.ask(*(leave(name, 1, planned=True, grace=grace) for name in who))
    return game


def test_the_others_train_on_and_know_who_leaves() -> None:
    game = leaving()
    orders = game.orders("node-0")
    assert (orders.order, orders.round, orders.leaving) == (Order.TRAIN, 1, ("node-1",))
    game.ask(watch("node-3"))
    assert "waits for node-1, which leaves and may still save" in game.orders("node-3").reason
    game.wait(31, *NAMES)
    assert game.order("node-0") is Order.TRAIN


def _vanishes(game: Played) -> None:
    game.see(*map(pod, NAMES))
    game.see(pod("node-0"), pod("node-2"))


ENDS: dict[str, Callable[[Played], object]] = {
    "its connection is cut": lambda game: game.cut(watch("node-1")),
    "it says that it has ended": lambda game: game.ask(leave("node-1", 1, planned=True)),
    "its workers have ended with 0": lambda game: game.ask(finish("node-1", 1)),
    "it is silent": lambda game: game.wait(6, "node-0", "node-2"),
    "its time is over": lambda game: game.wait(33, *NAMES),
    "its pod is gone": _vanishes,
    "it lives again": lambda game: game.ask(watch("node-1", "second")),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_world_ends_once_it_is_gone_and_it_was_no_loss(end: Callable[[Played], object]) -> None:
    game = leaving()
    end(game)
    orders, ending = game.orders("node-0"), game.job.ending
    assert (orders.order, orders.leaving) == (Order.REGROUP, ())
    assert ending is not None
    assert ending.left == ("node-1",)
    assert game.job.restarts == 0
    game.ask(plain("node-0", after=1), plain("node-2", after=1))
    assert game.names() == ["node-0", "node-2"]


CASES: dict[str, tuple[Callable[..., Played], Order]] = {
    "elastic": (lambda: _left(played(*NAMES), 30.0), Order.REGROUP),
    "no time asked for": (lambda: _left(played(*NAMES, enter=plain), 0.0), Order.REGROUP),
    "beside an elastic one": (lambda: _left(_mixed(), 30.0), Order.REGROUP),
    "a world that has ended": (lambda: _left(_ended(), 30.0), Order.REGROUP),
    "no member": (lambda: _left(_with_one_that_waits(), 30.0, "node-3"), Order.TRAIN),
}


def _left(game: Played, grace: float, name: str = "node-1") -> Played:
    game.ask(leave(name, 1 if game.job.member(name) else 0, planned=True, grace=grace))
    return game


def _mixed() -> Played:
    return played(*NAMES, enter=lambda name: (join if name == "node-0" else plain)(name))


def _ended() -> Played:
    game = played(*NAMES, enter=plain)
    game.cut(watch("node-2"))
    return game


def _with_one_that_waits() -> Played:
    game = played(*NAMES, enter=plain)
    game.ask(watch("node-3"), plain("node-3"))
    return game


@pytest.mark.parametrize(("play", "order"), CASES.values(), ids=CASES)
def test_nobody_waits_where_nothing_can_be_saved(play: Callable[[], Played], order: Order) -> None:
    game = play()
    assert (game.order("node-0"), game.job.leaving) == (order, {})


def test_the_last_of_many_that_leave_ends_the_world() -> None:
    game = leaving(who=("node-1", "node-2"))
    assert game.orders("node-0").leaving == ("node-1", "node-2")
    game.cut(watch("node-1"))
    assert game.order("node-0") is Order.TRAIN
    game.cut(watch("node-2"))
    assert game.orders("node-0").reason == "node-1 leaves, and 1 more"
    assert game.job.ending.left == ("node-1", "node-2")  # type: ignore[union-attr]


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
def test_no_world_is_formed_while_a_member_of_a_broken_one_saves(end: Callable[[Played], object]) -> None:
    game = leaving()
    game.ask(leave("node-2", 1))  # its worker was killed
    game.ask(plain("node-0", after=1), plain("node-2", after=1))
    game.wait(1, *NAMES)
    assert game.job.round == 1
    for name in ("node-0", "node-2"):
        assert "waits for node-1, which leaves and may still save" in game.orders(name).reason
    end(game)
    game.wait(1, "node-0", "node-2")
    assert set(game.names()) == {"node-0", "node-2"}
    assert game.job.training.changes[-1].lost == ("node-2",)
    assert not game.job.nodes["node-1"].finished


def test_the_time_for_which_a_broken_world_waits_is_no_delay_of_the_nodes() -> None:
    game = leaving(grace=1200.0)
    game.ask(leave("node-2", 1), plain("node-0", after=1, wait=2000.0), plain("node-2", after=1, wait=2000.0))
    game.wait(1000, *NAMES)
    assert (game.ended(), game.job.round) == (None, 1)
    game.wait(203, *NAMES)
    assert set(game.names()) == {"node-0", "node-2"}


@pytest.mark.parametrize(("waits", "number"), [(False, 1), (True, 2)], ids=["it saves", "it has ended"])
def test_who_is_asked_to_leave_after_its_world_broke_may_save_too(waits: bool, number: int) -> None:
    game = played(*NAMES, enter=plain)
    game.ask(leave("node-2", 1))
    if waits:
        game.ask(plain("node-1", after=1))
    game.ask(leave("node-1", 1, planned=True, grace=30.0))
    game.ask(plain("node-0", after=1), plain("node-2", after=1))
    assert game.job.round == number


def test_a_deletion_that_is_seen_late_does_not_keep_the_next_world() -> None:
    game = leaving()
    game.see(*map(pod, NAMES))
    game.ask(leave("node-2", 1), finish("node-1", 1))
    game.see(pod("node-0"), pod("node-1", leaving=True, grace=30.0), pod("node-2"))
    game.ask(plain("node-2", after=1), plain("node-0", after=1))
    assert set(game.names()) == {"node-0", "node-2"}


def test_the_next_master_waits_for_those_of_a_broken_world_too() -> None:
    game = leaving()
    game.ask(leave("node-2", 1))
    game._become(restore(snapshot(game.job, game.now), game.job.spec, game.now))
    game.ask(plain("node-0", after=1), plain("node-2", after=1))
    assert game.job.round == 1
    game.cut(watch("node-1"))
    assert set(game.names()) == {"node-0", "node-2"}


def test_elastic_workers_wait_for_nobody() -> None:
    game = played(*NAMES)
    game.ask(leave("node-1", 1, planned=True, grace=30.0), leave("node-2", 1))
    game.ask(join("node-2", after=1), join("node-0", after=1))
    assert game.names() == ["node-0", "node-2"]


def test_a_loss_ends_the_world_at_once_and_who_leaves_is_not_lost() -> None:
    game = leaving()
    game.cut(watch("node-2"))
    assert game.orders("node-0").lost == ("node-2",)
    assert game.job.ending.left == ("node-1",)  # type: ignore[union-attr]


def test_who_has_saved_waits_for_the_others_and_newcomers_do_not_break_in() -> None:
    game = leaving(maximum=4)
    game.ask(plain("node-0", after=1), watch("node-3"), plain("node-3"))
    game.wait(20, *NAMES, "node-3")
    assert game.order("node-2") is Order.TRAIN
    game.cut(watch("node-1"))
    game.ask(plain("node-2", after=1))
    assert game.names() == ["node-0", "node-2", "node-3"]


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


def test_a_deletion_that_is_seen_late_brings_nobody_back() -> None:
    game = leaving(who=("node-1", "node-2"))
    game.see(*map(pod, NAMES))
    game.cut(watch("node-1"))
    game.see(pod("node-0"), pod("node-1", leaving=True, grace=30.0), pod("node-2"))
    game.cut(watch("node-2"))
    assert game.order("node-0") is Order.REGROUP


def test_the_next_master_waits_as_long() -> None:
    game = leaving()
    game.wait(10, *NAMES)
    game._become(restore(snapshot(game.job, game.now), game.job.spec, game.now))
    assert game.orders("node-0").leaving == ("node-1",)
    game.wait(21, *NAMES)
    assert game.order("node-0") is Order.TRAIN
    game.wait(2, *NAMES)
    assert game.order("node-0") is Order.REGROUP


@pytest.mark.parametrize("leader", ["", "node-0"])
def test_a_peer_that_ends_with_0_meanwhile_is_no_success(leader: str) -> None:
    game = played("node-0", "node-1", enter=plain, leader=leader)
    game.ask(leave("node-1", 1, planned=True, grace=30.0), finish("node-0", 1))
    game.cut(watch("node-1"))
    game.see(pod("node-0", Phase.SUCCEEDED), pod("node-1", Phase.SUCCEEDED, leaving=True))
    assert game.ended() is None
    game.ask(watch("node-1", "second"), plain("node-1", "second"))
    assert game.names() == ["node-1"]
    game.ask(finish("node-1", 2, "second"))
    assert game.verdict.end is End.SUCCEEDED
