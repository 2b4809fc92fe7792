"""One request to the API server and its answer: credentials, attempts, streams. It knows no kinds.

Guarantees
- Every request passes `_transmit`. 429 is always tried again (the server did not act on it); 5xx answers,
  refused and cut connections only for calls that may be repeated. Nothing else repeats anything.
- Retry-After is honoured with a 429, as seconds or as a date: attempts wait for it up to LONGEST_RETRY_AFTER;
  where the server asks for more, the error goes to the caller, with `retry_after`. Of a 5xx see `stay_away`.
- 401 makes the credentials be read again, once. Where a client certificate is renewed, connections are too.
- Cookies are not kept: no load balancer ties us to one server.
- Writes of a leader pass its fence (fence.py), on connections of their own.
"""

from __future__ import annotations

import asyncio
import io
import logging
import random
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import quote
from weakref import WeakSet

import aiohttp

from elasticjob.kube.asked import ApiRequest
from elasticjob.kube.backoff import REQUEST
from elasticjob.kube.client import fence as fences
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.client.fence import Fence
from elasticjob.kube.clock import Clock, deadline
from elasticjob.kube.errors import (
    ApiError,
    KubeError,
    PayloadTooLarge,
    Unauthorized,
    Unreachable,
    error_of,
    is_too_large_resource_version,
)
from elasticjob.kube.http.messages import in_words
from elasticjob.kube.http.sockets import kept_alive
from elasticjob.kube.metrics import Metrics, RequestMeter

Params = Mapping[str, str]
Make = Callable[[tuple[Any, ...]], socket.socket]
"""Makes a socket for an address as `socket.getaddrinfo` gives it."""

ATTEMPTS = 5
TOTAL_TIMEOUT = 60.0
CONNECT_TIMEOUT = 10.0
LONGEST_RETRY_AFTER = 30.0
FAREWELL = 1_000  # milliseconds that a server has to close its end of a connection
LARGE = 1 << 19

JSON = "application/json"

