"""The oracle HPA: a Deployment beside a JobResource, scaled by the controller-manager's own autoscaler."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.common import LABEL_ROLE
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NAMESPACE, NODE, POD
from lab import programs
from lab.clusters.plane import queues
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.kueue import Kueue
from lab.clusters.plane.pretended import machine
from lab.incumbents import side
from lab.incumbents.hpa.external import METRIC, Loads, external_metrics
from lab.incumbents.oracle import INCUMBENT, OURS, Explained, Facts, Oracle, Play, Seen
from lab.incumbents.rest import at_rest
from lab.incumbents.side import QUOTA
from lab.incumbents.watched import Hear, Life, Pods, followed
from lab.paths import DOCS
from lab.processes import Process
from lab.waiting import until

SYNC: Final = "--horizontal-pod-autoscaler-sync-period=2s"
QUIET: Final = 9.0
"""Seconds without a change after which a side is at rest: four looks of the autoscaler."""
UNLIKE: Final = 25.0
"""The same where the sides differ."""
DEPLOYMENT: Final = Kind("apps", "v1", "Deployment", "deployments", dict)
HPA: Final = Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", dict)
EACH: Final = {"type": "Pods", "value": 100, "periodSeconds": 1}
AT_ONCE: Final = {"stabilizationWindowSeconds": 0, "policies": [EACH]}
NAME: Final = "it"
MOST: Final = 6

ALONE: Final = "the operator restarts"
"""The story that others would notice."""
SET: Final = ("quota", "window", "most")
"""Acts that say what is there before the story begins."""

Act = tuple[str, Any]
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

    @property
    def hears(self) -> Mapping[Kind[Any], Hear]:
        return {DEPLOYMENT: self.target, JOBRESOURCE: self.target, HPA: self.autoscaler}

    def target(self, found: Manifest, gone: bool) -> None:
        size = 0 if found["spec"].get("suspend") else found["spec"].get("replicas", 0)
        if not gone:
            _add(self.sizes[found["metadata"]["namespace"]], size)

    def autoscaler(self, found: Manifest, gone: bool) -> None:
        if not gone and (wish := found.get("status", {}).get("desiredReplicas")):
            _add(self.wishes[found["metadata"]["namespace"]], wish)


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
class Side(side.Side):
    """A Deployment or a job in a namespace of its own, under an autoscaler."""

    heard: Heard
    pods: Pods
    loads: Loads
    marks: tuple[int, int, int, int] = (0, 0, 0, 0)
    own: int = 0
    """Changes of the size since then that were not the autoscaler's."""

    @property
    def kind(self) -> Kind[Any]:
        return super().kind if self.ours else DEPLOYMENT

    async def begin(self, story: Sequence[Act]) -> None:
        await self.client.create(NAMESPACE.untyped(), {"metadata": {"name": self.namespace}})
        quota, window, most = (dict(story).get(each) for each in SET)
        if pods := quota or (None if self.ours else most):
            await self.limit(pods)
        await self.make(self.kind, self.target(queued=quota is not None, most=most or MOST))
        await self.make(HPA, self.autoscaler(window or 0))
        await until(self.has_begun, f"{self.namespace} has two pods and an autoscaler that looks")

    async def has_begun(self) -> bool:
        return len(self.live()) == 2 and bool(self.heard.wishes[self.namespace])

    async def make(self, kind: Kind[Any], body: Manifest) -> None:
        await self.create(kind, {**body, "metadata": {"name": NAME, **body.get("metadata", {})}})

    async def limit(self, pods: int) -> None:
        """Quota for so many pods: of the namespace, or of a queue of Kueue."""
        if not self.ours:
            await self.make(QUOTA, {"spec": {"hard": {"pods": str(pods)}}})
            return
        queue = queues.cluster_queue(self.namespace, {"cpu": str(pods)})
        await self.create(queues.CLUSTER_QUEUE, queue)
        await self.create(queues.LOCAL_QUEUE, queues.local_queue("q", self.namespace, self.namespace))

    def target(self, *, queued: bool, most: int) -> Manifest:
        if not self.ours:
            labels = {"app": NAME}
            spec = {"replicas": 2, "selector": {"matchLabels": labels}}
            return {"spec": {**spec, "template": {"metadata": {"labels": labels}, "spec": PAUSE}}}
        labels = {"kueue.x-k8s.io/queue-name": "q"} if queued else {}
        return {"metadata": {"labels": labels}, "spec": job_of(most)}

    def autoscaler(self, window: int) -> Manifest:
        kind = JOBRESOURCE if self.ours else DEPLOYMENT
        external = {"metric": {"name": METRIC}, "target": {"type": "AverageValue", "averageValue": "10"}}
        spec: Manifest = {
            "scaleTargetRef": {"apiVersion": kind.api_version, "kind": kind.name, "name": NAME},
            "minReplicas": 1,
            "maxReplicas": MOST,
            "metrics": [{"type": "External", "external": external}],
            "behavior": {"scaleUp": AT_ONCE, "scaleDown": {**AT_ONCE, "stabilizationWindowSeconds": window}},
        }
        return {"spec": spec}

    async def respecify(self, ours: Manifest, theirs: Manifest) -> None:
        """Change the spec as its user does."""
        self.own += 1
        await self.patch(self.kind, NAME, {"spec": ours if self.ours else theirs})

    async def end(self) -> None:
        """The pods of a job succeed; a Deployment has no end, and is deleted."""
        if not self.ours:
            await self.delete(DEPLOYMENT, NAME)
            return
        for name in self.live():
            await self.patch(POD, name, {"status": {"phase": "Succeeded"}}, "status")

    def live(self) -> list[str]:
        return [each.name for each in self.workers if each.lives]

    @property
    def workers(self) -> list[Life]:
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
            await client.create(NODE.untyped(), machine("m1", {"cpu": "1k", "memory": "1Ti", "pods": "1k"}))
            await client.create(queues.RESOURCE_FLAVOR, queues.flavor())
            pods, heard = Pods(), Heard()
            await stack.enter_async_context(followed(client, {POD: pods.hear, **heard.hears}))

            others, done = len({*stories} - {ALONE}), asyncio.Semaphore(0)

            async def one(name: str) -> Seen:
                for _ in range(others if name == ALONE else 0):
                    await done.acquire()
                number = [*STORIES].index(name)
                sides = {
                    who: Side(client, f"s{number}-{who}", who == OURS, heard, pods, loads)
                    for who in (INCUMBENT, OURS)
                }
                try:
                    return await played(sides, STORIES[name], operator)
                finally:
                    done.release()

            yield one


async def played(sides: Mapping[str, Side], story: Sequence[Act], operator: Process) -> Seen:
    """Play a story on both sides at once; what is seen at rest after each act."""

    def look() -> Seen:
        return {who: side.facts() for who, side in sides.items()}

    await asyncio.gather(*(side.begin(story) for side in sides.values()))
    await at_rest(look, quiet=QUIET, unlike=UNLIKE)
    seen: Seen = {who: {} for who in sides}
    for number, (act, value) in enumerate(((act, value) for act, value in story if act not in SET), 1):
        await asyncio.gather(*(play(side, act, value, operator) for side in sides.values()))
        for who, facts in (await at_rest(look, quiet=QUIET, unlike=UNLIKE)).items():
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
            await side.respecify({"suspend": True}, {"replicas": 0})
        case "resume":
            await side.respecify({"suspend": False}, {"replicas": 2})
        case "size":
            await side.respecify({"replicaSpecs": {WORKER: {"replicas": value}}}, {"replicas": value})
        case "restart" if side.ours:
            await operator.down()
            side.loads.of[side.namespace] = value
            await asyncio.sleep(5)
            await operator.up()
        case "restart":
            side.loads.of[side.namespace] = value
        case "end":
            await side.end()


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
