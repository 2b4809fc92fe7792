"""The calls of di-server over HTTP. Both prefixes, /v1alpha1 and /v1alpha2, do the same.

GET    /v1alpha1/replicas           all, or those of a namespace, a coordinator, an aggregator
POST   /v1alpha1/replicas           more collectors and learners
DELETE /v1alpha1/replicas           fewer
POST   /v1alpha1/replicas/failed    others in their places
GET    /healthz, /readyz, /metrics, /openapi.json

DI-engine's client dies of every 4xx and 5xx, so trouble that passes is waited for, and then told with 200 and
`success: false`, which it asks again after. It sends no Content-Type, and a body with GET.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from aiohttp import ClientConnectionError, web
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from elasticjob.api.rpc.address import host_port
from elasticjob.controllers.diserver.apply import Waiting
from elasticjob.controllers.diserver.asked import (
    Ask,
    Refusal,
    Report,
    additions_of,
    digest_of,
    id_of,
    key_of,
    plain,
    query_of,
    removals_of,
    report_of,
)
from elasticjob.controllers.diserver.decide import Call, Verb, creations, deletions, replacements
from elasticjob.controllers.diserver.openapi import PREFIXES, openapi
from elasticjob.controllers.diserver.seen import Replicas
from elasticjob.controllers.diserver.service import Caller, Service
from elasticjob.kube.errors import KubeError
from elasticjob.kube.http.door import Bounds
from elasticjob.kube.http.serving import Runner

LARGEST: Final = 1024 * 1024
"""Bytes of a body."""
BOUNDS: Final = Bounds(connections=8192)
REMEMBERED: Final = 60.0
"""Seconds for which the answer to a call is kept whose response could not be delivered."""
GRACE: Final = 25.0
LONGEST_MESSAGE: Final = 500
CLUSTER: Final = "cluster"
OURS: Final = "di-server"
"""What failed, as the metric of failed calls tells it."""

VERBS: Final[Mapping[str, Verb[Ask] | Verb[Report]]] = {
    "post": Verb(additions_of, creations, "create", fresh=True),
    "delete": Verb(removals_of, deletions, "delete"),
    "failed": Verb(report_of, replacements, "recreate"),
}
"""The calls that write."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """A response: its status, and the members of the envelope."""

    message: str
    data: object = None
    status: int = 200
    success: bool = True

    def body(self) -> bytes:
        """Return the envelope that DI-engine reads."""
        code = 0 if self.success else 1
        message = plain(self.message, LONGEST_MESSAGE)
        answer = {"success": self.success, "code": code, "message": message, "data": self.data}
        return msgspec.json.encode(answer)


@dataclass
class Ticket:
    """A call that writes, while it runs, until its response is delivered, and until that is noted."""

    caller: Caller
    call: Call
    work: asyncio.Task[Answer]
    delivered: bool = False
    noted: asyncio.Event = field(default_factory=asyncio.Event)


JOINED: Final = web.RequestKey("joined", tuple[tuple[str, ...], Ticket])


class Measures:
    """What Prometheus is told of calls."""

    def __init__(self, registry: CollectorRegistry) -> None:
        what = "Time of calls, waiting for the cluster included."
        name = "elasticjob_di_server_request_seconds"
        self.seconds = Histogram(name, what, ["call", "code"], registry=registry)
        what = "Calls that could not be carried out, by what failed: the cluster, or di-server itself."
        self.failures = Counter("elasticjob_di_server_failed_calls", what, ["reason"], registry=registry)
        for reason in (CLUSTER, OURS):  # a rate needs a 0 to begin with
            self.failures.labels(reason)


class Server:
    """Serves at host:port while `run` runs."""

    def __init__(
        self,
        service: Service,
        registry: CollectorRegistry,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._service, self._registry = service, registry
        self._host, self._port = host, port
        self._joined: dict[tuple[str, ...], Ticket] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self._started, self._stopping = asyncio.Event(), asyncio.Event()
        self._measures = Measures(registry)

    @property
    def url(self) -> str:
        """Where it listens, once started."""
        return f"http://{host_port(self._host, self._port)}"

    async def wait_started(self) -> None:
        """Return once it listens."""
        await self._started.wait()

    def drain(self) -> None:
        """Let calls under way end, then stop listening."""
        self._stopping.set()

    async def run(self) -> None:
        """Serve until drained or cancelled."""
        app = web.Application(client_max_size=LARGEST)
        for prefix in PREFIXES:
            for root in (prefix, f"/t/{{token}}{prefix}"):
                app.router.add_route("*", f"{root}/replicas", self._replicas)
                app.router.add_route("*", f"{root}/replicas/failed", self._failed)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/openapi.json", self._openapi)
        app.router.add_route("*", "/{path:.*}", self._unknown)
        runner = Runner(app, shutdown_timeout=GRACE)
        await runner.setup()
        try:
            self._port = await runner.listen(self._host, self._port, bounds=BOUNDS)
            self._started.set()
            log.info("di-server listens on %s", self.url)
            await self._stopping.wait()
        finally:
            await runner.cleanup()
            for task in self._settling:
                task.cancel()

    # calls

    async def _replicas(self, request: web.Request) -> web.StreamResponse:
        match request.method:
            case "GET":
                return await self._respond("get", request, self._get)
            case "POST" | "DELETE":
                return await self._respond(request.method.lower(), request, self._change)
            case _:
                return await self._respond("other", request, _not_implemented)

    async def _failed(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return await self._respond("other", request, _not_implemented)
        return await self._respond("failed", request, self._change)

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        return await self._respond("other", request, _not_found)

    async def _get(self, request: web.Request) -> Answer:
        found = await self._service.read(query_of(request.query), _token(request))
        return Answer("successfully get replicas", _data(found))

    async def _change(self, request: web.Request) -> Answer:
        """Carry out a call that writes, once for all equal calls that wait for it."""
        name = "failed" if request.path.endswith("/failed") else request.method.lower()
        verb = VERBS[name]
        question = verb.question(await _read(request), self._service.options.limits)
        digest, key = digest_of(name, question.asked), key_of(request.headers)
        asked = question.asked
        caller = await self._service.caller(asked.namespace, asked.caller, _token(request))
        known = (name, caller.uid, "key", key) if key else (name, caller.uid, digest)
        if (joined := self._joined.get(known)) is not None and joined.delivered:
            await joined.noted.wait()
            joined = self._joined.get(known)
        if joined is None:
            call_id = id_of(key, caller.uid) if key else digest[:24] + self._service.random_suffix()
            call = Call(call_id, digest, bool(key))
            work = _done(verb.done, self._service.carry_out(caller, question, call))
            joined = self._joined[known] = Ticket(caller, call, asyncio.create_task(work))
        elif joined.call.digest != digest:
            raise Refusal(409, "the Idempotency-Key was used for another body: use a new one")
        request[JOINED] = known, joined
        return await asyncio.shield(joined.work)

    # around a call

    async def _respond(
        self, name: str, request: web.Request, handler: Callable[[web.Request], Awaitable[Answer]]
    ) -> web.StreamResponse:
        """Respond with what a handler returns or raises, and note whether the response was delivered."""
        began = asyncio.get_running_loop().time()
        answer = await self._answer(request, handler)
        response = web.Response(body=answer.body(), status=answer.status, content_type="application/json")
        delivered = await _deliver(request, response)
        if JOINED in request:
            known, joined = request[JOINED]
            self._settle(known, joined, delivered=delivered)
        seconds = asyncio.get_running_loop().time() - began
        self._measures.seconds.labels(name, str(answer.status)).observe(seconds)
        return response

    async def _answer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[Answer]]
    ) -> Answer:
        empty = None if request.method == "GET" else _nothing()
        try:
            await self._in_step()
            return await handler(request)
        except Refusal as error:
            done = error.done if error.done is not None else empty
            return Answer(error.message, done, error.status, success=False)
        except Waiting as error:
            done = error.done.json() if error.done is not None else empty
            return Answer(error.message, done, success=False)
        except web.HTTPRequestEntityTooLarge:
            return Answer(f"the body is larger than {LARGEST} bytes", empty, 413, success=False)
        except web.RequestPayloadError as error:
            return Answer(f"the body cannot be read: {error}; send it whole", empty, 400, success=False)
        except (KubeError, OSError) as error:  # the cluster, or the key of the tokens
            self._measures.failures.labels(CLUSTER).inc()
            log.warning("a call failed", extra={"path": _path(request), "error": str(error)})
            return Answer(f"the cluster does not answer, ask again: {error}", empty, success=False)
        except Exception:  # the last place before the socket
            self._measures.failures.labels(OURS).inc()
            log.exception("a call failed", extra={"path": _path(request)})
            return Answer("di-server failed: its log says why", empty, 500, success=False)

    async def _in_step(self) -> None:
        """Wait until the caches are in step. Raises Waiting after a while."""
        for _ in range(int(self._service.patience.seconds / 0.1)):
            if self._service.caches.in_step:
                return
            await asyncio.sleep(0.1)
        if not self._service.caches.in_step:
            raise Waiting("di-server has not read the cluster yet, ask again")

    def _settle(self, known: tuple[str, ...], joined: Ticket, *, delivered: bool) -> None:
        """Forget a call whose response is delivered, once that is noted; one that is not, after a while."""
        if joined.delivered or self._joined.get(known) is not joined:
            return
        joined.delivered = delivered
        task = asyncio.create_task(self._forget(known, joined))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _forget(self, known: tuple[str, ...], joined: Ticket) -> None:
        noted = joined.delivered
        try:
            if noted:
                await self._service.writer.note_delivery(joined.caller.job, joined.call)
            else:
                await self._service.patience.clock.sleep(REMEMBERED)
        finally:
            if self._joined.get(known) is joined and joined.delivered is noted:
                del self._joined[known]
                joined.noted.set()

    # the rest

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._stopping.is_set() or not self._service.caches.in_step:
            return web.Response(text="not ready: the caches are not in step\n", status=503)
        return web.Response(text="ok\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def _openapi(self, _: web.Request) -> web.Response:
        return web.json_response(openapi())


async def _done(word: str, work: Awaitable[Replicas]) -> Answer:
    return Answer(f"successfully {word} replicas", (await work).json())


async def _deliver(request: web.Request, response: web.Response) -> bool:
    """Send a response; returns whether the connection took it."""
    try:
        await response.prepare(request)
        await response.write_eof()
    except (ConnectionError, ClientConnectionError):
        return False
    return request.transport is not None and not request.transport.is_closing()


async def _read(request: web.Request) -> bytes:
    try:
        return await request.read()
    except ConnectionError as error:  # who asks, not the cluster
        raise web.RequestPayloadError(str(error)) from error


async def _not_implemented(request: web.Request) -> Answer:
    raise Refusal(501, f"{request.method} is not a call of {_path(request)}")


async def _not_found(request: web.Request) -> Answer:
    raise Refusal(404, f"there is no {_path(request)}: calls begin with {' or '.join(PREFIXES)}")


def _token(request: web.Request) -> str:
    header = request.headers.get("Authorization", "")
    return request.match_info.get("token") or header.removeprefix("Bearer ") * header.startswith("Bearer ")


def _nothing() -> Mapping[str, Any]:
    return {"namespace": "", "coordinator": "", "collectors": [], "learners": []}


def _data(changed: list[Replicas] | Replicas | None) -> object:
    if isinstance(changed, list):
        return [each.json() for each in changed]
    return changed.json() if changed is not None else None


def _path(request: web.Request) -> str:
    """The path of a request without a token."""
    token = request.match_info.get("token")
    return request.path.replace(token, "...") if token else request.path
