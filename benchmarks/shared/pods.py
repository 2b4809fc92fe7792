"""The pods of the benchmark, as a watch tells of them: which run, and which were ever made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from benchmarks.clients.plane import NAMESPACE, Seen, followed
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import POD, Pod

SETTLED: Final = 1.0
"""Seconds that a state must last to count: pods that run may be restarted together a moment later."""


class Pods(Seen):
    """The pods of one namespace. `trains` is a part of the name of those that train."""

    def __init__(self, cache: Cache[Any], trains: str) -> None:
        super().__init__(cache, lambda pod: trains in pod.metadata.name and _runs(pod))
        self._trains = trains.lstrip("-")

    def named(self, job: str) -> set[str]:
        """The names of a job's pods."""
        return {name for name in self.names() if name.startswith(f"{job}-")}

    def running(self, job: str) -> set[str]:
        """The uids of those of a job that train: they run, and nobody has deleted them."""
        return {uid for uid in self.good if self.made[uid].startswith(f"{job}-{self._trains}")}

    def node(self, name: str) -> str:
        """Where a pod runs."""
        found = self.cache.get((NAMESPACE, name))
        return str(found.spec.node_name) if found else ""

    def on(self, node: str) -> list[str]:
        """The names of the pods on a node."""
        return [pod.metadata.name for pod in self.cache.list() if pod.spec.node_name == node]

    def names(self) -> set[str]:
        """All that there are."""
        return {item.key.name for item in self.cache.items()}

    async def until(
        self, condition: Callable[[], bool], what: str, patience: float, settled: float = SETTLED
    ) -> float:
        """When a condition began to hold, once it has settled. Raises TooLate."""
        return await super().until(condition, what, patience, settled)


def _runs(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase == "Running"


@asynccontextmanager
async def watched(client: Client, trains: str) -> AsyncIterator[Pods]:
    """The pods of the benchmark's namespace, for as long as the block lasts."""
    pods = Pods(Cache(POD, NAMESPACE), trains)
    async with followed(client, pods.cache):
        yield pods
