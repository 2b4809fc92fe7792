"""The oracle HPA: a Deployment beside a JobResource, scaled by the controller-manager's own autoscaler."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.common import LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NAMESPACE, NODE, POD
from lab import programs
from lab.clusters.plane import queues
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.kueue import Kueue
from lab.explained import Explained
from lab.incumbents.hpa.external import METRIC, Loads, external_metrics
from lab.incumbents.oracle import INCUMBENT, OURS, Facts, Oracle, Play, Seen
from lab.incumbents.watched import Pods, watched
from lab.paths import DOCS
from lab.processes import Process
from lab.waiting import until

SYNC: Final = "--horizontal-pod-autoscaler-sync-period=2s"
QUIET: Final = 9.0
"""Seconds without a change after which a side is at rest: four looks of the autoscaler."""
UNLIKE: Final = 25.0
"""The same where the sides differ."""
LONGEST: Final = 90.0
DEPLOYMENT: Final = Kind("apps", "v1", "Deployment", "deployments", dict)
HPA: Final = Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", dict)
QUOTA: Final = Kind("", "v1", "ResourceQuota", "resourcequotas", dict)
EACH: Final = {"type": "Pods", "value": 100, "periodSeconds": 1}
AT_ONCE: Final = {"stabilizationWindowSeconds": 0, "policies": [EACH]}
NAME: Final = "it"
MOST: Final = 6

ALONE: Final = "the operator restarts"
"""The story that others would notice."""
SET: Final = ("quota", "window", "most")
"""Acts that say what is there before the story begins."""

Act = tuple[str, Any]
Ear = tuple[Kind[Any], Callable[[Change], None]]
STORIES: Final[Mapping[str, Sequence[Act]]] = {
    "up": [("load", 40)],
    "down": [("load", 50), ("load", 20)],
    "down to the least": [("load", 40), ("load", 0)],
    "beyond the most": [("load", 500)],
    "a load that flaps": [("flap", (40, 20))],
    "a load within the tolerance": [("load", 21), ("load", 19)],
    "a stabilization window": [("window", 20), ("load", 60), ("load", 10)],
    "suspended, and resumed": [("load", 40), ("suspend", None), ("load", 60), ("resume", None)],
    "queued with less quota": [("quota", 3), ("load", 40), ("load", 10)],
    "the user changes the size": [("load", 30), ("size", 5)],
    "the autoscaler may ask for more than the job": [("most", 4), ("load", 60), ("load", 20)],
    ALONE: [("load", 40), ("restart", 60)],
    "the training ends": [("load", 40), ("end", None), ("load", 60)],
}


@dataclass
class Heard:
    """The sizes of targets and the wishes of autoscalers, as they changed, by namespace."""

    sizes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    wishes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def target(self, change: Change) -> None:
        if change.new is None:
            return
        spec: Manifest = msgspec.json.decode(change.new.raw)["spec"]
        _add(self.sizes[change.new.key.namespace], 0 if spec.get("suspend") else spec.get("replicas", 0))

    def autoscaler(self, change: Change) -> None:
        if change.new is not None:
            status: Manifest = msgspec.json.decode(change.new.raw).get("status") or {}
            if wish := status.get("desiredReplicas"):
                _add(self.wishes[change.new.key.namespace], wish)


CONTAINER: Final[Manifest] = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
PAUSE: Final[Manifest] = {"containers": [CONTAINER], "terminationGracePeriodSeconds": 1}


def job_of(most: int) -> Manifest:
    """The spec of a job of two workers, one at least, whose pods decide."""
    role = {"replicas": 2, "minReplicas": 1, "maxReplicas": most, "template": {"spec": PAUSE}}
    return {"distributionStrategy": "Local", "optimizeMode": "manual", "replicaSpecs": {WORKER: role}}


def _add(numbers: list[int], number: int) -> None:
    if numbers[-1:] != [number]:
        numbers.append(number)


@dataclass
class Side:
    """A Deployment or a job in a namespace of its own, under an autoscaler."""

    client: Client
    heard: Heard
    pods: Pods
    loads: Loads
    namespace: str
    ours: bool
    marks: tuple[int, int, int, int] = (0, 0, 0, 0)
    own: int = 0
    """Changes of the size since then that were not the autoscaler's."""

    async def begin(self, story: Sequence[Act]) -> None:
        await self.client.create(NAMESPACE.untyped(), {"metadata": {"name": self.namespace}})
        quota, window, most = (dict(story).get(each) for each in SET)
        if pods := quota or (None if self.ours else most):
            await self.limit(pods)
        await self.make(self.target(queued=quota is not None, most=most or MOST))
        await self.make(self.autoscaler(window or 0))
        await until(self.has_begun, f"{self.namespace} has two pods and an autoscaler that looks")

    async def has_begun(self) -> bool:
        return len(self.live()) == 2 and bool(self.heard.wishes[self.namespace])

    async def make(self, made: tuple[Kind[Any], Manifest]) -> None:
        kind, body = made
        await self.client.create(kind, {**body, "metadata": self.named(body.get("metadata", {}))})

    def named(self, about: Manifest) -> Manifest:
        return {"name": NAME, "namespace": self.namespace, **about}

    async def limit(self, pods: int) -> None:
        """Quota for so many pods: of the namespace, or of a queue of Kueue."""
        if not self.ours:
            await self.make((QUOTA, {"spec": {"hard": {"pods": str(pods)}}}))
            return
        queue = queues.cluster_queue(self.namespace, {"cpu": str(pods)})
        await self.client.create(queues.CLUSTER_QUEUE, queue)
        await self.client.create(queues.LOCAL_QUEUE, queues.local_queue("q", self.namespace, self.namespace))

    def target(self, *, queued: bool, most: int) -> tuple[Kind[Any], Manifest]:
        if not self.ours:
            labels = {"app": NAME}
            spec = {"replicas": 2, "selector": {"matchLabels": labels}}
            return DEPLOYMENT, {"spec": {**spec, "template": {"metadata": {"labels": labels}, "spec": PAUSE}}}
        labels = {"kueue.x-k8s.io/queue-name": "q"} if queued else {}
        return ELASTICJOB.untyped(), {"metadata": {"labels": labels}, "spec": job_of(most)}

    def autoscaler(self, window: int) -> tuple[Kind[Any], Manifest]:
        kind = JOBRESOURCE if self.ours else DEPLOYMENT
        external = {"metric": {"name": METRIC}, "target": {"type": "AverageValue", "averageValue": "10"}}
        spec = {
            "scaleTargetRef": {"apiVersion": kind.api_version, "kind": kind.name, "name": NAME},
            "minReplicas": 1,
            "maxReplicas": MOST,
            "metrics": [{"type": "External", "external": external}],
            "behavior": {"scaleUp": AT_ONCE, "scaleDown": {**AT_ONCE, "stabilizationWindowSeconds": window}},
        }
        return HPA, {"spec": spec}

    async def patch(self, ours: Manifest, theirs: Manifest) -> None:
        kind, spec = (ELASTICJOB.untyped(), ours) if self.ours else (DEPLOYMENT, theirs)
        self.own += 1
        await self.client.merge_patch(kind, NAME, {"spec": spec}, self.namespace)

    async def end(self) -> None:
        """The pods of a job succeed; a Deployment has no end, and is deleted."""
        if not self.ours:
            await self.client.delete(DEPLOYMENT, NAME, self.namespace)
            return
        pods, done = POD.untyped(), {"status": {"phase": "Succeeded"}}
        for name in self.live():
            await self.client.merge_patch(pods, name, done, self.namespace, subresource="status")

    def live(self) -> list[str]:
        return [each.name for each in self.workers if each.lives]

    @property
    def workers(self) -> list[Any]:
        every = self.pods.of[self.namespace].values()
        return [each for each in every if each.pod["metadata"]["labels"].get(LABEL_ROLE, WORKER) == WORKER]

    def mark(self) -> None:
        """Begin to count anew."""
        made, gone = len(self.workers), len(self.workers) - len(self.live())
        self.marks = made, gone, len(self.heard.sizes[self.namespace]), len(self.heard.wishes[self.namespace])
        self.own = 0

    def facts(self) -> Facts:
        """What is there, and what was changed beyond what the autoscaler asked for."""
        made, gone, sizes, wishes = self.marks
        told, asked = self.heard.sizes[self.namespace], self.heard.wishes[self.namespace]
        steps = [new - old for old, new in pairwise(told[max(0, sizes - 1) :])]
        ups, downs = sum(max(0, step) for step in steps), sum(max(0, -step) for step in steps)
        made, gone = len(self.workers) - made, len(self.workers) - len(self.live()) - gone
        return {
            "size": told[-1] if told else None,
            "wish": asked[-1] if asked else None,
            "pods": len(self.live()),
            "made beyond": max(0, made - ups),
            "gone beyond": max(0, gone - downs),
            "changes beyond": max(0, len(told) - sizes - (len(asked) - wishes) - self.own),
        }


