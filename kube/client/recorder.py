"""Kubernetes Events: what `kubectl describe` shows about an object.

Telling never blocks and may drop; drops are counted. The same sentence about the same object again raises the
count of the one Event. An object about which too much is said is only heard now and then (a burst of 25, then
one in 5 minutes).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import Clock
from elasticjob.kube.errors import (
    AlreadyExists,
    ConfigError,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import EVENT, EventType, ObjectReference

SERIES = timedelta(minutes=6)
"""A repetition later than this begins a new Event."""
BURST = 25
REFILL = timedelta(minutes=5)
WAITING = 1000
"""How many Events wait to be sent at most."""
REMEMBERED = 4096
LONGEST_NOTE = 1024
LONGEST_START = 220
"""How much of an object's name begins the name of its Event, which may have 253 characters."""
ATTEMPTS = 4
RETRY_SECONDS = 1.0

log = logging.getLogger(__name__)


class _Metadata(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    @property
    def uid(self) -> str: ...


class Referable(Protocol):
    """Anything with metadata, for an Event to be about."""

    @property
    def metadata(self) -> _Metadata: ...


def reference(kind: Kind[Any], obj: Referable) -> ObjectReference:
    """The object that an Event is about."""
    return reference_to(kind, obj.metadata)


def reference_to(kind: Kind[Any], metadata: _Metadata) -> ObjectReference:
    """The same from metadata alone."""
    return ObjectReference(
        api_version=kind.api_version,
        kind=kind.name,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
    )


@dataclass(frozen=True)
class Occurrence:
    """One thing said about one object."""

    regarding: ObjectReference
    type: EventType
    reason: str
    note: str
    at: datetime
    times: int = 1


@dataclass(frozen=True)
class Series:
    """An Event as we last wrote it."""

    name: str
    namespace: str
    count: int
    first: datetime
    last: datetime

    def again(self, at: datetime, times: int = 1) -> Series:
        """The same, said so many times more."""
        return replace(self, count=self.count + times, last=at)


class Filter:
    """A bucket of tokens for each object: pure but for what it remembers."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[str, tuple[float, datetime]] = OrderedDict()

    def lets_pass(self, regarding: ObjectReference, at: datetime) -> bool:
        """Whether one more thing may be said about an object; counts it if so."""
        key = f"{regarding.kind}/{regarding.namespace}/{regarding.name}/{regarding.uid}"
        tokens, since = self._tokens.pop(key, (float(BURST), at))
        tokens = min(float(BURST), tokens + (at - since) / REFILL)
        passes = tokens >= 1
        self._tokens[key] = (tokens - 1 if passes else tokens, at)
        if len(self._tokens) > REMEMBERED:
            self._tokens.popitem(last=False)
        return passes


class Recorder:
    """Says things about objects; `run()` sends them until it is drained or cancelled."""

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        instance: str = "",
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        suffix: Callable[[], str] = lambda: f"{random.getrandbits(64):016x}",
    ) -> None:
        self._client = client
        self._component = component
        self._instance = instance or component
        self._clock = clock or client.clock
        self._metrics = metrics
        self._suffix = suffix
        self._waiting: deque[Occurrence] = deque()
        self._some = asyncio.Event()
        self._draining = False
        self._filter = Filter()
        self._series: OrderedDict[tuple[str, ...], Series] = OrderedDict()

    def event(
        self, regarding: ObjectReference, type_: EventType, reason: str, note: str, times: int = 1
    ) -> None:
        """Say `note` about an object. `reason` is one CamelCase word, the same for the same cause."""
        occurrence = Occurrence(regarding, type_, reason, note[:LONGEST_NOTE], self._clock.now(), times)
        if not self._filter.lets_pass(regarding, occurrence.at):
            self._count("filtered")
        elif len(self._waiting) >= WAITING:
            self._count("dropped")
        else:
            self._waiting.append(occurrence)
            self._some.set()

    async def run(self) -> None:
        """Send what is said, one after the other; returns after `drain` once all is sent."""
        while True:
            while self._waiting:
                await self._send(self._waiting.popleft())
            if self._draining:
                return
            self._some.clear()
            await self._some.wait()

    def drain(self) -> None:
        """Let `run` return when nothing waits."""
        self._draining = True
        self._some.set()

    async def _send(self, occurrence: Occurrence) -> None:
        suffix = self._suffix()  # the same for all attempts: one that was cut may have made the Event
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._write(occurrence, suffix)
            except (Unreachable, ServerError, TooManyRequests, ConfigError) as error:
                if attempt == ATTEMPTS:
                    self._lost(occurrence, error)
                else:
                    await self._clock.sleep(RETRY_SECONDS * attempt)
            except KubeError as error:  # the namespace is going away, or we may not
                self._lost(occurrence, error)
                return
            else:
                self._count("sent")
                return

    async def _write(self, occurrence: Occurrence, suffix: str) -> None:
        key = (
            occurrence.regarding.uid or str(occurrence.regarding),
            occurrence.type,
            occurrence.reason,
            occurrence.note,
        )
        series = self._series.get(key)
        if series and occurrence.at - series.last <= SERIES:
            again = series.again(occurrence.at, occurrence.times)
            if await self._raise(again):
                self._remember(key, again)
                return
        new = Series(
            name=f"{occurrence.regarding.name[:LONGEST_START].rstrip('-.')}.{suffix}",
            namespace=occurrence.regarding.namespace or "default",
            count=occurrence.times,
            first=occurrence.at,
            last=occurrence.at,
        )
        with suppress(AlreadyExists):
            await self._client.create(EVENT, event_manifest(occurrence, new, self._component, self._instance))
        self._remember(key, new)

    async def _raise(self, series: Series) -> bool:
        """Write a higher count; False where the Event has expired."""
        patch = {"count": series.count, "lastTimestamp": timestamp(series.last)}
        try:
            await self._client.merge_patch(EVENT, series.name, patch, series.namespace)
        except NotFound:
            return False
        return True

    def _remember(self, key: tuple[str, ...], series: Series) -> None:
        self._series[key] = series
        self._series.move_to_end(key)
        if len(self._series) > REMEMBERED:
            self._series.popitem(last=False)

    def _lost(self, occurrence: Occurrence, error: KubeError) -> None:
        self._count("failed")
        log.warning("an event was not recorded", extra={"reason": occurrence.reason, "error": str(error)})

    def _count(self, fate: str) -> None:
        if self._metrics:
            self._metrics.events.labels(fate=fate).inc()


def event_manifest(occurrence: Occurrence, series: Series, component: str, instance: str) -> Manifest:
    """A core/v1 Event, the kind that `kubectl describe` and `kubectl get events` read."""
    about = occurrence.regarding
    return {
        "metadata": {"name": series.name, "namespace": series.namespace},
        "involvedObject": {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        },
        "type": occurrence.type,
        "reason": occurrence.reason,
        "message": occurrence.note,
        "count": series.count,
        "firstTimestamp": timestamp(series.first),
        "lastTimestamp": timestamp(series.last),
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": instance,
    }
