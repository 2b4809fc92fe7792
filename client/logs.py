"""The logs of all nodes of a job as one stream: lines in the order of their timestamps, each with its node.

With `follow`, a node's log goes on in the pod that replaces it, and after a broken connection where it
stopped: lines are asked for with timestamps, and those that were delivered before are left out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from elasticjob.api.logs import Entry
from elasticjob.api.readings import number
from elasticjob.api.roles import MASTER, MASTER_ALIAS
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_RELAUNCH, LABEL_ROLE
from elasticjob.api.v1alpha1.containers import main_container, main_end, main_status
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, FINISHED, ElasticJob
from elasticjob.client.errors import NotFound as NoSuch
from elasticjob.client.understood import ALL, Filter, Understanding
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Heed, Informer
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.patience import is_refusal
from elasticjob.kube.errors import ApiError, KubeError, NotFound, ServerError, TooManyRequests, Unreachable
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import POD, ContainerStatus, Pod

LONGEST: Final = 64 * 1024
"""Bytes of a line; a longer one is told in pieces."""
AT_ONCE: Final = 16
"""Pods whose past is read at the same time."""
PAUSE: Final = 0.5
"""Seconds before a log is asked for again: its container is about to start, or its connection broke."""
NAMED: Final = 8
"""Nodes that an error names."""
MASTERS: Final = frozenset({MASTER, MASTER_ALIAS})
"""Names of the master's role."""
BUFFERED: Final = 10_000
"""Lines that wait for their reader; then reading waits."""


@dataclass(frozen=True)
class Source:
    """A node and the pod that has its place: `relaunch` counts the pods before it."""

    pod: str
    role: str
    index: int
    relaunch: int = 0
    uid: str = ""

    @property
    def label(self) -> str:
        """What precedes its lines: `worker-0`, and `worker-0.2` in the second pod after the first."""
        return f"{self.role}-{self.index}" + (f".{self.relaunch}" if self.relaunch else "")


@dataclass(frozen=True)
class Line:
    """One line of a node's log; `at` counts nanoseconds since 1970, for the order."""

    at: int
    source: Source
    text: str
    entry: Entry | None = field(default=None, compare=False)
    """What it says; None of our own words about a log."""


@dataclass(frozen=True)
class End:
    """The end of a node's main container."""

    source: Source
    sentence: str


@dataclass(frozen=True)
class Selection:
    """Which logs: `nodes` are names such as worker, worker-1 or master (empty: all that train)."""

    nodes: Sequence[str] = ()
    tail: int | None = None
    previous: bool = False
    filter: Filter = ALL

    def has(self, source: Source) -> bool:
        """Whether the log of a node is asked for."""
        if not self.nodes:
            return source.role not in MASTERS
        names = {source.role, f"{source.role}-{source.index}"}
        return not names.isdisjoint(self.nodes) or (
            source.role in MASTERS and not MASTERS.isdisjoint(self.nodes)
        )

    def has_line(self, line: Line) -> bool:
        """Whether a line of such a log is asked for."""
        return line.entry is None or self.filter.has(line.entry)


async def lines(
    client: Client, key: Key, wanted: Selection = Selection(), known: Understanding | None = None
) -> list[Line]:
    """Return what the present pods of a job have logged, oldest first. Raises NotFound, also of a node.

    Of a pod whose machine does not answer, a line says so; where none answers, that is raised.
    """
    job = await client.get(ELASTICJOB, key.name, key.namespace)
    known = known or Understanding(key)
    there = await _pods(client, key)
    if error := unknown(job, wanted, list(map(source_of, there))):
        raise error
    pods = [pod for pod in there if wanted.has(source_of(pod)) and _is_started(pod)]
    room = asyncio.Semaphore(AT_ONCE)

    async def of(pod: Pod) -> list[Line] | ServerError | Unreachable:
        async with room:
            try:
                read = [_said(line, known) async for line in _read(client, pod, wanted)]
            except (ServerError, Unreachable) as error:
                return error
            found = [line for line in read if wanted.has_line(line)]
            return found if wanted.tail is None else found[-wanted.tail :] if wanted.tail else []

    return answer(pods, await asyncio.gather(*map(of, pods)))


