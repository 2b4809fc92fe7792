"""A cluster with queues in virtual time: jobs, pods, Kueue, an operator, and all that may go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import msgspec

from elasticjob.api.diengine import names as di
from elasticjob.api.diengine import pods
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.kueue import QUEUE_NAME
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.kueue.workload import (
    CLUSTER_QUEUE,
    FLAVOR,
    LOCAL_QUEUE,
    WORKLOAD,
    WORKLOAD_PRIORITY_CLASS,
)
from elasticjob.kube.errors import KubeError, NotFound, ServerError
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NODE, POD
from lab.build.manifests import ABSENT, TRAINING, changed
from lab.clusters.plane import queues
from lab.truths import quota
from lab.truths.quota import is_true
from lab.virtual import kueue as kueues
from lab.virtual import pods as kubelet
from lab.virtual.kueue import Kueue
from lab.virtual.loop import LoopClock
from lab.virtual.operator import KUEUES, Operator, Watch
from lab.virtual.server import Server

TEAM: Final = "ml"
SPOT: Final = "spot"
MACHINES: Final = ("n1", "n2", "n3")
SETTINGS: Final = (FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE)
TOLERATION: Final = {"key": SPOT, "operator": "Exists", "effect": "NoSchedule"}


class Broken(AssertionError):
    """A rule was broken; the message has the instant and what happened before."""


@dataclass
class World:
    """Everything, and what must hold at each instant."""

    chance: Random
    server: Server = field(init=False)
    kueue: Kueue = field(init=False)
    operator: Operator | None = None
    diary: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    excused: dict[str, str] = field(default_factory=dict)
    """By what their pods name: the Workloads that somebody has deactivated, until they hold nothing."""
    verbose: bool = False
    webhook_away: bool = False
    uninstalled: bool = False
    """Whether the definitions of Kueue are deleted."""
    _due: bool = False
    _checks: bool = False
    _settings: list[tuple[Kind[Any], Manifest]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.server = Server(LoopClock(), self.chance)
        self.kueue = Kueue(self.server)
        self.server.listen(self._heard)
        self.server.fault = self._fault
        for name in MACHINES:
            self.server.put(NODE, node(name))
        self.server.put(FLAVOR, queues.flavor())
        self.server.put(FLAVOR, spot_flavor())
        for name in ("a", "b"):
            self.server.put(CLUSTER_QUEUE, self._queue(name))
            self.server.put(LOCAL_QUEUE, queues.local_queue(name, TEAM, name))
        self.server.put(WORKLOAD_PRIORITY_CLASS, queues.priority("high", 10))
        self._checks = True

    def _queue(self, name: str) -> Manifest:
        """A ClusterQueue as administrators make them: flavors, limits, strategy, policies."""
        chance = self.chance

        def quota(flavor: str) -> Manifest:
            found = {"name": "cpu", "nominalQuota": str(chance.randint(2, 5))}
            found |= {"borrowingLimit": "1"} if chance.random() < 0.3 else {}
            found |= {"lendingLimit": "1"} if chance.random() < 0.2 else {}
            return {"name": flavor, "resources": [found]}

        flavors = chance.choice((("default",),) * 3 + (("default", SPOT), (SPOT, "default")))
        made = queues.cluster_queue(name, {"cpu": "0"}, cohort="c")
        spec = made["spec"]
        spec["resourceGroups"][0]["flavors"] = [quota(flavor) for flavor in flavors]
        spec |= {"queueingStrategy": "StrictFIFO"} if chance.random() < 0.2 else {}
        if chance.random() < 0.2:  # as Kueue has it where a queue says nothing
            spec["preemption"] = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}
        return made

    def _fault(self, verb: str, kind: Kind[Any], name: str) -> KubeError | None:
        """What follows from Kueue's absence: of its webhook, or of its definitions."""
        if kind.resource == WORKLOAD.resource and verb in ("create", "apply", "patch"):
            if self.webhook_away:
                return ServerError(500, "InternalError", 'failed calling webhook "vworkload.kb.io"')
            if self.uninstalled and verb == "create":
                return NotFound(404, "NotFound", "the server could not find the requested resource")
        return None

    async def has_workloads(self) -> bool:
        """Return whether the definition of Workloads is there."""
        return not self.uninstalled

    # what follows from each change

    def _heard(self, resource: str, old: Manifest | None, new: Manifest | None) -> None:
        if self.verbose:
            self.note(_told(resource, old, new))
        if resource == POD.resource:
            self._pod_changed(old, new)
        if resource == WORKLOAD.resource:
            self._workload_changed(new)
        if resource in (WORKLOAD.resource, LOCAL_QUEUE.resource, CLUSTER_QUEUE.resource):
            self._wake_kueue()
        if resource in (WORKLOAD.resource, POD.resource) and self._checks:
            self.check()
        if new is None or (old is None and self.server.is_orphan(new)):
            self._later(0.05, 0.5, self.server.collect)

    def checks(self) -> None:
        """Check from now on."""
        self._checks = True
        self.check()

    def check(self) -> None:
        """The rules of each instant."""
        found = quota.breaches(
            self.server.every(POD),
            self.server.every(WORKLOAD),
            self.kueue.cells().values(),
            self.excused,
        )
        for each in found:
            self.breaks(each)

    def breaks(self, sentence: str) -> None:
        """Note once what is wrong at this instant."""
        if not any(sentence in before for before in self.broken):
            self.broken.append(f"{self._now:.3f}: {sentence}")
            self.note(f"BROKEN {sentence}")

    @property
    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def note(self, sentence: str) -> None:
        self.diary.append(f"{self._now:9.3f} {sentence}")

    def _later(self, least: float, most: float, call: Callable[..., object], *given: Any) -> None:
        delay = self.chance.uniform(least, most)
        asyncio.get_running_loop().call_later(delay, call, *given)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a change with which this holds."""
        changed = asyncio.Event()
        self.server.listen(lambda *_: changed.set())
        while not holds():
            changed.clear()
            await changed.wait()

    # Kueue

    def _wake_kueue(self) -> None:
        if not self._due and self.kueue.up:
            self._due = True
            self._later(0.005, 0.2, self._kueue_looks)

    def _kueue_looks(self) -> None:
        self._due = False
        if self.kueue.up and not self.server.away:
            if again := self.kueue.look():
                self._later(again.total_seconds(), again.total_seconds() + 0.1, self._wake_kueue)
        elif self.kueue.up:
            self._later(0.5, 1, self._wake_kueue)

    def kueue_stops(self) -> None:
        self.kueue.up, self.webhook_away = False, True

    def kueue_starts(self) -> None:
        self.kueue.up, self.webhook_away = True, False
        self._wake_kueue()

    async def uninstall_kueue(self, told: bool = True, by_force: bool = False) -> None:
        """With its definitions all of its objects go, once no finalizer of our Workloads keeps them.

        `told`: whether a watch asks while they are away, and is told that the server has no such kind;
        `by_force`: whether somebody takes our finalizers as well, so that they go without notice.
        """
        self.kueue.up, self.uninstalled, self._checks = False, True, False
        self._settings = [(kind, each) for kind in SETTINGS for each in self.server.every(kind)]
        for each in self.server.every(WORKLOAD) if by_force else self.foreign():
            self.server.change(WORKLOAD, each, metadata={**each["metadata"], "finalizers": []})
        for kind in (WORKLOAD, *SETTINGS):
            for each in self.server.every(kind):
                self.server.remove(kind, each)
        await self.until(lambda: not self.server.every(WORKLOAD))
        for watch in self._kueue_watches() if told else ():
            watch.lose()

    def install_kueue(self) -> None:
        """Kueue comes back, with the queues that it had."""
        self.uninstalled = False
        for kind, each in self._settings:
            self.server.put(kind, each)
        for watch in self._kueue_watches():
            watch.find()
        self.kueue_starts()

    def _kueue_watches(self) -> list[Watch]:
        return [self.operator.watches[kind.resource] for kind in KUEUES] if self.operator else []

    def _workload_changed(self, new: Manifest | None) -> None:
        """Others give back what is taken from them, when their pods have left."""
        if new is None:
            return
        name = new["metadata"]["name"]
        if self.excused.get(quota.chain_of(new)) == name and not kueues.reserved(new):
            del self.excused[quota.chain_of(new)]
        if (
            LABEL_JOB not in new["metadata"].get("labels", {})
            and is_true(new, "Evicted")
            and kueues.reserved(new)
        ):
            self._later(0.05, 3, self._foreign_leaves, name)

    def _foreign_leaves(self, name: str) -> None:
        found = self.there(WORKLOAD, name)
        if found is None or not is_true(found, "Evicted") or not kueues.reserved(found):
            return
        reason = kueues.condition(found, "Evicted")[1]
        changes = {
            "QuotaReserved": ("False", "Pending"),
            "Admitted": ("False", "NoReservation"),
            "Requeued": ("True" if reason == "Preempted" else "False", reason),
        }
        status = {name: value for name, value in found["status"].items() if name != "admission"}
        status["conditions"] = kueues.changed(status["conditions"], changes, self.server.clock.now())
        self.server.change(WORKLOAD, found, status=status)

    # kubelets

    def _pod_changed(self, old: Manifest | None, new: Manifest | None) -> None:
        if new is None:
            return
        name, uid = new["metadata"]["name"], new["metadata"]["uid"]
        waited = old is None or old["spec"].get("schedulingGates")
        if waited and not new["spec"].get("schedulingGates"):
            self._later(0.05, 2, self._starts, name, uid)
        if old and "deletionTimestamp" in new["metadata"] and "deletionTimestamp" not in old["metadata"]:
            self._later(0.05, 4, self._leaves, name, uid)

    def _pod(self, name: str, uid: str) -> Manifest | None:
        found = self.there(POD, name)
        return found if found and found["metadata"]["uid"] == uid else None

    def _starts(self, name: str, uid: str) -> None:
        pod, machines = self._pod(name, uid), self.server.every(NODE)
        if pod is None or pod["status"]["phase"] != "Pending" or "deletionTimestamp" in pod["metadata"]:
            return
        if not machines:
            self._later(1, 2, self._starts, name, uid)
            return
        kubelet.start(self.server, pod, self.chance.choice(machines)["metadata"]["name"])

    def _leaves(self, name: str, uid: str) -> None:
        pod = self._pod(name, uid)
        if pod is None:
            return
        there = self.there(NODE, pod["spec"].get("nodeName", ""))
        if there is not None and pod["status"]["phase"] == "Running" and self._tells_code(name):
            pod = kubelet.end(self.server, pod, 143)
        if there is not None or not pod["spec"].get("nodeName"):
            self.server.remove(POD, pod, grace=0)

    def _tells_code(self, name: str) -> bool:
        """Whether a pod that is deleted says how it has ended."""
        return self.chance.random() < 0.5

    # what happens

    def start(self) -> None:
        self.operator = Operator(self.server, self.chance, self.has_workloads)

    async def kill(self) -> None:
        operator, self.operator = self.operator, None
        if operator:
            await operator.kill()

    def jobs(self) -> list[Manifest]:
        return self.server.every(ELASTICJOB)

    def foreign(self) -> list[Manifest]:
        every = self.server.every(WORKLOAD)
        return [each for each in every if LABEL_JOB not in each["metadata"].get("labels", {})]

    def there(self, kind: Kind[Any], name: str) -> Manifest | None:
        return self.server.found(kind, name, TEAM if kind.namespaced else "")

    def add(self, kind: Kind[Any], made: Manifest) -> None:
        """An object comes, unless one of its name is there."""
        if self.there(kind, made["metadata"]["name"]) is None:
            self.server.put(kind, made)

    def change(self, kind: Kind[Any], name: str, **spec: Any) -> None:
        """Fields of the spec of an object change, if it is there."""
        if found := self.there(kind, name):
            self.server.change(kind, found, spec={**found["spec"], **spec})

    def remove(self, kind: Kind[Any], name: str) -> None:
        """An object is deleted, if it is there."""
        if found := self.there(kind, name):
            self.server.remove(kind, found)

    # jobs

    def arrive(self, made: Manifest) -> None:
        self.add(ELASTICJOB, made)

    def change_job(self, name: str, **spec: Any) -> None:
        self.change(ELASTICJOB, name, **spec)

    def change_workers(self, name: str, **fields: Any) -> None:
        if found := self.there(ELASTICJOB, name):
            roles = found["spec"]["replicaSpecs"]
            self.change_job(name, replicaSpecs={**roles, "worker": {**roles["worker"], **fields}})

    def bound(self, name: str) -> None:
        """The user changes the minimum of a job, as far as its size allows."""
        if found := self.there(ELASTICJOB, name):
            size, unit = found["spec"]["replicaSpecs"]["worker"]["replicas"], found["spec"].get("nodeUnit", 1)
            self.change_workers(name, minReplicas=unit * self.chance.randint(1, max(1, size // unit)))

    def plan(self, name: str, *, manual: bool, **worker: Any) -> None:
        metadata = {"name": f"plan-{self.server.version}", "namespace": TEAM}
        spec = {"ownerJob": name, "manualScaling": manual, "replicaResourceSpecs": {"worker": worker}}
        self.server.put(SCALEPLAN, {"metadata": metadata, "spec": spec})

    def autoscale(self, name: str, replicas: int) -> None:
        """An autoscaler writes the JobResource's scale subresource, or an older tool its sizes."""
        if (found := self.there(JOBRESOURCE, name)) is None:
            return
        if self.chance.random() < 0.7:
            self.change(JOBRESOURCE, name, replicas=replicas)
        else:
            roles = found["spec"]["replicaResourceSpecs"]
            sizes = {**roles, "worker": {**roles["worker"], "replicas": replicas}}
            self.change(JOBRESOURCE, name, replicaResourceSpecs=sizes)

    def delete_job(self, name: str) -> None:
        self.remove(ELASTICJOB, name)

    # a DIJob, and what di-server does

    def add_players(self, name: str, count: int) -> None:
        """Its coordinator, which runs, asks for collectors."""
        found, mine = self.there(DIJOB, name), self.there(POD, di.coordinator(name))
        if found and mine and mine["status"]["phase"] == "Running":
            made = DIJOB.decode(msgspec.json.encode(found))
            for number in range(count):
                one = f"{name}-collector-{self.server.version}-{number}"
                template = found["spec"]["collector"]["template"]
                self.server.put(POD, pods.pod(made, di.Role.COLLECTOR, one, pods.Server(), template))

    def players(self) -> list[Manifest]:
        """The collectors that are there."""
        return [p for p in self.server.every(POD) if "-collector-" in p["metadata"]["name"]]

    # Workloads, and queues

    def activate(self, name: str, active: bool) -> None:
        """An administrator deactivates a Workload, or activates it again."""
        found = self.there(WORKLOAD, name)
        if found and not active and kueues.reserved(found):
            self.excused[quota.chain_of(found)] = name
        self.change(WORKLOAD, name, active=active)

    def come(self, name: str, queue: str, cpu: int, priority: int, *, spot: bool = False) -> None:
        """A plain Workload of someone else."""
        made = queues.workload(name, TEAM, queue, cpu, {"cpu": "1"}, priority=priority)
        if spot:
            made["spec"]["podSets"][0]["template"]["spec"]["tolerations"] = [TOLERATION]
        self.add(WORKLOAD, made)

    def go(self, name: str) -> None:
        self.remove(WORKLOAD, name)

    def stop_queues(self, policy: str) -> None:
        """All queues stop, or go on."""
        for name in ("a", "b"):
            for kind in (LOCAL_QUEUE, CLUSTER_QUEUE):
                self.change(kind, name, stopPolicy=policy)

    def set_queue(self, made: Manifest) -> None:
        """Give a ClusterQueue another spec."""
        found = self.there(CLUSTER_QUEUE, made["metadata"]["name"])
        assert found is not None
        self.server.change(CLUSTER_QUEUE, found, spec=made["spec"])

    # machines and pods

    def lose(self, machine: str) -> None:
        if self.there(NODE, machine):
            self.remove(NODE, machine)
            self._later(5, 40, self._collect_pods, machine)

    def _collect_pods(self, machine: str) -> None:
        """Pods of a machine that is gone, or that came back without them, are deleted by the cluster."""
        for pod in self.server.every(POD):
            if pod["spec"].get("nodeName") == machine:
                self.server.remove(POD, pod, grace=0)

    def find(self, machine: str) -> None:
        self.add(NODE, node(machine))

    def end_pod(self, name: str, code: int) -> None:
        pod = self.there(POD, name)
        if pod and pod["status"]["phase"] == "Running":
            kubelet.end(self.server, pod, code)


