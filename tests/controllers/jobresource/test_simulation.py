"""The nodes of a job under failures, deletions, lost machines, scaling, operator restarts and late reads.

At every moment: never two live pods of one place. In the end: all is as specified, and nothing is written.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from lab.build.jobs import job, resource, role
from lab.virtual.passes import CODES, MACHINES, Living, Passes

BUDGET = 2
MOST = 4


class Nodes(Living):
    """Whatever happens, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Passes(
            job(
                {"worker": role(2, minReplicas=0, maxReplicas=9, restartCount=BUDGET)}, optimizeMode="manual"
            ),
            resource({"worker": 2}),
        )

    @precondition(lambda self: self.world.names(running=False, terminating=False))
    @rule(data=st.data())
    def start(self, data: Any) -> None:
        name = data.draw(st.sampled_from(self.world.names(running=False, terminating=False)))
        if self.world.machines:
            self.world.start(name, data.draw(st.sampled_from(self.world.machines)))

    @rule(ending=st.sampled_from(CODES))
    def end_all(self, ending: tuple[int, str]) -> None:
        self.world.look_at_the_nodes()
        self.world.start_all()
        for name in self.world.names(running=True):
            self.world.end(name, *ending)

    @rule(machine=st.sampled_from(MACHINES))
    def lose_machine(self, machine: str) -> None:
        for name in self.world.names(running=False, terminating=False):
            self.world.start(name, machine)
        if len(self.world.machines) > 1:
            self.world.lose(machine)

    @rule(count=st.integers(0, MOST), suspend=st.booleans())
    def scale(self, count: int, suspend: bool) -> None:
        self.world.set_size(count, suspend=suspend)

    @rule()
    def restart_operator(self) -> None:
        self.world.restart_operator()

    @rule(seconds=st.integers(0, 90))
    def wait(self, seconds: int) -> None:
        self.world.wait(seconds)

    def teardown(self) -> None:
        """Left alone, it settles: all that should run runs, and the last passes write nothing."""
        world = self.world
        world.settle(world.look_at_the_nodes)
        world.check_settled()
        quiet = world.writes
        world.look_at_the_nodes()
        world.restart_operator()
        world.look_at_the_nodes()
        assert world.writes == quiet


Nodes.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestNodes = Nodes.TestCase


def lived(code: int, passes: int) -> Passes:
    """A job of one node whose program always ends with this code."""
    world = Passes(job({"worker": role(1, restartCount=BUDGET)}), resource({"worker": 1}))
    for _ in range(passes):
        plan = world.look_at_the_nodes(behind=1)
        world.wait((plan.again_in or timedelta(0)).total_seconds())
        for name in world.names(running=False):
            world.start(name, "m1")
            world.end(name, code)
    return world


def test_a_program_that_always_fails_uses_exactly_its_budget() -> None:
    world = lived(1, passes=50)
    assert world.born == BUDGET + 1
    assert world.failures == {0: BUDGET + 1}
    assert world.resource.status.restarts == {"worker": {"0": BUDGET + 1}}


def test_a_program_that_is_always_killed_is_always_made_again() -> None:
    world = lived(137, passes=60)
    assert world.born > 8 * BUDGET
    assert world.resource.status.restarts == {}
    assert len(world.pods) <= 5


@pytest.mark.parametrize("code", [0, 1])
def test_a_node_that_is_scaled_away_and_added_again_begins_afresh(code: int) -> None:
    roles = {"worker": role(3, minReplicas=0, maxReplicas=3, restartCount=0)}
    world = Passes(job(roles), resource({"worker": 3}))
    world.look_at_the_nodes()
    for name in world.names():
        world.start(name, "m1")
    world.end("digits-worker-2", code)
    for size in (3, 2, 3):
        world.set_size(size)
        world.look_at_the_nodes()
        world.look_at_the_nodes()
    assert world.living(2) == ["digits-worker-2"]
    assert world.resource.status.completed_indexes == world.resource.status.failed_indexes == {}
