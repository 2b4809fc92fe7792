"""A proxy before an API server that cuts, stalls, delays, refuses or answers requests, by rule.

    async with FaultProxy(config) as proxy, Client(proxy.config) as client:
        proxy.add(asking("watch", "pods"), CutAfter(4096))             # each watch of pods is cut in mid-line
        proxy.add(asking("list"), failure(410, "Expired"), nth={2})    # only the second page or list
        proxy.add(asking("write"), Flaky(0.1, Refuse(), html(502)))    # one write in ten
        ...
        proxy.enabled = False                                          # the weather clears
        assert proxy.counts["CutAfter"] == 3

Clients speak HTTP/1.1 to it, plain (or TLS, with `tls`); it speaks to the server with the transport security
and, where a request has no Authorization of its own, the credentials of the config it was given. Bodies of
answers are streamed as they come, so watches and logs work; upgrades (exec, port-forward) do not.

Guarantees
- The first rule that matches, and whose `nth` holds the number of this match, decides; each rule counts its
  own matches. With the same `seed` and the same requests the same faults happen.
- A fault happens to one request. What happens to all (`cut_connections`, `partition`) is a method.
- Only `Delay` and `Late` look at a clock, the one that was given. Nothing else waits for time.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import ssl
from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import aiohttp
from aiohttp import web
from yarl import URL

from elasticjob.kube.asked import ApiRequest
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.client.transport import once
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.http.serving import Runner
from elasticjob.kube.http.sockets import kept_alive

LARGEST_BODY = 1 << 25
REMEMBERED = 10_000
HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length"}
)
PASSED = "passed"


@dataclass(frozen=True)
class CutAfter:
    """The connection is closed after `bytes` of the answer's body (0: its head); a shorter one passes."""

    bytes: int


@dataclass(frozen=True)
class Stall:
    """After `bytes` of the response body no data arrives, and the connection stays open: half-open."""

    bytes: int = 0


@dataclass(frozen=True)
class Delay:
    """The request reaches the server `seconds` later."""

    seconds: float


@dataclass(frozen=True)
class Late:
    """Each piece of the answer's body comes at least `seconds` late: a watch that lags behind."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """The server is not asked; this is the answer."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True)
class Refuse:
    """The server is not asked; the connection is closed without a word."""


@dataclass(frozen=True)
class Lose:
    """The server acts, and its answer is lost: the connection is closed without a word."""


@dataclass(frozen=True)
class Flaky:
    """One of `faults`, with this probability; else the request passes."""

    probability: float
    faults: tuple[Fault, ...]

    def __init__(self, probability: float, *faults: Fault) -> None:
        object.__setattr__(self, "probability", probability)
        object.__setattr__(self, "faults", faults)


Fault = CutAfter | Stall | Delay | Late | Answer | Refuse | Lose | Flaky


def failure(code: int, reason: str, message: str = "injected", **headers: str) -> Answer:
    """A refusal as the API server words it; headers with underscores: `Retry_After="2"`."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    status |= {"reason": reason, "message": message, "code": code}  # type: ignore[dict-item] # a JSON object
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(code, {"Content-Type": "application/json"} | named, json.dumps(status).encode())


def html(code: int, text: str = "Bad Gateway") -> Answer:
    """A page of some proxy on the way."""
    body = f"<html>\n<body><h1>{code} {text}</h1></body>\n</html>\n"
    return Answer(code, {"Content-Type": "text/html"}, body.encode())


@dataclass(frozen=True, eq=False)
class Rule:
    """A fault, and the requests it hits: those for which `when`, a pure function, is true.

    `nth` holds the numbers (from 1) of the matches that it happens to; None: all.
    """

    when: Callable[[ApiRequest], bool]
    fault: Fault
    nth: Container[int] | None = None


@dataclass(frozen=True)
class Exchange:
    """One request, and what was done to it; None: it passed."""

    asked: ApiRequest
    fault: Fault | None
    at: float


class _Cut(Exception):
    """Close the client's connection."""


