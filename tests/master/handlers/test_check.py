"""The check as its nodes see it, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.rpc.check import Next, Part
from elasticjob.api.rpc.nodes import Order
from elasticjob.master.durable.store import restore, snapshot
from elasticjob.master.handlers.check import answer, sentence
from elasticjob.master.state.errors import Stale
from elasticjob.master.state.job import Job
from lab.virtual.master import Played, join, ran, watch

FOUR = [f"node-{index}" for index in range(4)]


def begun(*names: str, **bounds: Any) -> Played:
    """A job whose nodes watch and have yet to report."""
    game = Played(**{"minimum": len(names), "maximum": len(names), **bounds})
    game.ask(*(watch(name) for name in names))
    return game


def next_of(game: Played, name: str, turn: int = 0) -> Next | None:
    life = game.job.nodes[name].incarnation
    return answer(game.job, ran(name, turn, life=life))


def part(game: Played, name: str, turn: int = 0) -> Part | None:
    found = next_of(game, name, turn)
    return found.part if found else None


def group(game: Played, name: str, turn: int = 0) -> list[str]:
    found = next_of(game, name, turn)
    return [peer.node for peer in found.peers] if found else []


def test_good_nodes_run_alone_then_in_pairs_then_train() -> None:
    game = begun(*FOUR)
    game.ask(*(ran(name) for name in FOUR[:3]))
    assert next_of(game, "node-0") is None
    game.ask(ran("node-3"))
    assert [group(game, name) for name in FOUR] == [FOUR[:2], FOUR[:2], FOUR[2:], FOUR[2:]]
    game.ask(*(ran(name, 1) for name in FOUR))
    assert {part(game, name, 1) for name in FOUR} == {Part.PASSED}
    assert sentence(game.job) == ""
    game.ask(*(join(name) for name in FOUR))
    assert game.names() == FOUR


def test_a_node_that_fails_alone_is_excluded_and_the_others_go_on() -> None:
    game = begun(*FOUR, minimum=2)
    game.ask(*(ran(name, error="matmul: wrong result" if name == "node-2" else "") for name in FOUR))
    found = next_of(game, "node-2")
    assert found is not None
    assert (found.part, found.reason) == (Part.EXCLUDED, "node-2 fails alone: matmul: wrong result")
    assert [group(game, name) for name in ("node-0", "node-1", "node-3")] == [
        ["node-0", "node-1", "node-3"]
    ] * 3
    rest = ("node-0", "node-1", "node-3")
    game.ask(*(ran(name, 1) for name in rest), *(join(name) for name in rest))
    assert game.names() == list(rest)
    assert sentence(game.job) == "node-2 fails alone: matmul: wrong result"


def test_a_broken_link_is_found_by_two_turns() -> None:
    game = begun(*FOUR, minimum=2)
    game.ask(*(ran(name) for name in FOUR))
    game.ask(*(ran(name, 1, error="no link" if name in FOUR[:2] else "") for name in FOUR))
    pairs = {frozenset(group(game, name, 1)) for name in FOUR}
    assert pairs == {frozenset({"node-2", "node-1"}), frozenset({"node-3", "node-0"})}
    broken = group(game, "node-1", 1)
    game.ask(*(ran(name, 2, error="no link" if name in broken else "") for name in FOUR))
    assert [part(game, name, 2) for name in FOUR] == [Part.PASSED, Part.EXCLUDED, Part.PASSED, Part.PASSED]


@pytest.mark.parametrize("excluding", [False, True])
def test_slow_nodes_are_named_and_excluded_by_setting(excluding: bool) -> None:
    game = begun(*FOUR, minimum=2, exclude_stragglers=excluding)
    game.ask(*(ran(name, seconds=5.0 if name == "node-1" else 1.0) for name in FOUR))
    game.ask(*(ran(name, 1) for name in FOUR))
    found = next_of(game, "node-1", 1)
    assert found is not None
    assert found.part is (Part.EXCLUDED if excluding else Part.PASSED)
    assert found.reason == "node-1 is slow alone: 5.00 s, the median of 4 nodes is 1.00 s"


def test_of_three_nodes_one_waits_while_the_others_are_tried() -> None:
    game = begun(*FOUR[:3], minimum=2)
    game.ask(*(ran(name) for name in FOUR[:3]))
    game.ask(*(ran(name, 1, error="timeout") for name in FOUR[:3]))
    assert group(game, "node-0", 1) == FOUR[:2]
    assert next_of(game, "node-2", 1) is None
    game.ask(*(ran(name, 2, error="timeout") for name in FOUR[:2]))
    assert group(game, "node-2", 1) == ["node-0", "node-2"]
    game.ask(ran("node-0", 3), ran("node-2", 3))
    found = {name: part(game, name, 3) for name in FOUR[:3]}
    assert found == {"node-0": Part.PASSED, "node-1": Part.EXCLUDED, "node-2": Part.PASSED}


def test_a_lost_partner_does_not_hold_up_the_turn_and_the_other_gets_a_second_chance() -> None:
    game = begun(*FOUR, minimum=2)
    game.ask(*(ran(name) for name in FOUR))
    game.cut(watch("node-3"))
    game.ask(ran("node-0", 1), ran("node-1", 1), ran("node-2", 1, error="peer closed"))
    game.wait(0.5, *FOUR[:3])
    assert sorted(group(game, "node-2", 1)) == FOUR[:3]
    game.ask(*(ran(name, 2) for name in FOUR[:3]))
    assert {part(game, name, 2) for name in FOUR[:3]} == {Part.PASSED}


def test_who_loses_the_only_partner_is_judged_by_the_payload_alone() -> None:
    game = begun("node-0", "node-1", minimum=1)
    game.ask(ran("node-0"), ran("node-1"), ran("node-0", 1, error="peer closed"))
    game.cut(watch("node-1"))
    game.wait(0.5, "node-0")
    assert part(game, "node-0", 1) is Part.PASSED
    assert sentence(game.job) == ""


def test_a_turn_that_never_ends_is_ended() -> None:
    game = begun(*FOUR, minimum=2)
    game.ask(*(ran(name) for name in FOUR), *(ran(name, 1) for name in FOUR[:3]))
    game.wait(329, *FOUR)
    assert next_of(game, "node-0", 1) is None
    game.wait(2, *FOUR)
    assert "node-3" in group(game, "node-0", 1) or "node-3" in group(game, "node-1", 1)
    game.ask(*(ran(name, 2) for name in FOUR[:3]))
    game.wait(331, *FOUR)
    assert part(game, "node-3", 2) is Part.EXCLUDED


def test_late_nodes_are_checked_while_the_others_train_and_disturb_nothing() -> None:
    game = begun("node-0", "node-1", minimum=2, maximum=4)
    game.ask(ran("node-0"), ran("node-1"), ran("node-0", 1), ran("node-1", 1), join("node-0"), join("node-1"))
    world = game.job.world
    game.ask(watch("node-2"), ran("node-2", seconds=9.0))
    found = next_of(game, "node-2")
    assert found is not None
    assert (found.part, found.reason) == (
        Part.PASSED,
        "node-2 is slow alone: 9.00 s, good nodes before took 1.00 s",
    )
    assert game.job.world is world
    assert game.order("node-0") is Order.TRAIN


def test_the_lists_of_training_and_check_are_independent() -> None:
    game = begun(*FOUR, minimum=2)
    game.ask(join("node-0"), ran("node-1"), ran("node-2"))
    assert game.job.nodes["node-0"].joined
    assert game.job.running is None
    before = game.job.nodes["node-0"].joined
    game.ask(ran("node-1"), ran("node-3"))
    assert game.job.nodes["node-0"].joined == before
    assert not any(game.job.nodes[name].joined for name in FOUR[1:])
    assert group(game, "node-1") == ["node-1", "node-2", "node-3"]


def test_repeated_reports_change_nothing_and_older_lives_are_refused() -> None:
    game = begun("node-0", "node-1")
    game.ask(ran("node-0"), ran("node-1"))
    before = game.job.check
    game.ask(ran("node-0"), ran("node-1"))
    assert game.job.check == before
    game.ask(watch("node-1", "second"))
    with pytest.raises(Stale):
        game.ask(ran("node-1", 1))
    game.ask(ran("node-1", life="second"), ran("node-0", 1))
    game.wait(0.5, "node-0", "node-1")
    assert part(game, "node-0", 1) is Part.PASSED or group(game, "node-0", 1)


def test_a_new_master_has_the_nodes_report_again_and_keeps_what_was_found() -> None:
    game = begun(*FOUR, minimum=2)
    game.ask(*(ran(name, error="no device" if name == "node-3" else "") for name in FOUR))
    game.job = successor(game.job, game)
    assert part(game, "node-0", 1) is Part.ALONE
    assert part(game, "node-3") is Part.EXCLUDED
    game.ask(*(watch(name) for name in FOUR[:3]), *(ran(name) for name in FOUR[:3]))
    assert group(game, "node-0") == FOUR[:3]


def successor(job: Job, game: Played) -> Job:
    return restore(snapshot(job, game.now), job.spec, game.now)
