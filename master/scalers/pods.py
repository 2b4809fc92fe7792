"""The scaler of jobs whose master makes the pods itself, on a cluster where no operator of ours does.

What should run is in the job's JobResource, which only this master writes; it names the changes that are
carried out, so that none counts twice. Which pods follow from it is decided by `Rules`, the operator's own.

    one write fails        → that pod is tried again, later each time; the others are not held up
    the cache is behind    → the pod of that name exists already and is the same: each life has its name
    the master is killed   → the next one reads the JobResource and the pods, and goes on
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from prometheus_client import CollectorRegistry

from elasticjob.api.sizes.change import Change
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.kube.backoff import Backoff
from elasticjob.kube.client.client import Client, JsonPatchOperation
from elasticjob.kube.clock import Clock
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import POD, Pod
from elasticjob.master.scalers.scaleplan import manifest
from elasticjob.master.scalers.scaler import ScalerError

log = logging.getLogger("elasticjob.master")

MANAGED_BY: Final = "elasticjob.dlrover/master"
"""The value of `spec.managedBy` that leaves the pods of a job to its master."""
CARRIED_OUT: Final = "elasticjob.dlrover/carried-out"
"""On JobResources: the keys of the changes that are part of it, as a JSON list, the newest last."""
PAUSE: Final = 30.0
"""Seconds at most, jitter apart, until a look that met an unexpected error is taken again."""
KEPT: Final = 64
AT_ONCE: Final = 32
"""Writes that are in flight at the same time."""
EVERY: Final = 1.0  # seconds between two looks at all pods
RETRY: Final = Backoff(first=0.5, limit=30.0)
"""Between attempts of one write."""
TRIES: Final = 5
"""How often a change is tried when the JobResource changes under it."""

PLAIN_RESOURCE = JOBRESOURCE.untyped()


@dataclass(frozen=True)
class Deletion:
    """A pod to delete, if it is still the same."""

    name: str
    uid: str
    grace: int | None = None


@dataclass(frozen=True)
class Patch:
    """New resources of a running pod; where the server refuses them, it gets these annotations."""

    name: str
    uid: str
    spec: Manifest
    refused: Manifest


@dataclass(frozen=True)
class Work:
    """What is to be done now, the status that says so, and when to look again at the latest."""

    create: tuple[Manifest, ...] = ()
    delete: tuple[Deletion, ...] = ()
    resize: tuple[Patch, ...] = ()
    status: Manifest = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    again_in: timedelta | None = None


class Rules(Protocol):
    """The operator's rules about the nodes of a job; pure."""

    def first(self, job: ElasticJob) -> Manifest:
        """Return the JobResource of a job that has none."""

    def wish(self, job: ElasticJob, resource: JobResource) -> tuple[ScalePlan, Manifest] | None:
        """Return what the user asks for since it was last carried out, and the annotations that say so."""

    def fold(
        self, job: ElasticJob, resource: JobResource, plan: ScalePlan
    ) -> tuple[Manifest, tuple[str, ...]]:
        """Return the new part of a JobResource's spec, and the changes in words. Raises ValueError."""

    def work(
        self, job: ElasticJob, resource: JobResource, pods: Iterable[Pod], master: str, now: datetime
    ) -> Work:
        """Return what is to be done for the pods to be as the JobResource says."""


class PodList(Protocol):
    """The pods of the job, as far as they are known: a cache."""

    def list(self) -> Iterable[Pod]:
        """Return the pods."""


