"""When objects that no cache shows are looked up: what was made for a job comes back if others delete it.

1. The operator may not list Secrets and RBAC objects, so no watch tells that one is gone.
2. Each is looked up every ten minutes, those of many jobs in turn.
3. While a pod does not start and does not say why, they are looked up every half a minute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from zlib import crc32

from elasticjob.kube.objects.kinds import Key

EVERY: Final = timedelta(minutes=10)
IN_TROUBLE: Final = timedelta(seconds=30)


@dataclass(frozen=True)
class Upkeep:
    """When the objects of each job were looked up last."""

    _last: dict[Key, datetime] = field(default_factory=dict)

    def is_due(self, key: Key, made: datetime | None, now: datetime, *, in_trouble: bool = False) -> bool:
        """Whether the objects of a job, which were `made` then, are looked up now."""
        turn = now - EVERY * (crc32(str(key).encode()) / 2**32)
        last = self._last.setdefault(key, max(turn, made) if made else turn)
        if now < last + (min(IN_TROUBLE, EVERY) if in_trouble else EVERY):
            return False
        self._last[key] = now
        return True

    def due_in(self, key: Key, now: datetime) -> timedelta | None:
        """Return when the objects of a job are looked up next; None where that is not known."""
        last = self._last.get(key)
        return None if last is None else max(last + EVERY - now, timedelta(0))

    def forget(self, key: Key) -> None:
        """Forget a job that is gone or has nothing to look up."""
        self._last.pop(key, None)
