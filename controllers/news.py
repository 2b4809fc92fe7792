"""How often a status is written: what matters at once, mere counting at most once a second.

The pods of a large job begin to run one by one, for minutes. Each time that is news, and nobody waits for it;
the first that runs, the last of a role, a reason or a restart is what somebody waits for.

A pass that rests on a cache that is behind may find nothing to tell, while its object says something else. So
what an object comes to say is held against what the last pass made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from elasticjob.controllers.perform import without_empty
from elasticjob.kube.kinds import Key, Manifest
from elasticjob.kube.reading import JsonReader
from elasticjob.kube.store import Change

PAUSE: Final = timedelta(seconds=1)
COUNTS: Final = frozenset({"workers", "replicas", "replicaStatuses", "conditions"})
"""Fields of which not all matters."""
MATTERS: Final = frozenset({"desired", "succeeded", "failed"})
"""Counts of a role that matter, each of them."""
OTHERS: Final = "training"
"""What a master writes into the status of its job."""


@dataclass(frozen=True)
class News:
    """What was found last of each object, when it was told, and which pass left it to the next."""

    _found: dict[Key, Manifest] = field(default_factory=dict)
    _told: dict[Key, datetime] = field(default_factory=dict)
    _left: set[Key] = field(default_factory=set)

    def leave(self, key: Key) -> bool:
        """Whether this pass may leave its status to the next: not twice in a row.

        Writes that change nothing are made again in each pass, and a job may change in each: both are told.
        """
        if key in self._left:
            return False
        self._left.add(key)
        return True

    def hold(self, key: Key, old: Manifest, new: Manifest, now: datetime) -> timedelta | None:
        """Return how long `new` may wait until it is told; None: it is told now.

        What was told and is not there, since somebody else writes the status too, is told again as seldom.
        """
        self._left.discard(key)
        said = without_empty(new)
        can_wait = self._found.get(key) == said or is_small(old, new)
        self._found[key] = said
        if old == new:
            return None
        told = self._told.get(key, now - PAUSE)
        left = told + PAUSE - now
        if can_wait and timedelta(0) < left <= PAUSE:  # more: the clock was set back
            return left
        self._told[key] = now
        return None

    def contradicts(self, change: Change) -> bool:
        """Whether an object has come to say something else than the last pass found, and needs another.

        The echo of what was told is none, nor is what a master says. A predicate, beside one that lets coming
        and going pass: what was found is known by name.
        """
        found = self._found.get(change.new.key) if change.new else None
        if change.new is None or found is None:
            return False
        try:
            said = _STATUS.decode(change.new.raw).status
        except msgspec.DecodeError:  # whoever reads it says so
            return True
        said.pop(OTHERS, None)
        return without_empty(said) != found

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._found.pop(key, None)
        self._told.pop(key, None)
        self._left.discard(key)


class _Said(msgspec.Struct):
    status: dict[str, object] = {}


_STATUS = JsonReader(_Said)


def is_small(old: Manifest, new: Manifest) -> bool:
    """Whether two statuses differ in nothing but numbers on their way, and sentences about them."""
    return _gist(old) == _gist(new)


def _gist(status: Manifest) -> object:
    rest = {name: value for name, value in status.items() if name not in COUNTS}
    roles = {role: _counted(counts) for role, counts in status.get("replicaStatuses", {}).items()}
    conditions = [
        {name: value for name, value in condition.items() if name != "message"}
        for condition in status.get("conditions", [])
    ]
    return rest, roles, conditions


def _counted(counts: Manifest) -> object:
    up = counts.get("ready", counts.get("active", 0))
    return {name: counts.get(name, 0) for name in MATTERS}, up >= counts.get("desired", 0)
