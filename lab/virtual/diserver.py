"""di-server without a cluster: its API server is a table of pods in this process, and its caches show it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from elasticjob.api.diengine import pods
from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.diengine.pods import Server
from elasticjob.controllers.diserver.access import Access
from elasticjob.controllers.diserver.apply import Writer
from elasticjob.controllers.diserver.service import Caches, Options, Service
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.protocol import Listed, Removed, Synced, Upserted
from elasticjob.kube.cache.wire import item_of
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.patience import Patience
from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.clock import SystemClock, VirtualClock
from elasticjob.kube.errors import AlreadyExists, NotFound
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import NODE, POD
from lab.build import manifests
from lab.build.dijobs import dijob

COORDINATOR: Final[Manifest] = pods.coordinator(dijob(), Server(tokens=True))
NODES: Final[tuple[Manifest, ...]] = tuple(
    {"metadata": {"name": f"n{number}"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    for number in range(4)
)


def cache(kind: Kind[Any], *objects: Manifest) -> Cache[Any]:
    """Return a cache that has what it is given."""
    found: Cache[Any] = Cache(kind)
    for event in (Listed(tuple(item_of(msgspec.json.encode(each)) for each in objects)), Synced("1")):
        found.tell(found.take(event))
    found.advanced()
    return found


def service(client: Any, caches: Caches, key: Path | None = None, *, waits: bool = True) -> Service:
    """Return di-server's service with a client; without `waits`, whatever it waits for has come too late."""
    clock = SystemClock() if waits else ImpatientClock()
    known, patience = cast("Client", client), Patience(clock)
    numbers = (f"{number:05}" for number in itertools.count())
    suffix = numbers.__next__
    writer = Writer(known, caches.pods, cast("Recorder", Silent()), patience, suffix, Server(), shown=0.1)
    return Service(known, caches, writer, Access(key), patience, suffix, Options())


class ImpatientClock(VirtualClock):
    """A clock on which who sleeps is at the end of his sleep."""

    async def sleep(self, seconds: float) -> None:
        await self.advance(seconds)


class Silent:
    """A recorder of events that are not looked at."""

    def event(self, *_: object) -> None:
        """Forget an event."""


class Table:
    """An API server with the pods of one DIJob, which runs at once and on machines with GPUs."""

    def __init__(self) -> None:
        self.pods: dict[Key, Manifest] = {}
        self._versions = itertools.count(2)
        self._cache: Cache[Any] = cache(POD)
        config = changed_uid(manifests.AGGREGATORCONFIG, "c")
        self.caches = Caches(cache(DIJOB, manifests.DIJOB), self._cache, cache(AGGREGATORCONFIG, config))
        self._put({**COORDINATOR, "status": {"phase": "Running"}})

    def service(self) -> Service:
        """Return di-server's service on it."""
        return service(self, self.caches)

    def empty(self) -> None:
        """Delete all pods but the coordinator."""
        for key in [*self.pods]:
            if key.name != COORDINATOR["metadata"]["name"]:
                self._take(key)

    async def find(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        """Return a pod, or the job."""
        if kind is DIJOB:
            return dijob() if (name, namespace) == ("cartpole", "lab") else None
        found = self.pods.get(Key(namespace, name))
        return kind.convert(found) if found else None

    async def get(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        """Return a pod. Raises NotFound."""
        if (found := await self.find(kind, name, namespace)) is None:
            raise NotFound(404, "NotFound", f"pods {name} not found")
        return found

    async def list(self, kind: Kind[Any], namespace: str = "", *, labels: str = "") -> Any:
        """Return all pods, or the machines."""
        return [kind.convert(each) for each in (NODES if kind is NODE else self.pods.values())]

    async def create(self, kind: Kind[Any], manifest: Manifest) -> Any:
        """Make a pod. Raises AlreadyExists."""
        about = manifest["metadata"]
        if Key(about["namespace"], about["name"]) in self.pods:
            raise AlreadyExists(409, "AlreadyExists", f"pods {about['name']} already exists")
        return kind.convert(self._put({**manifest, "status": {"phase": "Running"}}))

    async def delete(self, kind: Kind[Any], name: str, namespace: str, **_: object) -> None:
        """Delete a pod at once. Raises NotFound."""
        if Key(namespace, name) not in self.pods:
            raise NotFound(404, "NotFound", f"pods {name} not found")
        self._take(Key(namespace, name))

    async def merge_patch(self, kind: Kind[Any], name: str, patch: Manifest, namespace: str) -> None:
        """Forget the mark of a call whose response has arrived."""
        if (found := self.pods.get(Key(namespace, name))) is not None:
            kept = found["metadata"].get("annotations") or {}
            left = {key: value for key, value in kept.items() if key not in patch["metadata"]["annotations"]}
            self._put({**found, "metadata": {**found["metadata"], "annotations": left}})

    def _put(self, manifest: Manifest) -> Manifest:
        version = str(next(self._versions))
        about = {"uid": f"uid-{version}", **manifest["metadata"], "resourceVersion": version}
        whole = self.pods[Key(about["namespace"], about["name"])] = {**manifest, "metadata": about}
        self._tell(Upserted(item_of(msgspec.json.encode(whole))))
        return whole

    def _take(self, key: Key) -> None:
        self._tell(Removed(item_of(msgspec.json.encode(self.pods.pop(key)))))

    def _tell(self, event: Upserted | Removed) -> None:
        self._cache.tell(self._cache.take(event))


def changed_uid(manifest: Manifest, uid: str) -> Manifest:
    """Return a manifest with a uid."""
    return {**manifest, "metadata": {**manifest["metadata"], "uid": uid}}
