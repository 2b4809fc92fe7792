"""Loops over all objects: an error costs the pass of its object, never the loop, let alone the process.

    passes = Passes("samples", clock, metrics, recorder)
    while True:
        for job in jobs.list():
            if passes.is_due(str(job.key)):
                with passes.over(str(job.key), reference(ELASTICJOB, job)):
                    await keep(job)

Guarantees
- An error is counted, by loop, and logged with its object; the users of that object hear of it by an Event.
- An object whose pass failed is not due for a while, which doubles from 1 s to 5 minutes.
- A server that is away fails the passes of all objects. So none is due for a while then, 2 s at the most; the
  log says once that it is away, and once that it is back; no Event blames an object.
- Cancellation ends the loop, as ever.

Controllers have this from their Runner, key by key.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final

from elasticjob.kube.backoff import RECONCILE_IN_TROUBLE, RECONCILE_WHEN_AWAY, Backoff, Failures
from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.clock import Clock
from elasticjob.kube.errors import (
    AlreadyExists,
    Conflict,
    Fenced,
    KubeError,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.views import ObjectReference

BACKOFF: Final = Backoff(first=1.0, limit=300.0, jitter=0.2)
REASON: Final = "PassFailed"
"""Of the Events."""
REMEMBERED: Final = 600.0
"""Seconds after which an object that has not been passed over again is forgotten: it is gone."""

log = logging.getLogger(__name__)


class Passes:
    """See the module. Without a recorder no Event is written."""

    def __init__(
        self,
        loop: str,
        clock: Clock,
        metrics: Metrics,
        recorder: Recorder | None = None,
        *,
        at_most: float = BACKOFF.limit,
    ) -> None:
        """`at_most` bounds the seconds, jitter apart, in which an object whose pass failed is not due."""
        self._loop, self._clock, self._recorder, self._at_most = loop, clock, recorder, at_most
        self._count = metrics.failed_passes.labels(loop=loop)
        self._failures: dict[str, Failures] = {}
        self._away, self._asked_for = Failures(BACKOFF), ""

    def is_due(self, key: str) -> bool:
        """Whether the pauses of this object and of the servers are over."""
        own = self._failures.get(key)
        if own is None and not self._away.count:  # as ever: no clock is asked
            return True
        now = self._clock.monotonic()
        return not (self._away.count and now < self._away.last) and (own is None or now >= own.last)

    def over(self, key: str, about: ObjectReference | None = None) -> AbstractContextManager[None, bool]:
        """Return the block of one pass over an object; its error ends there."""
        return _Pass(lambda error: self._ended(key, about, error))

    def count(self, key: str, error: Exception) -> None:
        """Count an error that was no pass's. The log tells of it if the key is due: not for a while then."""
        if self.is_due(key):
            self._failed(key, None, error)
        else:
            self._count.inc()

    def _ended(self, key: str, about: ObjectReference | None, error: Exception | None) -> None:
        if error is None:
            self._went_well(key)
        else:
            self._failed(key, about, error)

    def _went_well(self, key: str) -> None:
        self._failures.pop(key, None)
        if not self._away.count:
            return
        quiet = self._clock.monotonic() - self._away.last
        if key == self._asked_for or quiet > REMEMBERED:  # others may ask no server
            self._away = self._away.over()
            log.info("the server is back", extra={"loop": self._loop})

    def _failed(self, key: str, about: ObjectReference | None, error: Exception) -> None:
        self._count.inc()
        extra = {"loop": self._loop, "object": key, "error": str(error) or type(error).__name__}
        match error:
            case Unreachable():
                if not self._away.count:
                    log.warning("the server is away", extra=extra)
                now, self._asked_for = self._clock.monotonic(), key
                self._away, _ = self._away.another(now, random.random, at_most=RECONCILE_WHEN_AWAY)
            case Fenced():
                log.info("a pass ended: another replica leads", extra=extra)
            case Conflict() if not isinstance(error, AlreadyExists):
                log.info("a pass lost a race", extra=extra)
            case ServerError() | TooManyRequests():
                pause = self._put_off(key, error.stay_away or 0.0, RECONCILE_IN_TROUBLE)
                log.warning("a pass failed", extra=extra | {"again_in_seconds": pause})
            case _:
                pause = self._put_off(key)
                traceback = None if isinstance(error, KubeError) else error
                log.error("a pass failed", extra=extra | {"again_in_seconds": pause}, exc_info=traceback)
                if self._recorder and about:
                    self._recorder.event(about, "Warning", REASON, f"{self._loop}: {extra['error']}")

    def _put_off(self, key: str, at_least: float = 0.0, at_most: float = BACKOFF.limit) -> float:
        now = self._clock.monotonic()
        self._failures = {name: each for name, each in self._failures.items() if now - each.last < REMEMBERED}
        before = self._failures.get(key, Failures(BACKOFF))
        at_most = min(at_most, self._at_most)
        after, pause = before.another(now, random.random, at_least=at_least, at_most=at_most)
        self._failures[key] = after
        return round(pause, 3)


class _Pass(AbstractContextManager[None, bool]):
    """A block whose errors, but for cancellation, go to `ended` and no further."""

    def __init__(self, ended: Callable[[Exception | None], None]) -> None:
        self._ended = ended

    def __enter__(self) -> None: ...

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> bool:
        if error is not None and not isinstance(error, Exception):
            return False
        self._ended(error)
        return True
