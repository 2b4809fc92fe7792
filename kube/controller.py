"""Running a reconcile function for each key that may need it, one run per key at a time.

    def keys_of(node: Node) -> list[Key]: ...
    Controller("elasticjob", reconcile, for_=ELASTICJOB, owns=(JOB_RESOURCE, POD), watches=((NODE, keys_of),))

Guarantees
- The last change of an object is always followed by a run that starts after the cache has taken it.
- A run starts only when the caches have seen what the previous run of the key wrote (or after GATE seconds).
- A run that raises is repeated after a pause that doubles, 5 ms to 1000 s. `Terminal` is not repeated.
  Where the server is the cause, pauses end at 30 s, and at 2 s where nobody answers: all keys go on soon
  after it is back.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, Self

from elasticjob.kube import running
from elasticjob.kube.backoff import RECONCILE_IN_TROUBLE, RECONCILE_WHEN_AWAY
from elasticjob.kube.cache import Cache
from elasticjob.kube.clock import Clock, deadline
from elasticjob.kube.errors import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    PayloadTooLarge,
    ServerError,
    Terminal,
    TooManyRequests,
    Undecodable,
    Unreachable,
)
from elasticjob.kube.kinds import Key, Kind
from elasticjob.kube.metrics import Metrics, QueueMeter, RunMeter
from elasticjob.kube.predicates import Predicate, any_change
from elasticjob.kube.queue import LOW, Bounds, Queue, Taken
from elasticjob.kube.store import Change
from elasticjob.kube.wire import Item

GATE = 5.0
"""Seconds that a key's next run waits at most for the cache to see its last run's writes."""

GATES_KEPT = 256
"""How many gates may lie about before those that nobody waits at are let go."""

SOONEST = 0.01
"""Seconds before a run is repeated at its own wish, at least."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """How a run ended: nothing more to do until something changes, or look again after a while."""

    again_in: timedelta | None = None

    @classmethod
    def done(cls) -> Self:
        """Run again when something changes."""
        return cls()

    @classmethod
    def again(cls, delay: timedelta | None) -> Self:
        """Run again after `delay`; None means done.

        Every run that wants one must say so: a change that comes first consumes the pause.
        """
        return cls(delay)


class Reconcile(Protocol):
    """Bring the object of that name closer to its spec; it may not exist any more."""

    async def __call__(self, key: Key) -> Result: ...


MapToKeys = Callable[[Any], Iterable[Key]]
"""Which keys an object of a watched kind concerns; asked for the object before and after a change."""

Watch = tuple[Kind[Any], MapToKeys] | tuple[Kind[Any], MapToKeys, Predicate]
"""A kind, the keys that an object of it concerns, and which of its changes are worth a run (all)."""

Warn = Callable[[Kind[Any], Item, str, str], None]
"""Tells the users of an object (kind, item) a reason and a sentence: a Kubernetes Event of type Warning."""


@dataclass(frozen=True)
class Controller:
    """What to run, and what makes it run. `owns` follows controller references to the primary kind.

    Changes of owned and watched objects often come in flocks: such a change waits for `settle` before its key
    runs, and those that come meanwhile make no further run. Changes of the primary kind do not wait.
    """

    name: str
    reconcile: Reconcile
    for_: Kind[Any]
    owns: Sequence[Kind[Any]] = ()
    watches: Sequence[Watch] = ()
    concurrency: int = 4
    when: Predicate = any_change
    timeout: timedelta | None = None
    settle: timedelta = timedelta(0)

    @property
    def kinds(self) -> list[Kind[Any]]:
        """All kinds that it needs a cache of."""
        return [self.for_, *self.owns, *(watch[0] for watch in self.watches)]


@dataclass(frozen=True)
class Expectation:
    """A write that a cache should show before the key runs again."""

    cache: Cache[Any]
    era: int
    version: int

    @property
    def met(self) -> bool:
        """Whether the cache has seen the write, or never will, because the storage went back in time.

        A mere relist settles nothing: it may have begun before the write.
        """
        return self.cache.version >= self.version or self.cache.eras != self.era


@dataclass(frozen=True)
class Farewell:
    """A deletion that a cache should show before the key runs again."""

    cache: Cache[Any]
    key: Key
    uid: str

    @property
    def met(self) -> bool:
        """Whether the cache has let go of that life of the object."""
        meta = self.cache.meta(self.key)
        return meta is None or meta.uid != self.uid


@dataclass(frozen=True)
class Gate:
    """What a key waits for, until when."""

    expectations: tuple[Expectation | Farewell, ...]
    until: float

    @property
    def is_open(self) -> bool:
        """Whether the caches show all that was written."""
        return all(expectation.met for expectation in self.expectations)


class Runner:
    """A controller at work on the caches of its kinds: `run()` until cancelled or drained."""

    def __init__(
        self,
        controller: Controller,
        caches: Mapping[str, Cache[Any]],
        *,
        clock: Clock,
        metrics: Metrics,
        warn: Warn | None = None,
        gate: float = GATE,
    ) -> None:
        """`caches` by `Kind.resource`."""
        self.controller = controller
        self._caches = caches
        self._primary = caches[controller.for_.resource]
        self._clock = clock
        self._meter = RunMeter(metrics, controller.name, controller.concurrency)
        self._warn = warn
        self._patience = gate
        self._settle_seconds = controller.settle.total_seconds()
        self._queue: Queue[Key] = Queue(clock, meter=QueueMeter(metrics, controller.name))
        self._gates: dict[Key, Gate] = {}
        self._gates_kept = GATES_KEPT
        self._parked: dict[Key, int] = {}
        self._followed: set[str] = set()
        self._subscribe()
        self._expose(metrics)

    async def run(self) -> None:
        """Work on keys with as many workers as allowed; returns after `drain` when the last run has ended."""
        async with asyncio.TaskGroup() as workers:
            for number in range(self.controller.concurrency):
                workers.create_task(self._work(), name=f"{self.controller.name}-{number}")

    def drain(self) -> None:
        """Start no more runs."""
        self._queue.close()

    def enqueue(self, key: Key, *, priority: int = 0) -> None:
        """Have a key run, for a reason that is not a change in a cache."""
        self._queue.add(key, priority=priority)

    # what makes it run

    def _subscribe(self) -> None:
        controller = self.controller
        self._primary.subscribe(self._on_primary)
        for kind in controller.owns:
            self._caches[kind.resource].subscribe(self._on_owned)
        for watch in controller.watches:
            cache = self._caches[watch[0].resource]
            cache.subscribe(self._on_watched(cache, watch[1], watch[2] if len(watch) == 3 else any_change))

    def _on_primary(self, change: Change) -> None:
        if self.controller.when(change):
            self._add({item.key for item in (change.old, change.new) if item}, change)

    def _on_owned(self, change: Change) -> None:
        keys = {key for item in (change.old, change.new) if item for key in self._owners(item)}
        self._add(keys, change, self._settle_seconds)

    def _owners(self, item: Item) -> list[Key]:
        kind = self.controller.for_
        namespace = item.meta.namespace if kind.namespaced else ""
        return [
            Key(namespace, owner.name)
            for owner in item.meta.owner_references or ()
            if owner.kind == kind.name and owner.api_version.rpartition("/")[0] == kind.group
        ]

    def _on_watched(self, cache: Cache[Any], keys: MapToKeys, when: Predicate) -> Callable[[Change], None]:
        def listener(change: Change) -> None:
            if not when(change):
                return
            found = {key for item in (change.old, change.new) if item for key in _mapped(cache, item, keys)}
            self._add(found, change, self._settle_seconds)

        return listener

    def _add(self, keys: Iterable[Key], change: Change, after: float = 0.0) -> None:
        for key in keys:
            self._queue.add(key, priority=LOW if change.initial else 0, after=after)

    # running

    async def _work(self) -> None:
        while taken := await self._queue.get():
            try:
                if self._may_run(taken):
                    await self._run(taken)
            finally:
                self._queue.done(taken.key)

    async def _run(self, taken: Taken[Key]) -> None:
        run = running.Pass(self.controller.name, taken.key, f"{random.getrandbits(32):08x}")
        began = self._clock.monotonic()
        try:
            outcome = await self._outcome(run)
        finally:
            self._meter.ended(self._clock.monotonic() - began)
            self._expect(run)
        self._settle(taken, run, outcome)

    async def _outcome(self, run: running.Pass) -> Result | Exception:
        limit = self.controller.timeout
        try:
            with running.entered(run):
                if limit is None:
                    return await self.controller.reconcile(run.key)
                async with deadline(self._clock, limit.total_seconds()):
                    return await self.controller.reconcile(run.key)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # nobody cancelled this worker: the run awaited something that was cancelled elsewhere
            return RuntimeError("the run waited for a task or future that was cancelled")
        except Exception as error:  # the loop that logs and backs off
            return error

    def _settle(self, taken: Taken[Key], run: running.Pass, outcome: Result | Exception) -> None:
        """The one place that turns an outcome into queue, metrics and log."""
        key, priority, queue = taken.key, taken.priority, self._queue
        match outcome:
            case Result(again_in=None):
                queue.forget(key)
                self._meter.settled("success")
            case Result(again_in=timedelta() as delay):
                queue.forget(key)
                queue.add(key, priority=priority, after=max(SOONEST, delay.total_seconds()))
                self._meter.settled("requeue_after")
            case NotFound() if self._is_gone(key, outcome):
                queue.forget(key)
                self._meter.settled("success")
            case Conflict() if not isinstance(outcome, AlreadyExists):
                queue.add_after_failure(key, priority=priority)
                log.info("reconcile lost a race", extra=self._about(run, outcome))
                self._meter.settled("requeue")
            case Terminal() | PayloadTooLarge() | Undecodable():
                queue.forget(key)
                self._meter.settled("error")
                self._meter.terminal_errors.inc()
                self._give_up(run, outcome)
            case Exception():
                pause = queue.add_after_failure(key, priority=priority, **_bounds(outcome))
                self._meter.settled("error")
                self._complain(run, outcome, pause)

    def _is_gone(self, key: Key, error: NotFound) -> bool:
        """Whether what was not found is the object itself, deleted while it was queued or worked on."""
        if self._primary.meta(key) is None:
            return True
        kind = self.controller.for_
        return error.details.get("name") == key.name and error.details.get("kind") in (kind.plural, kind.name)

    def _give_up(self, run: running.Pass, error: Exception) -> None:
        log.error("reconcile gave up", extra=self._about(run, error))
        item = self._primary.item(run.key)
        if item and self._warn:
            self._warn(self.controller.for_, item, type(error).__name__, str(error))

    def _complain(self, run: running.Pass, error: Exception, pause: float) -> None:
        if isinstance(error, TimeoutError) and self.controller.timeout:
            self._meter.timeouts.inc()
        unexpected = not isinstance(error, KubeError | TimeoutError)
        if unexpected:
            self._meter.panics.inc()
        extra = self._about(run, error) | {"again_in_seconds": round(pause, 3)}
        log.error("reconcile failed", extra=extra, exc_info=error if unexpected else None)

    def _about(self, run: running.Pass, error: Exception) -> dict[str, object]:
        return {
            "controller": run.controller,
            "key": str(run.key),
            "reconcile_id": run.id,
            "error": str(error) or type(error).__name__,
        }

    # reading its own writes

    def _expect(self, run: running.Pass) -> None:
        """Remember what the run wrote unless the caches show all of it already.

        What seems to be met is kept with the rest: an object that was made and deleted in one run is missing
        from the cache at first, too.
        """
        expectations = tuple(
            _expectation(cache, written)
            for written in run.writes
            if (cache := self._caches.get(written.kind.resource)) is not None
            and (written.gone or cache.covers(written.key.namespace, written.labels))
        )
        gate = Gate(expectations, self._clock.monotonic() + self._patience)
        if not gate.is_open:
            self._follow(expectation.cache for expectation in expectations)
            self._gates[run.key] = gate
            self._tidy()

    def _follow(self, caches: Iterable[Cache[Any]]) -> None:
        """Hear of what these caches show; also of kinds that make no runs, which the run may read."""
        for cache in caches:
            if cache.kind.resource not in self._followed:
                self._followed.add(cache.kind.resource)
                cache.on_version(self._release)

    def _tidy(self) -> None:
        """Let go of gates of keys that never came again, once most may be such."""
        if len(self._gates) <= self._gates_kept:
            return
        now = self._clock.monotonic()
        for key, gate in list(self._gates.items()):
            if key not in self._parked and (gate.is_open or gate.until <= now):
                del self._gates[key]
        self._gates_kept = max(GATES_KEPT, 2 * len(self._gates))

    def _may_run(self, taken: Taken[Key]) -> bool:
        """Whether the key's gate is open; if not, the key is parked and others go on."""
        gate = self._gates.get(taken.key)
        if gate is None:
            return True
        left = gate.until - self._clock.monotonic()
        if not gate.is_open and left > 0:
            self._parked[taken.key] = taken.priority
            self._queue.add(taken.key, priority=taken.priority, after=left)
            return False
        if not gate.is_open:
            self._meter.gate_timeouts.inc()
        del self._gates[taken.key]
        self._parked.pop(taken.key, None)
        return True

    def _release(self) -> None:
        """A cache has advanced: let keys run whose gate has opened."""
        opened = [key for key in self._parked if self._gates[key].is_open]
        for key in opened:
            self._queue.add(key, priority=self._parked.pop(key))

    def _expose(self, metrics: Metrics) -> None:
        labels = {"name": self.controller.name, "controller": self.controller.name}
        metrics.active_workers.labels(controller=self.controller.name).set_function(
            lambda: len(self._queue.unfinished())
        )
        metrics.unfinished.labels(**labels).set_function(lambda: sum(self._queue.unfinished()))
        metrics.longest.labels(**labels).set_function(lambda: max(self._queue.unfinished(), default=0.0))


def _bounds(error: Exception) -> Bounds:
    """The series that an error adds to, and its pauses: errors of the server are not the key's."""
    match error:
        case TooManyRequests() | ServerError():
            return {
                "cause": "trouble",
                "at_least": error.stay_away or 0.0,
                "at_most": RECONCILE_IN_TROUBLE,
            }
        case Unreachable():
            return {"cause": "away", "at_most": RECONCILE_WHEN_AWAY}
        case _:
            return {}


def _expectation(cache: Cache[Any], written: running.Written) -> Expectation | Farewell:
    if written.gone:
        return Farewell(cache, written.key, written.gone)
    return Expectation(cache, cache.eras, written.version)


def _mapped(cache: Cache[Any], item: Item, keys: MapToKeys) -> Iterable[Key]:
    try:
        return tuple(keys(cache.view(item)))
    except Undecodable as error:
        log.warning("an object cannot be mapped to keys", extra={"error": str(error)})
        return ()
