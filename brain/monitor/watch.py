"""Follows the cluster into the database: jobs, pods and machines as they come, change and go; samples.

Each object is read when it has changed, by its key, and kept by its uid. What is gone, or has another uid
now, has ended; what went while nobody looked ends with the first full list.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.roles import MASTER_ALIAS
from elasticjob.api.rpc.address import host_port
from elasticjob.api.rpc.environment import MASTER_PORT
from elasticjob.api.v1alpha1.belonging import belongs
from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.containers import main_container
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.brain.history import Sample
from elasticjob.brain.monitor.objects import TRAINING, seen_job, seen_machine, seen_pod
from elasticjob.brain.monitor.samples import Malformed
from elasticjob.brain.monitor.sources import Source, Taken, Target
from elasticjob.brain.store import NoSuchJob, Retention, Store
from elasticjob.brain.tables import jobs, machines, pods
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.recorder import reference
from elasticjob.kube.clock import Clock
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import NODE, POD, Node, Pod

log = logging.getLogger("elasticjob.brain")

LINES: Final = 50
LONGEST: Final = 16 * 1024
"""Of the log of a pod that goes: lines, and bytes."""
PATIENCE: Final = 2.0
SOON: Final = timedelta(seconds=1)
SWEEP_EVERY: Final = 3600.0
LISTS, SOURCE, SWEEP = "lists", "source", "sweep"
"""Passes that are of no single object."""


@dataclass
class Monitor:
    """See the module. `run` takes samples; `controllers` follow the objects."""

    store: Store
    client: Client
    jobs: Cache[ElasticJob]
    pods: Cache[Pod]
    machines: Cache[Node]
    source: Source | None
    retention: Retention
    every: float
    clock: Clock
    now: Callable[[], datetime]
    passes: Passes
    _logged: dict[Key, str] = field(default_factory=dict)
    """The uid of the pod of a name whose last lines were read, or were not there."""

    @property
    def controllers(self) -> Iterator[Controller]:
        """One for each kind."""
        yield Controller("brain-jobs", self.job, for_=ELASTICJOB)
        yield Controller("brain-pods", self.pod, for_=POD, when=_is_of_a_job)
        yield Controller("brain-machines", self.machine, for_=NODE)

    async def job(self, key: Key) -> Result:
        """Keep a job as it is."""
        now, job = self.now(), self.jobs.get(key)
        if job is not None:
            await self.store.see_job(seen_job(job, now), now)
        await self.store.end_others(jobs, key, job.metadata.uid if job else "", now)
        return Result.done()

    async def pod(self, key: Key) -> Result:
        """Keep a pod as it is, with its last lines if it goes."""
        now, pod = self.now(), self.pods.get(key)
        if pod is not None and not belongs(pod, pod.metadata.labels.get(LABEL_JOB, "")):
            pod = None  # another pod has the name now, or the labels
        if pod is not None and (job := self.jobs.get(Key(key.namespace, pod.metadata.labels[LABEL_JOB]))):
            try:
                await self.store.see_pod(
                    seen_pod(pod, job.metadata.uid, now, await self._last_lines(key, pod))
                )
            except NoSuchJob:
                return Result.again(SOON)
        else:
            self._logged.pop(key, None)
        await self.store.end_others(pods, key, pod.metadata.uid if pod else "", now)
        return Result.done()

    async def machine(self, key: Key) -> Result:
        """Keep a machine as it is."""
        now, machine = self.now(), self.machines.get(key)
        if machine is not None:
            await self.store.see_machine(seen_machine(machine, now))
        await self.store.end_others(machines, key, machine.metadata.uid if machine else "", now)
        return Result.done()

    async def _last_lines(self, key: Key, pod: Pod) -> str:
        """Return the end of the log of a pod that goes, or has failed, once; "" if it cannot be had."""
        goes = pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed"
        uid, main, tail = pod.metadata.uid, main_container(pod), b""
        if not goes or self._logged.get(key) == uid or main is None:
            return ""
        self._logged[key] = uid
        with suppress(KubeError, TimeoutError):  # its kubelet may have forgotten it already
            async with asyncio.timeout(PATIENCE):
                async for chunk in self.client.logs(
                    pod.metadata.name,
                    pod.metadata.namespace,
                    container=main.name,
                    tail=LINES,
                ):
                    tail = (tail + chunk)[-LONGEST:]
        return tail.decode(errors="replace").replace("\0", "")

    async def run(self) -> None:
        """Take samples again and again, and sweep now and then."""
        began, swept = False, -SWEEP_EVERY
        while True:
            if not began and self.passes.is_due(LISTS):
                with self.passes.over(LISTS):
                    await self._end_what_is_gone()
                    began = True
            if self.source:
                await self._sample(self.source)
            if self.clock.monotonic() - swept >= SWEEP_EVERY and self.passes.is_due(SWEEP):
                with self.passes.over(SWEEP):
                    await self._sweep()
                    swept = self.clock.monotonic()
            await self.clock.sleep(self.every)

    async def _end_what_is_gone(self) -> None:
        now = self.now()
        for table, cache in ((jobs, self.jobs), (pods, self.pods), (machines, self.machines)):
            await cache.wait_synced()
            await self.store.end_all_but(table, [item.meta.uid for item in cache.items()], now)

    async def _sweep(self) -> None:
        if count := await self.store.sweep(self.retention, self.now()):
            log.info("old rows deleted", extra={"rows": count})

    async def _sample(self, source: Source) -> None:
        training = [job for job in self.jobs.list() if job.status.phase in TRAINING]
        due = [job for job in training if self.passes.is_due(str(job.key))]
        taken: Taken = {}
        with self.passes.over(SOURCE):
            taken = await source.samples([self._targets(job) for job in due], self.now())
        for job in due:
            found = taken.get(job.metadata.uid)
            if found and self.passes.is_due(str(job.key)):  # the database may have gone since
                with self.passes.over(str(job.key), reference(ELASTICJOB, job)):
                    await self._keep(job.metadata.uid, found)

    async def _keep(self, uid: str, found: Sample | Malformed) -> None:
        if isinstance(found, Malformed):
            raise found
        with suppress(NoSuchJob):  # it is kept with the next pass over it
            await self.store.add_samples(uid, [found])

    def _targets(self, job: ElasticJob) -> Target:
        about = job.metadata
        labels = {LABEL_JOB: about.name, LABEL_ROLE: MASTER_ALIAS}
        named = self.pods.list(about.namespace, labels)
        alive = (pod for pod in named if pod.status.phase == "Running" and belongs(pod, about.name))
        address = next((pod.status.pod_ip for pod in alive if pod.status.pod_ip), "")
        master = host_port(address, MASTER_PORT) if address else ""
        return Target(about.uid, about.namespace, about.name, master)


def _is_of_a_job(change: Change) -> bool:
    """Whether a change is about a pod of a job: where the cluster is shared, all pods are watched."""
    items = (item for item in (change.old, change.new) if item is not None)
    return any(LABEL_JOB in (item.meta.labels or {}) for item in items)