def unknown(job: ElasticJob, wanted: Selection, there: Sequence[Source]) -> NoSuch | None:
    """Return the error of the first wanted node that a job neither has nor may yet get."""
    roles, ordered = job.spec.roles, sorted({(each.role, each.index) for each in there})
    names = [f"{role}-{index}" for role, index in ordered]
    for node in wanted.nodes:
        if not (node in {*names, *roles, *MASTERS} or _may_come(job, node)):
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            has = f"it has {', '.join(names[:NAMED])}{more}" if names else "it has none yet"
            step = f"give a role ({', '.join(roles)}), or a node of one"
            return NoSuch(f"{job.metadata.name} has no node {node}: {has}", object=node, next_step=step)
    return None


def _may_come(job: ElasticJob, node: str) -> bool:
    role, _, index = node.rpartition("-")
    if role not in job.spec.roles or node != f"{role}-{number(index)}":
        return False
    most = job.spec.roles[role].bounds.most
    return most is None or number(index) < most + job.spec.spares_of(role)


def answer(pods: Sequence[Pod], logs: Sequence[Sequence[Line] | ServerError | Unreachable]) -> list[Line]:
    """Return the lines of all logs; raises the error of one if no log was read."""
    errors = [each for each in logs if isinstance(each, ServerError | Unreachable)]
    if errors and len(errors) == len(logs):
        raise errors[0]
    return merge(
        [Line(0, source_of(pod), f"(the log cannot be read: {log})")]
        if isinstance(log, ServerError | Unreachable)
        else log
        for pod, log in zip(pods, logs, strict=True)
    )


async def follow(
    client: Client, key: Key, wanted: Selection = Selection(), *, heed: Heed
) -> AsyncGenerator[Line | End]:
    """Yield a job's logs so far, then each line as it comes, until the job has finished or is gone.

    Raises what `heed` raises of the errors meanwhile.
    """
    known = Understanding(key)
    past = await lines(client, key, replace(wanted, tail=1) if wanted.tail == 0 else wanted, known)
    if wanted.tail != 0:  # the last lines are read all the same: those after them are new
        for line in past:
            yield line
    following = _Following(client, key, wanted, latest(past), heed, known)
    task = asyncio.create_task(following.run())
    try:
        while (found := await following.next(task)) is not None:
            yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)  # `next` has told its error


def merge(logs: Iterable[Sequence[Line]]) -> list[Line]:
    """Return the lines of several logs in one order; a log keeps its own, whatever its timestamps say."""
    placed: list[tuple[int, int, int, Line]] = []
    for number_of_log, log in enumerate(logs):
        latest = 0
        for place, line in enumerate(log):
            latest = max(latest, line.at)
            placed.append((latest, number_of_log, place, line))
    return [line for *_, line in sorted(placed, key=lambda each: each[:3])]


def latest(found: Iterable[Line]) -> dict[str, int]:
    """Return the time of the last line of each pod, by its uid; the last piece of a long line has none."""
    times: dict[str, int] = {}
    for line in found:
        times[line.source.uid] = max(times.get(line.source.uid, 0), line.at)
    return times


def source_of(pod: Pod) -> Source:
    """Return the node that a pod belongs to, by its labels."""
    labels = pod.metadata.labels
    index, relaunch = number(labels.get(LABEL_INDEX)), number(labels.get(LABEL_RELAUNCH))
    return Source(pod.metadata.name, labels.get(LABEL_ROLE, ""), index, relaunch, pod.metadata.uid)


def nanoseconds(stamp: str) -> int:
    """Return an RFC 3339 timestamp as nanoseconds since 1970. Raises ValueError for other text."""
    head, _, rest = stamp.rstrip("Z").partition(".")
    fraction = ""
    while rest[:1].isdecimal():
        fraction, rest = fraction + rest[0], rest[1:]
    moment = datetime.fromisoformat(head + rest)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 10**9 + int(fraction.ljust(9, "0")[:9] or 0)