def spot_flavor() -> Manifest:
    """Machines that only pods that tolerate it get."""
    made = queues.flavor(SPOT, {"pool": SPOT})
    made["spec"]["nodeTaints"] = [{"key": SPOT, "value": "true", "effect": "NoSchedule"}]
    return made


def node(name: str) -> Manifest:
    conditions = [{"type": "Ready", "status": "True"}]
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    return {"metadata": {"name": name}, "status": {"conditions": conditions, "allocatable": allocatable}}


def job(
    name: str,
    queue: str,
    replicas: int,
    least: int,
    most: int | None,
    *,
    unit: int = 1,
    master: bool = False,
    priority: str = "",
    spot: bool = False,
    mode: str = "manual",
) -> Manifest:
    container = {"name": "main", "image": "trainer", "resources": {"requests": {"cpu": "1"}}}
    worker: Manifest = {
        "replicas": replicas,
        "minReplicas": least,
        "template": {"spec": {"containers": [container], **({"tolerations": [TOLERATION]} if spot else {})}},
    }
    worker |= {} if most is None else {"maxReplicas": most}
    labels = {QUEUE_NAME: queue} if queue else {}
    labels |= {"kueue.x-k8s.io/priority-class": priority} if priority else {}
    spec: Manifest = {"optimizeMode": mode, "replicaSpecs": {"worker": worker}}
    spec |= {} if unit == 1 else {"nodeUnit": unit}
    spec |= {} if master else {"distributionStrategy": "Local"}
    about = {"name": name, "namespace": TEAM, **({"labels": labels} if labels else {})}
    return {"metadata": about, "spec": spec}