@asynccontextmanager
async def stage(folder: Path, stories: Sequence[str]) -> AsyncIterator[Play]:
    """A control plane whose machines only pretend, Kueue, the operator, and the API of metrics."""
    with (
        ControlPlane(folder / "plane", scheduler=True, kwok=True, controller_manager_flags=[SYNC]) as plane,
        Kueue(plane, folder / "kueue"),
    ):
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(plane.config()))
            pair = plane.pki.server("metrics", ["127.0.0.1", "localhost"])
            loads = await stack.enter_async_context(external_metrics(client, pair))
            operator = await stack.enter_async_context(programs.operator(plane.kubeconfig, folder))
            await client.create(NODE.untyped(), MACHINE)
            await client.create(queues.RESOURCE_FLAVOR, queues.flavor())
            pods, heard = await stack.enter_async_context(watched(client)), Heard()
            ears: tuple[Ear, ...] = (
                (DEPLOYMENT, heard.target),
                (JOBRESOURCE, heard.target),
                (HPA, heard.autoscaler),
            )
            for kind, hear in ears:
                cache = Cache(kind.untyped())
                cache.subscribe(hear)
                stack.callback(asyncio.create_task(Informer(client, cache).run()).cancel)

            others, done = len({*stories} - {ALONE}), asyncio.Semaphore(0)

            async def one(name: str) -> Seen:
                for _ in range(others if name == ALONE else 0):
                    await done.acquire()
                number = [*STORIES].index(name)
                sides = {
                    who: Side(client, heard, pods, loads, f"s{number}-{who}", who == OURS)
                    for who in (INCUMBENT, OURS)
                }
                try:
                    return await played(sides, STORIES[name], operator)
                finally:
                    done.release()

            yield one


