"""The shell around the job: the socket, the clock, and the only variable that holds the state.

Requests are handled one after another by pure functions; there is no await between reading the job and
replacing it, so there are no locks. A question that cannot be answered yet waits here, and is asked again
whenever `Job.version` has risen. Saving is asynchronous: no answer waits for it, since agents bring what
a successor might lack.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any, Self

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from elasticjob.api.rpc.message import PREFIX, Problem, Request
from elasticjob.api.rpc.nodes import Order, Orders, Watch
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.serving import ServerRunner
from elasticjob.master import dispatch, nodes, pages, wire
from elasticjob.master.errors import RequestError
from elasticjob.master.job import Job
from elasticjob.master.store import Store, snapshot

log = logging.getLogger("elasticjob.master")

TICK = 0.25  # seconds between two looks at the clock
LATE = timedelta(seconds=1)  # a tick that comes so late has seen no Watch that came in time
SAVE_PROGRESS = timedelta(seconds=5)  # progress alone is saved at most so often


class Poll:
    """A question that waits for the job to change, on which connection, and until when."""

    def __init__(self, request: Request[Any], line: object, until: datetime) -> None:
        self.request, self.line, self.until = request, line, until
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def same_node(self, request: Any) -> bool:
        """Whether this is the same kind of question, from the same life of the same node."""
        mine: Any = self.request
        return (
            type(mine) is type(request)
            and mine.node == request.node
            and mine.incarnation == request.incarnation
        )


class Master:
    """One job's master: `async with Master(job, token, store) as master: master.address`.

    `job` is the state to begin with (`store.restore` or `Job(spec)`). Everything that changes it goes through
    `become`, which wakes those whose answer has changed. Without a token every call is refused.
    """

    def __init__(
        self,
        job: Job,
        token: str,
        store: Store,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
    ) -> None:
        self.job = job
        self.clock: Clock = clock or SystemClock()
        self.ended = asyncio.Event()
        if job.verdict:  # a predecessor had it, and did not live to say so
            self.ended.set()
        self._token, self._store = token, store
        self._host, self._port = host, port
        self._began, self._origin = self.clock.monotonic(), self.clock.now()
        self._polls: set[Poll] = set()
        self._lines: dict[object, Watch] = {}
        self._told: set[str] = set()
        self._unsaved = asyncio.Event()
        self._closing = False
        self._stack = AsyncExitStack()

    @property
    def address(self) -> str:
        """Where agents find this master: host:port."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    def now(self) -> datetime:
        """Return the time; it never steps back, so nobody falls silent because a clock was set."""
        return self._origin + timedelta(seconds=self.clock.monotonic() - self._began)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            runner = ServerRunner(
                _Server(self._serve, self._line_closed), handler_cancellation=True, shutdown_timeout=0.1
            )
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            self._port = await runner.listen(self._host, self._port)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            for loop in (self._tick(), self._save()):
                stack.callback(tasks.create_task(loop).cancel)
            stack.callback(self._hang_up_all)
            self._stack = stack.pop_all()
        log.info("master of job %s listens on %s", self.job.spec.job, self.address)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        try:
            await self._store.save(snapshot(self.job))
        except OSError as error:
            log.warning("the last state of job %s is not saved: %s", self.job.spec.job, error)

    async def ask(self, request: Request[Any], line: object = None) -> Any:
        """Return the answer to `request`, waiting where it is a long poll; None is "ask again"."""
        turn = dispatch.handle(self.job, request, self.now())
        self.become(turn.job)
        if turn.reply is not None or type(request) not in dispatch.LATER:
            return self._noted(request, turn.reply)
        poll = Poll(request, line, self._until(request, self.now()))
        self._polls.add(poll)
        try:
            return self._noted(request, await poll.answer)
        finally:
            self._polls.discard(poll)

    def become(self, job: Job) -> None:
        """Replace the state; wake the questions that it answers."""
        before, self.job = self.job, job
        if job.version == before.version:
            return
        self._say_what_changed(before)
        self._unsaved.set()
        if job.verdict:
            self.ended.set()
        for poll in self._polls:
            self._try(poll)

    def observe(self, change: Callable[[Job, datetime], Job]) -> None:
        """Let something seen outside of the conversations change the job: pods, the spec."""
        self.become(dispatch.judged(change(self.job, self.now()), self.now()))

    async def wait_until_told(self, limit: float) -> None:
        """Return when all connected agents have been told to stop, at the latest after `limit` seconds."""
        until = self.now() + timedelta(seconds=limit)
        while self._untold() and self.now() < until:
            await self.clock.sleep(TICK)

    def _untold(self) -> list[str]:
        return [
            n.name for n in self.job.nodes.values() if n.beat and not n.failed and n.name not in self._told
        ]

    def _noted(self, request: Request[Any], reply: Any) -> Any:
        if isinstance(request, Watch) and isinstance(reply, Orders) and reply.order is Order.STOP:
            self._told.add(request.node)
        return reply

    def _until(self, request: Any, asked: datetime) -> datetime:
        """Return when to stop waiting; a Watch must come often enough to prove that its node lives."""
        wait = timedelta(seconds=max(0.0, request.wait))
        if isinstance(request, Watch):
            wait = min(wait, self.job.spec.limits.silence / 2)
        return asked + wait

    def _try(self, poll: Poll) -> None:
        """Answer `poll` if the job has an answer now."""
        if poll.answer.done():
            return
        try:
            reply = dispatch.LATER[type(poll.request)](self.job, poll.request, self.now())
        except RequestError as error:
            poll.answer.set_exception(error)
            return
        if reply is not None:
            poll.answer.set_result(reply)

    def _say_what_changed(self, before: Job) -> None:
        """One line for each decision that changed something."""
        job = self.job
        if job.verdict and not before.verdict:
            log.info("verdict %s, %s: %s", job.verdict.end, job.verdict.reason, job.verdict.message)
        elif job.ending and job.ending != before.ending:
            log.info("round %d ends: %s", job.round, job.ending.reason)
        elif job.running and job.world is not before.world:
            names = ", ".join(member.node for member in job.running.members[:8])
            log.info("round %d: %d workers on %s", job.running.round, job.running.size, names)

    async def _tick(self) -> None:
        """Carry all timeouts."""
        looked, training = self.now(), self.job.training
        ticked = looked
        while True:
            await self.clock.sleep(TICK)
            if self.now() - ticked > LATE:  # stopped, or starved: the silence was ours
                self.job = nodes.overslept(self.job, self.now() - ticked)
            ticked = self.now()
            self.become(dispatch.tick(self.job, ticked))
            for poll in self._polls:
                self._expire(poll)
            if training is not self.job.training and self.now() - looked > SAVE_PROGRESS:
                looked, training = self.now(), self.job.training
                self._unsaved.set()

    def _expire(self, poll: Poll) -> None:
        if poll.answer.done() or poll.until > self.now():
            return
        poll.answer.set_result(dispatch.EXPIRED[type(poll.request)](self.job, poll.request, self.now()))

    async def _save(self) -> None:
        """Keep the durable copy up to date; a store that fails is tried again, nobody waits for it."""
        delay = 0.5
        while True:
            await self._unsaved.wait()
            self._unsaved.clear()
            try:
                await self._store.save(snapshot(self.job))
                delay = 0.5
            except OSError as error:
                log.warning("job %s is not saved, next try in %.1f s: %s", self.job.spec.job, delay, error)
                await self.clock.sleep(delay)
                delay = min(delay * 2, 30.0)
                self._unsaved.set()

    def _hang_up_all(self) -> None:
        """From now on a line that closes says nothing about its node: it is us who close it."""
        self._closing = True
        for poll in self._polls:
            poll.answer.cancel()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith(PREFIX):
            return await self._call(request)
        return pages.render(request, self.job, self.now())

    async def _call(self, request: web.BaseRequest) -> web.Response:
        try:
            name = wire.verb(request.method, request.path)
            wire.authorize(request.headers.get("Authorization", ""), self._token)
            mime = wire.media_type(request.content_type)
            question = wire.decode(name, mime, await _body(request))
            reply = await self._ask_on_line(question, request.transport)
        except wire.Rejected as error:
            return _problem(error.problem, error.headers)
        except RequestError as error:
            return _problem(error.problem())
        if reply is None:
            return web.Response(status=204)
        accepted = wire.media_type(request.headers.get("Accept", ""), default=mime)
        return web.Response(body=wire.encode(reply, accepted), content_type=accepted)

    async def _ask_on_line(self, question: Request[Any], line: object) -> Any:
        """Ask; a line that is cut meanwhile means what the question says it means."""
        self._lines.pop(line, None)
        if isinstance(question, Watch):
            self._lines[line] = question
        asked = self.now()
        try:
            return await self.ask(question, line)
        except asyncio.CancelledError:
            self._cut(question, asked)
            raise

    def _cut(self, question: Request[Any], asked: datetime) -> None:
        """The sender hung up while its question waited, unless it is asking the same on another line.

        Who got no answer when it was due is tired of waiting, and not gone: a master that was stopped hears
        that line end before it hears the next one.
        """
        if self._closing or any(poll.same_node(question) for poll in self._polls):
            return
        if isinstance(question, Watch) and self.now() - self._until(question, asked) > LATE:
            return
        if type(question) in dispatch.CUT:
            self.become(dispatch.cut(self.job, question, self.now()))

    def _line_closed(self, line: object) -> None:
        """A line closed between two Watches: be quick to give its node up."""
        watch = self._lines.pop(line, None)
        if watch and not self._closing and not any(poll.same_node(watch) for poll in self._polls):
            self.become(nodes.doubt(self.job, watch, self.now()))


class _Server(web.Server):
    """aiohttp's low-level server, which also tells when a connection has closed."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        closed: Callable[[object], None],
    ) -> None:
        super().__init__(handler, handler_cancellation=True, access_log=None)
        self._closed = closed
        self._transports: dict[object, object] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        self._transports[handler] = transport
        super().connection_made(handler, transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._closed(self._transports.pop(handler, None))


async def _body(request: web.BaseRequest) -> bytes:
    if (request.content_length or 0) > wire.LIMIT:
        raise wire.too_large(request.content_length)
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise wire.too_large(None) from error


def _problem(problem: Problem, headers: Mapping[str, str] | None = None) -> web.Response:
    body, mime = wire.problem_body(problem)
    return web.Response(status=problem.status, body=body, content_type=mime, headers=headers)
