"""The ports of our programs to which anything may send bytes, each served in this process.

An agent has no such port: it listens to nothing but the store of torch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

from elasticjob.api.rpc.message import Request
from elasticjob.api.sizes.role import Range
from elasticjob.controllers.diserver.asked import Limits
from elasticjob.controllers.diserver.server import Server as DIServer
from elasticjob.kube.clock import SystemClock
from elasticjob.kube.http.probes import Probes
from elasticjob.kube.http.serving import Runner
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.webhook.handlers import Handlers
from elasticjob.kube.webhook.registration import path_of
from elasticjob.master.durable.store import Nowhere
from elasticjob.master.serving.pages import PAGES
from elasticjob.master.serving.server import Master
from elasticjob.master.state.invariants import invariants
from elasticjob.master.state.job import Job, Spec
from elasticjob.webhooks import WEBHOOKS
from lab.build.manifests import DECLARED
from lab.fuzz.requests import Body, Calls
from lab.running import beside
from lab.virtual.diserver import Table
from lab.virtual.master import failure, finish, join, leave, report, watch

TOKEN: Final = "secret"


class Open:
    """A listener at a port of loopback."""

    def __init__(self, port: int, check: Callable[[], list[str]] = list) -> None:
        self.port = port
        self.check = check
        """Return what is wrong inside. It may put the state back to its beginning."""


@dataclass(frozen=True)
class Listener:
    """One of our servers, and what it answers."""

    name: str
    calls: Calls
    open: Callable[[], AbstractAsyncContextManager[Open]]


@asynccontextmanager
async def master() -> AsyncIterator[Open]:
    """Serve a job of up to three nodes; `check` begins it anew once it has ended."""
    began = Job(spec=Spec(job="digits", bounds=Range(least=1, most=3), restart_count=1_000))

    def check() -> list[str]:
        found = invariants(served.job)
        if served.job.verdict or len(served.job.nodes) > 100:
            served.job = began.but(gathering=served.now(), version=served.job.version + 1)
        return found

    async with Master(began.but(gathering=SystemClock().now()), TOKEN, Nowhere()) as served:
        yield Open(int(served.address.rpartition(":")[2]), check)


@asynccontextmanager
async def webhooks() -> AsyncIterator[Open]:
    """Serve the operator's reviews, without TLS: a handshake for each request would take most of the time."""
    handlers = Handlers(
        WEBHOOKS, reader=NoObjects(), clock=SystemClock(), metrics=Metrics(CollectorRegistry())
    )
    async with _served(handlers.app(), handler_cancellation=True) as opened:
        yield opened


@asynccontextmanager
async def probes() -> AsyncIterator[Open]:
    """Serve /healthz, /readyz and /metrics."""
    registry = CollectorRegistry()
    Metrics(registry)
    server = Probes("127.0.0.1:0", registry, {"cache": lambda: None})
    async with beside(server.run()):
        await server.wait_started()
        yield Open(int(server.url.rpartition(":")[2]))


class NoObjects:
    """A cluster without objects, for handlers that ask it."""

    async def find(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Any:
        return None


@asynccontextmanager
async def _served(app: web.Application, **options: Any) -> AsyncIterator[Open]:
    runner = Runner(app, shutdown_timeout=0.1, **options)
    await runner.setup()
    try:
        yield Open(await runner.listen("127.0.0.1", 0))
    finally:
        await runner.cleanup()


def _questions() -> list[tuple[str, Body]]:
    """Return every request that an agent may send to a master."""
    asked: list[Request[Any]] = [
        *(watch("node-0", wait=0.01), watch("node-1", round=1, seen=1), watch("node-2", "other", seen=9)),
        *(join("node-0"), join("node-1", wait=0.01), join("node-2", after=1, broken=True)),
        *(report("node-0", 1, 7, loss=0.5, metrics={"accuracy": 0.5}, samples=64, total_steps=100),),
        *(leave("node-1", 1), leave("node-0", 1, planned=True), failure("node-0"), finish("node-0", 1)),
    ]
    return [(f"/v1/{each.PATH}", msgspec.to_builtins(each)) for each in asked]


def _reviews() -> list[tuple[str, Body]]:
    return [
        (path_of(verb, webhook.kind), {"request": _review(new, operation)})
        for webhook, new in zip(WEBHOOKS, DECLARED, strict=True)
        for verb in ("mutate", "validate")
        for operation in ("CREATE", "UPDATE", "DELETE")
    ]


def _review(new: Manifest, operation: str) -> Manifest:
    old = None if operation == "CREATE" else new
    return {
        "uid": "u1",
        "operation": operation,
        **new["metadata"],
        "userInfo": {"username": "ada"},
        "object": None if operation == "DELETE" else new,
        "oldObject": old,
    }


def _calls_of_di_server() -> list[tuple[str, Body]]:
    caller = {"namespace": "lab", "coordinator": "cartpole-coordinator"}
    amounts = {"replicas": 2, "cpus": 1.5, "gpu": "0", "memory": "1Gi"}
    several = {"learners": {"replicas": 1, "gpus": 9, "cpu": "500m"}}
    named = {"collectors": ["cartpole-collector-00001"], "learners": ["cartpole-aggregator-00002"]}
    return [
        ("/v1alpha1/replicas", {**caller, "collectors": amounts, "learners": {"replicas": 1}}),
        ("/v1alpha2/replicas", {**caller, **several}),
        ("/t/token/v1alpha1/replicas", {**caller, **several, "collectors": amounts}),
        ("/v1alpha1/replicas/failed", {**caller, **named}),
    ]


@asynccontextmanager
async def di_server() -> AsyncIterator[Open]:
    """Serve a DIJob on a table of pods; `check` looks at them, and empties it at times."""
    table, limits = Table(), Limits()

    def check() -> list[str]:
        count = len(table.others())
        wrong = [f"{count} pods are more than {limits.per_job}"] if count > limits.per_job else []
        table.empty()
        return wrong

    server = DIServer(table.service(), CollectorRegistry())
    async with beside(server.run()):
        await server.wait_started()
        yield Open(int(server.url.rpartition(":")[2]), check)


LISTENERS: Final = (
    Listener("master", Calls(_questions(), [*PAGES], f"Authorization: Bearer {TOKEN}".encode()), master),
    Listener("webhooks", Calls(_reviews()), webhooks),
    Listener(
        "di-server",
        Calls(
            _calls_of_di_server(),
            [
                *("/v1alpha1/replicas", "/openapi.json", "/v1alpha1/replicas?namespace=lab"),
                *("/v1alpha1/replicas?namespace=lab&coordinator=cartpole-coordinator",),
                *("/v1alpha1/replicas?namespace=%00&name=%ff", "/v1alpha1/replicas?a=b&A=c"),
            ],
        ),
        di_server,
    ),
    Listener("metrics", Calls([], ["/healthz", "/readyz", "/metrics"]), probes),
)
