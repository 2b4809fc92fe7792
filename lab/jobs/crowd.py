"""Jobs that come and go in hundreds, with pretended pods, and their operator behind a line that fails."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.controllers.install import install
from elasticjob.controllers.parts.names import MASTER
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.errors import Conflict, Invalid, KubeError, NotFound
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import NAMESPACE, POD, Pod
from elasticjob.kube.operator.operator import Operator
from elasticjob.kube.testing import FaultProxy
from lab import programs
from lab.jobs.gauges import Sample, growth, held, line, metrics_of
from lab.jobs.job import role
from lab.processes import Process
from lab.running import running
from lab.story import Draws, Job, Length, Scene, Story, Weights
from lab.troubles.network import EPISODES, Crash, Weather
from lab.truths.status import (
    KINDS,
    OVER,
    OWNED,
    World,
    is_alive,
    is_over,
    leaks,
    leftovers,
    places,
    role_of,
    unfinished,
)

LARGEST = 3
STARTS_WITHIN = 0.3
"""Maximum start time of a simulated container in seconds."""
AT_ONCE = 8
SUCCEEDED = '{"verdict": "Succeeded", "reason": "TrainingSucceeded", "message": "played"}'


class Eyes:
    """The state on the server: caches of all kinds, without the fault proxy."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.namespace = namespace
        self.onlooker = Operator(client, namespace, name="eyes", probes=None, signals=False)
        self.caches = {kind.name: self.onlooker.cache(kind) for kind in KINDS}

    def look(self) -> World:
        jobs = self.caches[ELASTICJOB.name].list()
        owned = {kind.name: [item.meta for item in self.caches[kind.name].items()] for kind in OWNED}
        return World({job.metadata.name: job for job in jobs}, self.pods(), owned)

    def pods(self) -> list[Pod]:
        return self.caches[POD.name].list()

    def count(self, kind: Kind[Any]) -> int:
        return len(self.caches[kind.name])


class Kubelet:
    """Reports pods as running soon after their creation; without a node they are deleted at once."""

    def __init__(self, client: Client, eyes: Eyes, chance: random.Random) -> None:
        self._client = client
        self._eyes = eyes
        self._chance = chance
        self._waiting: asyncio.Queue[Pod] = asyncio.Queue()
        eyes.caches[POD.name].subscribe(self._on_pod)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as hands:
            for _ in range(AT_ONCE):
                hands.create_task(self._start_pods())

    def _on_pod(self, change: Change) -> None:
        if change.new is None or (change.old and change.old.meta.uid == change.new.meta.uid):
            return
        pod: Pod = self._eyes.caches[POD.name].view(change.new)
        if pod.status.phase not in ("Running", "Succeeded", "Failed"):
            asyncio.get_running_loop().call_later(
                self._chance.uniform(0, STARTS_WITHIN), self._waiting.put_nowait, pod
            )

    async def _start_pods(self) -> None:
        while True:
            created = await self._waiting.get()
            pod = self._eyes.caches[POD.name].get(Key(created.metadata.namespace, created.metadata.name))
            if pod is None or pod.metadata.uid != created.metadata.uid or pod.status.phase in OVER:
                continue
            try:
                await say(self._client, pod, "Running", {"running": {"startedAt": _now()}})
            except (NotFound, Invalid):  # it is gone, or another pod has its name
                continue
            except KubeError:  # it has changed, or the server is away: the pod starts a little later
                asyncio.get_running_loop().call_later(0.2, self._waiting.put_nowait, pod)


async def say(client: Client, pod: Pod, phase: str, state: Manifest) -> None:
    """Write a pod's status as a kubelet would. Raises Conflict if it has changed: nobody's end is lost."""
    ready = phase == "Running"
    common = {"imageID": "", "ready": ready, "restartCount": 0, "state": state}
    statuses = [common | {"name": each.name, "image": each.image} for each in pod.spec.containers]
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": phase, "podIP": "10.0.0.1", "conditions": conditions, "containerStatuses": statuses}
    metadata = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    patch = {"metadata": metadata, "status": status | {"podIPs": [{"ip": "10.0.0.1"}]}}
    await client.merge_patch(POD, pod.metadata.name, patch, pod.metadata.namespace, subresource="status")


