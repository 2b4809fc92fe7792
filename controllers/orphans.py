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
    _since: dict[Key, datetime] = field(default_factory=dict)

    async def collect(
        self, caches: Caches, hand: Hand, key: Key, uid: str, now: datetime
    ) -> timedelta | None:
        """Have the pods of `key` deleted whose owner was another one than `uid`; "" is that there is none.

        Returns how long they are left to the garbage collector before. Raises ApiError, Unreachable.
        """
        left = caches.left_by_others(self.kind, key, uid)
        since = self._since.pop(key, now)
        waits = since + PATIENCE - now
        if left and not uid and timedelta(0) < waits <= PATIENCE:  # more: the clock was set back
            self._since[key] = since
            return waits
        await hand.collect(POD, left)
        return None
