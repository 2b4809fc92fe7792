"""Who decides the size of a job, under users, optimizers, crashes in the middle of a pass, and restarts.

In the end the last word counts (the user's, if it came after every automatic plan), each change of the user
has made one plan, all plans are finished, and nothing is written any more.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.controllers.elasticjob import decide as jobs
from elasticjob.controllers.elasticjob.seen import Seen as JobSeen
from elasticjob.controllers.elasticjob.status import describe
from elasticjob.controllers.observe import age
from elasticjob.controllers.plan import Action, Apply, Create, Delete, Plan
from elasticjob.controllers.scaleplan import decide as plans
from elasticjob.controllers.scaleplan.decide import Seen as PlansSeen
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.controllers.build import NOW, at, job, master, role

LEAST, MOST = 1, 4
OWNER = {"apiVersion": "v1", "kind": "ElasticJob", "name": "digits", "uid": "job-1", "controller": True}


class Sizes(RuleBasedStateMachine):
    """Everything that may change a size, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.asked = 2
        self.changes = 0
        self.generation = 1
        self.resource: Manifest | None = None
        self.plans: dict[str, Manifest] = {}
        self.made: list[str] = []
        self.order: list[tuple[str, int]] = []  # who wanted what, in the order of their plans
        self.writes = 0
        self.status: Manifest = {}

    # the world

    @property
    def job(self) -> ElasticJob:
        sizes = {"worker": role(self.asked, minReplicas=LEAST, maxReplicas=MOST)}
        return job(sizes, generation=self.generation, status=self.status)

    def stored(self) -> JobResource | None:
        return JOBRESOURCE.convert(self.resource) if self.resource else None

    def ordered(self) -> tuple[ScalePlan, ...]:
        return tuple(sorted((SCALEPLAN.convert(plan) for plan in self.plans.values()), key=age))

    def perform(self, plan: Plan, most: int | None = None) -> None:
        for action in plan.actions[:most]:
            self.write(action)

    def write(self, action: Action) -> None:
        self.writes += 1
        match action:
            case Create(kind, manifest) if kind.name == "ScalePlan":
                name = manifest["metadata"]["name"]
                if name not in self.plans:
                    self.add_plan(name, manifest)
            case Create(kind, manifest) if kind.name == "JobResource":
                about = {**manifest["metadata"], "uid": "res-1", "generation": 1}
                self.resource = self.resource or {**manifest, "metadata": about}
            case Apply(kind, manifest, "") if kind.name == "JobResource":
                self.apply(manifest)
            case Apply(_, manifest, "status"):
                self.plans[manifest["metadata"]["name"]]["status"] = manifest["status"]
            case Delete(kind, name, _, _) if kind.name == "ScalePlan":
                del self.plans[name]
            case _:
                pass  # services, rights and pods are not what this is about

    def add_plan(self, name: str, manifest: Manifest) -> None:
        self.now += timedelta(seconds=1)
        about = {
            **manifest["metadata"],
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": at(self.now),
        }
        self.plans[name] = {**manifest, "metadata": about}
        self.made.append(name)
        self.order.append((name, manifest["spec"]["replicaResourceSpecs"]["worker"]["replicas"]))

    def apply(self, manifest: Manifest) -> None:
        assert self.resource is not None
        about, spec = self.resource["metadata"], self.resource["spec"]
        notes = {**about.get("annotations", {}), **manifest["metadata"].get("annotations", {})}
        changed = {**spec, **manifest["spec"]}
        generation = about["generation"] + (changed != spec)
        about = {**about, "annotations": notes, "generation": generation}
        self.resource = {**self.resource, "metadata": about, "spec": changed}

    # what happens

    @rule(size=st.integers(LEAST, MOST))
    def the_user_scales(self, size: int) -> None:
        if size != self.asked:
            self.asked = size
            self.generation += 1

    @rule()
    def the_user_changes_something_else(self) -> None:
        self.generation += 1

    @rule(size=st.integers(LEAST, MOST))
    def an_optimizer_plans(self, size: int) -> None:
        name = f"auto-{len(self.made)}"
        spec: dict[str, Any] = {"ownerJob": "digits", "replicaResourceSpecs": {"worker": {"replicas": size}}}
        about = {"name": name, "namespace": "ml", "ownerReferences": [OWNER]}
        self.add_plan(name, {"apiVersion": "v1", "kind": "ScalePlan", "metadata": about, "spec": spec})

    @rule(most=st.none() | st.integers(0, 2))
    def the_job_is_looked_at(self, most: int | None) -> None:
        """A pass, or one that dies after `most` writes."""
        seen = JobSeen(self.job, self.stored(), (master(),), (), self.ordered())
        plan = jobs.decide(seen, self.now)
        self.perform(plan, most)
        if most is None:
            status = describe(seen, plan, self.now).manifest()
            self.writes += status != self.status
            self.status = ELASTICJOB.convert({"metadata": {}, "spec": {}, "status": status}).status.manifest()

    @rule(most=st.none() | st.integers(0, 2))
    def the_plans_are_looked_at(self, most: int | None) -> None:
        if self.plans:
            self.perform(plans.decide(PlansSeen(self.job, self.stored(), self.ordered()), self.now), most)

    @rule()
    def the_nodes_are_ready(self) -> None:
        if self.resource:
            ready = {"type": "Ready", "status": "True"}
            generation = self.resource["metadata"]["generation"]
            self.resource["status"] = {"observedGeneration": generation, "conditions": [ready]}

    def teardown(self) -> None:
        for _ in range(60):
            before = self.writes
            self.the_nodes_are_ready()
            self.the_job_is_looked_at(None)
            self.the_plans_are_looked_at(None)
            if self.writes == before:
                break
        else:
            raise AssertionError("it never comes to rest")
        assert self.resource is not None
        size = self.resource["spec"]["replicaResourceSpecs"]["worker"]["replicas"]
        mine = [name for name in self.made if "-user-" in name]
        assert len(mine) == len(set(mine))
        assert LEAST <= size <= MOST
        if not self.order or self.order[-1][0] in mine:
            assert size == self.asked
        else:
            assert size in {wanted for _, wanted in self.order}
        assert all(plan.status.phase and plan.status.phase.finished for plan in self.ordered())


Sizes.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSizes = Sizes.TestCase
