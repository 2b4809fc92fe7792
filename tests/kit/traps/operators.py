"""Helpers of the trap tests: a followed cache and a running operator, both through a proxy."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from elasticjob.kube.backoff import Backoff
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import IDLE, IDLE_INITIAL, Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.objects.kinds import Key, Kind
from elasticjob.kube.objects.views import CONFIG_MAP, ConfigMap
from elasticjob.kube.operator.operator import Operator
from elasticjob.kube.testing import ApiRequest, FaultProxy, asking
from lab.clusters.namespaces import ROOT_CA
from lab.clusters.plane.controlplane import APISERVER
from lab.clusters.served import DevServed, RealServed, Served
from lab.running import beside

AT_ONCE = Backoff(0.0, 0.0)
PAUSE = IDLE_INITIAL - 1
"""What is due later than this is no pause, but the patience with a stream."""
WATCHES = asking("watch", "configmaps")


class Steady(random.Random):
    """No jitter."""

    def random(self) -> float:
        return 0.0


@dataclass
class Following:
    """A cache of ConfigMaps, and all events it sent."""

    cache: Cache[Any]
    informer: Informer[Any]
    clock: VirtualClock
    changes: list[Change]

    @property
    def names(self) -> set[str]:
        return {item.key.name for item in self.cache._store} - {ROOT_CA}

    @property
    def is_silent(self) -> bool:
        """Whether it only waits for the next watch event."""
        return self.clock.next_due is not None and self.clock.next_due > IDLE - 1

    @property
    def gone(self) -> list[str]:
        """The names of deleted objects."""
        return [change.old.key.name for change in self.changes if change.old and change.new is None]


@asynccontextmanager
async def following(
    client: Client, namespace: str, *, kind: Kind[Any] = CONFIG_MAP, backoff: Backoff = AT_ONCE
) -> AsyncIterator[Following]:
    """Time stands still for it, unless a test moves it: `client` keeps its own."""
    clock, cache = VirtualClock(), Cache(kind, namespace)
    informer = Informer(client, cache, clock=clock, backoff=backoff, chance=Steady())
    found = Following(cache, informer, clock, [])
    cache.subscribe(found.changes.append)
    async with beside(informer.run()):
        yield found


@asynccontextmanager
async def away(served: Served) -> AsyncIterator[None]:
    """The API server is killed; at the end of the block it is back, with all that it had stored."""
    if isinstance(served, RealServed):
        served.plane.kill(APISERVER)
        yield
        served.plane.start(APISERVER)  # not in a thread: the program ends with the thread that started it
    elif isinstance(served, DevServed):
        await served.server.__aexit__(None, None, None)
        yield
        await served.server.__aenter__()


def operator_of(client: Client, namespace: str, *controllers: Controller, **more: Any) -> Operator:
    operator = Operator(client, namespace, probes=None, signals=False, **more)
    for controller in controllers:
        operator.add(controller)
    return operator


def for_maps(act: Callable[[Key], Awaitable[Result | None]], **more: Any) -> Controller:
    """A controller of ConfigMaps that leaves the namespace's own alone."""

    async def reconcile(key: Key) -> Result:
        return (await act(key)) or Result.done()

    return Controller("traps", reconcile, for_=CONFIG_MAP, when=_is_ours, **more)


def _is_ours(change: Change) -> bool:
    return ROOT_CA not in [item.key.name for item in (change.old, change.new) if item]


def results(operator: Operator) -> dict[str, float]:
    """How often runs ended how."""
    found = operator.metrics.registry.get_sample_value
    names = ("success", "requeue_after", "requeue", "error")
    labels = [{"controller": "traps", "result": name} for name in names]
    return {
        each["result"]: count
        for each in labels
        if (count := found("controller_runtime_reconcile_total", each))
    }


def total(operator: Operator, metric: str, **labels: str) -> float:
    return operator.metrics.registry.get_sample_value(metric, {"controller": "traps"} | labels) or 0.0


def versions(proxy: FaultProxy, when: Callable[[ApiRequest], bool] = WATCHES) -> list[str | None]:
    """The resourceVersions from which these requests watched."""
    return [handled.asked.query.get("resourceVersion") for handled in proxy.asked(when)]


def errors(records: Iterable[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if record.levelno >= logging.ERROR]


async def make(client: Client, namespace: str, name: str, data: dict[str, str] | None = None) -> ConfigMap:
    return await client.create(CONFIG_MAP, {"metadata": {"name": name}, "data": data or {}}, namespace)
