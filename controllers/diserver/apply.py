"""The writes of di-server: pods are made, all or none; deleted; replaced. Decisions are in `decide.py`.

The pods of a call carry its marks: for a call that was cut off by the end of this process, the first pod has
a digest of the call until its response is delivered, so that an equal call takes over what was made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from elasticjob.api.diengine import names, pods
from elasticjob.api.diengine.aggregatorconfig import AggregatorConfig
from elasticjob.api.diengine.dijob import DIJOB, DIJob
from elasticjob.api.diengine.names import Role
from elasticjob.api.diengine.pods import Server
from elasticjob.controllers.diserver.asked import Refusal, plain
from elasticjob.controllers.diserver.decide import Call, Creations, Deletions, Replacement, Replacements, Way
from elasticjob.controllers.diserver.orders import Order
from elasticjob.controllers.diserver.seen import Pods, Replicas, answer, has_no_token
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.patience import Patience, is_passing, is_passing_or_quota, is_quota
from elasticjob.kube.client.recorder import Recorder, reference
from elasticjob.kube.clock import deadline
from elasticjob.kube.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    PayloadTooLarge,
)
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import POD, EventType, Pod

T = TypeVar("T")

AT_ONCE: Final = 16
HOPELESS: Final = (Invalid, BadRequest, PayloadTooLarge)
"""How the API server refuses a pod that no repetition helps."""

log = logging.getLogger(__name__)


class Waiting(Exception):
    """A request that cannot be met now: the client is told to ask again. `done` is what was done."""

    def __init__(self, message: str, done: Replicas | None = None) -> None:
        super().__init__(message)
        self.message, self.done = plain(message, 500), done


@dataclass(frozen=True)
class Writer:
    """Carries out decisions. `shown`: seconds to wait for the cache to show what was written."""

    client: Client
    cache: Cache[Pod]
    recorder: Recorder
    patience: Patience
    random_suffix: Callable[[], str]
    server_info: Server
    shown: float = 5.0
    moving: dict[str, int] = field(default_factory=dict)
    """Replacements under the old name that are under way, by uid of the job."""

    async def create(self, job: DIJob, decided: Creations, call: Call) -> Replicas:
        """Make pods; all of them or none. Raises AlreadyExists if another pod has a name that was drawn."""
        await self._roll_back(decided.undo)
        made = list[Pod]()
        try:
            for first in decided.orders[:1]:
                await self._make(job, first, decided.config, _Mark(call, decided.size, first=True), made)
            mark = _Mark(call, decided.size)
            await together(self._make(job, each, decided.config, mark, made) for each in decided.orders[1:])
        except KubeError as error:
            left = await self._roll_back(made)
            if isinstance(error, AlreadyExists):
                raise
            raise self._trouble(job, error, replicas_of(job, left)) from error
        if decided.missing:
            self.event(job, "Warning", "NoRoomForLearners", decided.missing)
        for pod in made:
            self.event(job, "Normal", "SuccessfulCreate", f"Created pod {pod.metadata.name}")
        await self.until(lambda: all(self.cache.meta(_key(pod)) for pod in made))
        return replicas_of(job, made)

    async def delete(self, job: DIJob, decided: Deletions) -> Replicas:
        """Delete replicas, and the ddp pods of aggregators with them."""
        gone = [*decided.collectors, *decided.learners, *decided.members]
        try:
            await together(self._delete(pod, grace=None) for pod in gone)
        except KubeError as error:
            raise self._trouble(job, error, None) from error
        for pod in gone:
            self.event(job, "Normal", "SuccessfulDelete", f"Deleted pod {pod.metadata.name}")
        await self.until(lambda: not any(self._is_there(pod) for pod in gone))
        return answer(job, names.coordinator(job.metadata.name), decided.collectors, decided.learners)

    async def replace(self, job: DIJob, caller: Pod, decided: Replacements) -> Replicas:
        """Make a pod in the place of each that is reported."""
        config = decided.config
        try:
            collectors = await together(self._replace(job, each, config) for each in decided.collectors)
            learners = await together(self._replace(job, each, config) for each in decided.learners)
        except KubeError as error:
            raise self._trouble(job, error, None) from error
        return answer(job, caller.metadata.name, collectors, learners)

    async def note_delivery(self, job: DIJob, call: Call) -> None:
        """Note that the response to a call has arrived: an equal call asks for more."""
        for pod in self.cache.owned_by(job.metadata.uid):
            about = pod.metadata
            if about.annotations.get(names.UNANSWERED) != call.digest:
                continue
            patch: Manifest = {"metadata": {"uid": about.uid, "annotations": {names.UNANSWERED: None}}}
            with suppress(KubeError):
                await self.client.merge_patch(POD, about.name, patch, about.namespace)

    # making

    async def _make(
        self, job: DIJob, order: Order, config: AggregatorConfig | None, mark: _Mark, made: list[Pod]
    ) -> None:
        """Make the pod of an order, then its ddp pods, and add them to `made` as they come."""
        aggregates = order.role is Role.AGGREGATOR and config is not None
        chosen = config.spec.aggregator if aggregates and config else job.spec.template(order.role)
        template = chosen.template if chosen else {}
        server = self.server_info
        if has_no_token(self.cache, job.key, job.metadata.uid):
            server = replace(server, tokens=False)  # there is no Secret with one
        manifest = pods.pod(job, order.role, order.name, server, template, order.resources)
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
                server,
                learner,
                member.resources,
                place=member.place,
                aggregator=one,
                aggregator_url=pods.url_of(one),
            )
            for member in order.members
        ]
        rest, freed = _Mark(mark.call, mark.size), bool(mark.replaces)

        async def add(member: Manifest) -> None:
            made.append(await self._create(rest.on(member), freed=freed))

        await together(add(member) for member in members)

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
                if found is None or not request or found.metadata.labels.get(names.LABEL_REQUEST) != request:
                    raise
                return found

        return await self.patience(attempt, is_passing_or_quota if freed else is_passing)

    # replacing

    async def _replace(self, job: DIJob, one: Replacement, config: AggregatorConfig | None) -> Pod:
        """Return the pod in the place of another, or itself."""
        match one.way:
            case Way.KEPT:
                return one.old
            case Way.BY_ANOTHER:
                await self._delete(one.old)
                return one.new or one.old
            case Way.UNDER_ITS_NAME:
                return await self._replace_in_place(job, one.old)
            case Way.WITH_ITS_MEMBERS:
                return await self._replace_aggregator(job, one, config)
            case Way.UNDER_A_NEW_NAME:
                new = await self._swap(job, one.old, pods.replacement(await self._raw(one.old), one.name))
                await self.until(lambda: self._is_there(new) and not self._is_there(one.old))
                return new

    async def _swap(self, job: DIJob, old: Pod, manifest: Manifest) -> Pod:
        """Create the new pod, then delete the old one; or the other way round for want of quota."""
        try:
            new = await self._create(manifest)
        except Forbidden as error:
            if not is_quota(error):
                raise
            await self._delete(old)
            new = await self._create(manifest, freed=True)
        else:
            await self._delete(old)
        what = f"Created pod {new.metadata.name} in the place of {old.metadata.name}"
        self.event(job, "Warning", "ReplicaReplaced", what)
        return new

    async def _replace_in_place(self, job: DIJob, old: Pod) -> Pod:
        uid, manifest = job.metadata.uid, pods.replacement(await self._raw(old), old.metadata.name)
        self.moving[uid] = self.moving.get(uid, 0) + 1
        try:
            await self._delete(old)
            await self.until(lambda: not self._is_there(old))
            new = await self._create(manifest, freed=True)
            await self.until(lambda: self._is_there(new))
        finally:
            self.moving[uid] -= 1
            if not self.moving[uid]:
                del self.moving[uid]
        return new

    async def _replace_aggregator(self, job: DIJob, one: Replacement, config: AggregatorConfig | None) -> Pod:
        """A new aggregator and new ddp pods."""
        await together(self._delete(pod) for pod in (*one.members, one.old))
        if one.order is None:
            return one.old
        made, call = list[Pod](), Call(self.random_suffix() + self.random_suffix(), "")
        mark = _Mark(call, one.order.size, replaces=one.old.metadata.name)
        await self._make(job, one.order, config, mark, made)
        await self.until(lambda: all(self._is_there(pod) for pod in made) and not self._is_there(one.old))
        return made[0]

    # one pod

    async def _raw(self, pod: Pod) -> Manifest:
        """A pod as the server has it, with all its fields."""
        about = pod.metadata
        found: Manifest = await self.patience(
            lambda: self.client.get(POD.untyped(), about.name, about.namespace)
        )
        return found

    async def _delete(self, pod: Pod, grace: int | None = 0) -> None:
        about = pod.metadata

        async def attempt() -> None:
            with suppress(Conflict, NotFound):  # another pod of this name
                await self.client.delete(POD, about.name, about.namespace, uid=about.uid, grace=grace)

        await self.patience(attempt)

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
        meta = self.cache.meta(_key(pod))
        return meta is not None and meta.uid == pod.metadata.uid and meta.deletion_timestamp is None

    async def until(self, shown: Callable[[], bool]) -> None:
        """Return once the cache shows what was written, or after a while: then the next GET may miss it."""
        clock = self.patience.clock
        with suppress(TimeoutError):
            async with deadline(clock, self.shown):
                while not shown():
                    await clock.sleep(0.01)

    # saying

    def event(self, job: DIJob, kind: EventType, reason: str, note: str) -> None:
        """Record an event about a job."""
        self.recorder.event(reference(DIJOB, job), kind, reason, note)

    def _trouble(self, job: DIJob, error: KubeError, done: Replicas | None) -> Exception:
        """The response for an error of the API server, which is also an event of the job."""
        said = plain(getattr(error, "message", str(error)), 400)
        self.event(job, "Warning", "FailedCreate", said)
        if isinstance(error, HOPELESS):
            return Refusal(400, f"the API server refuses a pod: {said}", done and done.json())
        return Waiting(f"not done, ask again: {said}", done)


@dataclass(frozen=True)
class _Mark:
    """Annotations of a call's pods, by which a repeated call finds them."""

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


async def together(works: Iterable[Awaitable[T]]) -> list[T]:
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


def replicas_of(job: DIJob, made: Sequence[Pod]) -> Replicas:
    """Return the data that tells of these pods; ddp pods are behind their aggregator."""
    return Pods.of(job, made).replicas()


def _key(pod: Pod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.name)
