"""The only socket to the master: `answer = await master.call(question)`.

MasterError
├── Unreachable      no answer before the deadline
└── Rejected         the master answered, and will answer the same again
    ├── Stale        replaced by a newer incarnation, or the round is over
    ├── Refused      the job's state forbids it
    ├── Stopping     the job ends
    └── (Rejected)   the call itself is wrong: token, verb, form, size
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

import aiohttp
import msgspec

from elasticjob.api.rpc.message import JSON, PREFIX, PROBLEM, Problem, Request, answer_type, decode_as
from elasticjob.api.rpc.unreadable import UNREADABLE

Answer = TypeVar("Answer")

SLACK = 5.0  # seconds that a response may take beyond the request's own wait
CONNECT = 2.0  # seconds for a connection: a machine that is gone refuses none
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0


class MasterError(Exception):
    """The base of all errors of `call`."""


class Unreachable(MasterError):
    """The master did not respond before the deadline."""


class Rejected(MasterError):
    """The master refused the request; retrying will not help."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.title}: {problem.detail}")
        self.problem = problem


class Stale(Rejected):
    """The sender was replaced, or its round is over."""


class Refused(Rejected):
    """The job's state forbids it."""


class Stopping(Rejected):
    """The job ends."""


REJECTIONS: dict[str, type[Rejected]] = {"stale": Stale, "refused": Refused, "stopping": Stopping}
TRANSIENT = (aiohttp.ClientError, *UNREADABLE, TimeoutError)
"""No response, or one that no master gives (an ssh banner, a TLS alert, HTML): a master may come yet."""


def own_random() -> float:
    """Return a number from 0 to 1. The sequence of Python's `random` is the script's own."""
    return random.SystemRandom().random()


class MasterClient:
    """The client of a job's master, with retries across restarts of the master and connection resets.

    Requests are idempotent, so a request whose connection breaks is retried with exponential backoff, until
    `patience` seconds have passed since the call began.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        patience: float = 900.0,
        jitter: Callable[[], float] = own_random,
    ) -> None:
        self.address = address  # where the master last responded
        self._candidates: tuple[str, ...] = (address,)
        self._patience = patience
        self._jitter = jitter
        self.heard = 0.0  # when the master last responded, by the loop's clock; at first, when we began
        self.trouble = ""  # what went wrong since
        self.failing: float | None = None  # since when no connection works
        self._headers = {"Content-Type": JSON, "Accept": JSON}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> MasterClient:
        """Open the connection pool."""
        self.heard = asyncio.get_running_loop().time()
        self._session = aiohttp.ClientSession(headers=self._headers, trust_env=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections; pending `call`s are cancelled by their own tasks."""
        if self._session is not None:
            await self._session.close()

    def look_for(self, others: Iterable[str]) -> None:
        """Try these addresses too, one after another, when the master does not respond."""
        self._candidates += tuple(other for other in others if other not in self._candidates)

    async def call(self, request: Request[Answer], *, patience: float | None = None) -> Answer:
        """Return the response; Unreachable after `patience` seconds, Rejected if refused."""
        allowed = self._patience if patience is None else patience
        while (heard := await self._until_heard(request, allowed)) is None:
            pass  # a long poll expired: repeat it at once
        return heard

    async def _until_heard(self, request: Request[Answer], allowed: float) -> Answer | None:
        """Retry until there is a response; None if it is empty."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + allowed
        for pause in pauses(self._jitter):
            asked = self._candidates[0]
            try:
                return await self.post(asked, request)
            except TRANSIENT as error:
                self.failing = self.failing or loop.time()
                if asked == self._candidates[0]:
                    self._candidates = (*self._candidates[1:], asked)
                reason = self.trouble = in_words(error)
            if loop.time() + pause > deadline:
                break
            await asyncio.sleep(pause)
        raise Unreachable(
            f"the master at {self.address} did not answer {type(request).__name__} within {allowed:.0f} s "
            f"({reason}); is its pod running, and is the address right?"
        )

    async def post(self, address: str, request: Request[Answer]) -> Answer | None:
        """Send once; None for 204. A response that no master gives counts as a broken connection."""
        if self._session is None:
            raise RuntimeError("use the client as `async with MasterClient(...) as master`")
        url = f"http://{address}{PREFIX}{type(request).PATH}"
        limit = aiohttp.ClientTimeout(total=getattr(request, "wait", 0.0) + SLACK, sock_connect=CONNECT)
        async with self._session.post(url, data=msgspec.json.encode(request), timeout=limit) as answer:
            body = await answer.read()
            if answer.status == 401 and len(self._candidates) > 1:
                raise aiohttp.ClientConnectionError("HTTP 401 from the master of another job")
            if answer.content_type in (JSON, PROBLEM) or answer.status == 204:
                self.address, self.heard = address, asyncio.get_running_loop().time()
                self.trouble, self.failing = "", None
            if answer.status == 204:
                return None
            if answer.status == 200 and answer.content_type == JSON:
                return decode_as(body, answer_type(type(request)))
            if answer.content_type == PROBLEM:
                with suppress(*UNREADABLE):
                    problem = decode_as(body, Problem)
                    raise REJECTIONS.get(problem.code, Rejected)(problem)
            raise aiohttp.ClientConnectionError(f"HTTP {answer.status} from a server that is no master")


def in_words(error: Exception) -> str:
    """Return an error of a request as one line: why there is no connection, or no answer."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        return os.strerror(cause.errno) if cause.errno and cause.errno > 0 else cause.strerror or str(cause)
    return " ".join(str(error).split()) or type(error).__name__


def pauses(jitter: Callable[[], float]) -> Iterator[float]:
    """Yield the delay before each retry: doubling up to a second, with a jitter of up to half."""
    pause = FIRST_PAUSE
    while True:
        yield pause * (1 - jitter() / 2)
        pause = min(pause * 2, LONGEST_PAUSE)
