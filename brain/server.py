"""Brain over HTTP: what masters ask and tell, and what people read.

POST /v1/brain/<verb>                            masters; typed (api/rpc/brain.py), with the token of the job
GET  /v1/jobs, /v1/jobs/<namespace>/<name>       readers; JSON: jobs; one with its samples, decisions and pods
GET  /, /page/…, /openapi.json                   readers; the page (page/), and the description of all this
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any, Final, Self

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, Histogram
from sqlalchemy import Row

from elasticjob.api.resources import MalformedQuantity
from elasticjob.api.rpc.address import host_port
from elasticjob.api.rpc.brain import AskSizes, TellStatistics
from elasticjob.api.rpc.message import JSON, PREFIX, PROBLEM, Problem, Request
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.brain.access import Access
from elasticjob.brain.answers import Answers
from elasticjob.brain.clocks import Clocks, by_our_clock
from elasticjob.brain.store import DatabaseAway, NoSuchJob, Store
from elasticjob.kube.http.door import Bounds
from elasticjob.kube.http.serving import Runner

log = logging.getLogger("elasticjob.brain")

Routes = Mapping[str, Callable[[web.Request], Awaitable[web.Response]]]
"""Handlers of GET by path."""
VERBS: Final[Mapping[str, type[Request[Any]]]] = {each.PATH: each for each in (AskSizes, TellStatistics)}
LARGEST: Final = 4 * 1024 * 1024
"""Bytes of a request."""
BOUNDS: Final = Bounds(connections=8192)
AWAY: Final = "The database is away"
MOST_JOBS: Final = 1000
MOST_SAMPLES: Final = 500
JOB_FIELDS: Final = ("uid", "namespace", "name", "owner", "image", "script", "strategy", "mode", "phase")
JOB_TIMES: Final = ("began", "seen", "ended")
POD_FIELDS: Final = ("name", "role", "machine", "phase", "reason", "began", "ended", "log")


class Server:
    """Serves at host:port while it is entered. `now` is the clock, `pages` what people look at."""

    def __init__(
        self,
        store: Store,
        answers: Answers,
        access: Access,
        now: Callable[[], datetime],
        registry: CollectorRegistry,
        *,
        pages: Routes | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._store, self._answers, self._access, self._now = store, answers, access, now
        self._host, self._port, self._shown = host, port, pages
        self._stack = AsyncExitStack()
        self._clocks = Clocks()
        self._seconds = request_seconds(registry)
        registry.register(store.errors)

    @property
    def address(self) -> str:
        """host:port."""
        return host_port(self._host, self._port)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            app = web.Application(client_max_size=LARGEST, middlewares=[self._time, _problems])
            app.router.add_post(PREFIX + "brain/{verb}", self._ask)
            for path, handler in self._pages.items():
                app.router.add_get(path, self._reading(handler))
            runner = Runner(app, shutdown_timeout=2.0)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            self._port = await runner.listen(self._host, self._port, bounds=BOUNDS)
            self._stack = stack.pop_all()
        log.info("Brain listens on %s", self.address)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def _pages(self) -> Routes:
        return {
            **(self._shown or {}),
            "/v1/jobs": self._jobs,
            "/v1/jobs/{namespace}/{name}": self._job,
            "/openapi.json": self._openapi,
        }

    @web.middleware
    async def _time(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Measure how long a request takes, whatever becomes of it."""
        began = asyncio.get_running_loop().time()
        answer: web.StreamResponse = await handler(request)
        verb = request.match_info.get("verb", "read")
        known = verb if f"brain/{verb}" in VERBS or verb == "read" else "other"
        seconds = asyncio.get_running_loop().time() - began
        self._seconds.labels(known, str(answer.status)).observe(seconds)
        return answer

    # masters

    async def _ask(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        asked = VERBS.get(f"brain/{verb}")
        if asked is None:
            known = ", ".join(sorted(VERBS))
            return _problem(404, "unknown-verb", "No such verb", f"brain/{verb} is not one of {known}")
        try:
            given: Any = msgspec.json.decode(await request.read(), type=asked)
        except (*UNREADABLE, ConnectionError) as error:  # or who asks has gone in the midst of it
            return _problem(400, "malformed", "Malformed body", f"brain/{verb}: {error}")
        if not self._access.is_master_of(given.job.uid, request.headers.get("Authorization", "")):
            detail = (
                f"send the token of job {given.job.uid}: it is in the Secret {given.job.name}-brain-token"
            )
            return _problem(401, "unauthenticated", "Wrong or missing token", detail)
        try:
            now = self._now()
            ahead = self._clocks.ahead(given.job.uid, request.headers.get("Date", ""), now)
            answer = await self._answers.answer(by_our_clock(given, ahead, now), now)
        except MalformedQuantity as error:
            return _problem(400, "malformed", "Malformed body", f"brain/{verb}: {error}")
        return web.Response(body=msgspec.json.encode(answer), content_type=JSON)

    # readers

    def _reading(self, handler: Callable[[web.Request], Awaitable[web.Response]]) -> Any:
        async def guarded(request: web.Request) -> web.Response:
            if self._access.may_read(request.headers.get("Authorization", "")):
                return await handler(request)
            refused = _problem(401, "unauthenticated", "Wrong or missing token", "send the token of readers")
            refused.headers["WWW-Authenticate"] = 'Basic realm="Brain: any user, the token as password"'
            return refused

        return guarded

    async def _jobs(self, request: web.Request) -> web.Response:
        rows = await self._store.newest_jobs(MOST_JOBS, running="running" in request.query)
        return _json({"jobs": [_job(row) for row in rows]})

    async def _job(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        try:
            row = await self._store.find(namespace, name)
        except NoSuchJob as error:
            return _problem(404, "unknown-job", "No such job", str(error))
        pods = await self._store.pods_of(row.uid)
        body = {
            **_job(row),
            "facts": row.facts,
            "samples": await self._store.samples_of(row.uid, MOST_SAMPLES),
            "decisions": await self._store.decisions_of(row.uid),
            "pods": [{field: getattr(pod, field) for field in POD_FIELDS} for pod in pods],
        }
        return _json(body)

    async def _openapi(self, _: web.Request) -> web.Response:
        return _json(openapi())


def request_seconds(registry: CollectorRegistry) -> Histogram:
    """Return how long requests take."""
    what = "Time of requests of masters, by what they ask, and of readers."
    return Histogram("elasticjob_brain_request_seconds", what, ["verb", "code"], registry=registry)


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of all requests."""
    _, schemas = msgspec.json.schema_components(VERBS.values(), ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {PREFIX + path: {"post": _call(each)} for path, each in VERBS.items()}
    reading = {"200": "What was asked for", "401": "A wrong token", "503": AWAY}
    named = [
        {"name": each, "in": "path", "required": True, "schema": {"type": "string"}}
        for each in ("namespace", "name")
    ]
    one = _responses({**reading, "404": "No such job"})
    summary = "A job: its samples, decisions and pods."
    paths["/v1/jobs"] = {"get": {"summary": "The newest jobs.", "responses": _responses(reading)}}
    paths["/v1/jobs/{namespace}/{name}"] = {
        "get": {"summary": summary, "parameters": named, "responses": one}
    }
    schemes = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "elasticjob brain", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": schemes},
    }


def _call(request: type[Request[Any]]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{request.__name__}"}
    return {
        "summary": (request.__doc__ or "").strip(),
        "security": [{"token": []}],
        "requestBody": {"required": True, "content": {JSON: {"schema": schema}}},
        "responses": _responses(
            {"200": "The answer", "400": "A malformed body", "401": "A wrong token", "503": AWAY}
        ),
    }


def _responses(said: Mapping[str, str]) -> dict[str, Any]:
    return {code: {"description": text} for code, text in said.items()}


def _job(row: Row[Any]) -> dict[str, Any]:
    names = (*JOB_FIELDS, *JOB_TIMES, "completed", "status")
    return {name: getattr(row, name) for name in names}


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type=JSON, status=status)


def _problem(status: int, code: str, title: str, detail: str) -> web.Response:
    body = msgspec.json.encode(Problem(title=title, status=status, detail=detail, code=code))
    return web.Response(body=body, status=status, content_type=PROBLEM)


@web.middleware
async def _problems(request: web.Request, handler: Any) -> web.StreamResponse:
    """Errors of aiohttp as problem+json too; our own are logged, and say nothing of the inside."""
    try:
        answer: web.StreamResponse = await handler(request)
    except web.HTTPException as error:
        if error.status < 400:
            raise
        refused = _problem(
            error.status, "malformed", error.reason, f"{request.method} {request.path}: {error.reason}"
        )
        refused.headers.update({name: value for name, value in error.headers.items() if name == "Allow"})
        return refused
    except DatabaseAway as error:
        log.warning("a request has to wait", extra={"path": request.path, "error": str(error)})
        away = _problem(503, "away", AWAY, "ask again later")
        away.headers["Retry-After"] = "2"
        return away
    except Exception:  # the last place before the socket
        log.exception("a request failed", extra={"path": request.path})
        return _problem(500, "failed", "Brain failed", "the log of Brain says why; ask again later")
    return answer
