"""A node that makes worlds fail does not take those that train with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from elasticjob.api.rpc.nodes import Order
from elasticjob.api.rpc.rendezvous import Join
from elasticjob.api.sizes.role import Range
from elasticjob.master.rendezvous import holding
from elasticjob.master.state.condition import Kind
from lab.virtual.master import (
    Played,
    Step,
    act,
    cut,
    failure,
    forms,
    hears,
    join,
    leave,
    plain,
    played,
    report,
    wait,
    watch,
)

NODES = [f"node-{index}" for index in range(4)]


Enter = Callable[..., Join]


@act
def trains(game: Played, *names: str) -> None:
    """The world is of these nodes, and makes a step."""
    assert sorted(game.names()) == sorted(names)
    game.ask(report(names[0], game.job.round, game.job.round))


@act
def cut_in(game: Played, enter: Enter, *new: str, life: str = "") -> None:
    """Nodes come, and the others go on with them if they are asked to."""
    inside, before = game.names(), game.job.round
    for name in new:
        game.ask(watch(name, life), enter(name, life))
    game.wait(4, *game.job.nodes)
    if game.job.ending:
        game.ask(*(enter(name, after=before) for name in inside if name not in new))


@act
def fails(game: Played, enter: Enter, *names: str, code: int = 1) -> None:
    """Each worker of the world fails by itself, in this order, and its node joins again."""
    number = game.job.round
    for name in names:
        game.ask(failure(name, final=False, code=code, number=number))
    game.ask(*(leave(name, number) for name in names))
    game.ask(*(enter(name, after=number) for name in names))
    game.wait(1, *game.job.nodes)


@act
def passes(game: Played, seconds: float) -> None:
    """Time passes, in which all nodes are heard."""
    game.wait(seconds, *game.job.nodes)


def pair(enter: Enter, *steps: Step, maximum: int = 3) -> Played:
    """A job whose world of two nodes works, and what happens to it then."""
    game = played(*NODES[:2], enter=enter, maximum=maximum)
    game.play(trains(*NODES[:2]), *steps)
    return game


@pytest.fixture(params=[plain, join], ids=["plain", "elastic"])
def enter(request: pytest.FixtureRequest) -> Enter:
    found: Enter = request.param
    return found


@pytest.mark.parametrize("first", ["node-0", "node-2"])
def test_a_script_of_1_2_or_4_nodes_keeps_its_world_of_2_until_there_are_4(enter: Enter, first: str) -> None:
    others = (name for name in NODES[:3] if name != first)
    held = "node-2 is held back: worlds of 3 nodes failed when it came"
    game = pair(
        enter,
        cut_in(enter, "node-2"),
        forms(*NODES[:3]),
        fails(enter, first, *others),
        trains(*NODES[:2]),
        Played.another_master,
        *(cut_in(enter, "node-2", life="second"), hears("node-0", order=Order.TRAIN)),
        *(cut_in(enter, "node-2", life="third"), hears("node-0", order=Order.TRAIN)),
        maximum=4,
    )
    assert game.orders("node-2", "third").reason.endswith(held)
    (found,) = game.found
    assert (found.reason, found.message.partition(";")[0]) == (Kind.HELD_BACK, held)
    game.play(cut_in(enter, "node-3"), passes(1), trains(*NODES))


def test_a_newcomer_that_fails_alone_may_try_twice(enter: Enter) -> None:
    def fails_alone(game: Played) -> None:
        number = game.job.round
        again = failure("node-2", final=False, number=number)
        game.ask(again, again, leave("node-2", number))
        game.ask(enter("node-0", after=number), enter("node-1", after=number))

    comes, three, two = cut_in(enter, "node-2"), forms(*NODES[:3]), trains(*NODES[:2])
    game = pair(enter, *(comes, three, fails_alone, two) * 2, comes, hears("node-0", order=Order.TRAIN))
    game.play(passes(600), comes, three, fails(enter, *NODES[:3]), two, passes(3600), comes)
    assert sorted(game.names()) == NODES[:2]
    node, later = game.job.nodes["node-2"], (timedelta(hours=22), timedelta(hours=24))
    assert [holding.is_held(node, 3, game.now + each) for each in later] == [True, False]


CASES: dict[str, Callable[[Enter], tuple[Step, ...]]] = {
    "it was killed": lambda enter: (fails(enter, "node-2", "node-0", "node-1", code=-9),),
    "it is gone, and the others fail of that": lambda enter: (
        cut(watch("node-2")),
        fails(enter, "node-0", "node-1"),
    ),
    "a step was made": lambda enter: (
        lambda game: game.ask(report("node-0", game.job.round, 9)),
        fails(enter, *NODES[:3]),
    ),
}


@pytest.mark.parametrize("how", CASES.values(), ids=CASES)
def test_nobody_is_held_back_for_the_faults_of_others(
    how: Callable[[Enter], tuple[Step, ...]], enter: Enter
) -> None:
    game = pair(enter, cut_in(enter, "node-2"), *how(enter))
    assert not any(node.spoilt for node in game.job.nodes.values())


def test_the_smallest_world_is_tried_again_and_again(enter: Enter) -> None:
    game = played(*NODES[:2], enter=enter, minimum=2)
    game.play(trains(*NODES[:2]))
    for life in ("second", "third", "fourth"):
        before = game.job.round
        game.ask(watch("node-1", life), enter("node-1", life), enter("node-0", after=before))
        assert game.job.round == before + 1
        game.ask(failure("node-0", final=False, number=before + 1), leave("node-0", before + 1))
        game.ask(enter("node-0", after=before + 1))


@act
def relaunched(game: Played, life: str, *names: str) -> None:
    """Pods of nodes are made again, one after the other; all that live go on."""
    for name in names:
        game.play(passes(2), watch(name, life), plain(name, life))
    game.play(passes(4))


@pytest.mark.parametrize("back", [NODES[:2], NODES[1::-1]], ids=["in order", "in the other order"])
@pytest.mark.parametrize("quick", [False, True], ids=["the newcomer is last", "the newcomer is first"])
def test_a_plain_world_that_ran_is_formed_again_whoever_is_relaunched(back: list[str], quick: bool) -> None:
    """Only rank 0 refuses a world of 3; its node fails for good, and so does the other one's."""
    game = played(*NODES[:2], enter=plain, maximum=3, replicas=3, restart_count=3)
    game.play(passes(12), cut_in(plain, "node-2"), forms(*NODES[:3]))
    number, start = game.job.round, game.now
    game.ask(failure("node-0", number=number), failure("node-1", number=number))
    for life in ("second", "third", "fourth"):
        if quick:
            game.ask(plain("node-2", after=number))
        game.play(relaunched(life, *back))
        if not quick:
            game.play(plain("node-2", after=number), passes(2))
        assert len(game.names()) < 3
        quick = False
        game.play(passes(12))
        assert len(game.names()) < 3
        number = game.job.round
    assert game.now - start < holding.AGAIN
    held = [each for each in game.found if each.reason is Kind.HELD_BACK]
    assert [(each.about, each.until) for each in held] == [("node-2", None)]
    assert "node-2 is held back: worlds of 3 nodes failed when it came" in held[0].message
    game.play(passes(600))
    assert [bool(each.until) for each in game.found] == [True]


