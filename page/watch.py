"""Observes for the page: jobs, plans, pods and nodes by watches, and more of the jobs that somebody looks at.

1. Nothing waits for the cluster: what is shown is what was heard last, and says how old it is.
2. The master, the events and the logs of a job are asked for only while somebody looks at the job.
3. All is bounded: jobs looked at, requests under way, bytes of each answer, points of each series.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import nan
from typing import Any, Final, Protocol

import msgspec

from elasticjob.api.roles import MASTER_ALIAS
from elasticjob.api.v1alpha1.belonging import belongs
from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.containers import main_container
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, FINISHED, ElasticJob
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Heed, Informer, patient
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import Clock
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.errors import Forbidden, KubeError, NotFound, Unreachable
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import EVENT, NODE, POD, Event, Node, Pod
from elasticjob.page.masters import Masters
from elasticjob.page.seen import Cluster, Fleet, Master, One, Past, Standing
from elasticjob.page.series import Point, Series
from elasticjob.page.status import Status
from elasticjob.page.view import SPARK, fleet, one, silence

PULSE: Final = 3.0
"""Seconds between two looks whether the API server answers."""
NOTE_EVERY: Final = 5.0
"""Seconds between two points of a job that nobody looks at."""
LOOK_EVERY: Final = 1.0
EVENTS_EVERY: Final = 5.0
LOOKED_AT_FOR: Final = 15.0
"""Seconds after the last request in which a job counts as looked at."""
MOST_LOOKS: Final = 32
PATIENCE: Final = 5.0
"""Seconds that the API server has to answer."""
FRESH: Final = 0.9
"""Seconds for which an answer serves all that ask."""
MOST_FRESH: Final = 128
LOG_LINES: Final = 200
LOG_BYTES: Final = 64 * 1024
LOGS_AT_ONCE: Final = 4
RIGHTS: Final = (
    "ask for the rights in docs/live-page.md, or give a namespace whose jobs you may list: -n NAMESPACE"
)
LATER: Final = "this page asks again by itself, and goes on when there is an answer"
TROUBLED_PODS: Final = 6
"""Pods of a job whose own events are asked for, beside the job's."""


class NoSuchPod(LookupError):
    """No pod of a job has this name; the message says what to do."""


class Memory(Protocol):
    """What remembers jobs that are gone: Brain. Its methods raise Unreachable while it is away."""

    async def jobs(self) -> Sequence[Mapping[str, Any]]:
        """Return its newest jobs."""

    async def job(self, namespace: str, name: str) -> Past | None:
        """Return what it keeps of the newest job of this name, if anything."""


@dataclass(frozen=True)
class Caches:
    """The objects of the cluster, as heard last."""

    jobs: Cache[ElasticJob]
    plans: Cache[ScalePlan]
    pods: Cache[Pod]
    nodes: Cache[Node]

    @classmethod
    def of(cls, namespace: str) -> Caches:
        """Return new ones, of one namespace or ("") all."""
        return cls(
            Cache(ELASTICJOB, namespace),
            Cache(SCALEPLAN, namespace),
            Cache(POD, namespace, labels=LABEL_JOB),
            Cache(NODE),
        )


@dataclass
class _Look:
    """A job that somebody looks at."""

    asked: float
    master: Master = field(default_factory=Master)
    events: Sequence[Event] = ()
    events_away: str = ""
    events_at: float = float("-inf")
    task: asyncio.Task[None] | None = None


@dataclass
class _Fresh:
    """An answer that serves all that ask until then."""

    until: float
    found: asyncio.Future[bytes] = field(repr=False)


