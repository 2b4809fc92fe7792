"""The I/O shell around the job: socket, clock, and the only variable that holds the state.

Requests are handled one after another by pure functions; there is no await between reading the job and
replacing it, so there are no locks. Long polls wait here, and are tried again whenever `Job.version` has
risen. Saving is asynchronous and delays no response: agents resend what a successor may lack.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any, Self

import msgspec
from aiohttp import web

from elasticjob.api.rpc.address import host_port
from elasticjob.api.rpc.message import PREFIX, Problem, Request
from elasticjob.api.rpc.nodes import Order, Orders, Succession, Watch
from elasticjob.api.rpc.rendezvous import Join
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.http.door import Bounds
from elasticjob.kube.http.serving import ServerRunner
from elasticjob.master.durable import columns
from elasticjob.master.durable.store import Store, snapshot
from elasticjob.master.durable.succession import part_of, succession
from elasticjob.master.handlers import check as checks
from elasticjob.master.handlers import dispatch, nodes, shards
from elasticjob.master.serving import pages, wire
from elasticjob.master.serving.calls import Calls, Server
from elasticjob.master.serving.polls import Poll, Polls, Tell
from elasticjob.master.shards import book
from elasticjob.master.state.errors import RequestError
from elasticjob.master.state.job import Job

log = logging.getLogger("elasticjob.master")

TICK = 0.25  # seconds between checks of the timeouts
LATE = timedelta(seconds=1)  # after a tick as late as this, missed Watches are the master's own fault
PAUSE = 2.0  # seconds at most between two saves: as long as the last one took
UNSAVED = 60.0  # seconds without a successful save after which each failure is logged as an error
MANY = 256  # polls that are answered before other requests have their turn
BOUNDS = Bounds(connections=65_536)  # three for each of twenty thousand nodes
SAVE_PROGRESS = timedelta(seconds=5)  # progress alone is saved at most so often


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
        self._polls = Polls()
        self._changed = asyncio.Event()
        self._carried: tuple[int, Succession | None] = (0, None)
        self._lines: dict[object, Watch] = {}
        self._told: set[str] = set()
        self._unsaved = asyncio.Event()
        self._unsaved_since: datetime | None = None
        self._closing = False
        self._stack = AsyncExitStack()

    @property
    def address(self) -> str:
        """Where agents find this master: host:port."""
        return host_port(self._host, self._port)

    def now(self) -> datetime:
        """Return the time; it never steps back, so that setting the clock times out no heartbeat."""
        return self._origin + timedelta(seconds=self.clock.monotonic() - self._began)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            server = Server(self._serve, self.line_closed)
            runner = ServerRunner(server, handler_cancellation=True, shutdown_timeout=0.1)
            server.plain = Calls(
                self,
                self._token,
                make=server.general,
                body=BOUNDS.body,
                arrived=lambda line: runner.trust(line.transport),
            )
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            self._port = await runner.listen(self._host, self._port, bounds=BOUNDS)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            for loop in (self._tick(), self._save(), self._wake()):
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

    async def ask(self, request: Request[Any]) -> Any:
        """Return the response to `request`, waiting if it is a long poll; None is "ask again"."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def tell(reply: Any) -> None:
            if isinstance(reply, asyncio.CancelledError):
                answer.cancel()
            elif not answer.done():
                answer.set_result(reply)

        poll = self.take(request, tell)
        try:
            reply = await answer
        finally:
            self.drop(poll)
        if isinstance(reply, RequestError):
            raise reply
        return reply

    def take(self, request: Request[Any], tell: Tell) -> Poll | None:
        """Handle `request`; call `tell` with the response now, or later: then return what waits."""
        asked = self.now()
        try:
            reply = self._handled(request, asked)
        except RequestError as error:
            tell(error)
            return None
        if reply is not None or type(request) not in dispatch.LATER:
            tell(self._noted(request, reply))
            return None
        poll = Poll(request, self._until(request, asked), tell)
        self._polls.add(poll)
        return poll

    def drop(self, poll: Poll | None) -> None:
        """Forget a poll that was answered, or whose client has gone."""
        if poll:
            self._polls.drop(poll)

    def become(self, job: Job) -> None:
        """Replace the state; the long polls that it answers are woken soon."""
        if self._node and finished(job) != finished(self.job):
            job = job.but(version=job.version + 1)  # for heirs: the loss of a finished node ends no world
        before, self.job = self.job, job
        if job.shards.news != before.shards.news:
            self._changed.set()
        if job.version == before.version:
            return
        self._say_what_changed(before)
        self._unsaved.set()
        self._changed.set()
        if job.verdict:
            self.ended.set()

    def _handled(self, request: Request[Any], now: datetime) -> Any:
        turn = dispatch.handle(self.job, request, now)
        self.become(turn.job)
        if turn.reply is not None or not isinstance(request, dispatch.CONSUMERS):
            return turn.reply
        if shards.waits_for_save(self.job, request):
            self._unsaved.set()
        return None

    async def _wake(self) -> None:
        """Answer the polls that can be, whenever the job has changed; changes meanwhile are answered at once.

        Half of the time is left to requests: without a pause, a thousand losses one after another would wake
        ten thousand nodes a thousand times.
        """
        version = news = -1
        while True:
            await self._changed.wait()
            self._changed.clear()
            began = self.clock.monotonic()
            if news != self.job.shards.news:
                news = self.job.shards.news
                await self._try_each(self._polls.consumers)
            if version != self.job.version:
                version = self.job.version
                await self._try_each(self._polls)
            await asyncio.sleep(self.clock.monotonic() - began)

    async def _try_each(self, polls: Iterable[Poll]) -> None:
        for number, poll in enumerate(tuple(polls)):
            if poll in self._polls:
                self._try(poll)
            if number % MANY == MANY - 1:
                await asyncio.sleep(0)

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
        if not (self._node and isinstance(request, Watch) and isinstance(reply, Orders)):
            return reply
        left = self._succession() if reply.version > request.seen else None
        return msgspec.structs.replace(reply, succession=left and part_of(left, request.node))

    def _succession(self) -> Succession | None:
        """Return what the nodes carry: made once for all nodes that hear of a version."""
        if self._carried[0] != self.job.version:
            self._carried = self.job.version, succession(self.job, self._node)
        return self._carried[1]

    def _until(self, request: Any, asked: datetime) -> datetime:
        """Return the deadline of a poll; a Watch must be repeated often enough to serve as heartbeat."""
        wait = timedelta(seconds=max(0.0, request.wait))
        if isinstance(request, Watch):
            wait = min(wait, self.job.spec.limits.silence / 2)
        return asked + wait

    def _try(self, poll: Poll) -> None:
        """Answer `poll` if the job has a response now."""
        request, now = poll.request, self.now()
        try:
            reply = dispatch.LATER[type(request)](self.job, request, now)
            if reply is dispatch.AGAIN:
                reply = self._handled(request, now)
        except RequestError as error:
            self._answer(poll, error)
            return
        if reply is not None:
            self._answer(poll, reply)

    def _answer(self, poll: Poll, reply: Any) -> None:
        self._polls.drop(poll)
        poll.tell(self._noted(poll.request, reply))

    def _say_what_changed(self, before: Job) -> None:
        """Log one line for each decision that changed something."""
        job = self.job
        for finding in job.health.findings:
            if finding not in before.health.findings:
                log.warning("%s: %s", finding.reason, finding.message)
        if job.check.findings is not before.check.findings and (sentence := checks.sentence(job)):
            log.info("node check: %s", sentence)
        if job.verdict and not before.verdict:
            log.info("verdict %s, %s: %s", job.verdict.end, job.verdict.reason, job.verdict.message)
        elif job.ending and job.ending != before.ending:
            log.info("round %d ends: %s", job.round, job.ending.reason)
        elif job.running and job.world is not before.world:
            names, size = ", ".join(member.node for member in job.running.members[:8]), job.running.size
            log.info("round %d: %d worker%s on %s", job.running.round, size, "s" * (size != 1), names)

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
            self._expire(ticked)
            moved = training is not self.job.training or mark != self.job.shards.mark
            if moved and self.now() - looked > SAVE_PROGRESS:
                looked, training, mark = self.now(), self.job.training, self.job.shards.mark
                self._unsaved.set()

    def _expire(self, now: datetime) -> None:
        """Answer the polls whose time is over."""
        for poll in [poll for poll in self._polls if poll.until <= now]:
            self._answer(poll, dispatch.EXPIRED[type(poll.request)](self.job, poll.request, now))

    async def _save(self) -> None:
        """Save the state after changes, with retries; no request waits for it."""
        delay = 0.5
        while True:
            await self._unsaved.wait()
            self._unsaved.clear()
            if self.retired:
                return
            try:
                saving, began = self.job, self.clock.monotonic()
                await self._store.save(await self._snapshot(saving))
                delay, self._unsaved_since = 0.5, None
                after = book.saved(self.job.shards, saving.shards.mark)
                if after is not self.job.shards:
                    self.become(self.job.but(shards=after))
                await self.clock.sleep(min(self.clock.monotonic() - began, PAUSE))
            except OSError as error:
                self._unsaved_since = self._unsaved_since or self.now()
                self._say_unsaved(error, delay)
                await self.clock.sleep(delay)
                delay = min(delay * 2, 30.0)
                self._unsaved.set()

    async def _snapshot(self, job: Job) -> bytes:
        """Return the snapshot; that of a crowd is made in a thread, while requests are served."""
        if len(job.nodes) <= columns.CROWD:
            return snapshot(job, self.now())
        return await asyncio.to_thread(snapshot, job, self.now())

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
        for poll in tuple(self._polls):
            self._polls.drop(poll)
            poll.tell(asyncio.CancelledError())

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
        return web.Response(body=self.encoded(question, reply, accepted), content_type=accepted)

    def encoded(self, question: Any, reply: Any, mime: str) -> bytes:
        brief = isinstance(question, Join) and question.brief
        return self._encoder.encode(reply, mime, question.node if brief else "")

    async def _ask_on_line(self, question: Request[Any], line: object) -> Any:
        """Ask; handle a disconnect meanwhile as the request's type demands."""
        self.heard_on(line, question)
        asked = self.now()
        try:
            return await self.ask(question)
        except asyncio.CancelledError:
            self.cut(question, asked)
            raise

    def heard_on(self, line: object, question: Request[Any]) -> None:
        """Note which node watches by a connection."""
        if isinstance(question, Watch):
            self._lines[line] = question
        else:
            self._lines.pop(line, None)

    def cut(self, question: Request[Any], asked: datetime) -> None:
        """Handle a disconnect during a poll, unless the client repeats the poll on another connection.

        A disconnect after the deadline is the client's own timeout, not a lost node: a master that was
        suspended sees the old connection end before it accepts the next one.
        """
        if self._closing or type(question) not in dispatch.CUT:
            return
        if self._polls.of_same_node(question):
            return
        if isinstance(question, Watch) and self.now() - self._until(question, asked) > LATE:
            return
        self.become(dispatch.cut(self.job, question, self.now()))

    def line_closed(self, line: object) -> None:
        """Shorten the node's heartbeat deadline: its connection closed between two Watches."""
        watch = self._lines.pop(line, None)
        if watch and not self._closing and not self._polls.of_same_node(watch):
            self.become(nodes.doubt(self.job, watch, self.now()))


def finished(job: Job) -> int:
    """Return how many nodes have finished."""
    return job.nodes.count(lambda kind: kind.finished)


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
