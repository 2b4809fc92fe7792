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
from typing import Final, TypeVar

import aiohttp
import msgspec

from elasticjob.api.resources import MalformedQuantity, Resources
from elasticjob.api.rpc.brain import (
    MOST_NODES,
    MOST_RECORDS,
    AskFirst,
    AskRecovery,
    AskSizes,
    JobFacts,
    NodeUse,
    Placement,
    RoleFacts,
    Sizes,
    StageName,
    Statistics,
    TellStatistics,
)
from elasticjob.api.rpc.message import JSON, PREFIX, Problem, Request, answer_type
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.kube.clock import Clock
from elasticjob.kube.http.bodies import read_bounded
from elasticjob.master.scaling.bounds import clip
from elasticjob.master.scaling.optimizer import Optimizer, OptimizerError, Question
from elasticjob.master.scaling.plan import Group, ResourcePlan
from elasticjob.master.state.job import Job
from elasticjob.master.state.scaling import Placed, Record, Wish

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
    """The connection to a Brain at host:port; the token is read anew for each call."""

    def __init__(self, address: str, token: Callable[[], str], session: aiohttp.ClientSession) -> None:
        self._url, self._token, self._session = f"http://{address}{PREFIX}", token, session

    async def call(self, request: Request[Answer]) -> Answer:
        """Return the answer. Raises OptimizerError, with the reason."""
        headers = {"Content-Type": JSON, "Authorization": f"Bearer {self._token()}"}
        body, where = msgspec.json.encode(request), f"Brain at {self._url}"
        try:
            async with (
                asyncio.timeout(SECONDS),
                self._session.post(self._url + request.PATH, data=body, headers=headers) as response,
            ):
                found = await read_bounded(response, LARGEST)
        except TimeoutError:
            raise OptimizerError(f"{where} does not answer within {SECONDS:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise OptimizerError(f"{where} is away: {error}") from error
        if len(found) > LARGEST:
            raise OptimizerError(f"{where} answers with more than {LARGEST} bytes")
        return _read(found, response.status, answer_type(type(request)), where)


class BrainOptimizer:
    """Asks Brain, whose answers are clipped to what a plan may sensibly say."""

    def __init__(self, brain: Brain, namespace: str, uid: str) -> None:
        self._brain, self._namespace, self._uid = brain, namespace, uid

    async def plan(self, question: Question) -> ResourcePlan:
        """Return what the job should have at this stage."""
        asked = AskSizes(
            job=self._facts(question),
            stage=StageName(question.stage.value),
            placed=_placement(question.placed),
            records=_statistics(question.records),
            settled=question.settled,
        )
        return _plan(await self._brain.call(asked))

    async def recovery_plan(self, question: Question, nodes: tuple[str, ...]) -> ResourcePlan:
        """Return what nodes get that were out of memory."""
        asked = AskRecovery(
            job=self._facts(question),
            nodes=nodes,
            placed=_placement(question.placed),
            records=_statistics(question.records),
        )
        return _plan(await self._brain.call(asked))

    async def first_plan(self, question: Question) -> ResourcePlan:
        """Return what a job starts with of which nothing is known."""
        return _plan(await self._brain.call(AskFirst(job=self._facts(question))))

    def _facts(self, question: Question) -> JobFacts:
        return facts(self._namespace, question.job, self._uid, question.wish)


class WithStandIn:
    """Asks one optimizer, and another while the first cannot answer; the plan's reason says so."""

    def __init__(self, first: Optimizer, other: Optimizer) -> None:
        self._first, self._other = first, other
        self._away = False

    async def plan(self, question: Question) -> ResourcePlan:
        """Return what the job should have at this stage."""
        try:
            return self._back(await self._first.plan(question))
        except OptimizerError as error:
            return self._said(error, await self._other.plan(question))

    async def recovery_plan(self, question: Question, nodes: tuple[str, ...]) -> ResourcePlan:
        """Return what nodes get that were out of memory."""
        try:
            return self._back(await self._first.recovery_plan(question, nodes))
        except OptimizerError as error:
            return self._said(error, await self._other.recovery_plan(question, nodes))

    async def first_plan(self, question: Question) -> ResourcePlan:
        """Return what a job starts with of which nothing is known."""
        try:
            return self._back(await self._first.first_plan(question))
        except OptimizerError as error:
            return self._said(error, await self._other.first_plan(question))

    def _back(self, plan: ResourcePlan) -> ResourcePlan:
        if self._away:
            log.info("Brain answers again")
        self._away = False
        return plan

    def _said(self, error: OptimizerError, plan: ResourcePlan) -> ResourcePlan:
        if not self._away:
            log.warning("sizes are decided without Brain: %s", error)
        self._away = True
        return replace(plan, reason=f"{error}, so the job decides alone: {plan.reason}")


class Reporter:
    """Sends the records of a job to Brain as they come; while Brain is away it drops the oldest."""

    def __init__(self, brain: Brain, namespace: str, uid: str, job: Callable[[], Job], clock: Clock) -> None:
        self._brain, self._namespace, self._uid = brain, namespace, uid
        self._job, self._clock = job, clock
        self._waiting = deque[Record](maxlen=KEPT)
        self._seen: datetime | None = None
        self.dropped = 0

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
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
            job=facts(self._namespace, job.spec.job, self._uid, job.spec.wish),
            records=_statistics(self._waiting),
            dropped=self.dropped,
        )
        try:
            await self._brain.call(told)
        except OptimizerError as error:
            log.debug("statistics are not sent, again in %g s: %s", EVERY, error)
        else:
            self._waiting.clear()