class Watch:
    """What the page shows, as JSON, while `run` runs."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        masters: Masters,
        clock: Clock,
        *,
        passes: Passes,
        namespace: str = "",
        memory: Memory | None = None,
    ) -> None:
        """Errors cost a pass of `passes`: the page is a guest in Brain's process."""
        self._passes = passes
        self._client, self._caches, self._masters, self._clock = client, caches, masters, clock
        self._memory = memory
        self._cluster = Cluster(
            namespace=namespace,
            server=client.config.server,
            ready=False,
            brain=Standing() if memory else None,
        )
        self._series: dict[str, Series] = {}
        self._looks: dict[Key, _Look] = {}
        self._fresh: dict[tuple[str, ...], _Fresh] = {}
        self._logs = asyncio.Semaphore(LOGS_AT_ONCE)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with self._looking(), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._again("pulse", PULSE, self._pulse))
            tasks.create_task(self._again("series", NOTE_EVERY, self._note_all))
            tasks.create_task(self._again("looks", LOOK_EVERY, self._follow))

    async def _again(self, name: str, every: float, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            with self._passes.over(name):
                await step()
            await self._clock.sleep(every)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many jobs are looked at, and how many answers are kept."""
        return len(self._looks), len(self._fresh)

    @asynccontextmanager
    async def _looking(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            for key in list(self._looks):
                self._forget(key)

    # what is asked

    async def fleet(self) -> bytes:
        """Return all jobs."""
        return await self._share(("fleet",), self._fleet)

    async def job(self, namespace: str, name: str) -> bytes:
        """Return one job, which counts as looked at from now on."""
        key = Key(namespace, name)
        if self._caches.jobs.meta(key):
            self._look(key).asked = self._clock.monotonic()
        return await self._share(("job", *key), lambda: self._one(key))

    async def log(self, namespace: str, name: str, container: str = "") -> bytes:
        """Return the last lines of a pod of a job as JSON. Raises NoSuchPod, KubeError."""
        pod = self._caches.pods.get(Key(namespace, name))
        if pod is None or not belongs(pod, pod.metadata.labels.get(LABEL_JOB, "")):
            raise NoSuchPod(f"no job has a pod {namespace}/{name}: it may have been deleted")
        if container and container not in {each.name for each in pod.spec.containers}:
            raise NoSuchPod(f"pod {namespace}/{name} has no container {container[:63]!r}")
        main = main_container(pod)
        chosen = container or (main.name if main else "")  # of several, the API server wants to be told which
        if why := silence(pod, chosen):  # the API server would refuse, again and again
            return msgspec.json.encode({"text": "", "note": why})
        return await self._share(("log", namespace, name, chosen), lambda: self._log(pod, chosen))

    async def _share(self, key: tuple[str, ...], make: Any) -> bytes:
        """Return an answer that was made within FRESH seconds, or make one for all that ask meanwhile."""
        now = self._clock.monotonic()
        found = self._fresh.get(key)
        if found is None or found.until <= now:
            while len(self._fresh) >= MOST_FRESH:
                self._fresh.pop(next(iter(self._fresh)))
            self._fresh.pop(key, None)
            made = asyncio.ensure_future(make())
            made.add_done_callback(_note)
            found = self._fresh[key] = _Fresh(now + FRESH, made)
        return await asyncio.shield(found.found)

    async def _fleet(self) -> bytes:
        cluster = self._standing_now()
        past: Sequence[Mapping[str, Any]] = ()
        if self._memory:
            try:
                past = await self._memory.jobs()
                cluster = replace(cluster, brain=Standing())
            except Unreachable as error:
                cluster = replace(cluster, brain=self._since(cluster.brain, str(error)))
            self._cluster = replace(self._cluster, brain=cluster.brain)
        seen = Fleet(
            cluster,
            self._caches.jobs.list(),
            [pod for pod in self._caches.pods.list() if LABEL_JOB in pod.metadata.labels],
            self._caches.nodes.list(),
            {uid: series.last(SPARK) for uid, series in self._series.items()},
            past,
        )
        return msgspec.json.encode(fleet(seen, self._clock.now()))

    async def _one(self, key: Key) -> bytes:
        cluster, past = self._standing_now(), None
        if self._memory:
            try:
                past = await self._memory.job(*key)
            except Unreachable as error:
                cluster = replace(cluster, brain=self._since(cluster.brain, str(error)))
        job, look = self._job(key), self._looks.get(key) or _Look(0.0)
        if job and past and past.job["uid"] != job.metadata.uid:
            past = None  # of an earlier job of this name
        series = self._series.get(job.metadata.uid) if job else None
        seen = One(
            cluster,
            key.namespace,
            key.name,
            job,
            self._pods(key),
            self._caches.nodes.list(),
            [plan for plan in self._caches.plans.list(key.namespace) if plan.spec.owner_job == key.name],
            look.events,
            look.events_away,
            look.master,
            [*series] if series else (),
            past,
        )
        return msgspec.json.encode(one(seen, self._clock.now()))

    async def _log(self, pod: Pod, container: str) -> bytes:
        kept = b""
        async with self._logs, asyncio.timeout(PATIENCE * 2):
            lines = self._client.logs(
                pod.metadata.name, pod.metadata.namespace, container=container, tail=LOG_LINES
            )
            async for chunk in lines:
                kept = (kept + chunk)[-LOG_BYTES:]
        return msgspec.json.encode({"text": kept.decode(errors="replace"), "note": ""})

    def _standing_now(self) -> Cluster:
        caches = self._caches
        away = self._cluster.nodes_away
        ready = all(each.synced for each in (caches.jobs, caches.plans, caches.pods))
        return replace(self._cluster, ready=ready, nodes_away="" if caches.nodes.synced else away)

    def _job(self, key: Key) -> ElasticJob | None:
        found = self._caches.jobs.list(key.namespace)
        return next((job for job in found if job.metadata.name == key.name), None)

    def _pods(self, key: Key) -> list[Pod]:
        return [
            pod
            for pod in self._caches.pods.list(key.namespace, {LABEL_JOB: key.name})
            if belongs(pod, key.name)
        ]

    # whether the API server answers

    async def _pulse(self) -> None:
        why, act = await self._refusal(ELASTICJOB.path(self._cluster.namespace))
        self._cluster = replace(self._cluster, api=self._since(self._cluster.api, why, act))
        if not self._caches.nodes.synced:
            self._cluster = replace(self._cluster, nodes_away=(await self._refusal(NODE.path()))[0])

    async def _refusal(self, path: str) -> tuple[str, str]:
        """Return why a list cannot be read now, and what to do; "" if it can."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._client.raw("GET", path, None, limit="1")
        except TimeoutError:
            return f"the API server does not answer within {PATIENCE:g} s", LATER
        except NotFound:
            return "this cluster does not know ElasticJobs", "install the operator: docs/install.md"
        except Forbidden as error:
            return f"you may not list {path.rpartition('/')[2]}: {error.message}", RIGHTS
        except KubeError as error:
            return str(error), LATER
        return "", ""

    def _since(self, before: Standing | None, why: str, act: str = "") -> Standing:
        if not why:
            return Standing()
        return Standing(why, (before and before.since) or self._clock.now(), act)

    # series

    async def _note_all(self) -> None:
        jobs = self._caches.jobs.list()
        here = {job.metadata.uid for job in jobs}
        self._series = {uid: each for uid, each in self._series.items() if uid in here}
        for job in jobs:
            self._note(job)

    def _note(self, job: ElasticJob) -> None:
        """Add a point of a job that goes on, from its status, unless its master is followed."""
        training, look = job.status.training, self._looks.get(job.key)
        if training is None or job.status.phase in FINISHED or (look and look.master.status):
            return
        numbers = (
            training.steps_per_second,
            training.samples_per_second,
            training.world_size,
            training.goodput,
        )
        self._add(job.metadata.uid, self._clock.now(), numbers)

    def _add(self, uid: str, at: datetime, numbers: Sequence[float | None]) -> None:
        point = Point(at.timestamp(), *(nan if each is None else float(each) for each in numbers))
        self._series.setdefault(uid, Series()).add(point)

    # jobs that somebody looks at

    def _look(self, key: Key) -> _Look:
        if key not in self._looks:
            while len(self._looks) >= MOST_LOOKS:
                oldest = min(self._looks, key=lambda each: self._looks[each].asked)
                self._forget(oldest)
            self._looks[key] = _Look(self._clock.monotonic())
        return self._looks[key]

    def _forget(self, key: Key) -> None:
        look = self._looks.pop(key)
        if look.task:
            look.task.cancel()

    async def _follow(self) -> None:
        now = self._clock.monotonic()
        for key, look in list(self._looks.items()):
            if now - look.asked > LOOKED_AT_FOR or not self._caches.jobs.meta(key):
                self._forget(key)
            elif look.task is None or look.task.done():
                look.task = asyncio.create_task(self._ask(key, look))

    async def _ask(self, key: Key, look: _Look) -> None:
        """Ask the master of a job, and now and then for its events."""
        job = self._job(key)
        if job is None:
            return
        with self._passes.over(str(key)):
            if self._clock.monotonic() - look.events_at >= EVENTS_EVERY:
                look.events_at = self._clock.monotonic()
                await self._ask_events(key, look)
            await self._ask_master(job, look)

    async def _ask_master(self, job: ElasticJob, look: _Look) -> None:
        pod = self._master_of(job.key)
        if job.status.phase in FINISHED or not job.spec.needs_master:
            look.master = replace(look.master, away=Standing())
            return
        try:
            if pod is None:
                raise Unreachable("the master's pod does not run")
            status = await self._masters.status(pod)
        except KubeError as error:
            look.master = replace(look.master, away=self._since(look.master.away, str(error)))
            self._note(job)
            return
        now = self._clock.now()
        look.master = Master(status, now)
        self._add(job.metadata.uid, now, _numbers(status))

    def _master_of(self, key: Key) -> Pod | None:
        labels = {LABEL_JOB: key.name, LABEL_ROLE: MASTER_ALIAS}
        named = self._caches.pods.list(key.namespace, labels)
        return next((pod for pod in named if pod.status.phase == "Running" and belongs(pod, key.name)), None)

    async def _ask_events(self, key: Key, look: _Look) -> None:
        names = [key.name, *(pod.metadata.name for pod in self._in_trouble(key))]
        try:
            async with asyncio.timeout(PATIENCE):
                found = await asyncio.gather(*(self._events_of(key.namespace, name) for name in names))
        except TimeoutError:
            return  # the pulse says that the API server is away
        except Forbidden as error:
            look.events_away = f"you may not list events: {error.message}"
        except KubeError:
            return
        else:
            look.events, look.events_away = [event for some in found for event in some], ""

    async def _events_of(self, namespace: str, name: str) -> list[Event]:
        page = await self._client.page(EVENT, namespace, fields=f"involvedObject.name={name}")
        return [EVENT.decode(bytes(raw)) for raw in page.items or ()]

    def _in_trouble(self, key: Key) -> list[Pod]:
        """Return the pods whose events say most: those that do not run, and the newest."""
        pods = sorted(self._pods(key), key=_since_when, reverse=True)
        return sorted(pods, key=lambda pod: pod.status.phase == "Running")[:TROUBLED_PODS]


def _note(made: asyncio.Future[bytes]) -> None:
    """Take note of an error that nobody may wait for any more: it is told to those that do."""
    if not made.cancelled():
        made.exception()


def _since_when(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created else 0.0


def _numbers(status: Status) -> tuple[float | None, ...]:
    return status.steps_per_second, status.samples_per_second, status.workers, status.goodput_ratio


@asynccontextmanager
async def watching(
    client: Client, masters: Masters, clock: Clock, namespace: str = "", *, heed: Heed = patient
) -> AsyncIterator[Watch]:
    """Watch a cluster with caches of one's own, until exit. `heed` is told errors about all but nodes: the
    page does without these.
    """
    caches = Caches.of(namespace)
    passes = Passes("page", clock, Metrics())
    watch = Watch(client, caches, masters, clock, passes=passes, namespace=namespace)
    followers: list[Informer[Any]] = [
        *(
            Informer(client, each, clock=clock, heed=heed)
            for each in (caches.jobs, caches.plans, caches.pods)
        ),
        Informer(client, caches.nodes, clock=clock),
    ]
    tasks = [*(asyncio.create_task(each.run()) for each in followers), asyncio.create_task(watch.run())]
    try:
        yield watch
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def scope_of(client: Client) -> str:
    """Return the namespace to look at: "" where all may be read, else that of the kubeconfig's context.

    Raises KubeError where the API server does not answer.
    """
    try:
        await client.raw("GET", ELASTICJOB.path(), None, limit="1")
    except Forbidden:
        return client.config.namespace
    except NotFound:  # the page says what is missing
        return ""
    return ""
