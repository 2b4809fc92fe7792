"""The master's snapshot of its job, in a file or in a ConfigMap.

A new master continues from it: round numbers, the lineage (which node is oldest), restart counts, verdict and
progress are kept. Changes after the last snapshot are recovered from the agents: each Watch names the round
in which its node trains.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import threading
from base64 import b64encode
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects import views
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import CONFIG_MAP
from elasticjob.master.durable import columns
from elasticjob.master.health.watch import of_round
from elasticjob.master.progress import goodput, progress
from elasticjob.master.shards import book
from elasticjob.master.state.job import Job, Spec
from elasticjob.master.state.node import Node
from elasticjob.master.state.roster import Roster
from elasticjob.master.state.training import Account

MANAGER = "elasticjob-master"


class StoreError(OSError):
    """The snapshot could not be read or written this time; retry."""


class SnapshotError(ValueError):
    """The snapshot exists but cannot be decoded; starting without it needs a user's decision."""


class Store(Protocol):
    """Storage of the snapshot. `save` returns when it is durable, `load` returns None if there is none."""

    async def load(self) -> bytes | None: ...

    async def save(self, data: bytes) -> None: ...


class Nowhere:
    """A store that keeps nothing."""

    async def load(self) -> bytes | None:
        return None

    async def save(self, data: bytes) -> None:
        pass


class File:
    """A file that is replaced atomically."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.Lock()  # a cancelled save goes on in its thread

    async def load(self) -> bytes | None:
        return await asyncio.to_thread(self._read)

    async def save(self, data: bytes) -> None:
        await asyncio.to_thread(self._write_alone, data)

    def _read(self) -> bytes | None:
        return self._path.read_bytes() if self._path.exists() else None

    def _write_alone(self, data: bytes) -> None:
        with self._writing:
            self._write(data)

    def _write(self, data: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(f".{self._path.name}.new")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class ConfigMap:
    """A ConfigMap of the job. `owner` is its ownerReference to the job.

    The API server takes 1 MiB, which the state of a thousand nodes exceeds: a large one is compressed. A
    small one stays readable.
    """

    KEY, ZIPPED = "job.json", "job.json.gz"
    READABLE = 256 * 1024  # bytes

    def __init__(self, client: Client, namespace: str, name: str, owner: Manifest) -> None:
        self._client, self._namespace, self._name = client, namespace, name
        self._owner = owner
        self._uid = ""  # of the one that is ours, once that is known

    async def load(self) -> bytes | None:
        try:
            found = await self._client.find(CONFIG_MAP, self._name, self._namespace)
        except KubeError as error:
            raise StoreError(f"ConfigMap {self._name} cannot be read: {error}") from error
        if found is None or not self._is_ours(found):
            return None
        self._uid = found.metadata.uid
        if zipped := found.binary_data.get(self.ZIPPED):
            return await asyncio.to_thread(gzip.decompress, zipped)
        return found.data[self.KEY].encode() if self.KEY in found.data else None

    def _is_ours(self, found: views.ConfigMap) -> bool:
        """Whether it belongs to this job, not to a deleted job of the same name."""
        return any(owner.uid == self._owner["uid"] for owner in found.metadata.owner_references)

    async def save(self, data: bytes) -> None:
        packed = await self._pack(data)
        try:
            self._uid = self._uid or await self._make()
            metadata = {**self._metadata, "uid": self._uid}
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **packed}
            await self._client.apply(CONFIG_MAP, manifest, manager=MANAGER)
        except KubeError as error:
            self._uid = ""  # it may be gone
            raise StoreError(f"ConfigMap {self._name} cannot be written: {error}") from error

    @property
    def _metadata(self) -> Manifest:
        return {"name": self._name, "namespace": self._namespace, "ownerReferences": [self._owner]}

    async def _make(self) -> str:
        """Return the uid of the job's ConfigMap, made if there is none: what is applied is not another's.

        The operator has made it where the master may not: a master that has lost sight of it looks first.
        """
        found = await self._client.find(CONFIG_MAP, self._name, self._namespace)
        if found is None:
            made = await self._client.create(CONFIG_MAP.untyped(), {"metadata": self._metadata})
            return str(made["metadata"]["uid"])
        if not self._is_ours(found):
            raise StoreError(f"ConfigMap {self._name} exists and is not of this job: delete it")
        return found.metadata.uid

    async def _pack(self, data: bytes) -> Manifest:
        if len(data) <= self.READABLE:
            return {"data": {self.KEY: data.decode()}}
        zipped = await asyncio.to_thread(gzip.compress, data, 6)
        return {"binaryData": {self.ZIPPED: b64encode(zipped).decode()}}


def snapshot(job: Job, now: datetime | None = None) -> bytes:
    """Return the durable part of `job` at `now` as JSON."""
    return columns.encode(job, now)


def restore(data: bytes | None, spec: Spec, now: datetime) -> Job:
    """Return the job to continue with, under the present `spec`. Raises SnapshotError."""
    if data is None:
        return Job(spec=spec, gathering=now, account=goodput.taken_over(Account(), now))
    try:
        job = columns.decode(data)
    except (*UNREADABLE, LookupError, ValueError) as error:
        raise SnapshotError(
            f"the snapshot of job {spec.job} cannot be read ({error}): delete it to begin anew"
        ) from error
    gap = now - job.saved if job.saved else timedelta(0)
    job = progress.shift(job, gap).but(scaling=job.scaling.shift(gap))
    again = job.spec.suspended  # from its last checkpoint on, with all nodes
    nodes = Roster(_waiting_for_a_word(node, spec, now, again) for node in job.nodes.values())
    job = job.but(account=goodput.taken_over(job.account, now))
    gathering = None if job.running else now
    check = job.check.but(waiting={}, session=None)  # agents report again
    shards = book.taken_over(job.shards, now + spec.limits.takeover)
    job = job.but(spec=spec, nodes=nodes, version=job.version + 1, gathering=gathering, saved=None)
    parameters = job.parameters.heard(now + spec.limits.takeover - spec.limits.silence)
    return job.but(check=check, shards=shards, parameters=parameters, health=of_round(job.health, 0, now))


def _waiting_for_a_word(node: Node, spec: Spec, now: datetime, again: bool) -> Node:
    """Return the node with a fresh heartbeat deadline; long polls are dropped, since agents repeat them.

    In a job that goes on `again` after it was suspended, nodes that had finished take part as others do.
    """
    more = max(timedelta(0), spec.limits.takeover - spec.limits.silence)
    node = node.but(finished=False) if again else node
    return node.but(beat=now + more if node.beat else None, joined=None)
