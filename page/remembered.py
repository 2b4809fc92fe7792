"""The page without a cluster: jobs that a Brain remembers, and nothing that moves."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from elasticjob.kube.clock import Clock
from elasticjob.kube.errors import Unreachable
from elasticjob.page.seen import Cluster, Fleet, One, Standing
from elasticjob.page.view import fleet, one
from elasticjob.page.watch import Memory, NoSuchPod

NOWHERE = Cluster(server="no cluster: jobs that masters have told of", brain=Standing())


class FromMemory:
    """Answers as a Watch does, from memory alone."""

    def __init__(self, memory: Memory, clock: Clock) -> None:
        self._memory, self._clock = memory, clock

    async def fleet(self) -> bytes:
        """Return all jobs."""
        now = self._clock.now()
        try:
            seen = Fleet(NOWHERE, past=await self._memory.jobs())
        except Unreachable as error:
            seen = Fleet(self._away(str(error)))
        return msgspec.json.encode(fleet(seen, now))

    async def job(self, namespace: str, name: str) -> bytes:
        """Return one job."""
        now = self._clock.now()
        try:
            seen = One(NOWHERE, namespace, name, past=await self._memory.job(namespace, name))
        except Unreachable as error:
            seen = One(self._away(str(error)), namespace, name)
        return msgspec.json.encode(one(seen, now))

    async def log(self, namespace: str, name: str, container: str = "") -> bytes:
        """Raises NoSuchPod: pods of a cluster are not known here."""
        raise NoSuchPod(f"pod {namespace}/{name} cannot be asked: this Brain has no cluster")

    def _away(self, why: str) -> Cluster:
        return replace(NOWHERE, brain=Standing(why, self._clock.now()))
