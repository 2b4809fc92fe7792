"""A node that makes worlds fail does not take those that train with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from elasticjob.api.rpc.nodes import Order
from elasticjob.api.rpc.rendezvous import Join
from elasticjob.master.rendezvous import holding
from elasticjob.master.state.condition import Kind
from lab.virtual.master import Played, failure, join, leave, plain, played, report, watch

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
    game.another_master()
    for relaunch in ("second", "third"):
        cut_in(game, enter, "node-2", life=relaunch)
        assert game.order("node-0") is Order.TRAIN
    held = "node-2 is held back: worlds of 3 nodes failed when it came"
    assert game.orders("node-2", "third").reason.endswith(held)
    (found,) = game.found
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


def relaunched(game: Played, enter: Callable[..., Join], life: str, *names: str) -> None:
    """Pods of nodes are made again, one after the other; all that live go on."""
    for name in names:
        game.wait(2, *game.job.nodes)
        game.ask(watch(name, life), enter(name, life))
    game.wait(4, *game.job.nodes)


@pytest.mark.parametrize("back", [NODES[:2], NODES[1::-1]], ids=["in order", "in the other order"])
@pytest.mark.parametrize("quick", [False, True], ids=["the newcomer is last", "the newcomer is first"])
def test_a_plain_world_that_ran_is_formed_again_whoever_is_relaunched(back: list[str], quick: bool) -> None:
    """Only rank 0 refuses a world of 3; its node fails for good, and so does the other one's."""
    game = played(*NODES[:2], enter=plain, maximum=3, replicas=3, restart_count=3)
    game.wait(12, *NODES[:2])
    cut_in(game, plain, "node-2")
    assert game.names() == NODES[:3]
    number, start = game.job.round, game.now
    game.ask(failure("node-0", number=number), failure("node-1", number=number))
    for life in ("second", "third", "fourth"):
        if quick:
            game.ask(plain("node-2", after=number))
        relaunched(game, plain, life, *back)
        if not quick:
            game.ask(plain("node-2", after=number))
            game.wait(2, *game.job.nodes)
        assert len(game.names()) < 3
        quick = False
        game.wait(12, *game.job.nodes)
        assert len(game.names()) < 3
        number = game.job.round
    assert game.now - start < holding.AGAIN
    held = [each for each in game.found if each.reason is Kind.HELD_BACK]
    assert [(each.about, each.until) for each in held] == [("node-2", None)]
    assert "node-2 is held back: worlds of 3 nodes failed when it came" in held[0].message
    game.wait(600, *game.job.nodes)
    assert [bool(each.until) for each in game.found] == [True]


def test_older_members_that_are_made_again_are_waited_for() -> None:
    game = played(*NODES[:2], enter=plain, maximum=3)
    game.wait(12, *NODES[:2])
    cut_in(game, plain, "node-2")
    for life in ("second", "third"):
        number = game.job.round
        if len(game.names()) == 3:
            game.ask(failure("node-0", final=False, number=number), leave("node-0", number))
        game.ask(leave("node-1", number, life="" if life == "second" else "second"))
        game.ask(plain("node-2", after=number))
        assert game.job.round == number
        relaunched(game, plain, life, *NODES[:2])
        assert sorted(game.names()) == NODES[:2]
        assert sorted(game.job.proven.nodes) == NODES[:2]
        game.wait(12, *game.job.nodes)


def test_where_nobody_came_a_finding_names_the_size(enter: Callable[..., Join]) -> None:
    game = played(*NODES[:3], enter=enter, maximum=3)
    trains(game, *NODES[:3])
    game.ask(leave("node-2", 1, planned=True))
    game.ask(*(enter(name, after=1) for name in NODES[:2]))
    game.wait(1, *NODES[:2])
    for _ in range(3):
        assert game.names() == NODES[:2]
        fails(game, enter, *NODES[:2])
    assert not any(node.spoilt for node in game.job.nodes.values())
    (found,) = game.found
    assert (found.reason, found.about, found.until) == (Kind.FAILS_AT_START, "2 nodes", None)
    assert found.message.startswith("worlds of 2 nodes fail at their start; node-0: ")
    trains(game, *NODES[:2])
    game.tick()
    assert game.found[0].until


ENDS: dict[str, Callable[[Played], object]] = {
    "the node is in a world that works": lambda game: [
        cut_in(game, plain, "node-3"),  # type: ignore[func-returns-value]
        game.wait(1, *NODES),  # type: ignore[func-returns-value]
        trains(game, *NODES),  # type: ignore[func-returns-value]
    ],
    "the node leaves": lambda game: game.ask(leave("node-2", 0, planned=True)),
    "its time is over": lambda game: game.wait(600, *game.job.nodes),
    "the job is smaller": lambda game: game._become(
        game.job.but(spec=game.job.spec.but(bounds=game.job.spec.bounds.__class__(least=1, most=2)))
    ),
}


@pytest.mark.parametrize("how", ENDS.values(), ids=ENDS)
def test_a_finding_closes_when_nobody_is_held_back(how: Callable[[Played], object]) -> None:
    game = played(*NODES[:2], enter=plain, maximum=4)
    trains(game, *NODES[:2])
    cut_in(game, plain, "node-2")
    fails(game, plain, *NODES[:3])
    trains(game, *NODES[:2])
    game.tick()
    assert not game.found[0].until
    how(game)
    game.tick()
    assert [bool(each.until) for each in game.found] == [True]


def test_a_node_that_is_held_back_again_is_told_again() -> None:
    game = played(*NODES[:2], enter=plain, maximum=4)
    trains(game, *NODES[:2])
    cut_in(game, plain, "node-2")
    fails(game, plain, *NODES[:3])
    trains(game, *NODES[:2])
    game.ask(leave("node-2", 0, planned=True))
    game.tick()
    cut_in(game, plain, "node-2", life="second")
    game.tick()
    assert [(each.about, each.until) for each in game.found] == [("node-2", None)]
    game.ask(watch("node-0"), leave("node-0", game.job.round), plain("node-1", after=game.job.round))
    game.wait(1, "node-1", "node-2")
    trains(game, "node-1", "node-2")
    game.ask(watch("node-0", "second"), plain("node-0", "second"))
    game.wait(1, *NODES[:3])
    assert "node-2 is held back" in game.orders("node-0", "second").reason


def test_an_older_member_on_a_machine_that_breaks_it_is_a_newcomer(enter: Callable[..., Join]) -> None:
    game = played(*NODES[:3], enter=enter, maximum=3)
    trains(game, *NODES[:3])
    game.tick()
    game.ask(watch("node-2", "second"), enter("node-2", "second"))
    game.ask(*(enter(name, after=1) for name in NODES[:2]))
    game.ask(failure("node-0", final=False, number=2))
    assert {name for name, node in game.job.nodes.items() if node.spoilt} == {"node-2"}
