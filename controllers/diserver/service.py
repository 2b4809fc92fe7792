"""The calls of di-server: the caller is found, what its call needs is read, and the decision is carried out.

A token is looked at before anything is asked of the API server: the caches know the jobs, and so their
tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakValueDictionary

from elasticjob.api.belongings import of_others
from elasticjob.api.diengine import names, pods
from elasticjob.api.diengine.aggregatorconfig import AggregatorConfig
from elasticjob.api.diengine.dijob import DIJOB, DIJob
from elasticjob.api.diengine.gpus import Machine
from elasticjob.api.diengine.names import Role
from elasticjob.controllers.diserver import orders
from elasticjob.controllers.diserver.access import Access
from elasticjob.controllers.diserver.apply import Waiting, Writer, replicas_of, together
from elasticjob.controllers.diserver.asked import Limits, Query, Refusal, Report
from elasticjob.controllers.diserver.decide import (
    Call,
    Creations,
    Deletions,
    EarlierCall,
    Question,
    Replacements,
    Seen,
    not_of,
    splits,
)
from elasticjob.controllers.diserver.seen import Pods, Replicas, answer, has_no_token, is_starting, owner_of
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.patience import Patience
from elasticjob.kube.errors import AlreadyExists
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import NODE, POD, Pod

CONFIG: Final = Key("di-system", "aggregator-config")
DRAWS: Final = 5


@dataclass(frozen=True)
class Caches:
    """The caches of di-server."""

    jobs: Cache[DIJob]
    pods: Cache[Pod]
    configs: Cache[AggregatorConfig]

    @property
    def in_step(self) -> bool:
        """Whether all are in step."""
        return self.jobs.synced and self.pods.synced and self.configs.synced


@dataclass(frozen=True)
class Options:
    """Settings of an installation: the bounds, the place of the cluster's AggregatorConfig, the only
    namespace ("" for all), and how the ports of ddp pods are counted.
    """

    limits: Limits = field(default_factory=Limits)
    config: Key = CONFIG
    namespace: str = ""
    local_ports: bool = False


@dataclass(frozen=True)
class Caller:
    """The pod that calls, and the pods of its job, as the caches have them."""

    pod: Pod
    pods: Pods

    @property
    def job(self) -> DIJob:
        """Its job."""
        return self.pods.job

    @property
    def uid(self) -> str:
        """The uid of its job."""
        return self.pods.job.metadata.uid


@dataclass(frozen=True)
class Service:
    """Answers calls. `random_suffix` draws the last part of names."""

    client: Client
    caches: Caches
    writer: Writer
    access: Access
    patience: Patience
    random_suffix: Callable[[], str]
    options: Options = Options()
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    """By uid of a job: limits hold only where its calls for more replicas come one after another."""
    _warned: set[str] = field(default_factory=set)
    """The uids of jobs whose users know that a token is missing."""

    # reading

    async def read(self, query: Query, token: str) -> list[Replicas] | Replicas | None:
        """Answer a GET."""
        if query.namespace and (query.coordinator or query.aggregator or query.name):
            return await self._read_one(query, token)
        self.access.check_all(token)
        return [found.replicas() for found in self._jobs(query.namespace)]

    async def _read_one(self, query: Query, token: str) -> Replicas | None:
        if query.name and self.access.key_file is None:
            return self._one(query.namespace, query.name)
        caller = await self.caller(
            query.namespace, query.name or query.coordinator or query.aggregator, token
        )
        if query.name:
            return self._one(query.namespace, query.name)
        role = Role.COORDINATOR if query.coordinator else Role.AGGREGATOR
        if pods.role_of(caller.pod) is not role:
            raise not_of(caller.pod, role)
        found = await self._steady_pods(caller.pods)
        return found.replicas() if query.coordinator else found.processes(caller.pod)

    def _jobs(self, namespace: str) -> Iterable[Pods]:
        for job in self.caches.jobs.list(namespace):
            found = Pods.of(job, self.caches.pods.owned_by(job.metadata.uid))
            if found.by_name(found.coordinator):
                yield found

    def _one(self, namespace: str, name: str) -> Replicas | None:
        pod = self.caches.pods.get((namespace, name))
        owner = owner_of(pod) if pod else None
        job = self.caches.jobs.get((namespace, owner[0])) if owner else None
        if pod is None or owner is None or job is None or job.metadata.uid != owner[1]:
            return None
        if pods.role_of(pod) is Role.COLLECTOR:
            return answer(job, names.coordinator(owner[0]), (pod,), ())
        return answer(job, names.coordinator(owner[0]), (), (pod,))

    async def _steady_pods(self, found: Pods) -> Pods:
        """The pods of a job once no replacement under an old name is under way."""
        uid = found.job.metadata.uid
        if uid not in self.writer.moving:
            return found
        await self.writer.until(lambda: uid not in self.writer.moving)
        return Pods.of(found.job, self.caches.pods.owned_by(uid))

    # callers

    async def caller(self, namespace: str, name: str, token: str) -> Caller:
        """Return who calls. A pod that the caches do not have is asked of the API server, once.

        Raises Refused for one that may not call (401, 403), or is not of a DIJob that exists (404).
        """
        place = (namespace, name)
        if not token and self.caches.pods.meta(place) is None and self._some_need_none(namespace):
            await self.writer.until(lambda: self.caches.pods.meta(place) is not None)
        pod = self.caches.pods.get(place)
        known = owner_of(pod) if pod is not None else None
        if known is None or not self._needs_none(namespace, known):
            self._expect_token(namespace, known, token)
        if self.options.namespace and namespace != self.options.namespace:
            raise Refusal(404, f"di-server serves the namespace {self.options.namespace} only")
        pod = pod or await self._new_caller(namespace, name, token)
        owner = owner_of(pod) if pod is not None else None
        if pod is None or owner is None:
            raise Refusal(404, f"{namespace}/{name} is not a pod of a DIJob")
        if not self._needs_none(namespace, owner):
            self.access.check(owner[1], token)
        job = self.caches.jobs.get((namespace, owner[0]))
        if job is None or job.metadata.uid != owner[1]:
            job = await self.patience(lambda: self.client.find(DIJOB, owner[0], namespace))
        if job is None or job.metadata.uid != owner[1]:
            raise Refusal(404, f"the DIJob of {namespace}/{name} is gone")
        return Caller(pod, Pods.of(job, self.caches.pods.owned_by(job.metadata.uid)))

    def _needs_none(self, namespace: str, owner: tuple[str, str]) -> bool:
        return has_no_token(self.caches.pods, Key(namespace, owner[0]), owner[1])

    def _some_need_none(self, namespace: str) -> bool:
        jobs = (item.meta for item in self.caches.jobs.items() if item.meta.namespace == namespace)
        return any(self._needs_none(namespace, (meta.name, meta.uid)) for meta in jobs)

    def _expect_token(self, namespace: str, owner: tuple[str, str] | None, token: str) -> None:
        """Raise Refused without a token; the users of a job hear why, once."""
        try:
            self.access.expect_token(token)
        except Refusal as refused:
            job = self.caches.jobs.get((namespace, owner[0])) if owner else None
            if job is not None and job.metadata.uid not in self._warned:
                self._warned.add(job.metadata.uid)
                self.writer.event(job, "Warning", "TokenMissing", refused.message)
            raise

    async def _new_caller(self, namespace: str, name: str, token: str) -> Pod | None:
        """A pod that the caches may learn of a moment later. Without a token of a job of its namespace the
        API server is not asked: that of a job which the caches do not know either is waited for.
        """
        if not self._is_known(namespace, token):
            await self.writer.until(lambda: self.caches.pods.meta((namespace, name)) is not None)
            if (pod := self.caches.pods.get((namespace, name))) is not None:
                return pod
            if not self._is_known(namespace, token):
                raise Waiting(f"no job of {namespace} with this token is known yet, ask again")
        return await self.patience(lambda: self.client.find(POD, name, namespace))

    def _is_known(self, namespace: str, token: str) -> bool:
        items = (item.meta for item in self.caches.jobs.items() if item.meta.namespace == namespace)
        return self.access.is_of_one(token, (meta.uid for meta in items))

    # writing

    async def carry_out(self, caller: Caller, question: Question, call: Call) -> Replicas:
        """Decide on a request of a coordinator, and apply the decision."""
        if not question.fresh:
            return await self._carry_out(caller, question, call)
        config = self._config(caller.job)
        for wrong in (*of_others(caller.job), *(of_others(config, caller.job) if config else ())):
            raise Refusal(403, f"no pods are made: {wrong}")
        turn = self._turns.setdefault(caller.uid, asyncio.Lock())
        async with turn:
            for _ in range(DRAWS):
                try:
                    return await self._carry_out(caller, question, call)
                except AlreadyExists:  # another pod has a name that was drawn
                    continue
        raise Refusal(409, f"no free name was found in {DRAWS} draws: ask again")

    async def _carry_out(self, caller: Caller, question: Question, call: Call) -> Replicas:
        match question.decide(await self._look(caller, question, call), self.options.limits):
            case Refusal() as refused:
                raise refused
            case EarlierCall(before):
                return replicas_of(caller.job, before)
            case Creations() as decided:
                return await self.writer.create(caller.job, decided, call)
            case Deletions() as decided:
                return await self.writer.delete(caller.job, decided)
            case Replacements() as decided:
                return await self.writer.replace(caller.job, caller.pod, decided)

    async def _look(self, caller: Caller, question: Question, call: Call) -> Seen:
        """Read what a rule asks about."""
        found = caller.pods
        if question.fresh:
            found = Pods.of(caller.job, await self.patience(lambda: self._live(caller.job)))
        needed, report = splits(found, question.asked), question.asked
        return Seen(
            found,
            caller.pod,
            call,
            self.random_suffix,
            self._config(caller.job) if needed else None,
            await self._machines(caller.job) if needed else (),
            await self._starting(found, report) if isinstance(report, Report) else frozenset(),
            self.options.local_ports,
        )

    async def _live(self, job: DIJob) -> list[Pod]:
        chosen = f"{names.OURS},{names.LABEL_JOB}={job.metadata.name}"
        return await self.client.list(POD, job.metadata.namespace, labels=chosen)

    def _config(self, job: DIJob) -> AggregatorConfig | None:
        """How aggregators are made: the AggregatorConfig of the job's namespace, else that of the cluster."""
        place = self.options.config
        return self.caches.configs.get((job.metadata.namespace, place.name)) or self.caches.configs.get(place)

    async def _machines(self, job: DIJob) -> tuple[Machine, ...]:
        """The machines with their free GPUs. A di-server of one namespace sees the pods of that one alone:
        GPUs that others use count as free there, and the scheduler has the last word.
        """
        if job.spec.learner is None:
            return ()
        nodes = await self.patience(lambda: self.client.list(NODE))
        bound = await self.patience(lambda: self.client.list(POD, self.options.namespace))
        return tuple(orders.machines_for(job.spec.learner.template.get("spec") or {}, nodes, bound))

    async def _starting(self, found: Pods, report: Report) -> frozenset[str]:
        """The reported pods that only start. The API server is asked, too: a caller may have met a pod of
        which the caches learn later.
        """
        reported = (found.by_name(name) for name in (*report.collectors, *report.learners))
        shown = [pod for pod in reported if pod is not None and is_starting(pod)]

        async def live(pod: Pod) -> Pod | None:
            about = pod.metadata
            return await self.patience(lambda: self.client.find(POD, about.name, about.namespace))

        now = await together(live(pod) for pod in shown)
        return frozenset(pod.metadata.uid for pod in now if pod is not None and is_starting(pod))