def ended(code: int, message: str = "") -> Manifest:
    """The state of a container that is over."""
    reason = "Completed" if code == 0 else "Error"
    terminated = {"exitCode": code, "reason": reason, "message": message, "finishedAt": _now()}
    return {"terminated": terminated}


def _now() -> str:
    return timestamp(datetime.now(UTC))


@dataclass
class Users:
    """Applies, scales, suspends and deletes jobs, and ends their pods; `act` does one of these at random."""

    client: Client
    eyes: Eyes
    chance: random.Random
    jobs: int
    made: int = 0
    did: dict[str, int] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    leave: bool = False
    """Whether they are to go."""

    async def fill(self) -> None:
        """Apply jobs until the target number is reached."""
        while self.eyes.count(ELASTICJOB) < self.jobs:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(AT_ONCE, self.jobs - self.eyes.count(ELASTICJOB))):
                    tasks.create_task(self.apply())

    async def act(self) -> None:
        """Perform one random action on one job."""
        names = sorted(self.eyes.look().jobs)
        if len(names) < self.jobs:
            await self._do("apply", lambda _: self.apply(), "")
            return
        what = self.chance.choices(list(DEEDS), weights=[weight for weight, _ in DEEDS.values()])[0]
        await self._do(what, lambda name: DEEDS[what][1](self, name), self.chance.choice(names))

    async def _do(self, what: str, deed: Callable[[str], Awaitable[None]], name: str) -> None:
        self.did[what] = self.did.get(what, 0) + 1
        with suppress(KubeError):  # the job is gone, or the server is unavailable
            await deed(name)

    async def apply(self) -> None:
        """Apply a new job; now and then under the name of a deleted one."""
        if self.gone and self.chance.random() < 0.3:
            name = self.gone.pop(self.chance.randrange(len(self.gone)))
        else:
            self.made += 1
            name = f"soak-{self.made}"
        await self.client.create(ELASTICJOB, job(name, self.chance.randint(1, LARGEST)), self.eyes.namespace)

    async def delete(self, name: str) -> None:
        await self.client.delete(ELASTICJOB, name, self.eyes.namespace)
        self.gone.append(name)

    async def scale(self, name: str) -> None:
        size = self.chance.randint(1, LARGEST)
        patch = {"spec": {"replicaSpecs": {WORKER: {"replicas": size}}}}
        await self.client.merge_patch(ELASTICJOB, name, patch, self.eyes.namespace)

    async def suspend(self, name: str) -> None:
        found = self.eyes.look().jobs[name]
        patch = {"spec": {"suspend": not found.spec.suspend}}
        await self.client.merge_patch(ELASTICJOB, name, patch, self.eyes.namespace)

    async def finish(self, name: str) -> None:
        """End its pods, the master first and with a verdict: a job ends only with its master."""
        pods = sorted(self._alive(name), key=lambda pod: role_of(pod) != MASTER)
        if not pods or role_of(pods[0]) != MASTER:
            return
        await say(self.client, pods[0], "Succeeded", ended(0, SUCCEEDED))
        for pod in pods[1:]:
            with suppress(NotFound, Conflict, Invalid):  # it has gone meanwhile: the others end all the same
                await say(self.client, pod, "Succeeded", ended(0))

    async def kill(self, name: str) -> None:
        """A container is killed from outside."""
        for pod in self._alive(name)[:1]:
            await say(self.client, pod, "Failed", ended(137))

    async def evict(self, name: str) -> None:
        """A pod is deleted."""
        for pod in self._alive(name)[-1:]:
            about = pod.metadata
            await self.client.delete(
                POD, about.name, about.namespace, uid=about.uid, version=about.resource_version
            )

    async def delete_all(self) -> None:
        for found in await self.client.list(ELASTICJOB, self.eyes.namespace):
            await self.client.delete(ELASTICJOB, found.metadata.name, self.eyes.namespace)

    def _alive(self, name: str) -> list[Pod]:
        world = self.eyes.look()
        if is_over(world.jobs[name]) or world.jobs[name].spec.suspend:
            return []
        return [pod for pod in world.pods_of().get(name, []) if is_alive(pod)]


