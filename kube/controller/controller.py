"""Running a reconcile function for each key that may need it, one run per key at a time.

    def keys_of(node: Node) -> list[Key]: ...
    Controller("elasticjob", reconcile, for_=ELASTICJOB, owns=(JOB_RESOURCE, POD), watches=((NODE, keys_of),))

Guarantees
- The last change of an object is always followed by a run that starts after the cache has taken it.
- Where the server begins or ceases to have a kind that is watched, every key runs.
- A run starts only when the caches show what the key's previous run wrote (`kube/controller/gate.py`).
- A run that raises is repeated after a pause that doubles, 5 ms to 1000 s. `Terminal` is not repeated.
- Whatever a run, a predicate or a map to keys raises costs that object's runs, and no others.
  If the server is the cause, pauses end at 30 s, and at 2 s if it is unreachable: all keys go on soon
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

from elasticjob.kube.backoff import RECONCILE_IN_TROUBLE, RECONCILE_WHEN_AWAY
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.store import Change
from elasticjob.kube.cache.wire import Item
from elasticjob.kube.client import writes
from elasticjob.kube.clock import Clock, deadline
from elasticjob.kube.controller.gate import PATIENCE, Gates
from elasticjob.kube.controller.predicates import Predicate, any_change
from elasticjob.kube.controller.queue import LOW, NEW, Bounds, Lease, Queue
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
from elasticjob.kube.metrics import Metrics, QueueMeter, RunMeter
from elasticjob.kube.objects.kinds import Key, Kind

SOONEST = 0.01
"""Seconds before a run is repeated at its own wish, at least."""

TOLD_FROM = 1.0
"""Seconds of a pause from which an unexpected error becomes an Event of its object: not one that passes."""

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

Settle = Callable[[Key], timedelta]
"""How long a change of an owned or watched object waits for others of its key."""

Watch = tuple[Kind[Any], MapToKeys] | tuple[Kind[Any], MapToKeys, Predicate]
"""A kind, the keys that an object of it concerns, and which of its changes are worth a run (all)."""

Warn = Callable[[Kind[Any], Item, str, str], None]
"""Tells the users of an object (kind, item) a reason and a sentence: a Kubernetes Event of type Warning."""


@dataclass(frozen=True)
class Controller:
    """A reconcile function and its triggers. `owns` follows controller references to the primary kind.

    Changes of owned and watched objects often come in flocks: such a change waits for `settle` before its key
    runs, and those that come meanwhile make no further run. Changes of the primary kind do not wait. Where
    some keys take longer than others, `settle` says how long each waits.
    With `new_first`, objects that were just made run before all others: for runs that are short then.
    """

    name: str
    reconcile: Reconcile
    for_: Kind[Any]
    owns: Sequence[Kind[Any]] = ()
    watches: Sequence[Watch] = ()
    concurrency: int = 4
    when: Predicate = any_change
    timeout: timedelta | None = None
    settle: timedelta | Settle = timedelta(0)
    new_first: bool = False

    @property
    def kinds(self) -> list[Kind[Any]]:
        """All kinds that it needs a cache of."""
        return [self.for_, *self.owns, *(watch[0] for watch in self.watches)]


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
        gate: float = PATIENCE,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`caches` by `Kind.resource`; `chance` spreads retries."""
        self.controller = controller
        self._caches = caches
        self._primary = caches[controller.for_.resource]
        self._clock = clock
        self._meter = RunMeter(metrics, controller.name, controller.concurrency)
        self._warn = warn
        self._queue: Queue[Key] = Queue(clock, chance=chance, meter=QueueMeter(metrics, controller.name))
        self._gates = Gates(
            self._queue, caches, clock, timed_out=self._meter.gate_timeouts.inc, patience=gate
        )
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
            cache.on_served(self._on_served)

    def _on_primary(self, change: Change) -> None:
        if self._is_worth(self.controller.when, change):
            priority = NEW if self.controller.new_first and change.old is None else 0
            keys = dict.fromkeys(item.key for item in (change.old, change.new) if item)
            self._add(keys, change, priority=priority)

    def _on_served(self) -> None:
        for item in self._primary.items():
            self._queue.add(item.key, priority=LOW)

    def _on_owned(self, change: Change) -> None:
        items = (item for item in (change.old, change.new) if item)
        self._add_later(dict.fromkeys(key for item in items for key in self._owners(item)), change)

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
            if not self._is_worth(when, change):
                return
            items = (item for item in (change.old, change.new) if item)
            found = (key for item in items for key in self._map(cache, item, keys))
            self._add_later(dict.fromkeys(found), change)

        return listener

    def _is_worth(self, when: Predicate, change: Change) -> bool:
        """Whether a change is worth a run; one that fails the predicate is: the run tells what is wrong."""
        try:
            return when(change)
        except Exception as error:  # an object costs its own runs, never the process
            self._report(change.new or change.old, error)
            return True

    def _map(self, cache: Cache[Any], item: Item, keys: MapToKeys) -> Iterable[Key]:
        try:
            return tuple(keys(cache.view(item)))
        except Undecodable as error:
            log.warning("an object cannot be mapped to keys", extra={"error": str(error)})
        except Exception as error:  # the same as of a predicate
            self._report(item, error)
        return ()

    def _report(self, item: Item | None, error: Exception) -> None:
        self._meter.panics.inc()
        about = {"controller": self.controller.name, "object": str(item.key) if item else ""}
        log.error("a change could not be looked at", extra=about, exc_info=error)

    def _add(self, keys: Iterable[Key], change: Change, priority: int = 0) -> None:
        for key in keys:
            self._queue.add(key, priority=LOW if change.initial else priority)

    def _add_later(self, keys: Iterable[Key], change: Change) -> None:
        settle = self.controller.settle
        for key in keys:
            after = settle if isinstance(settle, timedelta) else settle(key)
            self._queue.add(key, priority=LOW if change.initial else 0, after=after.total_seconds())

    # running

    async def _work(self) -> None:
        while taken := await self._queue.get():
            try:
                if self._gates.let_through(taken):
                    await self._run(taken)
            finally:
                self._queue.done(taken.key)

    async def _run(self, taken: Lease[Key]) -> None:
        run = writes.Run(self.controller.name, taken.key, f"{random.getrandbits(32):08x}")
        began = self._clock.monotonic()
        try:
            outcome = await self._outcome(run)
        finally:
            self._meter.end(self._clock.monotonic() - began)
            self._gates.expect(run.key, run.writes)
        self._settle(taken, run, outcome)

    async def _outcome(self, run: writes.Run) -> Result | Exception:
        limit = self.controller.timeout
        try:
            with writes.enter(run):
                if limit is None:
                    return await self.controller.reconcile(run.key)
                async with deadline(self._clock, limit.total_seconds()):
                    return await self.controller.reconcile(run.key)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # this worker was not cancelled: the run awaited something that was cancelled elsewhere
            return RuntimeError("the run waited for a task or future that was cancelled")
        except Exception as error:  # the loop that logs and backs off
            return error

    def _settle(self, taken: Lease[Key], run: writes.Run, outcome: Result | Exception) -> None:
        """The one place that turns an outcome into queue, metrics and log."""
        key, priority, queue = taken.key, taken.priority, self._queue
        match outcome:
            case Result(again_in=None):
                queue.forget(key)
                self._meter.settle("success")
            case Result(again_in=timedelta() as delay):
                queue.forget(key)
                queue.add(key, priority=min(priority, 0), after=max(SOONEST, delay.total_seconds()))
                self._meter.settle("requeue_after")
            case NotFound() if self._is_gone(key, outcome):
                queue.forget(key)
                self._meter.settle("success")
            case Conflict() if not isinstance(outcome, AlreadyExists):
                queue.add_after_failure(key, priority=priority)
                log.info("reconcile lost a race", extra=self._about(run, outcome))
                self._meter.settle("requeue")
            case Terminal() | PayloadTooLarge() | Undecodable():
                queue.forget(key)
                self._meter.settle("error")
                self._meter.terminal_errors.inc()
                self._give_up(run, outcome)
            case Exception():
                pause = queue.add_after_failure(key, priority=priority, **_bounds(outcome))
                self._meter.settle("error")
                self._complain(run, outcome, pause)

    def _is_gone(self, key: Key, error: NotFound) -> bool:
        """Whether what was not found is the object itself, deleted while it was queued or worked on."""
        if self._primary.meta(key) is None:
            return True
        kind = self.controller.for_
        return error.details.get("name") == key.name and error.details.get("kind") in (kind.plural, kind.name)

    def _give_up(self, run: writes.Run, error: Exception) -> None:
        log.error("reconcile gave up", extra=self._about(run, error))
        self._tell(run, type(error).__name__, str(error))

    def _tell(self, run: writes.Run, reason: str, note: str) -> None:
        """Record a warning about the object of a run."""
        item = self._primary.item(run.key)
        if item and self._warn:
            self._warn(self.controller.for_, item, reason, note)

    def _complain(self, run: writes.Run, error: Exception, pause: float) -> None:
        if isinstance(error, TimeoutError) and self.controller.timeout:
            self._meter.timeouts.inc()
        unexpected = not isinstance(error, KubeError | TimeoutError)
        if unexpected:
            self._meter.panics.inc()
        extra = self._about(run, error) | {"again_in_seconds": round(pause, 3)}
        log.error("reconcile failed", extra=extra, exc_info=error if unexpected else None)
        if unexpected and pause >= TOLD_FROM:
            self._tell(run, "ReconcileFailed", f"again in {pause:.0f} s: {type(error).__name__}: {error}")

    def _about(self, run: writes.Run, error: Exception) -> dict[str, object]:
        return {
            "controller": run.controller,
            "key": str(run.key),
            "reconcile_id": run.id,
            "error": str(error) or type(error).__name__,
        }

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
