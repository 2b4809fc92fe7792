"""Plans and pods together: whatever is planned, crashes or dies, the pods become what the JobResource says.

At every moment: never two live pods of one node, and no plan changes the JobResource twice, though passes die
between any two writes. In the end: all plans are finished, the nodes of the JobResource have one live pod
each unless they have ended, and others have none.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.order import by_age
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.controllers.jobresource.decide import make_no_pods_for_a_job_that_ends
from elasticjob.controllers.nodes.relaunch import Node, Standing
from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.plan import Apply, Delete, Plan
from elasticjob.controllers.scaleplan.decide import Seen, decide
from elasticjob.kube.objects.kinds import Manifest
from lab.build.jobs import job, plan, resource, role
from lab.virtual.controllers.world import Living, World

LEAST, MOST, LAST = 1, 4, 6
CODES = st.sampled_from([0, 1, 75, 137])


class Cluster(Living):
    """Users and optimizers plan, pods come and go, and passes of both controllers die."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            job({"worker": role(2, minReplicas=LEAST, maxReplicas=MOST)}), resource({"worker": 2})
        )
        self.plans: dict[str, Manifest] = {}
        self.folded: list[str] = []  # marks with which the spec of the JobResource changed

    @rule(size=st.integers(0, MOST + 1), manual=st.booleans())
    def plan_a_size(self, size: int, *, manual: bool) -> None:
        self.add(plan(self.fresh, {"worker": size}, manual=manual))

    @rule(come=st.sets(st.integers(0, LAST), max_size=2), go=st.sets(st.integers(0, LAST), max_size=2))
    def plan_nodes(self, come: set[int], go: set[int]) -> None:
        create = [{"name": f"digits-worker-{index}"} for index in sorted(come - go)]
        remove = [{"name": f"digits-worker-{index}"} for index in sorted(go)]
        self.add(plan(self.fresh, manual=True, createPods=create, removePods=remove))

    @rule(most=st.none() | st.integers(0, 2))
    def look_at_the_plans(self, most: int | None) -> None:
        """A pass, or one that dies after `most` writes."""
        seen = Seen(self.world.job, self.world.resource, self.ordered())
        for action in decide(seen, self.world.now).actions[:most]:
            self.write(action)

    @rule(go=st.integers(0, 2))
    def die_between_the_writes_of_a_removal(self, go: int) -> None:
        self.add(plan(self.fresh, manual=True, removePods=[f"digits-worker-{go}"]))
        self.look_at_the_plans(None)  # others give way
        self.look_at_the_plans(1)

    @rule()
    def start_all(self) -> None:
        super().start_all()

    @precondition(lambda self: self.world.names(running=True))
    @rule(data=st.data(), code=CODES)
    def end(self, data: Any, code: int) -> None:
        self.world.end(data.draw(st.sampled_from(self.world.names(running=True))), code)

    @invariant()
    def no_plan_is_folded_twice(self) -> None:
        assert len(self.folded) == len(set(self.folded)), f"folded twice: {self.folded}"

    def look(self) -> Plan:
        self.look_at_the_plans(None)
        return super().look()

    def state(self) -> Any:
        return len(self.world.history), repr(self.plans)

    def teardown(self) -> None:
        self.settle()
        self.check_settled()

    def check_settled(self) -> None:
        """A job that ends is left as it is. A plan that was carried out never says that it was impossible."""
        carried_out = {mark.partition("/")[0] for mark in self.folded}
        ends = {one.metadata.name: one.status.conditions[-1].reason for one in self.ordered()}
        assert not {name for name in carried_out if ends.get(name) == "Impossible"}
        seen = self.world.observe()
        size = self.world.resource.spec.replica_resource_specs["worker"]
        assert LEAST <= (size.replicas or 0) <= MOST
        if make_no_pods_for_a_job_that_ends(seen, self.world.now):
            return
        assert all(one.status.phase and one.status.phase.is_terminal for one in self.ordered())
        for index in range(LAST + MOST + 1):
            node = seen.nodes.get(("worker", index), Node("worker", index))
            over = node.standing(seen.policy("worker"), self.world.now) in (Standing.DONE, Standing.SPENT)
            assert len(self.world.living(index)) == (index in size.indices and not over), index

    # the API server

    @property
    def fresh(self) -> str:
        return f"plan-{len(self.plans):03}"

    def add(self, made: ScalePlan) -> None:
        self.world.wait(1)
        manifest = made.manifest()
        manifest["metadata"]["creationTimestamp"] = self.world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        self.plans[made.metadata.name] = manifest

    def ordered(self) -> tuple[ScalePlan, ...]:
        return by_age(SCALEPLAN.convert(each) for each in self.plans.values())

    def write(self, action: Any) -> None:
        match action:
            case Apply(kind, manifest, "") if kind.name == "JobResource":
                self.apply(manifest)
            case Apply(_, manifest, "status"):
                self.plans[manifest["metadata"]["name"]]["status"] = manifest["status"]
            case Delete(_, name, _, _):
                del self.plans[name]
            case _:
                raise AssertionError(action)

    def apply(self, manifest: Manifest) -> None:
        old = self.world.resource.manifest()
        notes = {**old["metadata"].get("annotations", {}), **manifest["metadata"]["annotations"]}
        new = JOBRESOURCE.convert({**old, "spec": {**old["spec"], **manifest["spec"]}})
        changed = new.spec != self.world.resource.spec
        if changed:
            self.folded.append(manifest["metadata"]["annotations"][names.FOLDED])
        generation = self.world.resource.metadata.generation + changed
        about = {**old["metadata"], "annotations": notes, "generation": generation}
        self.world.resource = JOBRESOURCE.convert({**new.manifest(), "metadata": about})
        self.world.scale(new.spec.replica_resource_specs["worker"].replicas or 0)


Cluster.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestCluster = Cluster.TestCase
