"""The check as its nodes see it, in virtual time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest

from elasticjob.api.rpc.check import Next, Part
from elasticjob.api.rpc.nodes import Order
from elasticjob.master.handlers.check import answer, sentence
from elasticjob.master.state.errors import Stale
from lab.virtual.master import Played, join, ran, watch

FOUR = [f"node-{index}" for index in range(4)]


class Checked(Played):
    """A job whose nodes watch and have yet to report; all of them have to be good."""

    def __init__(self, *names: str, **bounds: Any) -> None:
        super().__init__(**{"minimum": len(names), "maximum": len(names), **bounds})
        self.ask(*(watch(name) for name in names))

    def run(self, names: Sequence[str], turn: int = 0, *, bad: Collection[str] = (), error: str = "") -> None:
        """Nodes report a turn, in which the `bad` ones had an error."""
        self.ask(*(ran(name, turn, error=error if name in bad else "") for name in names))

    def next(self, name: str, turn: int = 0) -> Next | None:
        return answer(self.job, ran(name, turn, life=self.job.nodes[name].incarnation))

    def said(self, name: str, turn: int = 0) -> tuple[Part, str]:
        """What a node is told, and why."""
        found = self.next(name, turn)
        assert found is not None
        return found.part, found.reason

    def parts(self, turn: int, *names: str) -> list[Part]:
        return [self.said(name, turn)[0] for name in names]

    def group(self, name: str, turn: int = 0) -> list[str]:
        found = self.next(name, turn)
        return [peer.node for peer in found.peers] if found else []


def test_good_nodes_run_alone_then_in_pairs_then_train() -> None:
    game = Checked(*FOUR)
    game.run(FOUR[:3])
    assert game.next("node-0") is None
    game.ask(ran("node-3"))
    assert [game.group(name) for name in FOUR] == [FOUR[:2], FOUR[:2], FOUR[2:], FOUR[2:]]
    game.run(FOUR, 1)
    assert game.parts(1, *FOUR) == [Part.PASSED] * 4
    assert sentence(game.job) == ""
    game.ask(*(join(name) for name in FOUR))
    assert game.names() == FOUR


def test_a_node_that_fails_alone_is_excluded_and_the_others_go_on() -> None:
    game = Checked(*FOUR, minimum=2)
    game.run(FOUR, bad=("node-2",), error="matmul: wrong result")
    assert game.said("node-2") == (Part.EXCLUDED, "node-2 fails alone: matmul: wrong result")
    rest = ["node-0", "node-1", "node-3"]
    assert [game.group(name) for name in rest] == [rest] * 3
    game.run(rest, 1)
    game.ask(*(join(name) for name in rest))
    assert game.names() == rest
    assert sentence(game.job) == "node-2 fails alone: matmul: wrong result"


def test_a_broken_link_is_found_by_two_turns() -> None:
    game = Checked(*FOUR, minimum=2)
    game.run(FOUR)
    game.run(FOUR, 1, bad=FOUR[:2], error="no link")
    pairs = {frozenset(game.group(name, 1)) for name in FOUR}
    assert pairs == {frozenset({"node-2", "node-1"}), frozenset({"node-3", "node-0"})}
    game.run(FOUR, 2, bad=game.group("node-1", 1), error="no link")
    assert game.parts(2, *FOUR) == [Part.PASSED, Part.EXCLUDED, Part.PASSED, Part.PASSED]


@pytest.mark.parametrize("excluding", [False, True])
def test_slow_nodes_are_named_and_excluded_by_setting(excluding: bool) -> None:
    game = Checked(*FOUR, minimum=2, exclude_stragglers=excluding)
    game.ask(*(ran(name, seconds=5.0 if name == "node-1" else 1.0) for name in FOUR))
    game.run(FOUR, 1)
    part, reason = game.said("node-1", 1)
    assert part is (Part.EXCLUDED if excluding else Part.PASSED)
    assert reason == "node-1 is slow alone: 5.00 s, the median of 4 nodes is 1.00 s"


def test_of_three_nodes_one_waits_while_the_others_are_tried() -> None:
    game = Checked(*FOUR[:3], minimum=2)
    game.run(FOUR[:3])
    game.run(FOUR[:3], 1, bad=FOUR, error="timeout")
    assert game.group("node-0", 1) == FOUR[:2]
    assert game.next("node-2", 1) is None
    game.run(FOUR[:2], 2, bad=FOUR, error="timeout")
    assert game.group("node-2", 1) == ["node-0", "node-2"]
    game.ask(ran("node-0", 3), ran("node-2", 3))
    assert game.parts(3, *FOUR[:3]) == [Part.PASSED, Part.EXCLUDED, Part.PASSED]


def test_a_lost_partner_does_not_hold_up_the_turn_and_the_other_gets_a_second_chance() -> None:
    game = Checked(*FOUR, minimum=2)
    game.run(FOUR)
    game.cut(watch("node-3"))
    game.ask(ran("node-0", 1), ran("node-1", 1), ran("node-2", 1, error="peer closed"))
    game.wait(0.5, *FOUR[:3])
    assert sorted(game.group("node-2", 1)) == FOUR[:3]
    game.run(FOUR[:3], 2)
    assert game.parts(2, *FOUR[:3]) == [Part.PASSED] * 3


def test_who_loses_the_only_partner_is_judged_by_the_payload_alone() -> None:
    game = Checked("node-0", "node-1", minimum=1)
    game.ask(ran("node-0"), ran("node-1"), ran("node-0", 1, error="peer closed"))
    game.cut(watch("node-1"))
    game.wait(0.5, "node-0")
    assert game.parts(1, "node-0") == [Part.PASSED]
    assert sentence(game.job) == ""


def test_a_turn_that_never_ends_is_ended() -> None:
    game = Checked(*FOUR, minimum=2)
    game.run(FOUR)
    game.run(FOUR[:3], 1)
    game.wait(329, *FOUR)
    assert game.next("node-0", 1) is None
    game.wait(2, *FOUR)
    assert "node-3" in game.group("node-0", 1) or "node-3" in game.group("node-1", 1)
    game.run(FOUR[:3], 2)
    game.wait(331, *FOUR)
    assert game.parts(2, "node-3") == [Part.EXCLUDED]


def test_late_nodes_are_checked_while_the_others_train_and_disturb_nothing() -> None:
    game = Checked("node-0", "node-1", minimum=2, maximum=4)
    game.ask(ran("node-0"), ran("node-1"), ran("node-0", 1), ran("node-1", 1), join("node-0"), join("node-1"))
    world = game.job.world
    game.ask(watch("node-2"), ran("node-2", seconds=9.0))
    slow = "node-2 is slow alone: 9.00 s, good nodes before took 1.00 s"
    assert game.said("node-2") == (Part.PASSED, slow)
    assert game.job.world is world
    assert game.order("node-0") is Order.TRAIN


def test_the_lists_of_training_and_check_are_independent() -> None:
    game = Checked(*FOUR, minimum=2)
    game.ask(join("node-0"), ran("node-1"), ran("node-2"))
    assert game.job.nodes["node-0"].joined
    assert game.job.running is None
    before = game.job.nodes["node-0"].joined
    game.ask(ran("node-1"), ran("node-3"))
    assert game.job.nodes["node-0"].joined == before
    assert not any(game.job.nodes[name].joined for name in FOUR[1:])
    assert game.group("node-1") == ["node-1", "node-2", "node-3"]


def test_repeated_reports_change_nothing_and_older_lives_are_refused() -> None:
    game = Checked("node-0", "node-1")
    game.ask(ran("node-0"), ran("node-1"))
    before = game.job.check
    game.ask(ran("node-0"), ran("node-1"))
    assert game.job.check == before
    game.ask(watch("node-1", "second"))
    with pytest.raises(Stale):
        game.ask(ran("node-1", 1))
    game.ask(ran("node-1", life="second"), ran("node-0", 1))
    game.wait(0.5, "node-0", "node-1")
    assert game.parts(1, "node-0") == [Part.PASSED] or game.group("node-0", 1)


def test_a_new_master_has_the_nodes_report_again_and_keeps_what_was_found() -> None:
    game = Checked(*FOUR, minimum=2)
    game.run(FOUR, bad=("node-3",), error="no device")
    game.another_master()
    assert game.parts(1, "node-0") == [Part.ALONE]
    assert game.parts(0, "node-3") == [Part.EXCLUDED]
    game.ask(*(watch(name) for name in FOUR[:3]))
    game.run(FOUR[:3])
    assert game.group("node-0") == FOUR[:3]
