"""A job, its nodes and its plans on a server, and the operator's passes over them, one at a time.

A pass over the nodes may read an old state, though none from before its own writes; each may die between two.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elasticjob.api.readings import indexes
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.order import by_age
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.controllers.elasticjob import decide as jobs
from elasticjob.controllers.elasticjob.seen import Seen as JobSeen
from elasticjob.controllers.elasticjob.status import describe as describe_job
from elasticjob.controllers.jobresource import decide as nodes
from elasticjob.controllers.jobresource.status import describe
from elasticjob.controllers.nodes.relaunch import Life, Node, Standing, life_of
from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.plan import Action, Apply, Create, Delete, Plan, Resize
from elasticjob.controllers.scaleplan import decide as plans
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import NODE, POD
from lab.build.jobs import NOW, master, plan
from lab.virtual import pods
from lab.virtual.server import Server

MACHINES: Final = ("m1", "m2")
TEAM: Final = "ml"
MADE: Final = (POD, JOBRESOURCE, SCALEPLAN)
"""What passes make, but for services and rights, which nothing here depends on."""
CODES: Final = (
    (0, "Completed"),
    (1, "Error"),
    (75, "Error"),
    (137, "Error"),
    (137, "OOMKilled"),
    (139, "Error"),
    (143, "Error"),
)


class Passes:
    """The server, and each state that it has had."""

    def __init__(
        self,
        job: ElasticJob,
        resource: JobResource | None = None,
        *,
        between: timedelta = timedelta(seconds=1),
    ) -> None:
        """`between` is the time from the creation of a plan to that of the next."""
        self.clock, self.between = VirtualClock(NOW), between
        self.server = Server(self.clock)
        self.server.listen(self._record)
        self.history: list[dict[str, dict[Key, Manifest]]] = []
        self.cursor = 0  # the state that the nodes' controller has read
        self.wrote = 0  # the state it must have read before its next pass
        self.writes = 0
        self.created: list[Manifest] = []
        self.folded: list[str] = []  # marks with which the spec of the JobResource changed
        self.resized: list[str] = []
        self.failures: dict[int, int] = {}  # restarts that count, by index
        self._models: dict[str, Any] = {}
        for name in MACHINES:
            self.server.put(NODE, {"metadata": {"name": name}})
        self.server.put(ELASTICJOB, job.manifest())
        if resource:
            self.server.put(JOBRESOURCE, resource.manifest())
        self.restart_operator()

    def _record(self, resource: str, old: Manifest | None, new: Manifest | None) -> None:
        self.history.append({name: dict(objects) for name, objects in self.server.objects.items()})
        self.created += [new] if new and not old else []

    # what there is

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def every(self, kind: Kind[Any], at: int = -1) -> list[Any]:
        """The objects of a kind in one of the states."""
        return [self._model(kind, each) for each in self.history[at].get(kind.resource, {}).values()]

    def _model(self, kind: Kind[Any], stored: Manifest) -> Any:
        version = stored["metadata"]["resourceVersion"]
        return self._models.get(version) or self._models.setdefault(version, kind.convert(stored))

    @property
    def job(self) -> ElasticJob:
        found: ElasticJob = self.every(ELASTICJOB)[0]
        return found

    @property
    def resource(self) -> JobResource:
        found: JobResource = self.every(JOBRESOURCE)[0]
        return found

    @property
    def asked(self) -> int | None:
        return self.job.spec.replica_specs["worker"].replicas

    @property
    def size(self) -> int | None:
        """The number of workers that should run."""
        return self.resource.spec.replica_resource_specs["worker"].replicas

    def plans(self) -> tuple[ScalePlan, ...]:
        return by_age(self.every(SCALEPLAN))

    def phases(self) -> dict[str, str]:
        return {plan.metadata.name: str(plan.status.phase) for plan in self.plans()}

    @property
    def made(self) -> list[str]:
        """The names of all plans that there were, as they came."""
        return [each["metadata"]["name"] for each in self.created if each["kind"] == SCALEPLAN.name]

    @property
    def order(self) -> list[tuple[str, int]]:
        """The sizes that plans asked for, as they came."""
        every = (each for each in self.created if each["kind"] == SCALEPLAN.name)
        sizes = ((each, each["spec"]["replicaResourceSpecs"].get("worker", {})) for each in every)
        return [(each["metadata"]["name"], size["replicas"]) for each, size in sizes if "replicas" in size]

    @property
    def born(self) -> int:
        """The number of pods that there were."""
        return sum(each["kind"] == POD.name for each in self.created)

    @property
    def pods(self) -> dict[str, Manifest]:
        return {each["metadata"]["name"]: each for each in self.server.every(POD)}

    @property
    def machines(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.server.every(NODE)]

    def names(self, *, running: bool | None = None, terminating: bool | None = None) -> list[str]:
        """Pods that live, by name."""
        return [
            name
            for name, pod in sorted(self.pods.items())
            if not _over(pod)
            and (running is None or running == (pod["status"]["phase"] == "Running"))
            and (terminating is None or terminating == ("deletionTimestamp" in pod["metadata"]))
        ]

    def leaving(self) -> list[str]:
        """Pods on their way out, ended or not."""
        return sorted(name for name, pod in self.pods.items() if "deletionTimestamp" in pod["metadata"])

    # what happens

    def wait(self, seconds: float) -> None:
        self.clock.jump(seconds)

    def start(self, name: str, machine: str) -> None:
        pods.start(self.server, self.pods[name], machine)

    def start_all(self) -> None:
        for name in self.names(running=False, terminating=False):
            self.start(name, self.machines[0])

    def end(self, name: str, code: int, reason: str = "Error") -> None:
        """The training container exits; restarts that count are counted here too, to check the controller."""
        pod = pods.end(self.server, self.pods[name], code, reason)
        counts = code not in (0, 75, 137, 143) or reason == "OOMKilled"
        if counts and "deletionTimestamp" not in pod["metadata"]:
            self.failures[_index(pod)] = self.failures.get(_index(pod), 0) + 1

    def delete(self, name: str, grace: int | None = None) -> None:
        """Somebody deletes a pod, which has got a machine just before: it terminates until it is reaped."""
        pod = self.pods[name]
        if grace != 0 and not _over(pod):
            machine = {"nodeName": self.machines[0], **pod["spec"]}
            pod = self.server.change(POD, pod, spec=machine)
        self.server.remove(POD, pod, grace)

    def reap(self, name: str) -> None:
        self.server.remove(POD, self.pods[name], grace=0)

    def lose(self, machine: str) -> None:
        """A machine leaves the cluster: its pods are dead, whatever their status is."""
        self.server.remove(NODE, self.server.lookup(NODE, machine))

    def set_size(self, count: int, *, suspend: bool = False) -> None:
        """Write the size into the JobResource."""
        stored = self.server.lookup(JOBRESOURCE, "digits", TEAM)
        sizes = stored["spec"]["replicaResourceSpecs"]
        worker = {"worker": {**sizes["worker"], "replicas": count}}
        spec = {**stored["spec"], "suspend": suspend, "replicaResourceSpecs": worker}
        self.server.change(JOBRESOURCE, stored, spec=spec)

    def edit(self, **spec: Any) -> None:
        """A user writes the ElasticJob."""
        stored = self.server.lookup(ELASTICJOB, "digits", TEAM)
        self.server.change(ELASTICJOB, stored, spec={**stored["spec"], **spec})

    def scale(self, size: int | None, **more: Any) -> None:
        """A user writes the number of workers into the ElasticJob, None to leave it to the optimizer."""
        worker = {**self.server.lookup(ELASTICJOB, "digits", TEAM)["spec"]["replicaSpecs"]["worker"], **more}
        worker.pop("replicas", None)
        self.edit(replicaSpecs={"worker": worker | ({} if size is None else {"replicas": size})})

    def plan(self, size: int, *, manual: bool = False) -> None:
        """An optimizer, or a user, writes a ScalePlan."""
        name = f"{'manual' if manual else 'auto'}-{len(self.made)}"
        self.add(plan(name, {"worker": size}, manual=manual))

    def add(self, made: ScalePlan) -> None:
        self.wait(self.between.total_seconds())
        manifest = made.manifest()
        del manifest["metadata"]["creationTimestamp"]
        self.server.put(SCALEPLAN, manifest)

    def make_ready(self) -> None:
        for each in self.server.every(JOBRESOURCE):
            ready = {"type": "Ready", "status": "True"}
            status = {"observedGeneration": each["metadata"]["generation"], "conditions": [ready]}
            self.server.change(JOBRESOURCE, each, status=status)

    # the controllers

    def observe(self) -> nodes.Seen:
        at = self.cursor
        [resource] = self.every(JOBRESOURCE, at)
        return nodes.Seen(resource, self.job, self.lives(at), "10.0.0.1:50001", self.plans())

    def lives(self, at: int = -1) -> tuple[Life, ...]:
        """The pods in one of the states, as controllers see them."""
        machines = {node.metadata.name for node in self.every(NODE, at)}
        return tuple(filter(None, (life_of(pod, machines) for pod in self.every(POD, at))))

    def look_at_the_nodes(self, *, behind: int = 0, most: int | None = None) -> Plan:
        """A pass that reads a state from so many changes ago; it dies after `most` writes."""
        self.cursor = max(self.cursor, self.wrote, len(self.history) - 1 - behind)
        seen = self.observe()
        found = nodes.decide(seen, self.now)
        self._perform(found, "nodes", most)
        if most is not None:
            self.restart_operator()
        elif (status := describe(seen, found, self.now).manifest()) != seen.resource.status.manifest():
            self._write_status(JOBRESOURCE, status)
        return found

    def restart_operator(self) -> None:
        """A new process lists everything."""
        self.cursor = self.wrote = len(self.history) - 1

    def look_at_the_job(self, most: int | None = None) -> None:
        """A pass, or one that dies after `most` writes."""
        stored = next(iter(self.every(JOBRESOURCE)), None)
        masters = () if stored and stored.spec.suspend else (master(),)  # that of a suspended job is gone
        job = self.job
        seen = JobSeen(job, stored, masters, self.lives(), self.plans())
        found = jobs.decide(seen, self.now)
        self._perform(found, "jobs", most)
        if (
            most is None
            and (status := describe_job(seen, found, self.now).manifest()) != job.status.manifest()
        ):
            self._write_status(ELASTICJOB, status)

    def look_at_the_plans(self, most: int | None = None) -> None:
        """A pass, or one that dies after `most` writes."""
        if self.server.every(SCALEPLAN):
            stored = next(iter(self.every(JOBRESOURCE)), None)
            self._perform(plans.decide(plans.Seen(self.job, stored, self.plans()), self.now), "plans", most)

    def _perform(self, found: Plan, manager: str, most: int | None) -> None:
        for action in found.actions[:most]:
            self.writes += 1
            self._do(action, manager)

    def _do(self, action: Action, manager: str) -> None:
        before = self.server.version
        match action:
            case Create(kind, manifest) if kind in MADE:
                if not self.server.found(kind, manifest["metadata"]["name"], TEAM):
                    self.wait(self.between.total_seconds() if kind is SCALEPLAN else 0)
                    self.server.put(kind, manifest)
            case Delete(kind, name, uid, grace) if stored := self.server.found(kind, name, TEAM):
                if kind is not POD:
                    self.server.remove(kind, stored)
                elif stored["metadata"]["uid"] == uid:
                    self.delete(name, grace)
            case Apply(kind, manifest, subresource) if kind in MADE:
                old = self.server.lookup(kind, manifest["metadata"]["name"], TEAM)
                new = self.server.apply_now(kind, manifest, manager, subresource)
                mark = manifest["metadata"].get("annotations", {}).get(names.FOLDED)
                self.folded += [mark] if mark and new["spec"] != old["spec"] else []
            case Resize(name, _, _, resources) if stored := self.server.found(POD, name, TEAM):
                [main] = stored["spec"]["containers"]
                spec = {**stored["spec"], "containers": [{**main, "resources": resources}]}
                self.server.change(POD, stored, spec=spec)
                self.resized.append(name)
        if self.server.version != before:
            self.wrote = len(self.history) - 1

    def _write_status(self, kind: Kind[Any], status: Manifest) -> None:
        self.writes += 1
        self.server.change(kind, self.server.lookup(kind, "digits", TEAM), status=status)
        self.wrote = len(self.history) - 1

    def settle(self, *looks: Any) -> None:
        """Leave it alone: what leaves goes, what is made starts, until nothing changes."""
        for _ in range(200):
            before = self.writes, len(self.history)
            again = [each.again_in for look in looks or self.sizing if (each := look())]
            self.check()
            for name in self.leaving():
                self.reap(name)
            self.start_all()
            if pauses := [each.total_seconds() for each in again if each]:
                self.wait(min(pauses))
            elif (self.writes, len(self.history)) == before:
                return
        raise AssertionError("it never comes to rest")

    @property
    def sizing(self) -> tuple[Any, ...]:
        """The passes that decide on the size of the job."""
        return self.make_ready, self.look_at_the_job, self.look_at_the_plans

    # invariants

    def living(self, index: int) -> list[str]:
        """Pods of a node whose program runs or may run, on a machine that is there."""
        return [name for name, pod in self.pods.items() if self._lives(pod) and _index(pod) == index]

    def check(self) -> None:
        """Never two live pods of one node, nor one of a node that has done its work, nor other resources."""
        doubled = {index: every for index in range(10) if len(every := self.living(index)) > 1}
        assert not doubled, f"two lives of one node: {doubled}"
        assert not self.resized, "nothing asked for other resources"
        for resource in self.every(JOBRESOURCE):
            over = indexes(resource.status.completed_indexes.get("worker", ""), 10)
            again = {index: every for index in over if (every := self.living(index))}
            assert not again, f"they run a second time: {again}"

    def check_settled(self) -> None:
        """Exactly the expected pods run, and few ended ones are left; a job that ends stays as it is."""
        seen = self.observe()
        if nodes.make_no_pods_for_a_job_that_ends(seen, self.now):
            return
        worker = self.resource.spec.replica_resource_specs["worker"]
        size = () if self.resource.spec.suspend else worker.indices
        for index in range(12):
            node = seen.nodes.get(("worker", index), Node("worker", index))
            over = node.standing(seen.policy("worker"), self.now) in (Standing.DONE, Standing.SPENT)
            assert len(self.living(index)) == (index in size and not over), f"{index}: {self.living(index)}"
        lost = [name for name, pod in self.pods.items() if not self._is_there(pod) and not _over(pod)]
        assert not lost, f"left on lost machines: {lost}"
        ended = [_index(pod) for pod in self.pods.values() if _over(pod)]
        assert all(ended.count(index) <= nodes.KEPT_LIVES for index in size)

    def _lives(self, pod: Manifest) -> bool:
        return not _over(pod) and self._is_there(pod)

    def _is_there(self, pod: Manifest) -> bool:
        return pod["spec"].get("nodeName", self.machines[0]) in self.machines


class Living(RuleBasedStateMachine):
    """Pods that come and go, and passes over them that read late or die."""

    world: Passes

    @rule(behind=st.integers(0, 4))
    def reconcile(self, behind: int) -> None:
        self.world.look_at_the_nodes(behind=behind)

    @rule(behind=st.integers(0, 4), after=st.integers(0, 3))
    def crash(self, behind: int, after: int) -> None:
        self.world.look_at_the_nodes(behind=behind, most=after)

    @precondition(lambda self: self.world.names(running=True))
    @rule(data=st.data(), ending=st.sampled_from(CODES))
    def end(self, data: Any, ending: tuple[int, str]) -> None:
        self.world.end(data.draw(st.sampled_from(self.world.names(running=True))), *ending)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def delete(self, data: Any) -> None:
        self.world.delete(data.draw(st.sampled_from(sorted(self.world.pods))))

    @precondition(lambda self: self.world.leaving())
    @rule(data=st.data())
    def reap(self, data: Any) -> None:
        self.world.reap(data.draw(st.sampled_from(self.world.leaving())))

    @invariant()
    def one_life_at_a_time(self) -> None:
        self.world.check()


def _index(pod: Manifest) -> int:
    return int(pod["metadata"]["labels"]["elasticjob.dlrover/replica-index"])


def _over(pod: Manifest) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")
