"""Follows one job: its object, pods and events by watches, its steps by the file that the workers write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.cli.story.seen import Condition, Message, Pod, Seen
from elasticjob.cli.story.steps import Step
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects import views
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import EVENT, POD

ROLE = "elasticjob.dlrover/replica-type"
NAME = "elasticjob.dlrover/name"
INDEX = "elasticjob.dlrover/replica-index"
ECHO = 5.0
"""Seconds within which a repeated message is dropped."""
LOOK_EVERY = 0.05
"""Seconds between reads of the file of steps."""


class JobView:
    """The state of a watched job: `seen` now, all `steps`, all messages in `said`; `look` is called on every
    change."""

    def __init__(
        self,
        client: Client,
        key: Key,
        record: Path,
        now: Callable[[], float],
        look: Callable[[Seen], object] = bool,
    ) -> None:
        self.seen = Seen()
        self.steps: list[Step] = []
        self.messages: list[Message] = []
        self._client = client
        self.key = key
        self._record = Record(record)
        self._now = now
        self._look = look
        self._jobs = Cache(ELASTICJOB, key.namespace, fields=f"metadata.name={key.name}")
        self._pods = Cache(POD, key.namespace, labels=f"{NAME}={key.name}")
        self._events = Cache(EVENT, key.namespace)
        self._caches: tuple[Cache[Any], ...] = (self._jobs, self._pods, self._events)
        self._heard: set[tuple[str, int]] = set()
        self._change = asyncio.Event()
        self._broken: Exception | None = None

    async def run(self) -> None:
        """Follow the job until cancelled; an error is also raised from `changed`."""
        try:
            await self._follow()
        except ExceptionGroup as group:
            self._broken = group.exceptions[0]
            self._change.set()
            raise

    async def _follow(self) -> None:
        self._jobs.on_version(self._look_at_job)
        self._pods.on_version(self._look_at_pods)
        self._events.on_version(self._look_at_events)
        async with asyncio.TaskGroup() as tasks:
            for cache in self._caches:
                tasks.create_task(Informer(self._client, cache).run())
            tasks.create_task(self._follow_steps())

    async def change(self) -> None:
        """Return at the next change of anything. Raises what ended `run`."""
        await self._change.wait()
        if self._broken:
            raise self._broken

    async def sync(self) -> None:
        """Return once all caches are filled."""
        for cache in self._caches:
            await cache.wait_synced()

    def _tell(self, seen: Seen) -> None:
        self.seen = seen
        self._look(seen)
        self._change.set()
        self._change = asyncio.Event()

    def _look_at_job(self) -> None:
        job = self._jobs.get(self.key)
        if job is None:
            return
        conditions = conditions_of(job)
        for condition in conditions:
            if condition.status and condition not in self.seen.conditions:
                self._hear(condition.reason, condition.message, warning=condition.type == "Failed")
        phase = str(job.status.phase or "")
        self._tell(replace(self.seen, uid=job.metadata.uid, phase=phase, conditions=conditions))

    def _look_at_pods(self) -> None:
        pods = sorted(map(pod_of, self._pods.list()), key=lambda pod: pod.name)
        self._tell(replace(self.seen, pods=tuple(pods)))

    def _look_at_events(self) -> None:
        for event in self._events.list():
            about, mark = event.involved_object, (event.metadata.uid, event.count)
            if (about.kind, about.name) == (ELASTICJOB.name, self.key.name) and mark not in self._heard:
                self._heard.add(mark)
                self._hear(event.reason, event.message, warning=event.type == "Warning")
        self._tell(self.seen)

    def _hear(self, reason: str, sentence: str, *, warning: bool) -> None:
        message = Message(self._now(), reason, sentence, warning)
        if not is_echo(message, self.messages):
            self.messages.append(message)

    async def _follow_steps(self) -> None:
        while True:
            if new := list(self._record.new()):
                self._count(new)
            await asyncio.sleep(LOOK_EVERY)

    def _count(self, new: list[Step]) -> None:
        seen = self.seen
        for step in new:
            seen = replace(seen, last=step, first=step if step.round != seen.round else seen.first)
        self.steps += new
        self._tell(seen)


def is_echo(message: Message, before: Sequence[Message]) -> bool:
    """Whether the same message came just before: a condition and an event often have the same one."""
    return any(one.sentence == message.sentence and message.at - one.at < ECHO for one in before)


class Record:
    """The file of steps, read as it grows; an incomplete line is kept for the next read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def new(self) -> Iterator[Step]:
        """Yield the steps that were written since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        decode = msgspec.json.Decoder(Step).decode
        yield from map(decode, whole.splitlines())


def conditions_of(job: ElasticJob) -> tuple[Condition, ...]:
    """Return the conditions of a job."""
    return tuple(
        Condition(one.type, one.status == "True", one.reason, one.message) for one in job.status.conditions
    )


def pod_of(pod: views.Pod) -> Pod:
    """Return the part of a pod that the demo needs."""
    meta = pod.metadata
    leaving = meta.deletion_timestamp is not None
    role, index = meta.labels.get(ROLE, ""), int(meta.labels.get(INDEX, "0"))
    return Pod(meta.name, meta.uid, role, pod.status.phase or "Pending", leaving, index)