def facts(namespace: str, name: str, uid: str, wish: Wish) -> JobFacts:
    """Return which job it is, and what its user says."""
    roles = {role: RoleFacts(**msgspec.structs.asdict(each)) for role, each in wish.roles.items()}
    return JobFacts(
        namespace=namespace, name=name, uid=uid, strategy=wish.strategy, roles=roles, limits=wish.limits
    )


def _statistics(records: Iterable[Record]) -> tuple[Statistics, ...]:
    newest = tuple(records)[-MOST_RECORDS:]
    return tuple(
        Statistics(
            at=record.at,
            workers=record.workers,
            steps=record.steps,
            samples=record.samples,
            nodes=tuple(
                NodeUse(name=u.name, role=u.role, cpu=u.cpu, memory=u.memory, cores=u.cores, bytes=u.bytes)
                for u in record.nodes[:MOST_NODES]
            ),
        )
        for record in newest
    )


def _placement(placed: Placed) -> Placement:
    return Placement(
        sizes=placed.sizes,
        resources=placed.resources,
        nodes=placed.nodes,
        room=placed.room,
        machine=placed.machine,
    )


def _plan(sizes: Sizes) -> ResourcePlan:
    try:
        groups = {role: Group(s.count, Resources.parse(s.resource)) for role, s in sizes.groups.items()}
        nodes = {name: Resources.parse(resource) for name, resource in sizes.nodes.items()}
    except MalformedQuantity as error:
        raise OptimizerError(f"Brain answers with an amount that cannot be read: {error}") from error
    by = f" ({sizes.algorithm})" if sizes.algorithm else ""
    return clip(ResourcePlan(groups, nodes, f"{sizes.reason or 'Brain says so'}{by}"))


def _read(body: bytes, status: int, answer: type[Answer], where: str) -> Answer:
    try:
        if status == 200:
            return msgspec.json.decode(body, type=answer)
        problem = msgspec.json.decode(body, type=Problem)
    except UNREADABLE as error:
        raise OptimizerError(f"{where} answers what no Brain says (HTTP {status}): {error}") from error
    raise OptimizerError(f"{where} refuses: {problem.title}: {problem.detail}")