class Pods:
    """Makes the pods of one job, whose master agents find at `address`."""

    def __init__(
        self,
        client: Client,
        job: ElasticJob,
        rules: Rules,
        pods: PodList,
        clock: Clock,
        address: str,
        metrics: Metrics | None = None,
    ) -> None:
        self._client, self._job, self._rules = client, job, rules
        self._pods, self._clock, self._address = pods, clock, address
        self._key = Key(job.metadata.namespace, job.metadata.name)
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._failed: dict[str, tuple[int, float]] = {}  # by pod: attempts, and when to try again
        self._status: Manifest = {}
        self._passes = Passes("pods", clock, metrics or Metrics(CollectorRegistry()), at_most=PAUSE)

    async def apply(self, key: str, change: Change) -> None:
        """Record the change in the JobResource; `run` carries it out."""
        plan = SCALEPLAN.convert(manifest(self._key, key, change))
        try:
            await self._fold(key, plan, {})
        except KubeError as error:
            raise ScalerError(f"change {key} is not recorded: {error}") from error
        self._changed.set()

    def follow(self, job: ElasticJob) -> None:
        """Go on with this state of the job, as its user changes it."""
        if job != self._job:
            self._job = job
            self._changed.set()

    async def run(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Bring the pods to what the JobResource says, until the job is over."""
        while not is_over():
            self._changed.clear()
            pause = EVERY
            if self._passes.is_due(self._key.name):
                with self._passes.over(self._key.name):
                    pause = await self._step()
            await self._wait(pause)

    async def _step(self) -> float:
        try:
            return await self.step()
        except (KubeError, ScalerError) as error:
            log.warning("the pods of job %s are looked at again in a second: %s", self._key.name, error)
            return EVERY

    async def step(self) -> float:
        """Do what is to be done now; return the seconds until something is due."""
        resource = await self._resource()
        if wish := self._rules.wish(self._job, resource):
            plan, annotations = wish
            resource = await self._fold(plan.metadata.name, plan, annotations)
        pods = [pod for pod in self._pods.list() if _is_of(pod, resource)]
        work = self._rules.work(self._job, resource, pods, self._address, self._clock.now())
        for sentence in work.sentences:
            log.info(sentence)
        await asyncio.gather(
            *(self._attempt(pod["metadata"]["name"], self._create(pod)) for pod in work.create),
            *(self._attempt(each.name, self._delete(each)) for each in work.delete),
            *(self._attempt(each.name, self._resize(each)) for each in work.resize),
        )
        await self._tell(resource, work.status)
        soon = [EVERY, *([work.again_in.total_seconds()] if work.again_in else [])]
        return max(0.05, min(soon))

    async def _fold(self, key: str, plan: ScalePlan, annotations: Manifest) -> JobResource:
        """Make a plan part of the JobResource, once. Raises KubeError, ScalerError."""
        for _ in range(TRIES):
            resource = await self._resource()
            known = _carried_out(resource)
            if key in known:
                return resource
            try:
                spec, changes = self._rules.fold(self._job, resource, plan)
            except ValueError as error:  # recorded, too: it would be as impossible the next time
                spec, changes = {}, (f"not carried out: {error}",)
            told = {CARRIED_OUT: json.dumps([*known, key][-KEPT:]), **annotations}
            try:
                written = await self._client.json_patch(
                    JOBRESOURCE, self._key.name, _operations(resource, spec, told), self._key.namespace
                )
            except (Conflict, Invalid) as error:
                log.info("JobResource %s has changed meanwhile: %s", self._key.name, error)
                continue
            log.info("%s (%s: %s)", "; ".join(changes) or "nothing changes", key, plan.spec.reason)
            return written
        raise ScalerError(f"change {key} is not recorded: JobResource {self._key.name} changes all the time")

    async def _resource(self) -> JobResource:
        """Return the JobResource as the server has it; the first one is made here."""
        found = await self._client.find(JOBRESOURCE, self._key.name, self._key.namespace)
        if found is not None:
            return found
        try:
            return await self._client.create(JOBRESOURCE, self._rules.first(self._job))
        except AlreadyExists:
            return await self._client.get(JOBRESOURCE, self._key.name, self._key.namespace)

    async def _attempt(self, name: str, write: Any) -> None:
        """Do one write, unless the last attempt has just failed."""
        attempts, due = self._failed.get(name, (0, 0.0))
        now = self._clock.monotonic()
        if now < due:
            write.close()
            return
        try:
            async with self._slots:
                await write
        except KubeError as error:
            delay = RETRY.delay(attempts + 1)
            self._failed[name] = attempts + 1, now + delay
            log.warning("pod %s: again in %.1f s: %s", name, delay, error)
        else:
            self._failed.pop(name, None)

    async def _create(self, pod: Manifest) -> None:
        """Create a pod; one of that name that is there already is the same, as the cache is behind."""
        try:
            await self._client.create(POD.untyped(), pod)
        except AlreadyExists:
            found = await self._client.find(POD, pod["metadata"]["name"], self._key.namespace)
            owners = {owner["uid"] for owner in pod["metadata"]["ownerReferences"]}
            if found is not None and not owners & {o.uid for o in found.metadata.owner_references}:
                raise

    async def _delete(self, what: Deletion) -> None:
        try:
            await self._client.delete(POD, what.name, self._key.namespace, uid=what.uid, grace=what.grace)
        except Conflict:
            return  # a namesake of another uid: ours is gone

    async def _resize(self, what: Patch) -> None:
        patch: Manifest = {"metadata": {"uid": what.uid}, "spec": what.spec}
        try:
            await self._client.merge_patch(
                POD, what.name, patch, self._key.namespace, subresource="resize", strategic=True
            )
        except (Conflict, NotFound, Invalid, Forbidden) as error:
            log.warning("pod %s is not resized in place: %s", what.name, error)
            mark = {"metadata": {"uid": what.uid, "annotations": what.refused}}
            await self._client.merge_patch(POD, what.name, mark, self._key.namespace)

    async def _tell(self, resource: JobResource, status: Manifest) -> None:
        """Write the status of the JobResource if it has changed."""
        if not status or status == self._status:
            return
        sent = {name: value for name, value in status.items() if value not in ({}, [])}
        await self._client.apply(
            PLAIN_RESOURCE,
            {
                "apiVersion": JOBRESOURCE.api_version,
                "kind": JOBRESOURCE.name,
                "metadata": {
                    "name": self._key.name,
                    "namespace": self._key.namespace,
                    "uid": resource.metadata.uid,
                },
                "status": sent,
            },
            manager="elasticjob-master",
            subresource="status",
        )
        self._status = status

    def wake(self) -> None:
        """Look at the pods at once."""
        self._changed.set()

    async def _wait(self, seconds: float) -> None:
        """Return after some seconds, or when something has changed."""
        timer = self._clock.call_later(seconds, self._changed.set)
        await self._changed.wait()
        timer.cancel()


def _is_of(pod: Pod, resource: JobResource) -> bool:
    return any(owner.uid == resource.metadata.uid for owner in pod.metadata.owner_references)


def _carried_out(resource: JobResource) -> list[str]:
    """The keys of the changes that are part of a JobResource."""
    found = json.loads(resource.metadata.annotations.get(CARRIED_OUT, "[]"))
    return [str(key) for key in found]


def _operations(resource: JobResource, spec: Manifest, told: Manifest) -> list[JsonPatchOperation]:
    """Return the change of a JobResource at exactly the version that was read."""
    annotations = {**resource.metadata.annotations, **told}
    version: JsonPatchOperation = {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": resource.metadata.resource_version,
    }
    about: JsonPatchOperation = {"op": "add", "path": "/metadata/annotations", "value": annotations}
    parts: list[JsonPatchOperation] = [
        {"op": "add", "path": f"/spec/{name}", "value": value} for name, value in spec.items()
    ]
    return [version, about, *parts]
