"""Objects that outlived their owner: the garbage collector removes them, but for those that it has missed.

Of an owner that is deleted and comes back under its name while the collector's watch is away, it sees a
change and no end: what the former life owned is never looked at again, and keeps its names. An owner is gone
for certain where the server, asked after its object was seen, knows nobody of its name, or one of another
uid: uids do not come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.controllers.observe import Caches
from elasticjob.controllers.owners import Owned, owner_of
from elasticjob.controllers.perform import Hand
from elasticjob.kube.kinds import Key, Kind
from elasticjob.kube.objects import POD, OwnerReference

PATIENCE: Final = timedelta(seconds=30)
"""How long objects that nobody waits for are left to the collector, which mostly takes a moment."""


@dataclass(frozen=True)
class Orphans:
    """What earlier lives of jobs have left: since when no more of it went, and whose may be left behind."""

    _since: dict[Key, tuple[datetime, int]] = field(default_factory=dict)
    _stuck: dict[Key, list[OwnerReference]] = field(default_factory=dict)

    async def make_way(self, caches: Caches, hand: Hand, key: Key, kind: Kind[Any]) -> None:
        """Have deleted at once for whose place a job waits, of what went with an earlier life of `kind`.

        That is the JobResource and the pods, and with them what no cache shows: it could not be found without
        them. What cannot be deleted is looked at again by `collect`.
        """
        if caches.jobs.meta(key) is None:
            return
        left = [each for each in caches.left_behind(key) if each.kind in (JOBRESOURCE, POD)]
        known = {owner.uid for owner in self._stuck.get(key, [])}
        for owner in await hand.collect((each for each in left if _is_of(each, kind)), key.namespace):
            if owner.uid not in known:
                self._stuck.setdefault(key, []).append(owner)

    async def collect(self, caches: Caches, hand: Hand, key: Key, now: datetime) -> timedelta | None:
        """Have all that is left of earlier lives of a job deleted, once the collector had its time.

        Returns when to look again, None where nothing is left.
        """
        left, stuck = caches.left_behind(key), self._stuck.get(key, [])
        if not left and not stuck:
            self._since.pop(key, None)
            self._stuck.pop(key, None)
            return None
        if waits := self._patience(key, len(left), now):
            return waits
        self._stuck[key] = await hand.collect(left, key.namespace, stuck)
        self._since.pop(key, None)
        return PATIENCE

    def _patience(self, key: Key, many: int, now: datetime) -> timedelta | None:
        """How long the garbage collector has left, from when it was last seen to take one."""
        since, before = self._since.get(key, (now, many))
        if many < before:
            since = now
        self._since[key] = since, many
        waits = since + PATIENCE - now
        return waits if timedelta(0) < waits <= PATIENCE else None  # more: the clock was set back


def _is_of(owned: Owned, kind: Kind[Any]) -> bool:
    owner = owner_of(owned.metadata)
    return owner is not None and owner.kind == kind.name