class FaultProxy:
    """See the module. `async with FaultProxy(config) as proxy`; `port` 0 takes a free one."""

    def __init__(
        self,
        server: Config,
        rules: Iterable[Rule] = (),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        trust: ssl.SSLContext | None = None,
        seed: int = 0,
        clock: Clock | None = None,
    ) -> None:
        """`tls` is the proxy's own server context, `trust` what its clients need to believe it."""
        self.enabled = True
        self.counts: Counter[str] = Counter()
        """How often each fault happened, by class name, and how many requests `passed`."""
        self.handled: deque[Exchange] = deque(maxlen=REMEMBERED)
        """The last requests, in the order in which they came."""
        self._server = server
        self._rules: dict[Rule, int] = dict.fromkeys(rules, 0)
        self._host, self._port = host, port
        self._tls, self._trust = tls, trust
        self._chance = random.Random(seed)
        self._clock = clock or SystemClock()
        self._wall: asyncio.Future[bool] | None = None
        self._held = 0

    # where it is

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self._host}:{self._port}"

    @property
    def config(self) -> Config:
        """For a Client that is to speak through the proxy."""
        return Config(self.url, ssl=self._trust, namespace=self._server.namespace)

    def write_kubeconfig(self, path: Path, ca_file: Path | None = None) -> Path:
        """For a process that is to speak through the proxy."""
        cluster = {"server": self.url} | ({"certificate-authority": str(ca_file)} if ca_file else {})
        context = {"cluster": "proxy", "user": "proxy", "namespace": self._server.namespace}
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "proxy", "cluster": cluster}],
            "users": [{"name": "proxy", "user": {}}],
            "contexts": [{"name": "proxy", "context": context}],
            "current-context": "proxy",
        }
        path.write_text(json.dumps(made))
        return path

    # what it does

    def add(
        self, when: Callable[[ApiRequest], bool], fault: Fault, nth: Container[int] | None = None
    ) -> Rule:
        """Have `fault` happen from now on; rules that were added earlier go first."""
        rule = Rule(when, fault, nth)
        self._rules[rule] = 0
        return rule

    def remove(self, rule: Rule) -> None:
        """Have it happen no more."""
        self._rules.pop(rule, None)

    def clear(self) -> None:
        """Have nothing happen any more; the counts stay."""
        self._rules.clear()

    def matches(self, rule: Rule) -> int:
        """How many requests a rule was for."""
        return self._rules[rule]

    def asked(self, when: Callable[[ApiRequest], bool]) -> list[Exchange]:
        """Those of the last requests for which `when` is true."""
        return [one for one in self.handled if when(one.asked)]

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._transports)

    @property
    def held(self) -> int:
        """How many exchanges a partition holds up now."""
        return self._held

    def cut_connections(self) -> int:
        """Close all connections, idle, busy and stalled ones; returns how many there were."""
        transports = self._transports
        for transport in transports:
            transport.abort()
        return len(transports)

    @property
    def _transports(self) -> list[asyncio.Transport]:
        return [transport for transport in self._runner.transports if not transport.is_closing()]

    @property
    def partitioned(self) -> bool:
        return self._wall is not None

    def partition(self) -> None:
        """Drop every byte in both directions, silently; new connections are accepted, and nothing else."""
        if self._wall is None:
            self._wall = asyncio.get_running_loop().create_future()

    def heal(self, *, deliver: bool = False) -> None:
        """End the partition. What was under way is lost, and its connections stay silent for ever.

        With `deliver` it arrives now, late, as when TCP sends again: except what a client has given up, by
        closing its connection.
        """
        wall, self._wall = self._wall, None
        if wall is not None:
            wall.set_result(deliver)

    # the shell

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._session = await stack.enter_async_context(self._new_session())
            await self._listen(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def _new_session(self) -> aiohttp.ClientSession:
        # the server's own timeouts and the client's decide; the proxy has no opinion
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        connector = aiohttp.TCPConnector(limit=0, ssl=self._server.tls() or True, socket_factory=kept_alive)
        return aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            auto_decompress=False,
            skip_auto_headers={"Accept"},
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(once,),
        )

    async def _listen(self, stack: AsyncExitStack) -> None:
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = Runner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True, auto_decompress=False
        )
        await self._runner.setup()
        stack.push_async_callback(self._runner.cleanup)
        stack.callback(self.cut_connections)
        self._port = await self._runner.listen(self._host, self._port, self._tls)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._exchange(request)
        except (
            _Cut,
            ConnectionError,
            aiohttp.ClientError,
        ):  # trouble behind is trouble in front
            if request.transport is not None:
                request.transport.abort()
            return web.Response()

    async def _exchange(self, request: web.Request) -> web.StreamResponse:
        asked = ApiRequest(
            request.method, request.path, dict(request.query), request.headers.get("User-Agent", "")
        )
        fault = self._choose(asked)
        self.counts[type(fault).__name__ if fault else PASSED] += 1
        self.handled.append(Exchange(asked, fault, self._clock.monotonic()))
        body = await request.read()
        await self._cross()
        match fault:
            case Answer(status, headers, said):
                return web.Response(status=status, headers=headers, body=said)
            case Refuse():
                raise _Cut
            case Delay(seconds):
                await self._clock.sleep(seconds)
                await self._cross()
        async with self._session.request(
            request.method,
            URL(self._server.server.rstrip("/") + request.raw_path, encoded=True),
            headers=await self._headers(request),
            data=io.BytesIO(body) if body else None,
            proxy=self._server.proxy,
            server_hostname=self._server.tls_server_name,
        ) as answer:
            await self._cross()
            if isinstance(fault, Lose):
                raise _Cut
            return await self._pass_on(request, answer, fault)

    def _choose(self, asked: ApiRequest) -> Fault | None:
        if not self.enabled:
            return None
        chosen: Fault | None = None
        for rule in self._rules:
            if not rule.when(asked):
                continue
            self._rules[rule] += 1
            if chosen is None and (rule.nth is None or self._rules[rule] in rule.nth):
                chosen = self._draw(rule.fault)
        return chosen

    def _draw(self, fault: Fault) -> Fault | None:
        if not isinstance(fault, Flaky):
            return fault
        if self._chance.random() >= fault.probability:
            return None
        return self._draw(self._chance.choice(fault.faults))

    async def _headers(self, request: web.Request) -> Mapping[str, str]:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP}
        if "Authorization" not in headers and (own := await self._server.credentials.header()):
            headers["Authorization"] = own
        return headers

    async def _pass_on(
        self, request: web.Request, answer: aiohttp.ClientResponse, fault: Fault | None
    ) -> web.StreamResponse:
        limit = fault.bytes if isinstance(fault, CutAfter | Stall) else None
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
        response = web.StreamResponse(status=answer.status, headers=headers)
        if answer.content_length is not None:
            response.content_length = answer.content_length
        await response.prepare(request)
        if limit == 0:
            await _end(fault)
        passed = 0
        async for chunk in answer.content.iter_any():
            if isinstance(fault, Late):
                await self._clock.sleep(fault.seconds)
            await self._cross()
            part = chunk if limit is None else chunk[: limit - passed]
            await response.write(part)
            passed += len(part)
            if limit is not None and passed >= limit:
                await _end(fault)
        return response

    async def _cross(self) -> None:
        """Pass the place where a partition may be; what it catches is lost or late."""
        while self._wall is not None:
            self._held += 1
            try:
                delivered = await asyncio.shield(self._wall)
            finally:
                self._held -= 1
            if not delivered:
                await _forever()


async def _end(fault: Fault | None) -> NoReturn:
    if isinstance(fault, Stall):
        await _forever()
    raise _Cut


async def _forever() -> NoReturn:
    """Until the client closes its connection, or the proxy does."""
    await asyncio.Event().wait()
    raise AssertionError("this event is never set")