def dijob(name: str, queue: str) -> Manifest:
    """A coordinator; what it asks di-server for comes later."""
    container = {"name": "di-container", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    role = {"template": {"spec": {"containers": [container]}}}
    labels = {"labels": {QUEUE_NAME: queue}} if queue else {}
    about = {"name": name, "namespace": TEAM, **labels}
    spec = {"group": "team", "cleanPodPolicy": "Running", "coordinator": role, "collector": role}
    return {"metadata": about, "spec": spec}


def training(name: str, least: int, most: int) -> Manifest:
    """A TrainingJob of PaddlePaddle, whose trainers ask for a core each."""
    made = {
        "metadata/name": name,
        "metadata/namespace": TEAM,
        "metadata/uid": ABSENT,
        "spec/trainer/min-instance": least,
        "spec/trainer/max-instance": most,
        "spec/trainer/resources": {"requests": {"cpu": "1"}},
    }
    return changed(TRAINING, made)


def _told(resource: str, old: Manifest | None, new: Manifest | None) -> str:
    found = new or old or {}
    about = found["metadata"]
    verb = "deleted" if new is None else "created" if old is None else "changed"
    kind = resource.partition(".")[0]
    more = ""
    if kind == "pods":
        of = about.get("annotations", {}).get(quota.WORKLOAD_OF, "")
        machine = found["spec"].get("nodeName")
        more = f"{found['status']['phase']}{f' on {machine}' if machine else ''}{f' in {of}' if of else ''}"
    elif kind == "workloads":
        active = "" if found["spec"].get("active", True) else "inactive "
        more = f"{active}{quota.told(found)} {about.get('annotations', '')}"
    elif kind == "jobresources":
        sizes = {r: s.get("replicas") for r, s in found["spec"]["replicaResourceSpecs"].items()}
        more = f"suspend={found['spec'].get('suspend')} {sizes}"
    elif phase := (found.get("status") or {}).get("phase"):
        more = str(phase)
    leaves = " (leaves)" if "deletionTimestamp" in about else ""
    return f"{verb} {kind} {about['name']}{leaves} {more}"