def parse(raw: bytes, source: Source) -> Line:
    """Return a line with its timestamp; a piece of a long line has none, and comes at time 0."""
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    stamp, _, rest = text.partition(" ")
    try:
        return Line(nanoseconds(stamp), source, rest)
    except ValueError:
        return Line(0, source, text)


class Lines:
    """Cuts the chunks of a log into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are whole with this chunk, and pieces of lines that are too long."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        while len(self._rest) > LONGEST:
            whole.append(self._rest[:LONGEST])
            self._rest = self._rest[LONGEST:]
        return whole

    def end(self) -> list[bytes]:
        """Return the last line, if it has no newline."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


@dataclass
class _Following:
    """Follows the pods of a job and reads each log once."""

    client: Client
    key: Key
    wanted: Selection
    heard: dict[str, int]
    """The time of the last line of each pod, by its uid: a deleted pod's name may be taken again."""
    heed: Heed
    known: Understanding
    _queue: asyncio.Queue[Line | End] = field(default_factory=lambda: asyncio.Queue(BUFFERED))
    _readers: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _change: asyncio.Event = field(default_factory=asyncio.Event)

    async def next(self, running: asyncio.Task[None]) -> Line | End | None:
        """Return what was read next; None at the end. Raises what ended `run`."""
        if not self._queue.empty():
            return self._queue.get_nowait()
        taking = asyncio.create_task(self._queue.get())
        await asyncio.wait({taking, running}, return_when=asyncio.FIRST_COMPLETED)
        if taking.done():
            return taking.result()
        taking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await taking
        try:
            await running
        except ExceptionGroup as group:
            raise _first(group) from group
        return self._queue.get_nowait() if not self._queue.empty() else None

    async def run(self) -> None:
        """Read until the job has finished, or is gone, and its logs are at their ends."""
        jobs = Cache(ELASTICJOB, self.key.namespace, fields=f"metadata.name={self.key.name}")
        self.pods = Cache(POD, self.key.namespace, labels=f"{LABEL_JOB}={self.key.name}")
        for cache in (jobs, self.pods):
            cache.on_version(self._change.set)
        async with asyncio.TaskGroup() as tasks:
            informers = [
                tasks.create_task(Informer(self.client, jobs, heed=self.heed).run()),
                tasks.create_task(Informer(self.client, self.pods, heed=self.heed).run()),
            ]
            await asyncio.gather(jobs.wait_synced(), self.pods.wait_synced())
            while True:
                self._change.clear()
                for pod in self.pods.list():
                    if (
                        pod.metadata.uid not in self._readers
                        and self.wanted.has(source_of(pod))
                        and _is_started(pod)
                    ):
                        self._readers[pod.metadata.uid] = tasks.create_task(self._read(pod))
                job = jobs.get(self.key)
                over = job is None or job.status.phase in FINISHED
                reading = [task for task in self._readers.values() if not task.done()]
                if over and not reading:
                    break
                waiting = asyncio.create_task(self._change.wait())
                await asyncio.wait({waiting, *reading}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            for informer in informers:
                informer.cancel()

    async def _read(self, pod: Pod) -> None:
        source = source_of(pod)
        while True:
            try:
                await self._read_once(pod, source)
            except (ApiError, Unreachable) as error:
                # else a container that is about to start, or a node that is away
                if is_refusal(error):
                    self.heed(error)
            now = await self._now(pod)
            if now is None or _is_over(now):
                await self._queue.put(End(source, _end(now)))
                return
            await asyncio.sleep(PAUSE)

    async def _now(self, pod: Pod) -> Pod | None:
        """Return the pod as the server has it now; None if it is gone, whatever has its name."""
        while True:
            try:
                found = await self.client.find(POD, pod.metadata.name, pod.metadata.namespace)
            except (ServerError, TooManyRequests, Unreachable):
                await asyncio.sleep(PAUSE)
            else:
                return found if found and found.metadata.uid == pod.metadata.uid else None

    async def _read_once(self, pod: Pod, source: Source) -> None:
        last = self.heard.get(source.uid, 0)
        since = datetime.fromtimestamp(last // 10**9, UTC) if last else None
        async with aclosing(_stream(self.client, pod, follow=True, since=since)) as found:
            async for line in found:
                if line.at and line.at <= last:
                    continue
                self.heard[source.uid] = max(self.heard.get(source.uid, 0), line.at)
                if self.wanted.has_line(said := _said(line, self.known)):
                    await self._queue.put(said)


def _said(line: Line, known: Understanding) -> Line:
    """Return a line with what it says."""
    node = f"{line.source.role}-{line.source.index}"
    return replace(line, entry=known.entry(line.source.uid, node, line.at, line.text))


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """Return the first error of requests in a group of tasks, which callers know how to tell; else all."""
    found: Exception | None = group.subgroup(KubeError)
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found or group


async def _read(client: Client, pod: Pod, wanted: Selection) -> AsyncGenerator[Line]:
    """Yield the log of a pod so far; nothing where its container has none yet, or is gone."""
    asked = wanted.filter
    tail = None if asked else wanted.tail  # the last ones of those that are asked for
    since = asked.since if asked.rank is None else None  # which rank a line is of, earlier ones say
    try:
        async with aclosing(_stream(client, pod, tail=tail, previous=wanted.previous, since=since)) as found:
            async for line in found:
                yield line
    except NotFound:
        return
    except ApiError as error:
        if error.status != 400:
            raise


async def _stream(
    client: Client,
    pod: Pod,
    *,
    follow: bool = False,
    tail: int | None = None,
    previous: bool = False,
    since: datetime | None = None,
) -> AsyncGenerator[Line]:
    main, source, cut = main_container(pod), source_of(pod), Lines()
    chunks = client.logs(
        pod.metadata.name,
        pod.metadata.namespace,
        container=main.name if main else "",
        follow=follow,
        tail=tail,
        previous=previous,
        since=since,
        timestamps=True,
    )
    async with aclosing(chunks):
        async for chunk in chunks:
            for raw in cut.take(chunk):
                yield parse(raw, source)
    for raw in cut.end():
        yield parse(raw, source)


async def _pods(client: Client, key: Key) -> list[Pod]:
    return await client.list(POD, key.namespace, labels=f"{LABEL_JOB}={key.name}")


def _is_started(pod: Pod) -> bool:
    status = main_status(pod)
    return status is not None and (_ran(status) or pod.status.phase in ("Succeeded", "Failed"))


def _ran(status: ContainerStatus) -> bool:
    return bool(status.state.running or status.state.terminated or status.last_state.terminated)


def _is_over(pod: Pod) -> bool:
    """Whether the main container has ended and is not started again in this pod."""
    status = main_status(pod)
    ended = status is not None and status.state.terminated is not None
    return pod.status.phase in ("Succeeded", "Failed") or (ended and pod.spec.restart_policy == "Never")


def _end(pod: Pod | None) -> str:
    if pod is None:
        return "its pod is gone"
    end = main_end(pod)
    if end is None:
        return _never_ran(pod)
    if end.exit_code == 0:
        return "ended"
    return f"ended with exit code {end.exit_code}" + (
        f" ({end.reason})" if end.reason not in ("", "Error") else ""
    )


def _never_ran(pod: Pod) -> str:
    """Say why a pod is over whose main container has no end: an init container failed, or it was evicted."""
    failed = (status for status in pod.status.init_container_statuses if _code(status))
    if before := next(failed, None):
        return f"did not start: init container {before.name} ended with exit code {_code(before)}"
    return f"did not run to its end: {pod.status.reason or pod.status.phase}"


def _code(status: ContainerStatus) -> int:
    ended = status.state.terminated or status.last_state.terminated
    return ended.exit_code if ended else 0
