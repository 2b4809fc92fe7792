"""The client of the Brain service: its optimizer, what stands in while it is away, and the reports to it.

All calls are bounded in time, and none is repeated: a question is asked again by the loop that asked it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from email.utils import format_datetime
from typing import Final, TypeVar

import aiohttp
import msgspec

from elasticjob.api.resources import MalformedQuantity
from elasticjob.api.rpc.brain import MOST_RECORDS, AskSizes, Sizes, TellStatistics
from elasticjob.api.rpc.message import JSON, PREFIX, Problem, Request, answer_type
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.api.sizes.change import Change
from elasticjob.api.sizes.facts import MOST_NODES, Placement, Sample
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.http.bodies import read_at_most
from elasticjob.kube.metrics import Metrics
from elasticjob.master.scaling.optimizer import Optimizer, OptimizerError
from elasticjob.master.state.job import Job
from elasticjob.sizing.bounds import clip
from elasticjob.sizing.facts import Facts

log = logging.getLogger("elasticjob.master")

Answer = TypeVar("Answer")
SECONDS: Final = 5.0
"""The longest time of a call."""
LARGEST: Final = 1024 * 1024
"""Bytes of an answer."""
KEPT: Final = 64
"""Records that wait for a Brain that is away; older ones are dropped."""
EVERY: Final = 15.0
"""Seconds between two reports."""


class Brain:
    """The connection to a Brain at host:port; the token is read anew for each call.

    Each call says the time of this clock, that of the records: Brain may have another one.
    """

    def __init__(
        self,
        address: str,
        token: Callable[[], str],
        session: aiohttp.ClientSession,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._url, self._token, self._session = f"http://{address}{PREFIX}", token, session
        self._now = now or SystemClock().now

    async def call(self, request: Request[Answer]) -> Answer:
        """Return the answer. Raises OptimizerError, with the reason."""
        body, where = msgspec.json.encode(request), f"Brain at {self._url}"
        try:
            headers = {"Content-Type": JSON, "Authorization": f"Bearer {self._token()}"}
            headers["Date"] = format_datetime(self._now(), usegmt=True)
        except (OSError, UnicodeDecodeError) as error:
            raise OptimizerError(f"{where} is not asked: the token for it cannot be read: {error}") from error
        try:
            async with (
                asyncio.timeout(SECONDS),
                self._session.post(self._url + request.PATH, data=body, headers=headers) as response,
            ):
                found = await read_at_most(response, LARGEST)
        except TimeoutError:
            raise OptimizerError(f"{where} does not answer within {SECONDS:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise OptimizerError(f"{where} is away: {error}") from error
        if len(found) > LARGEST:
            raise OptimizerError(f"{where} answers with more than {LARGEST} bytes")
        return _read(found, response.status, answer_type(type(request)), where)


class BrainOptimizer:
    """Asks Brain, whose answers are clipped to what a plan may sensibly say."""

    def __init__(self, brain: Brain) -> None:
        self._brain = brain

    async def plan(self, facts: Facts) -> Change:
        """Return what the job should have; an empty change says why nothing changes."""
        asked = AskSizes(
            job=facts.job,
            stage=facts.stage,
            placed=_plain(facts.placed),
            records=_newest(facts.samples),
            settled=facts.settled,
        )
        return _change(await self._brain.call(asked))


class WithStandIn:
    """Asks one optimizer, and another while the first cannot answer; the plan's reason says so."""

    def __init__(self, first: Optimizer, other: Optimizer) -> None:
        self._first, self._other = first, other
        self._away = False

    async def plan(self, facts: Facts) -> Change:
        """Return what the job should have; an empty change says why nothing changes."""
        try:
            change = await self._first.plan(facts)
        except OptimizerError as error:
            return self._say(error, await self._other.plan(facts))
        if self._away:
            log.info("Brain answers again")
        self._away = False
        return change

    def _say(self, error: OptimizerError, change: Change) -> Change:
        if not self._away:
            log.warning("sizes are decided without Brain: %s", error)
        self._away = True
        return replace(change, reason=f"{error}, so the job decides alone: {change.reason}")


class Reporter:
    """Sends the records of a job to Brain as they come; while Brain is away it drops the oldest."""

    def __init__(self, brain: Brain, job: Callable[[], Job], clock: Clock, metrics: Metrics) -> None:
        self._brain, self._job, self._clock, self._metrics = brain, job, clock, metrics
        self._waiting = deque[Sample](maxlen=KEPT)
        self._seen: datetime | None = None
        self.dropped = 0

    async def run(self) -> None:
        """Report until cancelled."""
        passes = Passes("statistics", self._clock, self._metrics)
        while True:
            with passes.over(self._job().spec.job):
                self.look()
                await self.send()
            await self._clock.sleep(EVERY)

    def look(self) -> None:
        """Take the records that are new since the last look."""
        for record in self._job().scaling.records:
            if self._seen is None or record.at > self._seen:
                self._seen = record.at
                self.dropped += len(self._waiting) == KEPT
                self._waiting.append(record)

    async def send(self) -> None:
        """Send what waits; keep it if Brain is away."""
        if not self._waiting:
            return
        job = self._job()
        told = TellStatistics(
            job=job.spec.sizes,
            records=_newest(self._waiting),
            dropped=self.dropped,
        )
        try:
            await self._brain.call(told)
        except OptimizerError as error:
            log.debug("statistics are not sent, again in %g s: %s", EVERY, error)
        else:
            self._waiting.clear()


def _newest(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """The newest samples, with as many nodes as a message may have."""
    newest = tuple(samples)[-MOST_RECORDS:]
    return tuple(sample.but(nodes=sample.nodes[:MOST_NODES]) for sample in newest)


def _plain(placed: Placement) -> Placement:
    """What should run, without what the master remembers of plans."""
    plain = Placement(**{name: getattr(placed, name) for name in Placement.__struct_fields__})
    return plain.but(nodes=dict(list(plain.nodes.items())[-MOST_NODES:]))


def _change(sizes: Sizes) -> Change:
    try:
        change = sizes.change
    except MalformedQuantity as error:
        raise OptimizerError(f"Brain answers with an amount that cannot be read: {error}") from error
    by = f" ({change.algorithm})" if change.algorithm else ""
    return clip(replace(change, reason=f"{change.reason or 'Brain says so'}{by}", algorithm=""))


def _read(body: bytes, status: int, answer: type[Answer], where: str) -> Answer:
    try:
        if status == 200:
            return msgspec.json.decode(body, type=answer)
        problem = msgspec.json.decode(body, type=Problem)
    except UNREADABLE as error:
        raise OptimizerError(f"{where} answers what no Brain says (HTTP {status}): {error}") from error
    raise OptimizerError(f"{where} refuses: {problem.title}: {problem.detail}")
