"""The read-your-writes gate: a key runs again only when the caches show what its last run wrote.

A run that reads a cache older than its own writes would make the same object twice. So after a run that
wrote, its key has a gate. A key that is taken from the queue before its gate is open is parked, so that the
worker goes on with others, and comes back as soon as the caches have caught up, or when patience ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.writes import Written
from elasticjob.kube.clock import Clock
from elasticjob.kube.controller.queue import Lease, Queue
from elasticjob.kube.objects.kinds import Key

PATIENCE = 5.0
"""Seconds that a key waits at most for the caches to show its last run's writes."""

KEPT = 256
"""Gates that may accumulate before those of keys that never came again are dropped."""


@dataclass(frozen=True)
class Expectation:
    """A write that a cache should show before the key runs again."""

    cache: Cache[Any]
    era: int
    version: int

    @property
    def is_met(self) -> bool:
        """Whether the cache has seen the write, or never will, because the storage went back in time.

        A mere relist settles nothing: it may have begun before the write.
        """
        return self.cache.version >= self.version or self.cache.eras != self.era


@dataclass(frozen=True)
class ExpectedDeletion:
    """A deletion that a cache should show before the key runs again."""

    cache: Cache[Any]
    key: Key
    uid: str

    @property
    def is_met(self) -> bool:
        """Whether the cache has dropped the object of that uid."""
        meta = self.cache.meta(self.key)
        return meta is None or meta.uid != self.uid


@dataclass(frozen=True)
class Gate:
    """The expectations of a key, and its deadline."""

    expectations: tuple[Expectation | ExpectedDeletion, ...]
    until: float

    @property
    def is_open(self) -> bool:
        """Whether the caches show all that was written."""
        return all(expectation.is_met for expectation in self.expectations)


class Gates:
    """The gates of one controller's keys. A parked key goes back to the queue when its gate opens."""

    def __init__(
        self,
        queue: Queue[Key],
        caches: Mapping[str, Cache[Any]],
        clock: Clock,
        *,
        timed_out: Callable[[], None],
        patience: float = PATIENCE,
    ) -> None:
        """`caches` by `Kind.resource`; `timed_out` is called when a key runs although its gate is closed."""
        self._queue = queue
        self._caches = caches
        self._clock = clock
        self._timed_out = timed_out
        self._patience = patience
        self._gates: dict[Key, Gate] = {}
        self._kept = KEPT
        self._parked: dict[Key, int] = {}
        self._followed: set[str] = set()

    def __len__(self) -> int:
        return len(self._gates)

    def expect(self, key: Key, writes: Iterable[Written]) -> None:
        """Close the key's gate unless the caches show all its writes already.

        Expectations that are met now are kept with the others: an object that was made and deleted in one run
        is missing from the cache at first, too.
        """
        expectations = tuple(
            _expectation(cache, written)
            for written in writes
            if (cache := self._caches.get(written.kind.resource)) is not None
            and (written.gone or cache.covers(written.key.namespace, written.labels))
        )
        gate = Gate(expectations, self._clock.monotonic() + self._patience)
        if not gate.is_open:
            self._follow(expectation.cache for expectation in expectations)
            self._gates[key] = gate
            self._tidy()

    def let_through(self, taken: Lease[Key]) -> bool:
        """Whether the key may run now; if not, it is parked."""
        gate = self._gates.get(taken.key)
        if gate is None:
            return True
        left = gate.until - self._clock.monotonic()
        if not gate.is_open and left > 0:
            self._parked[taken.key] = taken.priority
            self._queue.add(taken.key, priority=taken.priority, after=left)
            return False
        if not gate.is_open:
            self._timed_out()
        del self._gates[taken.key]
        self._parked.pop(taken.key, None)
        return True

    def _follow(self, caches: Iterable[Cache[Any]]) -> None:
        """Subscribe to the versions of these caches, whether or not their changes start runs."""
        for cache in caches:
            if cache.kind.resource not in self._followed:
                self._followed.add(cache.kind.resource)
                cache.on_version(self._release)

    def _release(self) -> None:
        """A cache has advanced: queue the parked keys whose gate has opened."""
        opened = [key for key in self._parked if self._gates[key].is_open]
        for key in opened:
            self._queue.add(key, priority=self._parked.pop(key))

    def _tidy(self) -> None:
        """Drop gates of keys that never came again, once these may be the majority."""
        if len(self._gates) <= self._kept:
            return
        now = self._clock.monotonic()
        for key, gate in list(self._gates.items()):
            if key not in self._parked and (gate.is_open or gate.until <= now):
                del self._gates[key]
        self._kept = max(KEPT, 2 * len(self._gates))


def _expectation(cache: Cache[Any], written: Written) -> Expectation | ExpectedDeletion:
    if written.gone:
        return ExpectedDeletion(cache, written.key, written.gone)
    return Expectation(cache, cache.eras, written.version)
