"""/healthz, /readyz and /metrics over HTTP, and the watchdog of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from elasticjob.kube.clock import Clock
from elasticjob.kube.http.serving import Runner
from elasticjob.kube.metrics import Metrics


class Fine(str):
    """A remark of a check that passes: `/readyz` shows it, and stays 200."""

    __slots__ = ()


Check = Callable[[], str | None]
"""None: passed; `Fine(sentence)`: passed, with a remark; a string: failed, and why."""

BEAT = 0.5
"""Seconds between two looks at the loop's lag."""


class LoopWatch:
    """Measures how late the event loop wakes us, and how many tasks it has."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics

    async def run(self) -> None:
        """Look, until cancelled; tasks are counted when they are asked for."""
        loop = asyncio.get_running_loop()
        self._metrics.tasks.set_function(lambda: len(asyncio.all_tasks(loop)))
        while True:
            due = self._clock.monotonic() + BEAT
            await self._clock.sleep(BEAT)
            self._metrics.loop_lag.observe(max(0.0, self._clock.monotonic() - due))


class Probes:
    """An HTTP server for the kubelet and for Prometheus.

    `address` is host:port, with an IPv6 host in brackets; no host stands for all addresses, port 0 of a
    host for a free one.
    """

    def __init__(
        self,
        address: str,
        registry: CollectorRegistry,
        ready: Mapping[str, Check],
    ) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._registry = registry
        self._ready = ready
        self._started = asyncio.Event()

    @property
    def url(self) -> str:
        """Where it listens, once it is started."""
        host = self._host or "127.0.0.1"
        return f"http://{f'[{host}]' if ':' in host else host}:{self._port}"

    async def wait_started(self) -> None:
        """Return once it listens."""
        await self._started.wait()

    async def run(self) -> None:
        """Serve until cancelled."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        runner = Runner(app, shutdown_timeout=1.0)
        await runner.setup()
        try:
            self._port = await runner.listen(self._host, self._port)
            self._started.set()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        found = {name: check() for name, check in self._ready.items()}
        failed = any(said and not isinstance(said, Fine) for said in found.values())
        lines = [_line(name, said) for name, said in found.items()]
        text = "\n".join([*lines, "not ready" if failed else "ok", ""])
        return web.Response(text=text, status=503 if failed else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _line(name: str, message: str | None) -> str:
    mark = "-" if message and not isinstance(message, Fine) else "+"
    return f"[{mark}] {name}: {message}" if message else f"[{mark}] {name}"
