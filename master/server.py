"""The I/O shell around the job: socket, clock, and the only variable that holds the state.

Requests are handled one after another by pure functions; there is no await between reading the job and
replacing it, so there are no locks. Long polls wait here, and are tried again whenever `Job.version` has
risen. Saving is asynchronous and delays no response: agents resend what a successor may lack.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any, Self

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from elasticjob.api.rpc.message import PREFIX, Problem, Request
from elasticjob.api.rpc.nodes import Order, Orders, Watch
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.http.serving import DEFAULTS, ServerRunner
from elasticjob.master import dispatch, nodes, pages, wire
from elasticjob.master.check import conversation as checks
from elasticjob.master.errors import RequestError
from elasticjob.master.job import Job
from elasticjob.master.shards import book, conversation
from elasticjob.master.store import Store, snapshot
from elasticjob.master.succession import succession

log = logging.getLogger("elasticjob.master")

TICK = 0.25  # seconds between checks of the timeouts
LATE = timedelta(seconds=1)  # after a tick as late as this, missed Watches are the master's own fault
UNSAVED = 60.0  # seconds without a successful save after which each failure is logged as an error
SAVE_PROGRESS = timedelta(seconds=5)  # progress alone is saved at most so often


class Poll:
    """A waiting long poll: its request, connection and deadline."""

    def __init__(self, request: Request[Any], line: object, until: datetime) -> None:
        self.request, self.line, self.until = request, line, until
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def same_node(self, request: Any) -> bool:
        """Whether both are the same type of request from the same incarnation of a node."""
        mine: Any = self.request
        return (
            type(mine) is type(request)
            and mine.node == request.node
            and mine.incarnation == request.incarnation
        )


class Master:
    """One job's master: `async with Master(job, token, store) as master: master.address`.

    `job` is the initial state (`store.restore` or `Job(spec)`). Every change goes through `become`, which
    wakes the long polls it answers. Without the token every request is refused.
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
        node: str = "",
    ) -> None:
        """`node` names the node of the job in whose process this master runs, if it is one."""
        self.job = job
        self.clock: Clock = clock or SystemClock()
        self.ended = asyncio.Event()
        self.retired = False  # another master has the job: this one saves nothing any more
        if job.verdict:  # reached by an earlier master that did not live to report it
            self.ended.set()
        self._token, self._store = token, store
        self._host, self._port, self._node = host, port, node
        self._began, self._origin = self.clock.monotonic(), self.clock.now()
        self._encoder = wire.Encoder()
        self._polls: set[Poll] = set()
        self._lines: dict[object, Watch] = {}
        self._told: set[str] = set()
        self._unsaved = asyncio.Event()
        self._unsaved_since: datetime | None = None
        self._closing = False
        self._stack = AsyncExitStack()

    @property
    def address(self) -> str:
        """Where agents find this master: host:port."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    def now(self) -> datetime:
        """Return the time; it never steps back, so that setting the clock times out no heartbeat."""
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
        if self.retired:
            return
        try:
            await self._store.save(snapshot(self.job, self.now()))
        except OSError as error:
            log.warning("the last state of job %s is not saved: %s", self.job.spec.job, error)

    async def ask(self, request: Request[Any], line: object = None) -> Any:
        """Return the response to `request`, waiting if it is a long poll; None is "ask again"."""
        asked = self.now()
        while True:
            turn = dispatch.handle(self.job, request, self.now())
            self.become(turn.job)
            if turn.reply is not None or type(request) not in dispatch.LATER:
                return self._noted(request, turn.reply)
            if isinstance(request, dispatch.CONSUMERS) and conversation.waits_for_save(self.job, request):
                self._unsaved.set()
            poll = Poll(request, line, self._until(request, asked))
            self._polls.add(poll)
            try:
                reply = await poll.answer
            finally:
                self._polls.discard(poll)
            if reply is not dispatch.AGAIN:
                return self._noted(request, reply)

    def become(self, job: Job) -> None:
        """Replace the state; wake the long polls that it answers."""
        if self._node and finished(job) != finished(self.job):
            job = job.but(version=job.version + 1)  # for heirs: the loss of a finished node ends no world
        before, self.job = self.job, job
        if job.shards.news != before.shards.news:
            for poll in self._polls:
                if isinstance(poll.request, dispatch.CONSUMERS):
                    self._try(poll)
        if job.version == before.version:
            return
        self._say_what_changed(before)
        self._unsaved.set()
        if job.verdict:
            self.ended.set()
        for poll in self._polls:
            self._try(poll)

    def observe(self, change: Callable[[Job, datetime], Job]) -> None:
        """Apply a change observed outside of requests: pods, the spec."""
        self.become(dispatch.judged(change(self.job, self.now()), self.now()))

    def retire(self, why: str) -> None:
        """End without a verdict, and leave the job's state to another master."""
        if not self.retired:
            log.warning("this master of job %s ends: %s", self.job.spec.job, why)
        self.retired = True
        self.ended.set()

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
        if self._node and isinstance(request, Watch) and isinstance(reply, Orders):
            news = reply.version > request.seen
            return msgspec.structs.replace(
                reply, succession=succession(self.job, self._node) if news else None
            )
        return reply

    def _until(self, request: Any, asked: datetime) -> datetime:
        """Return the deadline of a poll; a Watch must be repeated often enough to serve as heartbeat."""
        wait = timedelta(seconds=max(0.0, request.wait))
        if isinstance(request, Watch):
            wait = min(wait, self.job.spec.limits.silence / 2)
        return asked + wait

    def _try(self, poll: Poll) -> None:
        """Answer `poll` if the job has a response now."""
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
        """Log one line for each decision that changed something."""
        job = self.job
        for finding in job.health.findings:
            if finding not in before.health.findings:
                log.warning("%s: %s", finding.reason, finding.message)
        if job.check.findings is not before.check.findings and (found := checks.sentence(job)):
            log.info("node check: %s", found)
        if job.verdict and not before.verdict:
            log.info("verdict %s, %s: %s", job.verdict.end, job.verdict.reason, job.verdict.message)
        elif job.ending and job.ending != before.ending:
            log.info("round %d ends: %s", job.round, job.ending.reason)
        elif job.running and job.world is not before.world:
            names = ", ".join(member.node for member in job.running.members[:8])
            log.info("round %d: %d workers on %s", job.running.round, job.running.size, names)

    async def _tick(self) -> None:
        """Apply all timeouts, forever."""
        looked, training, mark = self.now(), self.job.training, self.job.shards.mark
        ticked = looked
        while True:
            await self.clock.sleep(TICK)
            if self.now() - ticked > LATE:  # suspended or starved: the heartbeats were missed here
                self.job = nodes.overslept(self.job, self.now() - ticked)
            ticked = self.now()
            self.become(dispatch.tick(self.job, ticked))
            for poll in self._polls:
                self._expire(poll)
            moved = training is not self.job.training or mark != self.job.shards.mark
            if moved and self.now() - looked > SAVE_PROGRESS:
                looked, training, mark = self.now(), self.job.training, self.job.shards.mark
                self._unsaved.set()

    def _expire(self, poll: Poll) -> None:
        if poll.answer.done() or poll.until > self.now():
            return
        poll.answer.set_result(dispatch.EXPIRED[type(poll.request)](self.job, poll.request, self.now()))

    async def _save(self) -> None:
        """Save the state after changes, with retries; no request waits for it."""
        delay = 0.5
        while True:
            await self._unsaved.wait()
            self._unsaved.clear()
            if self.retired:
                return
            try:
                saving = self.job
                await self._store.save(snapshot(saving, self.now()))
                delay, self._unsaved_since = 0.5, None
                after = book.saved(self.job.shards, saving.shards.mark)
                if after is not self.job.shards:
                    self.become(self.job.but(shards=after))
            except OSError as error:
                self._unsaved_since = self._unsaved_since or self.now()
                self._say_unsaved(error, delay)
                await self.clock.sleep(delay)
                delay = min(delay * 2, 30.0)
                self._unsaved.set()

    def _seconds_unsaved(self) -> float:
        return (self.now() - self._unsaved_since).total_seconds() if self._unsaved_since else 0.0

    def _say_unsaved(self, error: OSError, delay: float) -> None:
        seconds = self._seconds_unsaved()
        log.log(
            logging.ERROR if seconds > UNSAVED else logging.WARNING,
            "job %s is not saved for %.0f s, which a next master would lack; next try in %.1f s: %s",
            self.job.spec.job,
            seconds,
            delay,
            error,
        )

    def _hang_up_all(self) -> None:
        """Stop all long polls. From now on a closed connection says nothing about its node."""
        self._closing = True
        for poll in self._polls:
            poll.answer.cancel()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith(PREFIX):
            return await self._call(request)
        return pages.render(request, self.job, self.now(), self._seconds_unsaved())

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
        return web.Response(body=self._encoder.encode(reply, accepted), content_type=accepted)

    async def _ask_on_line(self, question: Request[Any], line: object) -> Any:
        """Ask; handle a disconnect meanwhile as the request's type demands."""
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
        """Handle a disconnect during a poll, unless the client repeats the poll on another connection.

        A disconnect after the deadline is the client's own timeout, not a lost node: a master that was
        suspended sees the old connection end before it accepts the next one.
        """
        if self._closing or type(question) not in dispatch.CUT:
            return
        if any(poll.same_node(question) for poll in self._polls):
            return
        if isinstance(question, Watch) and self.now() - self._until(question, asked) > LATE:
            return
        self.become(dispatch.cut(self.job, question, self.now()))

    def _line_closed(self, line: object) -> None:
        """Shorten the node's heartbeat deadline: its connection closed between two Watches."""
        watch = self._lines.pop(line, None)
        if watch and not self._closing and not any(poll.same_node(watch) for poll in self._polls):
            self.become(nodes.doubt(self.job, watch, self.now()))


class _Server(web.Server):
    """aiohttp's low-level server, with a callback when a connection closes."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        closed: Callable[[object], None],
    ) -> None:
        super().__init__(handler, handler_cancellation=True, **DEFAULTS)
        self._closed = closed
        self._transports: dict[object, object] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        self._transports[handler] = transport
        super().connection_made(handler, transport)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._closed(self._transports.pop(handler, None))


def finished(job: Job) -> frozenset[str]:
    """Return the nodes that have finished."""
    return frozenset(node.name for node in job.nodes.values() if node.finished)


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