CUT: Final = (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError, RuntimeError)
"""Raised by reading a response whose connection has ended; aiohttp raises the last one if we closed it."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Call:
    """One request, before it is sent."""

    method: str
    path: str
    params: Params = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    repeatable: bool = True

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        return self.method not in ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, eq=False)
class Connections:
    """Those that are made with one client certificate, or without any: the server knows us by it there."""

    tls: ssl.SSLContext | None
    plain: aiohttp.ClientSession
    fenced: dict[Fence, aiohttp.ClientSession] = field(default_factory=dict)
    answers: WeakSet[aiohttp.ClientResponse] = field(default_factory=WeakSet)

    async def close(self) -> None:
        """Close all. Readers of streams are told first: aiohttp would let them wait for ever."""
        for answer in self.answers:
            answer.content.set_exception(aiohttp.ClientConnectionError("the connection was closed"))
        while self.fenced:
            await self.fenced.popitem()[1].close()
        await self.plain.close()


class Transport:
    """The connections to one server as one user; `open` before the first request, `close` after the last."""

    def __init__(
        self, config: Config, clock: Clock, metrics: Metrics | None, user_agent: str, timeout: float
    ) -> None:
        self._config = config
        self._server = config.server.rstrip("/")
        self._clock = clock
        self._meter: RequestMeter | None = None
        self._user_agent = user_agent
        self._timeout = aiohttp.ClientTimeout(total=timeout, connect=CONNECT_TIMEOUT)
        self._connections: Connections | None = None
        self._former: list[Connections] = []
        self._sockets: WeakSet[socket.socket] = WeakSet()
        if metrics:
            self.measure(metrics)

    def open(self) -> None:
        """Be ready for requests; on the event loop that will make them."""
        self._connections = self._new_connections()

    def _new_connections(self) -> Connections:
        tls = self._config.tls()
        return Connections(tls, self._new_session(tls))

    def _new_session(self, tls: ssl.SSLContext | None, make: Make = kept_alive) -> aiohttp.ClientSession:
        def remembered(address: tuple[Any, ...]) -> socket.socket:
            self._sockets.add(made := make(address))
            return made

        connector = aiohttp.TCPConnector(limit=0, ssl=tls or True, socket_factory=remembered)
        return aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            # compression costs both sides more than it saves inside of a cluster
            headers={"User-Agent": self._user_agent, "Accept": JSON, "Accept-Encoding": "identity"},
            auto_decompress=True,
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(once,),
        )

    def measure(self, metrics: Metrics) -> None:
        """Count requests in `metrics`, unless they are counted elsewhere."""
        host = self._server.removeprefix("https://").removeprefix("http://")
        self._meter = self._meter or RequestMeter(metrics, host)

    async def close(self) -> None:
        """Close all connections, streams too; no socket is open afterwards."""
        if self._connections:
            self._former.append(self._connections)
            self._connections = None
        await self._close_former(0)
        for _ in range(FAREWELL):  # a request that was cancelled: TLS waits for the server's goodbye
            if all(each.fileno() < 0 for each in self._sockets):
                break
            await asyncio.sleep(0.001)

    async def _close_former(self, but: int) -> None:
        """Close those of earlier certificates, but for the newest `but`."""
        for over in self._former[: len(self._former) - but]:
            await over.close()
            if over in self._former:
                self._former.remove(over)

    async def send(self, call: Call) -> bytes:
        """The body of a successful answer, after as many attempts as the call and the time of one allow."""
        until = self._clock.monotonic() + (self._timeout.total or TOTAL_TIMEOUT)
        for attempt in range(1, ATTEMPTS):
            try:
                return await self._once(call)
            except KubeError as error:
                pause = _pause(error, call, attempt)
                if pause is None or self._clock.monotonic() + pause > until:
                    raise
                log.debug("request is tried again", extra={"request": str(call), "error": str(error)})
                await self._clock.sleep(pause)
        return await self._once(call)

    async def _refused(self, response: aiohttp.ClientResponse, call: Call) -> KubeError:
        try:
            return await self._failure(response, call)
        finally:
            response.close()

    async def _failure(self, response: aiohttp.ClientResponse, call: Call) -> KubeError:
        """The message of a refusal. A body that does not arrive within the timeout counts as empty."""
        try:
            async with asyncio.timeout(self._timeout.total):
                body = await response.read()
        except CUT:
            response.close()
            body = b""
        error = error_of(response.status, body, str(call), _retry_after(response, self._clock.now()))
        response.release()
        if isinstance(error, ApiError):
            error.asked = ApiRequest(call.method, call.path, call.params)
        if isinstance(error, Unauthorized):
            log.warning("credentials are refused", extra={"request": str(call)})
        return error

    @asynccontextmanager
    async def stream(self, call: Call, patience: float | None) -> AsyncIterator[AsyncIterator[bytes]]:
        """The chunks of an answer that may never end.

        Raises ApiError or Unreachable when it is refused or has not begun after `patience` seconds;
        Unreachable from the iterator when it is cut.
        """
        response = await self._begin(call, patience)
        try:
            async with aclosing(_chunks(response, call)) as chunks:
                yield chunks
        finally:
            response.close()

    async def _begin(self, call: Call, patience: float | None) -> aiohttp.ClientResponse:
        try:
            async with deadline(self._clock, patience):
                response = await self._ask(call, streaming=True)
                if response.status >= 400:
                    raise await self._refused(response, call)
                return response
        except TimeoutError as error:
            raise Unreachable(f"{call}: no answer within {patience:.0f} s") from error

    async def _once(self, call: Call) -> bytes:
        response = await self._ask(call)
        try:
            if response.status >= 400:
                raise await self._failure(response, call)
            return await response.read()
        except CUT as error:
            raise Unreachable(f"{call}: the answer was cut: {str(error) or type(error).__name__}") from error
        finally:
            response.release()

    async def _ask(self, call: Call, *, streaming: bool = False) -> aiohttp.ClientResponse:
        """The head of the answer; with newer credentials if the first ones are refused."""
        header, tls = await self._config.credentials.header(), self._config.tls()
        response = await self._transmit(call, header, streaming)
        if response.status != 401:
            return response
        refused = (header or "") if self._config.tls() is tls else None  # or it is renewed already
        try:
            newer = await self._config.credentials.header(refused)
        except BaseException:
            response.close()
            raise
        if newer == header and self._config.tls() is tls:
            return response
        response.release()
        return await self._transmit(call, newer, streaming)

    async def _transmit(self, call: Call, header: str | None, streaming: bool) -> aiohttp.ClientResponse:
        connections = await self._of_this_certificate()
        fence = fences.current.get() if call.writes else None
        try:
            if fence is not None:
                return await self._transmit_fenced(connections, call, header, fence)
            timeout = (
                aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT) if streaming else self._timeout
            )
            answer = await self._request(connections.plain, call, header, call.params, _body(call), timeout)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._count("<error>", call)
            never_sent = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
            raise Unreachable(f"{call}: {in_words(error)}", never_sent=never_sent) from error
        connections.answers.add(answer)
        return answer

    async def _of_this_certificate(self) -> Connections:
        """The connections for new requests. Those of the previous certificate serve running requests only,
        until the next renewal."""
        if (mine := self._connections) is None:
            raise RuntimeError("the client is closed: use it inside `async with Client(config)`")
        if mine.tls is self._config.tls():
            return mine
        self._connections = self._new_connections()
        self._former.append(mine)
        await self._close_former(1)
        return await self._of_this_certificate()

    async def _transmit_fenced(
        self, connections: Connections, call: Call, header: str | None, fence: Fence
    ) -> aiohttp.ClientResponse:
        """A leader's write: on a connection that its fence can cut, in the time that is left to it."""
        left = min(fence.left(), self._timeout.total or TOTAL_TIMEOUT)
        if fence not in connections.fenced:
            connections.fenced[fence] = self._new_session(connections.tls, fence.socket)
        with fence.writing() as answered:
            response = await self._request(
                connections.fenced[fence],
                call,
                header,
                {**call.params, "timeout": f"{max(1, int(left * 1000))}ms"},
                fence.payload(call.body or b""),
                aiohttp.ClientTimeout(total=left, connect=CONNECT_TIMEOUT),
            )
            answered.yes = response.status < 500
        return response

    async def _request(
        self,
        session: aiohttp.ClientSession,
        call: Call,
        header: str | None,
        params: Params,
        body: aiohttp.payload.Payload | bytes | io.BytesIO | None,
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        headers = {"Authorization": header} if header else {}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        response = await session.request(
            call.method,
            self._server + quote(call.path),
            params=params,
            data=body,
            headers=headers,
            proxy=self._config.proxy,
            server_hostname=self._config.tls_server_name,
            timeout=timeout,
        )
        self._count(str(response.status), call)
        return response

    def _count(self, code: str, call: Call) -> None:
        if self._meter:
            self._meter.count(code, call.method)


async def once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating GET, PUT and DELETE on its own: attempts and pauses are counted here."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientConnectionError(str(error) or type(error).__name__) from error


def _pause(error: KubeError, call: Call, attempt: int) -> float | None:
    """Seconds until the next attempt; None when the error is the caller's."""
    match error:
        case PayloadTooLarge():  # whatever its status code
            return None
        case ApiError() if is_too_large_resource_version(error):
            return None
        case ApiError(status=429, stay_away=after):
            pass
        case ApiError(status=500 | 502 | 503 | 504, stay_away=after) if call.repeatable:
            return (after or 0.0) + REQUEST.delay(attempt, random.random())  # not all clients at once
        case Unreachable() if call.repeatable:
            after = None
        case _:
            return None
    if after is not None and after > LONGEST_RETRY_AFTER:
        return None
    return REQUEST.delay(attempt, random.random()) if after is None else after


def _body(call: Call) -> bytes | io.BytesIO | None:
    """Large bodies as a file, which aiohttp sends in pieces, letting others run."""
    if call.body is None or len(call.body) < LARGE:
        return call.body
    return io.BytesIO(call.body)


def _retry_after(response: aiohttp.ClientResponse, now: datetime) -> float | None:
    """The header's seconds. A date is compared with the server's own, where it says that: clocks differ."""
    header = response.headers.get("Retry-After", "").strip()
    if header.isdecimal():
        return float(header)
    until, since = _date(header), _date(response.headers.get("Date", "")) or now
    return max(0.0, (until - since).total_seconds()) if until else None


def _date(header: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(header)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


async def _chunks(response: aiohttp.ClientResponse, call: Call) -> AsyncGenerator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except CUT as error:
        raise Unreachable(f"{call}: the stream was cut: {str(error) or type(error).__name__}") from error