Deed = Callable[[Users, str], Awaitable[None]]
DEEDS: Mapping[str, tuple[int, Deed]] = {
    "delete": (4, Users.delete),
    "scale": (4, Users.scale),
    "finish": (2, Users.finish),
    "kill": (2, Users.kill),
    "evict": (2, Users.evict),
    "suspend": (2, Users.suspend),
}
"""The actions of users, with relative frequencies. Deleted jobs are replaced."""


def job(name: str, workers: int) -> Manifest:
    """Return a typical job."""
    command = ["elasticjob", "run", "train.py"]
    worker = role(command, workers, minReplicas=1, maxReplicas=LARGEST, restartCount=100)
    spec = {"distributionStrategy": "AllreduceStrategy", "replicaSpecs": {WORKER: worker}}
    return {"metadata": {"name": name}, "spec": spec}


NAME = "soak"
BETWEEN_DEEDS = (0.05, 0.4)
CALM = (0.5, 4.0)
"""Seconds between two episodes."""
EACH = 1.0
"""Seconds between two samples."""
LOOK = 0.05
"""Seconds between two looks at the world while it is waited for."""
PATIENCE, SETTLED_WITHIN = 120.0, 45.0


@dataclass(frozen=True)
class Plane:
    """An API server, by an administrator's rights, and how it is killed."""

    config: Config
    folder: Path
    crash: Crash | None = None


@dataclass
class Crowd(Weather, Scene):
    """All that takes part; `late` has sentences about what did not come in time."""

    operator: Process = field(kw_only=True)
    session: aiohttp.ClientSession = field(kw_only=True)
    eyes: Eyes = field(kw_only=True)
    users: Users = field(kw_only=True)
    faults_wanted: int = 1
    """How many requests have a fault before the weather is fine, also on a machine too busy to make many."""
    samples: list[Sample] = field(default_factory=list)
    stormy: list[Sample] = field(default_factory=list)
    """Those while there were faults."""
    empty: tuple[Sample, ...] = ()
    """Before the first job, and after the last."""
    metrics: dict[str, float] = field(default_factory=dict)
    converged_in: float = 0.0
    late: list[str] = field(default_factory=list)
    start: float = field(default_factory=time.monotonic)

    @property
    def places(self) -> Iterable[tuple[str, str]]:
        """The place of each live pod, and its name."""
        return places(self.eyes.look())

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    async def sample(self) -> Sample:
        """Look at the operator now."""
        world = self.eyes.look()
        rss, files, connections, inbound, threads = held(self.operator.pid)
        self.metrics = await metrics_of(self.session, self.operator.url)
        tasks = int(self.metrics.get("elasticjob_kube_tasks", 0))
        wrong = sum(1 for _ in unfinished(world))
        now = Sample(self.now(), rss, files, connections, inbound, threads, tasks, len(world.jobs), wrong)
        self.samples.append(now)
        return now

    async def watch(self) -> None:
        """Sample for ever, and have what must never be seen looked for."""
        while True:
            await self.sample()
            self.story.look(self)
            await asyncio.sleep(EACH)

    async def until_none(self, what: Callable[[World], Iterable[str]], name: str) -> float:
        """Return the seconds until `what` returns nothing; its last results count as violations."""
        began = self.now()
        while wrong := list(what(self.eyes.look())):
            if self.now() - began > PATIENCE:
                self.late += [f"after {PATIENCE:.0f} s {each}" for each in wrong[:20]]
                break
            await asyncio.sleep(LOOK)
        took = self.now() - began
        self.figures[name] = f"{took:.2f} s"
        return took

    async def draws(self, troubles: Weights) -> Draws:
        """Fill the cluster with jobs, then yield weather while users are at work, for some minutes."""
        await self.users.fill()
        await self.until_none(unfinished, "all jobs running, first time")
        weights = {
            trouble: weight for trouble, weight in troubles.items() if trouble.name != "crash" or self.crash
        }
        began, self.began = self.now(), time.monotonic()
        working = asyncio.create_task(self._work())
        try:
            while self.goes_on(0) or self.faults < self.faults_wanted:
                await self.last(*CALM)
                (trouble,) = self.chance.choices([*weights], weights=[*weights.values()])
                yield trouble
        finally:
            self.users.leave = True
            await working
            self.clear()
        self.stormy = [each for each in self.samples if each.at >= began]

    async def _work(self) -> None:
        """Let users act until the weather is fine; they come when they like."""
        while not self.users.leave:
            await self.users.act()
            await asyncio.sleep(self.users.chance.uniform(*BETWEEN_DEEDS) * self.pace)

    async def finish(self) -> None:
        """Wait until all is as specified, delete all jobs, and wait until nothing is left."""
        self.converged_in = await self.until_none(unfinished, "all as specified after the last fault")
        await self.until_none(leftovers, "… and leftovers collected")
        await self.users.delete_all()
        await self.until_none(anything, "all jobs deleted, nothing left")
        self.empty = (*self.empty, await self.settled(*self.empty))
        before, after, (middle, last) = *self.empty, growth(self.stormy)
        mib = (before.mib, middle, last, after.mib)
        metrics = {name.removesuffix("_total"): value for name, value in self.metrics.items()}
        self.figures |= {
            "requests": _listed(self.proxy.counts),
            "users": _listed(Counter(self.users.did)),
            "MiB: empty, middle, last third, empty": ", ".join(f"{each:.0f}" for each in mib),
            **{name: f"{getattr(before, name)}, {getattr(after, name)}" for name in HELD},
            **{name: f"{metrics[name]:.0f}" for name in METRICS if name in metrics},
            "memory": line([sample.mib for sample in self.samples]),
            "wrong": line([float(sample.wrong) for sample in self.samples]),
        }

    async def settled(self, before: Sample | None = None) -> Sample:
        """Return a sample once the resources have returned to `before`, or else have settled."""
        if before is None:
            await asyncio.sleep(2 * EACH)  # the operator counts its tasks twice a second
            return await self.sample()
        until = self.now() + SETTLED_WITHIN
        while True:
            now = await self.sample()
            if self.now() > until or not leaks(before, now):
                return now
            await asyncio.sleep(EACH)


