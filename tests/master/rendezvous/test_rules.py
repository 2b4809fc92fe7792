"""The rules of a round, each as a table or a short story."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from elasticjob.api.rpc.nodes import Kept, Order
from elasticjob.api.rpc.rendezvous import Join, World
from elasticjob.api.sizes.role import Range
from elasticjob.master.state.errors import Refused, Stale, Stopping
from elasticjob.master.state.job import NAMED, End
from elasticjob.master.state.node import Phase
from lab.virtual.master import Played, finish, join, leave, plain, played, pod, report, watch

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


def test_a_first_world_waits_for_nodes_that_live_until_last_call() -> None:
    game = Played(maximum=3)
    game.ask(watch("node-0"), watch("node-1"), join("node-0", wait=60.0))
    game.wait(29, "node-0", "node-1")
    assert "waiting for node-1" in game.orders("node-0").reason
    game.wait(1.5, "node-0", "node-1")
    assert game.names() == ["node-0"]


def test_running_pods_hold_up_the_first_world_pending_ones_do_not() -> None:
    game = Played(maximum=3)
    game.see(pod("node-0"), pod("node-1"), pod("node-2", Phase.PENDING))
    game.ask(join("node-0"))
    assert game.names() == []
    game.ask(join("node-1"))
    assert game.names() == ["node-0", "node-1"]


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


def test_ranks_go_by_place_first_and_by_age_later() -> None:
    game = played("node-1", "node-2", maximum=3)
    game.ask(watch("node-0"), join("node-0"))
    assert game.order("node-1") is Order.REGROUP
    game.ask(join("node-2", after=1), join("node-1", after=1))
    assert game.names() == ["node-1", "node-2", "node-0"]
    assert [member.since for member in game.job.world.members] == [1, 1, 2]  # type: ignore[union-attr]


def test_a_replaced_rank_0_comes_back_as_the_youngest() -> None:
    game = played("node-0", "node-1")
    game.ask(join("node-0", "second", after=0))
    assert game.orders("node-1").lost == ("node-0",)
    game.ask(join("node-1", after=1))
    assert game.names() == ["node-1", "node-0"]


def test_survivors_do_not_wait_for_a_node_whose_worker_died() -> None:
    game = played("node-0", "node-1")
    game.ask(leave("node-1", 1))
    assert game.orders("node-0").lost == ("node-1",)
    world = game.ask(join("node-0", after=1, wait=90.0))
    assert isinstance(world, World)
    assert [member.node for member in world.members] == ["node-0"]


def test_the_one_who_comes_back_is_cut_in_at_a_boundary() -> None:
    game = played("node-0", "node-1")
    game.ask(leave("node-1", 1), join("node-0", after=1, wait=90.0))
    game.ask(join("node-1", after=1))
    orders = game.orders("node-0")
    assert (orders.order, orders.lost, orders.round) == (Order.REGROUP, (), 2)
    game.ask(join("node-0", after=2))
    assert game.names() == ["node-0", "node-1"]


def test_newcomers_are_cut_in_by_the_unit_and_only_where_there_is_room() -> None:
    game = played("node-0", "node-1", unit=2, maximum=4)
    game.ask(watch("node-2"), join("node-2"))
    assert game.order("node-0") is Order.TRAIN
    game.ask(watch("node-3"), join("node-3"))
    assert game.order("node-0") is Order.REGROUP
    game.ask(join("node-0", after=1), join("node-1", after=1))
    game.ask(watch("node-4"), watch("node-5"), join("node-4"), join("node-5"))
    assert game.order("node-0") is Order.TRAIN
    assert len(game.names()) == 4


def test_newcomers_never_push_out_a_survivor_who_is_still_on_its_way() -> None:
    game = played("node-0", "node-1")
    game.ask(leave("node-1", 1), watch("node-2"), join("node-2"), watch("node-3"), join("node-3"))
    assert game.job.running is None
    game.ask(join("node-0", after=1, wait=90.0))
    assert game.names()[0] == "node-0"


def test_a_planned_leaver_is_not_waited_for() -> None:
    game = played("node-0", "node-1")
    game.ask(leave("node-1", 1, planned=True))
    orders = game.orders("node-0")
    assert (orders.order, orders.lost) == (Order.REGROUP, ())
    assert orders.reason == "node-1 leaves"
    assert game.order("node-1") is Order.REGROUP
    game.ask(join("node-0", after=1, wait=90.0))
    assert game.names() == ["node-0"]


def test_a_world_that_would_fall_below_the_minimum_pauses_with_its_state() -> None:
    game = played("node-0", "node-1", minimum=2)
    game.cut(watch("node-1"))
    game.ask(join("node-0", after=1, wait=60.0))
    assert (game.job.running, game.order("node-0")) == (None, Order.REGROUP)
    game.ask(join("node-1", "second"))
    assert game.names() == ["node-0", "node-1"]
    assert [member.since for member in game.job.world.members] == [1, 2]  # type: ignore[union-attr]


def test_a_broken_join_interrupts_the_others_at_once_and_keeps_its_age() -> None:
    game = played("node-0", "node-1")
    game.ask(join("node-0", after=1, broken=True))
    assert game.orders("node-1").lost == ("node-0",)
    game.ask(join("node-1", after=1))
    assert game.names() == ["node-0", "node-1"]
    assert [member.since for member in game.job.world.members] == [1, 1]  # type: ignore[union-attr]


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


def test_a_withdrawn_join_is_in_no_world() -> None:
    game = Played(minimum=2)
    game.ask(watch("node-0"), join("node-0"))
    game.cut(join("node-0"))
    game.ask(join("node-1"))
    assert game.names() == []


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


def test_a_newcomer_does_not_take_the_world_while_its_members_are_on_a_long_step() -> None:
    """They hold the model; last call is for those who are missed, not against those who have it."""
    game = played("node-0", maximum=2)
    game.ask(watch("node-1"), join("node-1", wait=600))
    game.wait(120, "node-0", "node-1")
    assert (game.job.round, game.order("node-0")) == (1, Order.REGROUP)
    game.ask(join("node-0", after=1, wait=90.0))
    assert game.names() == ["node-0", "node-1"]


def test_members_that_never_come_are_waited_for_no_longer_than_the_join_timeout() -> None:
    game = played("node-0", maximum=2)
    game.ask(watch("node-1"), join("node-1", wait=2000))
    game.wait(901, "node-0", "node-1")
    assert game.names() == ["node-1"]


def test_who_is_lost_in_the_same_moment_is_in_no_world_in_between() -> None:
    game = played("node-0", "node-1", "node-2")
    game.ask(join("node-0", after=1, wait=60), join("node-2", after=1, wait=60))
    game.wait(6, "node-0")
    assert (game.job.round, game.names()) == (2, ["node-0"])


def test_a_world_of_its_own_does_not_make_a_newcomer_the_oldest() -> None:
    game = Played(maximum=3)
    game.ask(watch("node-0"), join("node-0"))  # at a master of its own, until the others find it
    game.ask(watch("node-1", round=5), watch("node-2", round=5), join("node-0", after=1, wait=90.0))
    game.wait(60, "node-0", "node-1", "node-2")
    assert game.job.round == 5
    game.ask(join("node-1", after=5), join("node-2", after=5))
    assert game.names() == ["node-1", "node-2", "node-0"]


def test_a_script_that_is_not_known_to_be_elastic_comes_after_those_that_are() -> None:
    game = Played(maximum=3)
    game.ask(watch("node-0"), plain("node-0"))
    assert game.names() == ["node-0"]
    game.ask(watch("node-1"), join("node-1"))
    game.ask(plain("node-0", after=1))
    assert game.names() == ["node-1", "node-0"]  # the store of node-1 listens, that of node-0 may not yet
    game.ask(join("node-0", after=2), join("node-1", after=2))
    assert game.names() == ["node-0", "node-1"]


def test_a_script_started_again_does_not_keep_those_that_wait_for_it_to_enter() -> None:
    game = Played(maximum=3)
    game.ask(watch("node-0"), watch("node-1"), join("node-0"), plain("node-1"))
    assert game.names() == ["node-0", "node-1"]
    game.ask(watch("node-2"), join("node-2", wait=60.0))
    assert game.orders("node-0").lost == ()  # at the next step
    game.ask(plain("node-1", after=1))
    assert game.orders("node-0").lost == ("node-1",)  # of which there is none
    game.ask(join("node-0", after=1, broken=True))
    assert game.names() == ["node-0", "node-2", "node-1"]


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
