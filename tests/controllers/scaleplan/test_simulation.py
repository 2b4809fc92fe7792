"""Who decides the size of a job, under users, optimizers, crashes in the middle of a pass, and restarts.

In the end the last word counts (the user's, if it came after every automatic plan), each change of the user
has made one plan, all plans are finished, and nothing is written any more.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from lab.build.jobs import job, role
from lab.virtual.passes import Passes

LEAST, MOST = 1, 4


class Sizes(RuleBasedStateMachine):
    """Everything that may change a size, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Passes(job({"worker": role(2, minReplicas=LEAST, maxReplicas=MOST)}))

    @rule(size=st.integers(LEAST, MOST))
    def the_user_scales(self, size: int) -> None:
        self.world.scale(size)

    @rule()
    def the_user_changes_something_else(self) -> None:
        self.world.edit(brainService=str(self.world.job.metadata.generation))

    @rule(size=st.integers(LEAST, MOST), manual=st.booleans())
    def somebody_plans(self, size: int, manual: bool) -> None:
        self.world.plan(size, manual=manual)

    @rule(most=st.none() | st.integers(0, 2))
    def the_job_is_looked_at(self, most: int | None) -> None:
        self.world.look_at_the_job(most)

    @rule(most=st.none() | st.integers(0, 2))
    def the_plans_are_looked_at(self, most: int | None) -> None:
        self.world.look_at_the_plans(most)

    @rule()
    def the_nodes_are_ready(self) -> None:
        self.world.make_ready()

    def teardown(self) -> None:
        world = self.world
        world.settle()
        mine = [name for name in world.made if "-user-" in name]
        assert len(mine) == len(set(mine))
        assert world.size is not None
        assert LEAST <= world.size <= MOST
        if not world.order or world.order[-1][0] in mine:
            assert world.size == world.asked
        elif world.order[-1][0].startswith("manual"):
            assert world.size == world.order[-1][1]
        else:
            assert world.size in {wanted for _, wanted in world.order}
        assert all(plan.status.phase and plan.status.phase.is_terminal for plan in world.plans())


Sizes.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestSizes = Sizes.TestCase