MACHINE: Final[Manifest] = {
    "metadata": {"name": "m1", "annotations": {"kwok.x-k8s.io/node": "fake"}},
    "status": {"allocatable": {"cpu": "1k", "memory": "1Ti", "pods": "1k"}},
}


async def played(sides: Mapping[str, Side], story: Sequence[Act], operator: Process) -> Seen:
    """Play a story on both sides at once; what is seen at rest after each act."""
    await asyncio.gather(*(side.begin(story) for side in sides.values()))
    await rest(sides)
    seen: Seen = {who: {} for who in sides}
    for number, (act, value) in enumerate(((act, value) for act, value in story if act not in SET), 1):
        await asyncio.gather(*(play(side, act, value, operator) for side in sides.values()))
        for who, facts in (await rest(sides)).items():
            seen[who] |= {f"{number} {act}: {what}": fact for what, fact in facts.items()}
    return seen


async def play(side: Side, act: str, value: Any, operator: Process) -> None:
    """Do what an act says, on one side."""
    side.mark()
    match act:
        case "load":
            side.loads.of[side.namespace] = value
        case "flap":
            for load in value * 4:
                side.loads.of[side.namespace] = load
                await asyncio.sleep(3)
        case "suspend":
            await side.patch({"suspend": True}, {"replicas": 0})
        case "resume":
            await side.patch({"suspend": False}, {"replicas": 2})
        case "size":
            await side.patch({"replicaSpecs": {WORKER: {"replicas": value}}}, {"replicas": value})
        case "restart" if side.ours:
            await operator.down()
            side.loads.of[side.namespace] = value
            await asyncio.sleep(5)
            await operator.up()
        case "restart":
            side.loads.of[side.namespace] = value
        case "end":
            await side.end()


async def rest(sides: Mapping[str, Side]) -> dict[str, Facts]:
    """Return what is there when nothing changes any more; two that differ are given more time."""
    loop = asyncio.get_running_loop()
    began = changed = loop.time()
    last: dict[str, Facts] = {}
    while loop.time() - began < LONGEST:
        if (found := {who: side.facts() for who, side in sides.items()}) != last:
            last, changed = found, loop.time()
        if loop.time() - changed >= (QUIET if found[INCUMBENT] == found[OURS] else UNLIKE):
            break
        await asyncio.sleep(0.25)
    return last


EXPLAINED: Final[Sequence[Explained]] = (
    Explained("suspended, and resumed", "3 load: wish", "the HPA goes on, and the job resumes"),
    Explained("the training ends", "3 load: size", "the HPA goes on to change the JobResource"),
    Explained("the training ends", "3 load: wish", "the HPA goes on to change the JobResource"),
)
ORACLE: Final = Oracle(
    name="hpa",
    page=DOCS / "scaleplans.md",
    stories=(*STORIES,),
    stage=stage,
    explained=EXPLAINED,
    at_once=len(STORIES),
)
