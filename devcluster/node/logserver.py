"""Serves the logs of containers to the API server, as a kubelet does.

    GET /<secret>/containerLogs/<namespace>/<pod>/<container>?follow=true&tailLines=10&previous=true…

It listens on loopback; the path begins with a secret that only readers of the Node know (annotation
`KUBELET_URL`). With TLS there is no secret: a real API server knows the port from the node's status and shows
a certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from elasticjob.devcluster.node.container.logs import Selection, plain, select
from elasticjob.devcluster.node.container.place import Place
from elasticjob.devcluster.node.pod.record import ContainerRecord, PodRecord
from elasticjob.kube.clock import Clock
from elasticjob.kube.http.serving import Runner
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import Pod

KUBELET_URL = "devcluster/kubelet-url"
LOOK_AGAIN_SECONDS = 0.05

Find = Callable[[Key], tuple[Pod, PodRecord] | None]


@dataclass(frozen=True)
class LogAddress:
    """How the API server finds it: annotations of the node, and the port in its status."""

    annotations: Mapping[str, str]
    port: int


@dataclass(frozen=True)
class LogServer:
    """Answers for the pods that `find` finds."""

    find: Find
    place: Place
    clock: Clock

    @asynccontextmanager
    async def serve(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[LogAddress]:
        """Listen while the context lasts; yields the annotations for the nodes. `tls` authenticates the
        clients.
        """
        secret = "" if tls else f"/{secrets.token_urlsafe(24)}"
        app = web.Application()
        app.router.add_get(f"{secret}/containerLogs/{{namespace}}/{{pod}}/{{container}}", self._answer)
        runner = Runner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        try:
            port = await runner.listen("127.0.0.1", 0, tls)
            yield LogAddress({} if tls else {KUBELET_URL: f"http://127.0.0.1:{port}{secret}"}, port)
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            wanted = Selection.of(request.query, self.clock.now())
        except ValueError as error:
            return web.Response(status=400, text=f"{error}")
        key = Key(request.match_info["namespace"], request.match_info["pod"])
        container = request.match_info["container"]
        log = self._locate(key, container, wanted)
        if isinstance(log, str):
            return web.Response(status=400, text=log)
        path, number = log
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        with contextlib.suppress(ConnectionResetError):  # the reader went away
            await response.prepare(request)
            async for piece in self._pieces(key, container, path, number, wanted):
                await response.write(piece)
        return response

    def _locate(self, key: Key, container: str, wanted: Selection) -> tuple[Path, int] | str:
        """The log and how often the container had been restarted before it; or why there is none."""
        held = self.find(key)
        if held is None:
            return f'pod "{key.name}" is not on this node yet'
        pod, record = held
        own = record.containers.get(container)
        if own is None:
            known = ", ".join(record.containers)
            return f"container {container} is not valid for pod {key.name}: it has {known}"
        number = own.restarts - wanted.previous
        if wanted.previous and (own.previous is None or number < 0):
            return f'previous terminated container "{container}" in pod "{key.name}" not found'
        if own.run is None:
            return f'container "{container}" in pod "{key.name}" is waiting to start: {_why(own)}'
        return self.place.log(pod, container, number), number

    async def _pieces(
        self, key: Key, container: str, path: Path, number: int, wanted: Selection
    ) -> AsyncIterator[bytes]:
        selected, complete = await asyncio.to_thread(_select, path, wanted)
        yield selected
        while wanted.follow:
            ended = self._has_ended(key, container, number)
            content, complete = await asyncio.to_thread(_read_on, path, complete)
            whole = content.rfind(b"\n") + 1
            if whole:
                complete += whole
                yield b"".join(plain(content[:whole].splitlines(), wanted.timestamps))
            elif ended:
                return
            else:
                await self.clock.sleep(LOOK_AGAIN_SECONDS)

    def _has_ended(self, key: Key, container: str, number: int) -> bool:
        held = self.find(key)
        if held is None:
            return True
        own = held[1][container]
        return own.restarts > number or not own.running


def _why(own: ContainerRecord) -> str:
    return own.refusal.reason if own.refusal is not None else "ContainerCreating"


def _select(path: Path, wanted: Selection) -> tuple[bytes, int]:
    """The selected part of the complete lines so far, and their size in bytes. Blocking."""
    content = _read(path, 0)
    complete = content.rfind(b"\n") + 1
    return select(content[:complete], wanted), complete


def _read_on(path: Path, offset: int) -> tuple[bytes, int]:
    """Output since the last read and its offset, which is 0 if the log was rotated. Blocking."""
    begun_anew = path.exists() and path.stat().st_size < offset
    return (_read(path, 0), 0) if begun_anew else (_read(path, offset), offset)


def _read(path: Path, offset: int) -> bytes:
    """The file's content from `offset` on; empty if it was deleted meanwhile."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read()
    except FileNotFoundError:
        return b""
