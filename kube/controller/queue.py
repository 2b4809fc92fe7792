"""The work queue: each key is queued at most once, and never worked on twice at once.

    add ──► dirty (waiting for a time, or ready) ──get──► processing ──done──► gone, or ready again
- A key that is added while it is processed runs once more afterwards, however often it was added.
- Adding a key again takes the earlier time and the higher priority; so a plain `add` consumes a delayed one.
- Ready keys go by priority, then in the order in which they became ready (or were raised).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import inf
from typing import Generic, TypedDict, TypeVar

from elasticjob.kube.backoff import RECONCILE, Backoff
from elasticjob.kube.clock import Clock, Timer
from elasticjob.kube.metrics import QueueMeter

K = TypeVar("K", bound=Hashable)

NEW = 100
"""The priority of keys of objects that were just made: each of a crowd begins before any of them goes on."""

LOW = -100
"""The priority of keys from an initial list: a fresh change overtakes them."""

SLACK = 64
"""How many consumed times may lie about."""


@dataclass(slots=True)
class _Entry:
    due: float
    priority: int
    turn: int
    ready: bool


class Bounds(TypedDict, total=False):
    """Bounds of the pause after a failure; see `Queue.add_after_failure`."""

    cause: str
    at_least: float
    at_most: float


@dataclass(frozen=True, slots=True)
class Lease(Generic[K]):
    """A key handed out; give it back with `done`."""

    key: K
    priority: int


class Queue(Generic[K]):
    """See the module. Used on one event loop; only `get` waits."""

    def __init__(
        self,
        clock: Clock,
        *,
        backoff: Backoff = RECONCILE,
        chance: Callable[[], float] = random.random,
        meter: QueueMeter | None = None,
    ) -> None:
        self._clock = clock
        self._backoff = backoff
        self._chance = chance
        self._meter = meter
        self._dirty: dict[K, _Entry] = {}
        self._processing: dict[K, float] = {}
        self._failures: dict[K, dict[str, int]] = {}
        self._ready: list[tuple[int, int, K]] = []
        self._waiting: list[tuple[float, int, K]] = []
        self._turns = itertools.count()
        self._getters: deque[asyncio.Future[None]] = deque()
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._closed = False

    def __len__(self) -> int:
        """How many keys need work, now or later."""
        return len(self._dirty)

    def add(self, key: K, *, priority: int = 0, after: float = 0.0) -> None:
        """Have `key` worked on, `after` seconds from now or sooner if it was to be sooner."""
        if self._closed:
            return
        now = self._clock.monotonic()
        due = now + max(0.0, after)
        entry = self._dirty.get(key)
        if entry is None:
            entry = self._dirty[key] = _Entry(due, priority, next(self._turns), ready=False)
            self._place(key, entry, now)
            return
        raised, sooner = priority > entry.priority, due < entry.due and not entry.ready
        if not raised and not sooner:
            return
        if raised and entry.ready and self._meter:
            self._meter.move(entry.priority, priority)
        entry.due, entry.priority = min(due, entry.due), max(priority, entry.priority)
        entry.turn = next(self._turns)
        self._place(key, entry, now)

    def add_after_failure(
        self, key: K, *, priority: int = 0, cause: str = "", at_least: float = 0.0, at_most: float = inf
    ) -> float:
        """Have `key` worked on after a pause that doubles with each failure of this cause; returns the pause.

        A long absence of the server must not make the first failure of another kind look like the tenth.
        """
        failures = self._failures.setdefault(key, {})
        failures[cause] = failures.get(cause, 0) + 1
        pause = self._backoff.delay(failures[cause], self._chance(), at_least=at_least, at_most=at_most)
        if self._meter:
            self._meter.retry()
        self.add(key, priority=priority, after=pause)
        return pause

    def forget(self, key: K) -> None:
        """The key did not fail: its next failure, whatever its cause, is the first again."""
        self._failures.pop(key, None)

    async def get(self) -> Lease[K] | None:
        """The next key, once there is one; None after `close`."""
        while not self._closed:
            if taken := self._take():
                return taken
            await self._wait()
        return None

    def done(self, key: K) -> None:
        """The work on a key from `get` has ended; it may be handed out again."""
        started = self._processing.pop(key)
        if self._meter:
            self._meter.done(self._clock.monotonic() - started)
        entry = self._dirty.get(key)
        if entry and entry.ready:
            self._offer(key, entry)

    def close(self) -> None:
        """Hand out nothing more and wake all waiting workers."""
        self._closed = True
        self._set_timer(None)
        while self._getters:
            self._wake_one()

    def unfinished(self) -> list[float]:
        """For how long each key in work has been so, in seconds."""
        now = self._clock.monotonic()
        return [now - started for started in self._processing.values()]

    def _place(self, key: K, entry: _Entry, now: float) -> None:
        if entry.ready or entry.due <= now:
            self._make_ready(key, entry)
        else:
            heapq.heappush(self._waiting, (entry.due, entry.turn, key))
            self._tidy()
            self._schedule()

    def _make_ready(self, key: K, entry: _Entry) -> None:
        if not entry.ready:
            entry.ready = True
            entry.due = self._clock.monotonic()
            if self._meter:
                self._meter.add(entry.priority)
        if key not in self._processing:
            self._offer(key, entry)

    def _offer(self, key: K, entry: _Entry) -> None:
        heapq.heappush(self._ready, (-entry.priority, entry.turn, key))
        self._wake_one()

    def _take(self) -> Lease[K] | None:
        while self._ready:
            _, turn, key = heapq.heappop(self._ready)
            entry = self._dirty.get(key)
            if entry is None or entry.turn != turn:
                continue  # left behind by a raise
            del self._dirty[key]
            now = self._processing[key] = self._clock.monotonic()
            if self._meter:
                self._meter.take(entry.priority, now - entry.due)
            return Lease(key, entry.priority)
        return None

    def _promote(self) -> None:
        """Make ready what is due, in the order of its time."""
        self._timer = None
        now = self._clock.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, turn, key = heapq.heappop(self._waiting)
            if self._is_waiting(key, turn):
                entry = self._dirty[key]
                entry.turn = next(self._turns)
                self._make_ready(key, entry)
        self._schedule()

    def _tidy(self) -> None:
        """Let go of times that were consumed, once most are: far ones would stay for as long as they last."""
        if len(self._waiting) > 2 * len(self._dirty) + SLACK:
            self._waiting = [entry for entry in self._waiting if self._is_waiting(entry[2], entry[1])]
            heapq.heapify(self._waiting)

    def _is_waiting(self, key: K, turn: int) -> bool:
        entry = self._dirty.get(key)
        return entry is not None and entry.turn == turn and not entry.ready

    def _schedule(self) -> None:
        due = self._waiting[0][0] if self._waiting else None
        if due is not None and self._timer is not None and self._timer_due <= due:
            return
        self._set_timer(due)

    def _set_timer(self, due: float | None) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer_due = due
            self._timer = self._clock.call_later(due - self._clock.monotonic(), self._promote)

    async def _wait(self) -> None:
        getter = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            if getter.done() and not getter.cancelled():
                self._wake_one()  # the wake-up was for a key that another worker must take now
            raise
        finally:
            if getter in self._getters:
                self._getters.remove(getter)

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return
