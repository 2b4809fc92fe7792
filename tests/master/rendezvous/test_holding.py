"""A node that makes worlds fail does not take those that train with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from elasticjob.api.rpc.nodes import Order
from elasticjob.api.rpc.rendezvous import Join
from elasticjob.master.durable.store import restore, snapshot
from elasticjob.master.rendezvous import holding
from elasticjob.master.state.condition import Kind
from tests.kit.master.turns import Played, failure, join, leave, plain, played, report, watch

NODES = [f"node-{index}" for index in range(4)]


def trains(game: Played, *names: str) -> None:
    """The world is of these nodes, and makes a step."""
    assert sorted(game.names()) == sorted(names)
    game.ask(report(names[0], game.job.round, game.job.round))


def cut_in(game: Played, enter: Callable[..., Join], *new: str, life: str = "") -> None:
    """Let nodes come, and the others go on with them if they are asked to."""
    inside, before = game.names(), game.job.round
    for name in new:
        game.ask(watch(name, life), enter(name, life))
    game.wait(4, *game.job.nodes)
    if game.job.ending:
        game.ask(*(enter(name, after=before) for name in inside if name not in new))


def fails(game: Played, enter: Callable[..., Join], *names: str, code: int = 1) -> None:
    """Each worker of the world fails by itself, in this order, and its node joins again."""
    number = game.job.round
    for name in names:
        game.ask(failure(name, final=False, code=code, number=number))
    game.ask(*(leave(name, number) for name in names))
    game.ask(*(enter(name, after=number) for name in names))
    game.wait(1, *game.job.nodes)


@pytest.fixture(params=[plain, join], ids=["plain", "elastic"])
def enter(request: pytest.FixtureRequest) -> Callable[..., Join]:
    found: Callable[..., Join] = request.param
    return found


@pytest.mark.parametrize("first", ["node-0", "node-2"])
def test_a_script_of_1_2_or_4_nodes_keeps_its_world_of_2_until_there_are_4(
    enter: Callable[..., Join], first: str
) -> None:
    game = played(*NODES[:2], enter=enter, maximum=4)
    trains(game, *NODES[:2])
    cut_in(game, enter, "node-2")
    assert game.names() == NODES[:3]
    fails(game, enter, first, *(name for name in NODES[:3] if name != first))
    trains(game, *NODES[:2])
    game._become(restore(snapshot(game.job, game.now), game.job.spec, game.now))
    for relaunch in ("second", "third"):
        cut_in(game, enter, "node-2", life=relaunch)
        assert game.order("node-0") is Order.TRAIN
    held = "node-2 is held back: worlds of 3 nodes failed when it came"
    assert game.orders("node-2", "third").reason.endswith(held)
    (found,) = game.job.health.findings
    assert (found.reason, found.message.partition(";")[0]) == (Kind.HELD_BACK, held)
    cut_in(game, enter, "node-3")
    game.wait(1, *NODES)
    assert sorted(game.names()) == NODES
    trains(game, *NODES)


def test_a_newcomer_that_fails_alone_may_try_twice(enter: Callable[..., Join]) -> None:
    game = played(*NODES[:2], enter=enter, maximum=3)
    trains(game, *NODES[:2])
    for _ in range(2):
        cut_in(game, enter, "node-2")
        number = game.job.round
        assert game.names() == NODES[:3]
        again = failure("node-2", final=False, number=number)
        game.ask(again, again, leave("node-2", number))
        game.ask(enter("node-0", after=number), enter("node-1", after=number))
        trains(game, *NODES[:2])
    cut_in(game, enter, "node-2")
    assert game.order("node-0") is Order.TRAIN
    game.wait(600, *game.job.nodes)
    cut_in(game, enter, "node-2")
    assert game.names() == NODES[:3]
    fails(game, enter, *NODES[:3])
    trains(game, *NODES[:2])
    game.wait(3600, *game.job.nodes)
    cut_in(game, enter, "node-2")
    assert sorted(game.names()) == NODES[:2]
    node, later = game.job.nodes["node-2"], (timedelta(hours=22), timedelta(hours=24))
    assert [holding.is_held(node, 3, game.now + each) for each in later] == [True, False]


CASES: dict[str, Callable[[Played, Callable[..., Join]], object]] = {
    "it was killed": lambda game, enter: fails(game, enter, "node-2", "node-0", "node-1", code=-9),
    "it is gone, and the others fail of that": lambda game, enter: [
        game.cut(watch("node-2")),  # type: ignore[func-returns-value]
        fails(game, enter, "node-0", "node-1"),  # type: ignore[func-returns-value]
    ],
    "a step was made": lambda game, enter: [
        game.ask(report("node-0", game.job.round, 9)),
        fails(game, enter, *NODES[:3]),  # type: ignore[func-returns-value]
    ],
}


@pytest.mark.parametrize("how", CASES.values(), ids=CASES)
def test_nobody_is_held_back_for_the_faults_of_others(
    how: Callable[[Played, Callable[..., Join]], object], enter: Callable[..., Join]
) -> None:
    game = played(*NODES[:2], enter=enter, maximum=3)
    trains(game, *NODES[:2])
    cut_in(game, enter, "node-2")
    how(game, enter)
    assert not any(node.spoilt for node in game.job.nodes.values())


def test_the_smallest_world_is_tried_again_and_again(enter: Callable[..., Join]) -> None:
    game = played(*NODES[:2], enter=enter, minimum=2)
    trains(game, *NODES[:2])
    for life in ("second", "third", "fourth"):
        before = game.job.round
        game.ask(watch("node-1", life), enter("node-1", life), enter("node-0", after=before))
        assert game.job.round == before + 1
        game.ask(failure("node-0", final=False, number=before + 1), leave("node-0", before + 1))
        game.ask(enter("node-0", after=before + 1))
