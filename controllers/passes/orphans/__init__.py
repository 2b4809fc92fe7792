"""Deleting the objects of former lives of a job that the garbage collector has missed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from elasticjob.controllers.parts.owners import Ownership
from elasticjob.controllers.passes.observe import Caches
from elasticjob.controllers.passes.orphans.decide import Memory, Removal, due, remember_failures, removals
from elasticjob.controllers.passes.orphans.observe import ask, left_behind
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import ApiError, Conflict, Unreachable
from elasticjob.kube.objects.kinds import Key, Kind

AT_ONCE: Final = 32
"""Deletions that are under way at the same time."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Orphans:
    """Collects orphans, one job at a time. Time and the cluster are arguments."""

    client: Client
    caches: Caches
    now: Callable[[], datetime]
    _memory: dict[Key, Memory] = field(default_factory=dict)

    async def collect(
        self, key: Key, waiting: Kind[Any] | None = None, obstacle: Ownership | None = None
    ) -> timedelta | None:
        """Delete the orphans of a job that are due; returns when to look again, None if there are none.

        Due at once are the orphans whose places an object of kind `waiting` needs, and `obstacle`, which has
        a name that this pass wanted.
        """
        left = left_behind(self.caches, key, waiting, obstacle)
        step = due(left, self._memory.get(key), self.now())
        if step.memory is None:
            self._memory.pop(key, None)
            return None
        self._memory[key] = step.memory  # before the first await: another pass of this job may come meanwhile
        answers = [await ask(self.client, owner, key.namespace) for owner in step.owners]
        failed = {answer.owner for answer in answers if not answer.complete}
        for removal in removals(left, answers):
            log.info(removal.sentence, extra={"object": str(key), "reason": "OwnerGone"})
            if not await self._remove(removal, key.namespace):
                failed.add(removal.owner)
        self._memory[key] = remember_failures(self._memory.get(key, step.memory), step.owners, failed)
        return step.again_in

    async def _remove(self, removal: Removal, namespace: str) -> bool:
        """Delete the objects of one owner; returns whether all are gone."""
        gone = all(await self._delete(removal.hidden, namespace))
        for start in range(0, len(removal.shown), AT_ONCE):
            deleted = await self._delete(removal.shown[start : start + AT_ONCE], namespace)
            gone = gone and all(deleted)
            if not any(deleted):
                break  # the server accepts no deletion now: the rest waits for a later pass
        return gone

    async def _delete(self, objects: Sequence[Ownership], namespace: str) -> list[bool]:
        return await asyncio.gather(*(self._delete_one(each, namespace) for each in objects))

    async def _delete_one(self, orphan: Ownership, namespace: str) -> bool:
        """Delete an object unless it has changed; returns whether it is gone."""
        try:
            await self.client.delete(
                orphan.kind, orphan.name, namespace, uid=orphan.uid, version=orphan.version
            )
        except Conflict:  # it may have another owner by now, or none
            return False
        except (ApiError, Unreachable) as error:
            about = {"kind": orphan.kind.name, "object": f"{namespace}/{orphan.name}", "error": str(error)}
            log.warning("an object whose owner is gone could not be deleted", extra=about)
            return False
        return True
