"""The calls of di-server, carried out: everything is checked first, then written; what fails is rolled back.

A call that is repeated while it runs, or whose response could not be delivered, is joined by server.py. For
one that was cut off by the end of this process, the first pod carries a digest of the call until its response
is delivered: an equal call that finds it takes over what was made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from elasticjob.api.diengine import names, pods
from elasticjob.api.diengine.aggregatorconfig import AggregatorConfig
from elasticjob.api.diengine.dijob import DIJOB, DIJob
from elasticjob.api.diengine.names import Role
from elasticjob.api.diengine.pods import GPU, Server
from elasticjob.controllers.diserver import orders
from elasticjob.controllers.diserver.asked import Amounts, Ask, Query, Refused, Report
from elasticjob.controllers.diserver.orders import Draw, Order, Ordered
from elasticjob.controllers.diserver.seen import Crew, Replicas, answer, going_first, is_starting, owner_of
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.recorder import Recorder, reference
from elasticjob.kube.clock import Clock, deadline
from elasticjob.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import NODE, POD, Pod

T = TypeVar("T")

CONFIG: Final = Key("di-system", "aggregator-config")
PASSING: Final = (Unreachable, ServerError, TooManyRequests)
"""Trouble that ends by itself: clients of DI-engine die of an error, and wait for an answer without end."""
AT_ONCE: Final = 16
DRAWS: Final = 5

log = logging.getLogger(__name__)


def _is_passing(error: KubeError) -> bool:
    return isinstance(error, PASSING)


def _is_quota(error: KubeError) -> bool:
    return isinstance(error, Forbidden) and "quota" in error.message


def _is_passing_or_quota(error: KubeError) -> bool:
    return _is_passing(error) or _is_quota(error)


class Waiting(Exception):
    """What is asked cannot be had now: the client is told to ask again. `done` is what was done."""

    def __init__(self, message: str, done: Replicas | None = None) -> None:
        super().__init__(message)
        self.message, self.done = message, done


@dataclass(frozen=True)
class Caches:
    """What di-server watches."""

    jobs: Cache[DIJob]
    pods: Cache[Pod]
    configs: Cache[AggregatorConfig]

    @property
    def synced(self) -> bool:
        """Whether all are in step."""
        return self.jobs.synced and self.pods.synced and self.configs.synced


@dataclass(frozen=True)
class Limits:
    """Bounds of what is asked, and where the AggregatorConfig is.

    `patience`: seconds to wait for trouble to pass; `shown`: for the caches to show what was written.
    """

    per_request: int = 256
    per_job: int = 2048
    config: Key = CONFIG
    local_ports: bool = False
    patience: float = 30.0
    shown: float = 5.0


@dataclass(frozen=True)
class Call:
    """The identity of a call that writes: `id` labels the pods that it makes, equal calls have one `digest`.

    `keyed`: the caller gave an Idempotency-Key.
    """

    id: str
    digest: str
    keyed: bool = False


@dataclass(frozen=True)
class Desk:
    """Carries out calls. `letters` draws the last part of names."""

    client: Client
    caches: Caches
    recorder: Recorder
    clock: Clock
    letters: Callable[[], str]
    told: Server
    limits: Limits = Limits()
    _moving: dict[str, int] = field(default_factory=dict)
    """Replacements under the old name that are under way, by uid of the job."""

    # reading

    async def read(self, query: Query) -> list[Replicas] | Replicas | None:
        """Answer a GET."""
        if not query.namespace:
            return [crew.replicas() for crew in self._crews("")]
        if query.name:
            return self._one(query.namespace, query.name)
        if query.coordinator:
            crew, caller = await self.crew(query.namespace, query.coordinator)
            _expect(caller, Role.COORDINATOR)
            return (await self._settled(crew)).replicas()
        if query.aggregator:
            crew, caller = await self.crew(query.namespace, query.aggregator)
            _expect(caller, Role.AGGREGATOR)
            return (await self._settled(crew)).processes(caller)
        return [crew.replicas() for crew in self._crews(query.namespace)]

    def _crews(self, namespace: str) -> Iterable[Crew]:
        for job in self.caches.jobs.list(namespace):
            crew = Crew.of(job, self.caches.pods.owned_by(job.metadata.uid))
            if crew.named(crew.coordinator):
                yield crew

    def _one(self, namespace: str, name: str) -> Replicas | None:
        pod = self.caches.pods.get((namespace, name))
        owner = owner_of(pod) if pod else None
        job = self.caches.jobs.get((namespace, owner[0])) if owner else None
        if pod is None or owner is None or job is None or job.metadata.uid != owner[1]:
            return None
        if pods.role_of(pod) is Role.COLLECTOR:
            return answer(job, names.coordinator(owner[0]), (pod,), ())
        return answer(job, names.coordinator(owner[0]), (), (pod,))

    async def crew(self, namespace: str, name: str) -> tuple[Crew, Pod]:
        """Return the job of a calling pod, and the pod. What the caches miss is asked of the server once.

        Raises Refused (404) for a pod that is not of a DIJob that exists.
        """
        pod = self.caches.pods.get((namespace, name)) or await self.patiently(
            lambda: self.client.find(POD, name, namespace)
        )
        owner = owner_of(pod) if pod is not None else None
        if pod is None or owner is None:
            raise Refused(404, f"{namespace}/{name} is not a pod of a DIJob")
        job = self.caches.jobs.get((namespace, owner[0]))
        if job is None or job.metadata.uid != owner[1]:
            job = await self.patiently(lambda: self.client.find(DIJOB, owner[0], namespace))
        if job is None or job.metadata.uid != owner[1]:
            raise Refused(404, f"the DIJob of {namespace}/{name} is gone")
        return Crew.of(job, self.caches.pods.owned_by(job.metadata.uid)), pod

    async def _settled(self, crew: Crew) -> Crew:
        """The crew once no replacement under an old name is under way."""
        uid = crew.job.metadata.uid
        if uid not in self._moving:
            return crew
        await self._until(lambda: uid not in self._moving)
        return Crew.of(crew.job, self.caches.pods.owned_by(uid))

    # creating

    async def add(self, crew: Crew, ask: Ask, call: Call) -> Replicas:
        """Make the replicas that a coordinator asks for; all of them or none."""
        _expect_running(crew.job)
        self._check(crew.job, ask)
        live = Crew.of(crew.job, await self.patiently(lambda: self._live(crew.job)))
        made = await self._made_before(live, call)
        if made is not None:
            return made
        wanted = ask.collectors.replicas + ask.learners.replicas
        there = len(live.collectors) + len(live.learners)
        if there + wanted > self.limits.per_job:
            raise Refused(
                400,
                f"a job has at most {self.limits.per_job} replicas: it has {there}, and asks for {wanted}",
            )
        config = await self._config(crew.job) if ask.learners.gpus > 1 and ask.learners.replicas else None
        for _ in range(DRAWS):
            ordered = await self._ordered(crew.job, ask)
            try:
                return await self._carry_out(crew.job, ordered, config, call)
            except AlreadyExists:  # another pod has a name that was drawn
                continue
        raise Refused(409, f"no free name was found in {DRAWS} draws: ask again")

    async def _carry_out(
        self, job: DIJob, ordered: tuple[Ordered, Ordered], config: AggregatorConfig | None, call: Call
    ) -> Replicas:
        size = sum(each.size for each in ordered)
        todo = [order for each in ordered for order in each.orders]
        made = list[Pod]()
        try:
            for first in todo[:1]:
                await self._make(job, first, config, _Mark(call, size, first=True), made)
            mark = _Mark(call, size)
            await self._together(self._make(job, order, config, mark, made) for order in todo[1:])
        except KubeError as error:
            left = await self._roll_back(made)
            if isinstance(error, AlreadyExists):
                raise
            raise self._trouble(job, error, _of(job, left)) from error
        if missing := ordered[1].missing:
            self.recorder.event(reference(DIJOB, job), "Warning", "NoRoomForLearners", missing)
        for pod in made:
            note = f"Created pod {pod.metadata.name}"
            self.recorder.event(reference(DIJOB, job), "Normal", "SuccessfulCreate", note)
        await self._until(lambda: all(self.caches.pods.meta(_key(pod)) for pod in made))
        return _of(job, made)

    async def _make(
        self, job: DIJob, order: Order, config: AggregatorConfig | None, mark: _Mark, made: list[Pod]
    ) -> None:
        """Make the pod of an order, then its ddp pods, and add them to `made` as they come."""
        template = (
            config.spec.aggregator
            if order.role is Role.AGGREGATOR and config
            else job.spec.template(order.role)
        )
        manifest = pods.pod(
            job, order.role, order.name, self.told, template.template if template else {}, order.resources
        )
        one = await self._create(mark.on(manifest), freed=bool(mark.replaces))
        made.append(one)
        if not order.members or job.spec.learner is None:
            return
        learner = job.spec.learner.template
        members = [
            pods.pod(
                job,
                Role.DDP_LEARNER,
                member.name,
                self.told,
                learner,
                member.resources,
                place=member.place,
                aggregator=one,
                aggregator_url=pods.url_of(one),
            )
            for member in order.members
        ]
        rest = _Mark(mark.call, mark.size)
        freed = bool(mark.replaces)
        made += await self._together(self._create(rest.on(member), freed=freed) for member in members)

    async def _create(self, manifest: Manifest, *, freed: bool = False) -> Pod:
        """Make a pod; one that this call has made already, whose answer was lost, is returned.

        `freed`: another pod was deleted for it: quotas learn of that a moment later, and are waited for.
        """
        about = manifest["metadata"]

        async def attempt() -> Pod:
            try:
                return await self.client.create(POD, manifest)
            except AlreadyExists:
                found = await self.client.find(POD, about["name"], about["namespace"])
                request = about["labels"].get(names.LABEL_REQUEST)
                if (
                    found is None
                    or request is None
                    or found.metadata.labels.get(names.LABEL_REQUEST) != request
                ):
                    raise
                return found

        return await self.patiently(attempt, _is_passing_or_quota if freed else _is_passing)

    async def _made_before(self, live: Crew, call: Call) -> Replicas | None:
        """The answer to an equal call that was cut off, or has this key; what it made in part is undone."""
        firsts = [pod for pod in live.pods if pod.metadata.annotations.get(names.UNANSWERED) == call.digest]
        wanted = {pod.metadata.labels.get(names.LABEL_REQUEST) for pod in firsts} | (
            {call.id} if call.keyed else set()
        )
        group = [pod for pod in live.pods if pod.metadata.labels.get(names.LABEL_REQUEST) in wanted - {None}]
        if not group:
            return None
        about = group[0].metadata.annotations
        if call.keyed and about.get(names.REQUEST_BODY) != call.digest:
            raise Refused(409, "the Idempotency-Key was used for another body: use a new one")
        unanswered = any(names.UNANSWERED in pod.metadata.annotations for pod in group)
        if unanswered and len(group) < int(about.get(names.REQUEST_PODS, "0")):
            await self._roll_back(group)
            return None
        return _of(live.job, group)

    async def delivered(self, job: DIJob, call: Call) -> None:
        """Note that the response to a call has arrived: an equal call asks for more."""
        for pod in self.caches.pods.owned_by(job.metadata.uid):
            about = pod.metadata
            if about.annotations.get(names.UNANSWERED) != call.digest:
                continue
            patch: Manifest = {"metadata": {"uid": about.uid, "annotations": {names.UNANSWERED: None}}}
            with suppress(KubeError):
                await self.client.merge_patch(POD, about.name, patch, about.namespace)

    def _check(self, job: DIJob, ask: Ask) -> None:
        for role, amounts in ((Role.COLLECTOR, ask.collectors), (Role.LEARNER, ask.learners)):
            if amounts.replicas > self.limits.per_request:
                most = self.limits.per_request
                raise Refused(400, f"{amounts.replicas} {role}s are more than one call may ask for: {most}")
            if amounts.replicas and job.spec.template(role) is None:
                raise Refused(
                    400, f"DIJob {job.metadata.name} has no spec.{role}: add its template to the job"
                )

    async def _config(self, job: DIJob) -> AggregatorConfig:
        """How aggregators are made: the AggregatorConfig of the job's namespace, else that of the cluster."""
        place = self.limits.config
        for key in (Key(job.metadata.namespace, place.name), place):
            if (found := self.caches.configs.get(key)) is not None:
                return found
        raise Refused(404, f"there is no AggregatorConfig {place}: learners with several GPUs need it")

    async def _ordered(self, job: DIJob, ask: Ask) -> tuple[Ordered, Ordered]:
        draw = Draw(job.metadata.name, self.letters)
        machines = []
        if ask.learners.gpus > 1 and job.spec.learner is not None:
            nodes = await self.patiently(lambda: self.client.list(NODE))
            bound = await self.patiently(lambda: self.client.list(POD))
            machines = orders.machines_for(job.spec.learner.template.get("spec") or {}, nodes, bound)
        found = orders.learners(ask.learners, machines, draw, local_ports=self.limits.local_ports)
        return orders.collectors(ask.collectors, draw), found

    # deleting

    async def remove(self, crew: Crew, ask: Ask) -> Replicas:
        """Delete as many replicas as are there, pending ones first; aggregators with their ddp pods."""
        collectors = going_first(crew.collectors)[: ask.collectors.replicas]
        learners = going_first(crew.learners)[: ask.learners.replicas]
        members = [pod for each in learners for pod in crew.members(each)]
        gone = [*collectors, *learners, *members]
        try:
            await self._together(self._delete(pod, grace=None) for pod in gone)
        except KubeError as error:
            raise self._trouble(crew.job, error, None) from error
        for pod in gone:
            note = f"Deleted pod {pod.metadata.name}"
            self.recorder.event(reference(DIJOB, crew.job), "Normal", "SuccessfulDelete", note)
        await self._until(lambda: not any(self._is_there(pod) for pod in gone))
        return answer(crew.job, crew.coordinator, collectors, learners)

    # replacing

    async def replace(self, crew: Crew, caller: Pod, report: Report) -> Replicas:
        """Make a pod in the place of each that is reported; all names are checked before."""
        role = pods.role_of(caller)
        if role is Role.COORDINATOR:
            candidates: dict[str, Sequence[Pod]] = {"collectors": crew.collectors, "learners": crew.learners}
        else:
            _expect(caller, Role.AGGREGATOR)
            candidates = {"collectors": (), "learners": crew.members(caller)}
        collectors = [_reported(crew, name, candidates["collectors"]) for name in report.collectors]
        learners = [_reported(crew, name, candidates["learners"]) for name in report.learners]
        try:
            new_collectors = await self._together(self._replace(crew, pod, name) for pod, name in collectors)
            new_learners = await self._together(self._replace(crew, pod, name) for pod, name in learners)
        except KubeError as error:
            raise self._trouble(crew.job, error, None) from error
        return answer(crew.job, caller.metadata.name, new_collectors, new_learners)

    async def _replace(self, crew: Crew, old: Pod, name: str) -> Pod:
        """Return the pod in the place of another, or itself if it only starts, or is its heir already."""
        if old.metadata.name != name:
            return old
        if (heir := crew.heir(name)) is not None:  # an earlier call was cut off between the two
            await self._delete(old)
            return heir
        if is_starting(old) and await self._is_starting_still(old):
            return old
        match pods.role_of(old):
            case Role.AGGREGATOR:
                return await self._replace_aggregator(crew, old)
            case Role.DDP_LEARNER:
                return await self._replace_in_place(crew.job, old)
            case role:
                chosen = Draw(crew.job.metadata.name, self.letters).name(role or Role.COLLECTOR)
                new = await self._swap(crew.job, old, pods.replacement(await self._raw(old), chosen))
                await self._until(lambda: self._is_there(new) and not self._is_there(old))
                return new

    async def _swap(self, job: DIJob, old: Pod, manifest: Manifest) -> Pod:
        """Create the new pod, then delete the old one; or the other way round for want of quota."""
        try:
            new = await self._create(manifest)
        except Forbidden as error:
            if not _is_quota(error):
                raise
            await self._delete(old)
            new = await self._create(manifest, freed=True)
        else:
            await self._delete(old)
        what = f"Created pod {new.metadata.name} in the place of {old.metadata.name}"
        self.recorder.event(reference(DIJOB, job), "Warning", "ReplicaReplaced", what)
        return new

    async def _replace_in_place(self, job: DIJob, old: Pod) -> Pod:
        """Make a ddp pod again under its name: the others know it, and aggregators must not miss it."""
        uid, manifest = job.metadata.uid, pods.replacement(await self._raw(old), old.metadata.name)
        self._moving[uid] = self._moving.get(uid, 0) + 1
        try:
            await self._delete(old)
            await self._until(lambda: not self._is_there(old))
            new = await self._create(manifest, freed=True)
            await self._until(lambda: self._is_there(new))
        finally:
            self._moving[uid] -= 1
            if not self._moving[uid]:
                del self._moving[uid]
        return new

    async def _replace_aggregator(self, crew: Crew, old: Pod) -> Pod:
        """A new aggregator and new ddp pods: those of the old one know its name and each other's."""
        job, members = crew.job, crew.members(old)
        if not members:
            chosen = Draw(job.metadata.name, self.letters).name(Role.AGGREGATOR)
            return await self._swap(job, old, pods.replacement(await self._raw(old), chosen))
        first = members[0]
        asked = {name: amount for name, amount in pods.asked_of(first).items() if name != GPU}
        amounts = Amounts(1, max(2, pods.world_of(first)), tuple(asked.items()))
        await self._together(self._delete(pod) for pod in (*members, old))
        ask = Ask(job.metadata.namespace, crew.coordinator, Amounts(), amounts)
        config, made = await self._config(job), list[Pod]()
        (order,) = (await self._ordered(job, ask))[1].orders
        mark = _Mark(Call(self.letters() + self.letters(), ""), order.size, replaces=old.metadata.name)
        await self._make(job, order, config, mark, made)
        await self._until(lambda: all(self._is_there(pod) for pod in made) and not self._is_there(old))
        return made[0]

    # one pod

    async def _is_starting_still(self, pod: Pod) -> bool:
        """Whether the server says so too: the caller may have met a pod of which the caches learn later."""
        about = pod.metadata
        found = await self.patiently(lambda: self.client.find(POD, about.name, about.namespace))
        return found is not None and found.metadata.uid == about.uid and is_starting(found)

    async def _raw(self, pod: Pod) -> Manifest:
        """A pod as the server has it, with all its fields."""
        about = pod.metadata
        found: Manifest = await self.patiently(
            lambda: self.client.get(POD.untyped(), about.name, about.namespace)
        )
        return found

    async def _delete(self, pod: Pod, grace: int | None = 0) -> None:
        about = pod.metadata

        async def attempt() -> None:
            with suppress(Conflict, NotFound):  # another pod of this name
                await self.client.delete(POD, about.name, about.namespace, uid=about.uid, grace=grace)

        await self.patiently(attempt)

    async def _live(self, job: DIJob) -> list[Pod]:
        chosen = f"{names.OURS},{names.LABEL_JOB}={job.metadata.name}"
        return await self.client.list(POD, job.metadata.namespace, labels=chosen)

    async def _roll_back(self, made: Sequence[Pod]) -> list[Pod]:
        """Delete what a call has made; returns what could not be deleted."""
        left = list[Pod]()
        for pod in made:
            try:
                await self._delete(pod)
            except KubeError as error:
                log.warning("a pod is left of a call", extra={"pod": pod.metadata.name, "error": str(error)})
                left.append(pod)
        return left

    def _is_there(self, pod: Pod) -> bool:
        meta = self.caches.pods.meta(_key(pod))
        return meta is not None and meta.uid == pod.metadata.uid and meta.deletion_timestamp is None

    # waiting

    async def patiently(
        self, attempt: Callable[[], Awaitable[T]], passes: Callable[[KubeError], bool] = _is_passing
    ) -> T:
        """Try until it succeeds, or the trouble is not of the kind that passes, or patience ends."""
        until = self.clock.monotonic() + self.limits.patience
        while True:
            try:
                return await attempt()
            except KubeError as error:
                if not passes(error) or self.clock.monotonic() >= until:
                    raise
                await self.clock.sleep(0.5)

    async def _until(self, shown: Callable[[], bool]) -> None:
        """Return once the caches show what was written, or after a while: then the next GET may miss it."""
        with suppress(TimeoutError):
            async with deadline(self.clock, self.limits.shown):
                while not shown():
                    await self.clock.sleep(0.01)

    async def _together(self, works: Iterable[Awaitable[T]]) -> list[T]:
        """Await all, so many at once; then raise the first error."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(work: Awaitable[T]) -> T:
            async with slots:
                return await work

        results = await asyncio.gather(*(one(work) for work in works), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if not isinstance(result, BaseException)]

    def _trouble(self, job: DIJob, error: KubeError, done: Replicas | None) -> Exception:
        """What the caller is told of an error of the API server, which is also an event of the job."""
        said = getattr(error, "message", str(error)).replace("'", "").replace('"', "")
        self.recorder.event(reference(DIJOB, job), "Warning", "FailedCreate", said)
        if isinstance(error, Invalid):
            return Refused(400, f"the API server refuses a pod: {said}", done and done.json())
        return Waiting(f"not done, ask again: {said}", done)


@dataclass(frozen=True)
class _Mark:
    """What the pods of a call carry, so that it can be told what was made of it."""

    call: Call
    size: int
    first: bool = False
    replaces: str = ""

    def on(self, manifest: Manifest) -> Manifest:
        about = manifest["metadata"]
        marks = {names.REQUEST_PODS: str(self.size), names.REQUEST_BODY: self.call.digest}
        marks |= {names.UNANSWERED: self.call.digest} if self.first else {}
        marks |= {names.REPLACES: self.replaces} if self.replaces else {}
        annotations = {**(about.get("annotations") or {}), **marks}
        labels = {**about["labels"], names.LABEL_REQUEST: self.call.id}
        return {**manifest, "metadata": {**about, "annotations": annotations, "labels": labels}}


def _of(job: DIJob, made: Sequence[Pod]) -> Replicas:
    """The answer that tells of these pods; ddp pods are behind their aggregator."""
    crew = Crew.of(job, made)
    return answer(job, crew.coordinator, crew.collectors, crew.learners)


def _reported(crew: Crew, name: str, candidates: Sequence[Pod]) -> tuple[Pod, str]:
    """The pod that a name means, or the one that was made in its place before. Raises Refused."""
    found = next((pod for pod in candidates if pod.metadata.name == name), None) or crew.heir(name)
    if found is not None:
        return found, name
    if name == crew.coordinator:
        raise Refused(400, f"{name} is the coordinator: it is made again by itself")
    raise Refused(404, f"{name} is not a replica of the caller")


def _expect(pod: Pod, role: Role) -> None:
    if pods.role_of(pod) is not role:
        raise Refused(400, f"{pod.metadata.name} is not a pod of role {role}")


def _expect_running(job: DIJob) -> None:
    if job.status.phase is not None and job.status.phase.finished:
        raise Refused(400, f"DIJob {job.metadata.name} has ended: {job.status.phase}")


def _key(pod: Pod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.name)
