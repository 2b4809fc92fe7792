"""How often a status is written: important changes at once, changed counts at most once a second.

The pods of a large job begin to run one by one, for minutes, and each changes the counts. The first pod that
runs, the last of a role, a reason or a restart is important.

A pass over a stale cache may find its status written already, while the object has another by now. So each
new version of an object is compared with the status that the last pass computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from elasticjob.api.v1alpha1.elasticjob import Finding
from elasticjob.controllers.passes.apply import without_empty
from elasticjob.kube.cache.store import Change
from elasticjob.kube.json import JsonReader
from elasticjob.kube.objects.kinds import Key, Manifest

PAUSE: Final = timedelta(seconds=1)
RECENT: Final = timedelta(minutes=1)
COUNTS: Final = frozenset({"workers", "replicas", "replicaStatuses", "conditions"})
"""Fields with counts and sentences."""
MATTERS: Final = frozenset({"desired", "succeeded", "failed"})
"""Counts of a role of which each change is important."""
OTHERS: Final = "training"
"""The field that a master writes into the status of its job."""


@dataclass(frozen=True)
class News:
    """The status computed last for each object, when it was written, and which passes left it out."""

    _found: dict[Key, Manifest] = field(default_factory=dict)
    _told: dict[Key, datetime] = field(default_factory=dict)
    _left: set[Key] = field(default_factory=set)
    _findings: dict[Key, dict[tuple[datetime, str, str], int]] = field(default_factory=dict)

    def findings(self, key: Key, found: Sequence[Finding], now: datetime) -> list[tuple[Finding, int]]:
        """Return what a job's master found that is new, and how often: again once that has doubled.

        Of a job not seen before only what is recent.
        """
        before, news = self._findings.get(key), []
        self._findings[key] = told = {}
        for each in found:
            name, count = (each.time, each.reason, each.message), each.count or 1
            known = before.get(name, 0) if before is not None else 0
            is_old = before is None and now - (each.last_time or each.time) > RECENT
            is_new = not is_old and count >= 2 * known and count > known
            told[name] = count if is_new or is_old else known
            if is_new:
                news.append((each, count - known))
        return news

    def leave(self, key: Key) -> bool:
        """Whether this pass may leave its status to the next: not twice in a row.

        A job may change in each pass, and some writes change nothing: the status is written in the end.
        """
        if key in self._left:
            return False
        self._left.add(key)
        return True

    def hold(self, key: Key, old: Manifest, new: Manifest, now: datetime) -> timedelta | None:
        """Return how long the status `new` may wait; None: it is written now, or is there already.

        A status that another writer has overwritten is written again once a second.
        """
        self._left.discard(key)
        new_status = without_empty(new)
        can_wait = self._found.get(key) == new_status or is_small(old, new)
        self._found[key] = new_status
        if old == new:
            return None
        reported = self._told.get(key, now - PAUSE)
        left = reported + PAUSE - now
        if can_wait and timedelta(0) < left <= PAUSE:  # more: the clock was set back
            return left
        self._told[key] = now
        return None

    def contradicts(self, change: Change) -> bool:
        """Whether an object now has another status than the last pass computed, and needs a pass.

        The part of the status that a master writes is left out. To be combined with a predicate that lets
        created and deleted objects pass.
        """
        found = self._found.get(change.new.key) if change.new else None
        if change.new is None or found is None:
            return False
        try:
            status = _STATUS.decode(change.new.raw).status
        except msgspec.DecodeError:  # the pass reports it
            return True
        status.pop(OTHERS, None)
        return without_empty(status) != found

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._found.pop(key, None)
        self._told.pop(key, None)
        self._left.discard(key)
        self._findings.pop(key, None)


class _Entry(msgspec.Struct):
    status: dict[str, object] = {}


_STATUS = JsonReader(_Entry)


def is_small(old: Manifest, new: Manifest) -> bool:
    """Whether two statuses differ only in unimportant counts, and messages about them."""
    return _gist(old) == _gist(new)


def _gist(status: Manifest) -> object:
    rest = {name: value for name, value in status.items() if name not in COUNTS}
    roles = {role: _count(counts) for role, counts in status.get("replicaStatuses", {}).items()}
    conditions = [
        {name: value for name, value in condition.items() if name != "message"}
        for condition in status.get("conditions", [])
    ]
    return rest, roles, conditions


def _count(counts: Manifest) -> object:
    up = counts.get("ready", counts.get("active", 0))
    return {name: counts.get(name, 0) for name in MATTERS}, up >= counts.get("desired", 0)