def test_older_members_that_are_made_again_are_waited_for() -> None:
    game = played(*NODES[:2], enter=plain, maximum=3)
    game.play(passes(12), cut_in(plain, "node-2"))
    for life in ("second", "third"):
        number = game.job.round
        if len(game.names()) == 3:
            game.ask(failure("node-0", final=False, number=number), leave("node-0", number))
        game.ask(leave("node-1", number, life="" if life == "second" else "second"))
        game.ask(plain("node-2", after=number))
        assert game.job.round == number
        game.play(relaunched(life, *NODES[:2]))
        assert sorted(game.names()) == NODES[:2]
        assert sorted(game.job.proven.nodes) == NODES[:2]
        game.play(passes(12))


def test_where_nobody_came_a_finding_names_the_size(enter: Enter) -> None:
    two = forms(*NODES[:2])
    game = played(*NODES[:3], enter=enter, maximum=3)
    game.play(trains(*NODES[:3]), leave("node-2", 1, planned=True), *(enter(n, after=1) for n in NODES[:2]))
    game.play(wait(1, *NODES[:2]), *(two, fails(enter, *NODES[:2])) * 3)
    assert not any(node.spoilt for node in game.job.nodes.values())
    (found,) = game.found
    assert (found.reason, found.about, found.until) == (Kind.FAILS_AT_START, "2 nodes", None)
    assert found.message.startswith("worlds of 2 nodes fail at their start; node-0: ")
    game.play(trains(*NODES[:2]), Played.tick)
    assert game.found[0].until


def held_back() -> Played:
    """A pair of plain nodes that trains without node-2, with which it fails."""
    game = pair(plain, cut_in(plain, "node-2"), fails(plain, *NODES[:3]), trains(*NODES[:2]), maximum=4)
    game.tick()
    assert not game.found[0].until
    return game


def is_smaller(game: Played) -> None:
    game.job = game.job.but(spec=game.job.spec.but(bounds=Range(least=1, most=2)))


ENDS: dict[str, tuple[Step, ...]] = {
    "the node is in a world that works": (cut_in(plain, "node-3"), wait(1, *NODES), trains(*NODES)),
    "the node leaves": (leave("node-2", 0, planned=True),),
    "its time is over": (passes(600),),
    "the job is smaller": (is_smaller,),
}


@pytest.mark.parametrize("steps", ENDS.values(), ids=ENDS)
def test_a_finding_closes_when_nobody_is_held_back(steps: tuple[Step, ...]) -> None:
    game = held_back()
    game.play(*steps, Played.tick)
    assert [bool(each.until) for each in game.found] == [True]


def test_a_node_that_is_held_back_again_is_told_again() -> None:
    game = held_back()
    game.play(
        leave("node-2", 0, planned=True), Played.tick, cut_in(plain, "node-2", life="second"), Played.tick
    )
    assert [(each.about, each.until) for each in game.found] == [("node-2", None)]
    game.ask(watch("node-0"), leave("node-0", game.job.round), plain("node-1", after=game.job.round))
    game.play(wait(1, "node-1", "node-2"), trains("node-1", "node-2"))
    game.play(watch("node-0", "second"), plain("node-0", "second"), wait(1, *NODES[:3]))
    assert "node-2 is held back" in game.orders("node-0", "second").reason


def test_an_older_member_on_a_machine_that_breaks_it_is_a_newcomer(enter: Enter) -> None:
    game = played(*NODES[:3], enter=enter, maximum=3)
    game.play(trains(*NODES[:3]), Played.tick, watch("node-2", "second"), enter("node-2", "second"))
    game.play(*(enter(name, after=1) for name in NODES[:2]), failure("node-0", final=False, number=2))
    assert {name for name, node in game.job.nodes.items() if node.spoilt} == {"node-2"}
