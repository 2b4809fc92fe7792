"""Two nodes are out of memory, three controllers look at it in any order: the job grows once, both wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.controllers.elasticjob import decide as jobs
from elasticjob.controllers.elasticjob.seen import Seen as JobSeen
from elasticjob.controllers.jobresource import decide as nodes
from elasticjob.controllers.jobresource.decide import Seen as NodesSeen
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.passes.plan import Action, Apply, Create
from elasticjob.controllers.scaleplan import decide as plans
from elasticjob.controllers.scaleplan.decide import Seen as PlansSeen
from elasticjob.kube.objects.kinds import Manifest
from lab.build.jobs import NOW, at, job, life, master, oom, resource


class Trio:
    """A job of two nodes with 512Mi each, its JobResource, its plans, and what each pass makes of them."""

    def __init__(self, own: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.job = job()
        made = resource(nodes=own)
        self.resource: Manifest = made.manifest() | {"apiVersion": "v1", "kind": "JobResource"}
        self.plans: dict[str, Manifest] = {}
        self.lives: dict[str, Life] = {one.name: one for one in (life(0), life(1))}

    def kill(self, index: int) -> None:
        """The kernel ends the first life of a node."""
        killed = oom(index, at=NOW)
        self.lives[killed.name] = killed

    def play(self, order: Sequence[Callable[[Trio], None]], more: int) -> dict[str, Mapping[str, str]]:
        """Take these steps, then `more` rounds of passes; return what each successor of a pod has."""
        for step in (*order, *PASSES * more):
            step(self)
        return {one.name: one.resource for one in self.lives.values() if one.relaunch}

    def job_pass(self) -> None:
        """The ElasticJob controller."""
        seen = JobSeen(self.job, self.stored(), (master(),), tuple(self.lives.values()), self.ordered())
        self._perform(jobs.decide(seen, NOW).actions)

    def plans_pass(self) -> None:
        """The ScalePlan controller."""
        self._perform(plans.decide(PlansSeen(self.job, self.stored(), self.ordered()), NOW).actions)

    def nodes_pass(self) -> None:
        """The JobResource controller."""
        lives = tuple(self.lives.values())
        seen = NodesSeen(self.stored(), self.job, lives, "10.0.0.1:50001", self.ordered())
        self._perform(nodes.decide(seen, NOW).actions)

    def stored(self) -> JobResource:
        return JOBRESOURCE.convert(self.resource)

    def ordered(self) -> tuple[ScalePlan, ...]:
        return tuple(SCALEPLAN.convert(plan) for plan in self.plans.values())

    def _perform(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            self._write(action)

    def _write(self, action: Action) -> None:
        match action:
            case Create(kind, manifest) if kind.name == "ScalePlan":
                name = manifest["metadata"]["name"]
                about = {**manifest["metadata"], "uid": name, "creationTimestamp": at(NOW)}
                self.plans.setdefault(name, {**manifest, "metadata": about})
            case Create(kind, manifest) if kind.name == "Pod":
                (container,) = manifest["spec"]["containers"]
                index, relaunch = map(int, manifest["metadata"]["name"].split("-")[-2:])
                born = life(index, relaunch, resource={"memory": container["resources"]["limits"]["memory"]})
                self.lives[born.name] = born
            case Apply(kind, manifest, "") if kind.name == "JobResource":
                old, new = self.resource["metadata"], manifest["metadata"]
                notes = {**old["annotations"], **new.get("annotations", {})}
                spec = {**self.resource["spec"], **manifest["spec"]}
                self.resource = {
                    **self.resource,
                    "metadata": {**old, **new, "annotations": notes},
                    "spec": spec,
                }
            case Apply(_, manifest, "status"):
                self.plans[manifest["metadata"]["name"]]["status"] = manifest["status"]
            case _:
                pass  # resizes of those that live, and what else a job is made of


Step = Callable[[Trio], None]
PASSES: tuple[Step, ...] = (Trio.job_pass, Trio.plans_pass, Trio.nodes_pass)
KILLS: tuple[Step, ...] = (lambda trio: trio.kill(0), lambda trio: trio.kill(1))
GROWN = {f"digits-worker-{n}-1": {"memory": "1Gi"} for n in (0, 1)}


@settings(max_examples=50)
@given(order=st.permutations((*KILLS, *(PASSES * 3))))
def test_the_job_grows_once_and_no_successor_has_the_old_limit(order: list[Step]) -> None:
    trio = Trio()
    successors = trio.play(order, 4)
    assert successors == GROWN
    given_now = trio.stored().spec.replica_resource_specs["worker"].resource
    assert given_now == {"memory": "1Gi"}
    assert len(trio.plans) == 1


@settings(max_examples=50)
@given(order=st.permutations((*KILLS, *(PASSES * 3))))
def test_a_node_with_memory_of_its_own_grows_once_and_so_does_the_role_of_the_other(
    order: list[Step],
) -> None:
    trio = Trio({"digits-worker-0": {"memory": "512Mi"}})
    successors = trio.play(order, 8)
    assert successors == GROWN
    spec = trio.stored().spec
    assert spec.replica_resource_specs["worker"].resource == {"memory": "1Gi"}
    assert {node.name: node.resource for node in spec.nodes} == {"digits-worker-0": {"memory": "1Gi"}}
    assert trio.plans.keys() == {f"digits-worker-{n}-memory" for n in (0, 1)}
