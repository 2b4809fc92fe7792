"""Plans and pods together: whatever is planned, crashes or dies, the pods become what the JobResource says.

At every moment: never two live pods of one node, and no plan changes the JobResource twice, though passes die
between any two writes. In the end: all plans are finished, the nodes of the JobResource have one live pod
each unless they have ended, and others have none.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from elasticjob.controllers.jobresource.decide import make_no_pods_for_a_job_that_ends
from lab.build.jobs import job, plan, resource, role
from lab.virtual.passes import Living, Passes

LEAST, MOST, LAST = 1, 4, 6


class Cluster(Living):
    """Users and optimizers plan, pods come and go, and passes of both controllers die."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Passes(
            job({"worker": role(2, minReplicas=LEAST, maxReplicas=MOST)}), resource({"worker": 2})
        )

    @rule(size=st.integers(0, MOST + 1), manual=st.booleans())
    def plan_a_size(self, size: int, *, manual: bool) -> None:
        self.world.add(plan(self.fresh, {"worker": size}, manual=manual))

    @rule(come=st.sets(st.integers(0, LAST), max_size=2), go=st.sets(st.integers(0, LAST), max_size=2))
    def plan_nodes(self, come: set[int], go: set[int]) -> None:
        create = [{"name": f"digits-worker-{index}"} for index in sorted(come - go)]
        remove = [{"name": f"digits-worker-{index}"} for index in sorted(go)]
        self.world.add(plan(self.fresh, manual=True, createPods=create, removePods=remove))

    @rule(most=st.none() | st.integers(0, 2))
    def look_at_the_plans(self, most: int | None) -> None:
        self.world.look_at_the_plans(most)

    @rule(go=st.integers(0, 2))
    def die_between_the_writes_of_a_removal(self, go: int) -> None:
        self.world.add(plan(self.fresh, manual=True, removePods=[f"digits-worker-{go}"]))
        self.world.look_at_the_plans()  # others give way
        self.world.look_at_the_plans(1)

    @rule()
    def start_all(self) -> None:
        self.world.start_all()

    @invariant()
    def no_plan_is_folded_twice(self) -> None:
        assert len(self.world.folded) == len(set(self.world.folded)), f"folded twice: {self.world.folded}"

    def teardown(self) -> None:
        """A plan that was carried out never says that it was impossible."""
        world = self.world
        world.settle(world.look_at_the_plans, world.look_at_the_nodes)
        carried_out = {mark.partition("/")[0] for mark in world.folded}
        ends = {one.metadata.name: one.status.conditions[-1].reason for one in world.plans()}
        assert not {name for name in carried_out if ends.get(name) == "Impossible"}
        assert LEAST <= (world.size or 0) <= MOST
        world.check_settled()
        if not make_no_pods_for_a_job_that_ends(world.observe(), world.now):
            assert all(one.status.phase and one.status.phase.is_terminal for one in world.plans())

    @property
    def fresh(self) -> str:
        return f"plan-{len(self.world.made):03}"


Cluster.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestCluster = Cluster.TestCase