HELD = ("tasks", "connections", "inbound", "files", "threads")
METRICS = (
    "controller_runtime_reconcile_errors",
    "workqueue_retries",
    "rest_client_requests",
    "elasticjob_kube_watch_reconnects",
    "elasticjob_kube_gate_timeouts",
)


def anything(world: World) -> Iterable[str]:
    """A sentence for each object that there is of any job."""
    yield from (f"{name} is there" for name in world.jobs)
    yield from leftovers(world)


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counted.most_common())


@asynccontextmanager
async def crowded(plane: Plane, story: Story, *, pace: float = 1.0, faults: int = 1) -> AsyncIterator[Crowd]:
    """Run the operator behind a proxy, and pretended pods; it must be the same process at the end."""
    chance, config = random.Random(story.seed), plane.config
    async with (
        Client(config, user_agent=NAME) as client,
        FaultProxy(config, seed=story.seed) as proxy,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
    ):
        await install(client)
        await client.create(NAMESPACE, {"metadata": {"name": NAME}})
        eyes = Eyes(client, NAME)
        users = Users(client, eyes, chance, story.length.size)
        kubeconfig = proxy.write_kubeconfig(plane.folder / "proxy.kubeconfig")
        operator = programs.operator(kubeconfig, plane.folder)
        # the same weather however busy the machine
        weather = (proxy, random.Random(story.seed), plane.crash, pace)
        crowd = Crowd(
            *weather,
            faults,
            operator=operator,
            session=session,
            eyes=eyes,
            users=users,
            story=story,
            evidence=(operator.log,),
        )
        async with operator, running(eyes.onlooker), asyncio.TaskGroup() as tasks:
            crowd.empty = (await crowd.settled(),)
            kubelet = Kubelet(client, eyes, chance)
            beside = [tasks.create_task(each) for each in (kubelet.run(), crowd.watch())]
            yield crowd
            for task in beside:
                task.cancel()


JOBS = (
    Job(
        "crowd",
        "hundreds of jobs come and go while the line to the API server fails; nothing is left, nothing leaks",
        ("plane",),
        crowded,
        Crowd,
        {name: weight for name, (weight, _) in EPISODES.items()},
        ("as-specified", "soon", "no-twins", "no-leaks", "no-growth"),
        Length(minutes=10.0, size=200),
    ),
)
