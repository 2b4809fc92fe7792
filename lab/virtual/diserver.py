"""di-server without a cluster: its API server is in this process, and its caches show it at once."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final, cast

from elasticjob.api.diengine import pods
from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.controllers.diserver.access import Access
from elasticjob.controllers.diserver.apply import Writer
from elasticjob.controllers.diserver.service import Caches, Options, Service
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.patience import Patience
from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.clock import SystemClock, VirtualClock
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NODE, POD
from lab.build import manifests
from lab.build.caches import Nobody, cache
from lab.build.dijobs import dijob
from lab.virtual.server import Server, follow

COORDINATOR: Final[Manifest] = pods.coordinator(dijob(), pods.Server(tokens=True))


def service(client: Any, caches: Caches, key: Path | None = None, *, waits: bool = True) -> Service:
    """Return di-server's service with a client; without `waits`, whatever it waits for has come too late."""
    clock = SystemClock() if waits else ImpatientClock()
    known, patience = cast("Client", client), Patience(clock)
    numbers = (f"{number:05}" for number in itertools.count())
    suffix = numbers.__next__
    writer = Writer(
        known, caches.pods, cast("Recorder", Nobody()), patience, suffix, pods.Server(), shown=0.1
    )
    return Service(known, caches, writer, Access(key), patience, suffix, Options())


class ImpatientClock(VirtualClock):
    """A clock on which who sleeps is at the end of his sleep."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds)


class Table(Server):
    """An API server with a DIJob, whose pods run at once, and machines with GPUs."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        jobs = cache(DIJOB, self.put(DIJOB, manifests.DIJOB))
        configs = cache(AGGREGATORCONFIG, self.put(AGGREGATORCONFIG, manifests.AGGREGATORCONFIG))
        self.caches = Caches(jobs, cache(POD), configs)
        follow(self, self.caches.pods)
        for number in range(4):
            gpus = {"allocatable": {"nvidia.com/gpu": "8"}}
            self.put(NODE, {"metadata": {"name": f"n{number}"}, "status": gpus})
        self.put(POD, COORDINATOR)

    def put(self, kind: Kind[Any], made: Manifest) -> Manifest:
        return super().put(kind, {**made, "status": {"phase": "Running"}} if kind is POD else made)

    def service(self) -> Service:
        """Return di-server's service on it."""
        return service(self, self.caches)

    def others(self) -> list[Manifest]:
        """Return all pods but the coordinator."""
        caller = COORDINATOR["metadata"]["name"]
        return [each for each in self.every(POD) if each["metadata"]["name"] != caller]

    def empty(self) -> None:
        """Delete all pods but the coordinator."""
        for each in self.others():
            self.remove(POD, each)
