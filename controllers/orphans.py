"""Pods that outlived their owner: the garbage collector removes them, but for those that it has missed.

Of an owner that is deleted and comes back under its name while the collector's watch is away, it sees a
change and no end: what the former life owned is never looked at again, and keeps its names. An owner is gone
for certain where the server, asked after its pod was seen, knows nobody of its name, or one of another uid:
uids do not come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from elasticjob.controllers.observe import Caches
from elasticjob.controllers.perform import Hand
from elasticjob.kube.kinds import Key, Kind
from elasticjob.kube.objects import POD

PATIENCE: Final = timedelta(seconds=30)
"""How long pods whose names nobody waits for are left to the collector, which mostly takes a moment."""


@dataclass(frozen=True)
class Orphans:
    """What former lives of the objects of one kind have left behind."""

    kind: Kind[Any]
    _since: dict[Key, tuple[datetime, int]] = field(default_factory=dict)

    async def collect(
        self, caches: Caches, hand: Hand, key: Key, uid: str, now: datetime
    ) -> timedelta | None:
        """Have the pods of `key` deleted whose owner was another one than `uid`; "" is that there is none.

        Returns when to look again, where nobody waits for their names. Raises ApiError, Unreachable.
        """
        left = caches.left_by_others(self.kind, key, uid)
        if left and not uid and (waits := self._patience(key, len(left), now)):
            return waits
        await hand.collect(POD, left)
        self._since.pop(key, None)
        return PATIENCE if left and not uid else None

    def _patience(self, key: Key, many: int, now: datetime) -> timedelta | None:
        """How long the garbage collector has left, from when it was last seen to take one."""
        since, before = self._since.get(key, (now, many))
        if many < before:
            since = now
        self._since[key] = since, many
        waits = since + PATIENCE - now
        return waits if timedelta(0) < waits <= PATIENCE else None  # more: the clock was set back
