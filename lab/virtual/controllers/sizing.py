"""Everything that changes the size of a job, in a dict: users, optimizers, and passes that may die."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.order import by_age
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.controllers.elasticjob import decide as jobs
from elasticjob.controllers.elasticjob.seen import Seen as JobSeen
from elasticjob.controllers.elasticjob.status import describe
from elasticjob.controllers.passes.plan import Action, Apply, Create, Delete, Plan
from elasticjob.controllers.scaleplan import decide as plans
from elasticjob.controllers.scaleplan.decide import Seen as PlansSeen
from elasticjob.kube.objects.kinds import Manifest
from lab.build.jobs import NOW, at, job, master, role

OWNER = {"apiVersion": "v1", "kind": "ElasticJob", "name": "digits", "uid": "job-1", "controller": True}


@dataclass
class Sizing:
    """A job with one role, its JobResource, its plans, and the controllers of both. Time is virtual."""

    asked: int | None = 2
    worker: Manifest = field(default_factory=lambda: {"minReplicas": 1, "maxReplicas": 4})
    now: datetime = NOW
    generation: int = 1
    resource: Manifest | None = None
    plans: dict[str, Manifest] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    order: list[tuple[str, int]] = field(default_factory=list)  # who wanted what, as the plans came
    writes: int = 0
    status: Manifest = field(default_factory=dict)
    spec: Manifest = field(default_factory=dict)  # more of the job
    between: timedelta = timedelta(seconds=1)  # the creation of two plans

    # the world

    @property
    def job(self) -> ElasticJob:
        sizes = {"worker": role(self.asked, **self.worker)}
        return job(sizes, generation=self.generation, status=self.status, **self.spec)

    @property
    def size(self) -> int | None:
        """The number of workers that should run."""
        assert self.resource is not None
        found: int | None = self.resource["spec"]["replicaResourceSpecs"].get("worker", {}).get("replicas")
        return found

    def stored(self) -> JobResource | None:
        return JOBRESOURCE.convert(self.resource) if self.resource else None

    def ordered(self) -> tuple[ScalePlan, ...]:
        return by_age(SCALEPLAN.convert(plan) for plan in self.plans.values())

    def phases(self) -> dict[str, str]:
        return {plan.metadata.name: str(plan.status.phase) for plan in self.ordered()}

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
        self.now += self.between
        about = {
            **manifest["metadata"],
            "uid": f"uid-{name}",
            "generation": 1,
            "resourceVersion": str(len(self.made)),
            "creationTimestamp": at(self.now),
        }
        self.plans[name] = {**manifest, "metadata": about}
        self.made.append(name)
        if (size := manifest["spec"]["replicaResourceSpecs"]["worker"].get("replicas")) is not None:
            self.order.append((name, size))

    def apply(self, manifest: Manifest) -> None:
        assert self.resource is not None
        about, spec = self.resource["metadata"], self.resource["spec"]
        notes = {**about.get("annotations", {}), **manifest["metadata"].get("annotations", {})}
        changed = {**spec, **manifest["spec"]}
        generation = about["generation"] + (changed != spec)
        about = {**about, "annotations": notes, "generation": generation}
        self.resource = {**self.resource, "metadata": about, "spec": changed}

    # what happens

    def scale(self, size: int | None, **bounds: int) -> None:
        """A user writes the ElasticJob; what is written already is no change."""
        worker = {**self.worker, **bounds}
        if (size, worker) != (self.asked, self.worker):
            self.asked, self.worker = size, worker
            self.generation += 1

    def plan(self, size: int, *, manual: bool = False) -> str:
        """An optimizer, or a user, writes a ScalePlan."""
        name = f"{'manual' if manual else 'auto'}-{len(self.made)}"
        spec: dict[str, Any] = {
            "ownerJob": "digits",
            "manualScaling": manual,
            "replicaResourceSpecs": {"worker": {"replicas": size}},
        }
        about = {"name": name, "namespace": "ml", "ownerReferences": [OWNER]}
        self.add_plan(name, {"apiVersion": "v1", "kind": "ScalePlan", "metadata": about, "spec": spec})
        return name

    def look_at_the_job(self, most: int | None = None) -> None:
        """A pass, or one that dies after `most` writes."""
        stored = self.stored()  # the master of a suspended job is gone
        masters = () if stored and stored.spec.suspend else (master(),)
        seen = JobSeen(self.job, stored, masters, (), self.ordered())
        plan = jobs.decide(seen, self.now)
        self.perform(plan, most)
        if most is None:
            status = describe(seen, plan, self.now).manifest()
            self.writes += status != self.status
            self.status = ELASTICJOB.convert({"metadata": {}, "spec": {}, "status": status}).status.manifest()

    def look_at_the_plans(self, most: int | None = None) -> None:
        if self.plans:
            self.perform(plans.decide(PlansSeen(self.job, self.stored(), self.ordered()), self.now), most)

    def make_ready(self) -> None:
        if self.resource:
            ready = {"type": "Ready", "status": "True"}
            generation = self.resource["metadata"]["generation"]
            self.resource["status"] = {"observedGeneration": generation, "conditions": [ready]}

    def settle(self) -> None:
        """Leave it alone until nothing is written any more."""
        for _ in range(60):
            before = self.writes
            self.make_ready()
            self.look_at_the_job()
            self.look_at_the_plans()
            if self.writes == before:
                return
        raise AssertionError("it never comes to rest")
