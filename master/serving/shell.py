"""The I/O shell around the job: the clock, the long polls, and the only variable that holds the state.

Requests are handled one after another by pure functions; there is no await between reading the job and
replacing it, so there are no locks. Long polls wait here, and are tried again whenever `Job.version` has
risen. An unexpected error costs the request or the timeout that met it: the job stays as it was, and the
loops go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Watch
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.metrics import Metrics
from elasticjob.master.handlers import dispatch, nodes, shards
from elasticjob.master.serving import changes
from elasticjob.master.serving.polls import Poll, Polls, Tell
from elasticjob.master.serving.told import StopOrders
from elasticjob.master.shards import book
from elasticjob.master.state.errors import RequestError
from elasticjob.master.state.job import Job

log = logging.getLogger("elasticjob.master")

TICK = 0.25  # seconds between checks of the timeouts
LATE = timedelta(seconds=1)  # after a tick as late as this, missed Watches are the master's own fault
PAUSE = 10.0  # seconds at most, jitter apart, between two tries of a timeout that fails
MANY = 256  # polls that are answered before other requests have their turn
SAVE_PROGRESS = timedelta(seconds=5)  # progress alone is saved at most so often


class Shell:
    """One job's state in time. Every change goes through `become`, which wakes the long polls it answers."""

    def __init__(self, job: Job, *, clock: Clock | None = None, node: str = "") -> None:
        """`node` names the node of the job in whose process this master runs, if it is one."""
        self.job = job
        self.clock: Clock = clock or SystemClock()
        self.ended = asyncio.Event()
        self.retired = False  # another master has the job: this one saves nothing any more
        self.unsaved = asyncio.Event()  # there is something to save
        self.metrics = Metrics(CollectorRegistry())  # of the loops; those of the job are made from its state
        if job.verdict:  # reached by an earlier master that did not live to report it
            self.ended.set()
        self._node, self._told = node, StopOrders(node)
        self._began, self._origin = self.clock.monotonic(), self.clock.now()
        self._polls = Polls()
        self._requests = Passes("requests", self.clock, self.metrics)
        self._timeouts = Passes("timeouts", self.clock, self.metrics, at_most=PAUSE)
        self._changed = asyncio.Event()
        self._closing = False

    def now(self) -> datetime:
        """Return the time; it never steps back, so that setting the clock times out no heartbeat."""
        return self._origin + timedelta(seconds=self.clock.monotonic() - self._began)

    async def ask(self, request: Request[Any]) -> Any:
        """Return the response to `request`, waiting if it is a long poll; None is "ask again".

        Raises a RequestError, or the unexpected error that it met.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def tell(reply: Any) -> None:
            if isinstance(reply, asyncio.CancelledError):
                answer.cancel()
            elif not answer.done():
                answer.set_result(reply)

        poll = self.take(request, tell)
        try:
            reply = await answer
        except asyncio.CancelledError:
            if poll:
                self.hang_up(poll)
            raise
        if isinstance(reply, Exception):
            raise reply
        return reply

    def take(self, request: Request[Any], tell: Tell) -> Poll | None:
        """Handle `request`; call `tell` with the response now, or later: then return what waits.

        The response may be an exception.
        """
        asked = self.now()
        try:
            reply = self._handle(request, asked)
            if reply is not None or type(request) not in dispatch.LATER:
                tell(self._told.note(self.job, request, reply))
                return None
        except RequestError as error:
            tell(error)
            return None
        except Exception as error:
            self._requests.count(type(request).__name__, error)
            tell(error)
            return None
        poll = Poll(request, self._until(request, asked), tell)
        self._polls.add(poll)
        return poll

    def hang_up(self, poll: Poll) -> None:
        """Handle a disconnect during a poll, unless the client repeats the poll on another connection.

        A disconnect after the deadline is the client's own timeout, not a lost node: a master that was
        suspended sees the old connection end before it accepts the next one.
        """
        self._polls.drop(poll)
        question = poll.request
        if self._closing or type(question) not in dispatch.CUT:
            return
        if self._polls.of_same_node(question):
            return
        if isinstance(question, Watch) and self.now() - poll.until > LATE:
            return
        self.become(dispatch.cut(self.job, question, self.now()))

    def doubt(self, watch: Watch) -> None:
        """Shorten the node's heartbeat deadline: its connection closed between two Watches."""
        if not self._closing and not self._polls.of_same_node(watch):
            self.become(nodes.doubt(self.job, watch, self.now()))

    def observe(self, change: Callable[[Job, datetime], Job]) -> None:
        """Apply a change observed outside of requests: pods, the spec."""
        self.become(dispatch.judge(change(self.job, self.now()), self.now()))

    def become(self, job: Job) -> None:
        """Replace the state; the long polls that it answers are woken soon."""
        if count_finished(job) != count_finished(self.job):
            self.unsaved.set()  # for the next master: the loss of a finished node ends no world
            if self._node:
                job = job.but(version=job.version + 1)  # and for heirs
        before, self.job = self.job, job
        if job.shards.news != before.shards.news:
            self._changed.set()
        if job.parameters.news != before.parameters.news:
            self._changed.set()
        if job.parameters.mark != before.parameters.mark:
            self.unsaved.set()
        if job.version == before.version:
            return
        self.unsaved.set()
        self._changed.set()
        if job.verdict:
            self.ended.set()
        changes.say(before, job)

    def on_save(self, job: Job) -> None:
        """Note that `job`, a state of before, is saved now."""
        after = book.after_save(self.job.shards, job.shards.mark)
        parameters = self.job.parameters.after_save(job.parameters.mark)
        if after is not self.job.shards or parameters is not self.job.parameters:
            self.become(self.job.but(shards=after, parameters=parameters))

    def retire(self, why: str) -> None:
        """End without a verdict, and leave the job's state to another master."""
        if not self.retired:
            log.warning("this master of job %s ends: %s", self.job.spec.job, why)
        self.retired = True
        self.ended.set()

    async def wait_until_told(self, limit: float) -> None:
        """Return when all connected agents have been told to stop, at the latest after `limit` seconds."""
        until = self.now() + timedelta(seconds=limit)
        while self._told.without_order(self.job) and self.now() < until:
            await self.clock.sleep(TICK)

    def hang_up_all(self) -> None:
        """Stop all long polls. From now on a closed connection says nothing about its node."""
        self._closing = True
        for poll in tuple(self._polls):
            self._polls.drop(poll)
            poll.tell(asyncio.CancelledError())

    async def wake(self) -> None:
        """Answer the polls that can be, whenever the job has changed; changes meanwhile are answered at once.

        Half of the time is left to requests: without a pause, a thousand losses one after another would wake
        ten thousand nodes a thousand times.
        """
        version = news = servers = -1
        while True:
            await self._changed.wait()
            self._changed.clear()
            began = self.clock.monotonic()
            if news != self.job.shards.news:
                news = self.job.shards.news
                await self._try_each(self._polls.consumers)
            if servers != self.job.parameters.news:
                servers = self.job.parameters.news
                planes = [each for each in self._polls if isinstance(each.request, dispatch.PLANES)]
                await self._try_each(planes)
            if version != self.job.version:
                version = self.job.version
                await self._try_each(self._polls)
            await asyncio.sleep(self.clock.monotonic() - began)

    async def tick(self) -> None:
        """Apply all timeouts, forever."""
        looked, training, mark = self.now(), self.job.training, self.job.shards.mark
        ticked = looked
        while True:
            await self.clock.sleep(TICK)
            slept, ticked = self.now() - ticked, self.now()
            if slept > LATE:  # suspended or starved: the heartbeats were missed here
                with self._timeouts.over("overslept"):
                    self.job = nodes.overslept(self.job, slept)
            self._time_out(ticked)
            self._expire(ticked)
            moved = training is not self.job.training or mark != self.job.shards.mark
            if moved and self.now() - looked > SAVE_PROGRESS:
                looked, training, mark = self.now(), self.job.training, self.job.shards.mark
                self.unsaved.set()

    def failed_passes(self) -> dict[str, float]:
        """Return how many passes of which loop met an unexpected error."""
        samples = (each for family in self.metrics.failed_passes.collect() for each in family.samples)
        return {each.labels["loop"]: each.value for each in samples if each.name.endswith("_total")}

    def _handle(self, request: Request[Any], now: datetime) -> Any:
        turn = dispatch.handle(self.job, request, now)
        self.become(turn.job)
        if turn.reply is not None or not isinstance(request, dispatch.CONSUMERS):
            return turn.reply
        if shards.waits_for_save(self.job, request):
            self.unsaved.set()
        return None

    def _until(self, request: Any, asked: datetime) -> datetime:
        """Return the deadline of a poll; a Watch must be repeated often enough to serve as heartbeat."""
        wait = timedelta(seconds=max(0.0, request.wait))
        if isinstance(request, Watch):
            wait = min(wait, self.job.spec.limits.silence / 2)
        return asked + wait

    async def _try_each(self, polls: Iterable[Poll]) -> None:
        for number, poll in enumerate(tuple(polls)):
            if poll in self._polls:
                self._try(poll)
            if number % MANY == MANY - 1:
                await asyncio.sleep(0)

    def _try(self, poll: Poll) -> None:
        """Answer `poll` if the job has a response now."""
        request, now = poll.request, self.now()
        try:
            reply = dispatch.LATER[type(request)](self.job, request, now)
            if reply is dispatch.AGAIN:
                reply = self._handle(request, now)
            if reply is not None:
                self._answer(poll, reply)
        except RequestError as error:
            self._answer(poll, error)
        except Exception as error:
            self._give_up(poll, error)

    def _answer(self, poll: Poll, reply: Any) -> None:
        self._polls.drop(poll)
        poll.tell(self._told.note(self.job, poll.request, reply))

    def _give_up(self, poll: Poll, error: Exception) -> None:
        """Answer a poll with the unexpected error that it met: its client asks again after a pause."""
        self._requests.count(type(poll.request).__name__, error)
        self._polls.drop(poll)
        poll.tell(error)

    def _expire(self, now: datetime) -> None:
        """Answer the polls whose time is over."""
        for poll in [poll for poll in self._polls if poll.until <= now]:
            try:
                self._answer(poll, dispatch.EXPIRED[type(poll.request)](self.job, poll.request, now))
            except Exception as error:
                self._give_up(poll, error)

    def _time_out(self, now: datetime) -> None:
        """Apply the timeouts that have expired; one that fails is left out for a while."""
        job = self.job
        for name, change in dispatch.TIMEOUTS.items():
            if self._timeouts.is_due(name):
                with self._timeouts.over(name):
                    job = change(job, now)
        with self._timeouts.over("job"):
            self.become(job)


def count_finished(job: Job) -> int:
    """Return how many nodes have finished."""
    return job.nodes.count(lambda kind: kind.finished)
