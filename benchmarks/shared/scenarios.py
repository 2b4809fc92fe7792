"""What happens to jobs of a shared cluster, played with one system; each takes the figures of one run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from benchmarks.clients.load import all_of
from benchmarks.clients.plane import NAMESPACE, TooLate
from benchmarks.shared.scene import ONE, PATIENCE, TEAM_A, TEAM_B, Refused, Scene, Taken
from benchmarks.shared.sheet import Runs
from benchmarks.shared.systems import Asked
from elasticjob.kube.errors import ApiError, Conflict, NotFound, TooManyRequests
from elasticjob.kube.objects.views import NODE, POD
from lab.clusters.plane import queues
from lab.processes import say

AGAIN: Final = "seconds until all run again"
QUEUED: Final = 200
LONGEST: Final = 600.0
"""Seconds that the queue may take."""


async def started(on: Scene, round_: int) -> Taken:
    """A job of four is created."""
    asked = Asked(f"started-{round_}", 4, 2, ONE)
    async with on.measured() as taken:
        began = time.monotonic()
        async with on.job(asked, 0):
            taken.seconds["seconds until all run"] = await on.runs(asked.name, 4) - began
    return taken


async def deleted_pod(on: Scene, round_: int) -> Taken:
    """A pod of a job of four is deleted without grace."""
    return await _loses(on, f"deleted-{round_}", lambda pod: on.client.delete(POD, pod, NAMESPACE, grace=0))


async def failed_pod(on: Scene, round_: int) -> Taken:
    """A pod of a job of four ends with exit code 137, as after the kernel's out-of-memory killer."""
    return await _loses(on, f"failed-{round_}", partial(_fail, on))


async def _loses(on: Scene, name: str, blow: Callable[[str], Awaitable[object]]) -> Taken:
    """A job of four loses a pod by a blow."""
    async with on.job(Asked(name, 4, 2, ONE)):
        victim = min(on.pods.running(name))
        async with on.measured() as taken:
            began = time.monotonic()
            await blow(on.pods.made[victim])
            taken.seconds[AGAIN] = await on.runs(name, 4, [victim]) - began
        return taken


async def drained_node(on: Scene, round_: int) -> Taken:
    """The machine of one pod of four is cordoned, and its pods are evicted, as `kubectl drain` does."""
    asked = Asked(f"drained-{round_}", 4, 2, ONE)
    async with on.job(asked):
        workers = on.pods.running(asked.name)
        node = on.pods.node(on.pods.made[min(workers)])
        leaving = {uid for uid in workers if on.pods.made[uid] in on.pods.on(node)}
        try:
            async with on.measured() as taken:
                began = time.monotonic()
                await on.client.merge_patch(NODE, node, {"spec": {"unschedulable": True}})
                async with asyncio.TaskGroup() as draining:
                    for name in on.pods.on(node):
                        draining.create_task(_evict(on, name))
                taken.seconds["seconds until the node is empty"] = time.monotonic() - began
                taken.seconds[AGAIN] = await on.runs(asked.name, 4, leaving) - began
        finally:
            await on.client.merge_patch(NODE, node, {"spec": {"unschedulable": None}})
        return taken


async def resized(on: Scene, round_: int) -> Taken:
    """A user asks for 4 workers in the place of 2, then for 2 again."""
    asked = Asked(f"resized-{round_}", 2, 2, ONE)
    async with on.job(asked):
        first = on.pods.running(asked.name)
        async with on.measured() as taken:
            for workers in (4, 2):
                began = time.monotonic()
                await on.resize(asked.name, workers)
                taken.seconds[f"seconds until {workers} run"] = await on.runs(asked.name, workers) - began
            taken.counts["of the first 2 pods still there"] = len(first & on.pods.running(asked.name))
        return taken


async def reclaimed(on: Scene, round_: int) -> Taken:
    """A job of 4 has borrowed 2 GPUs of another team, whose job of 2 comes, and later ends."""
    borrower = Asked(f"borrower-{round_}", 4, 2, TEAM_A)
    owner = Asked(f"owner-{round_}", 2, 2, TEAM_B)
    async with on.job(borrower):
        async with on.measured() as taken:
            began = time.monotonic()
            async with on.job(owner, 0):
                taken.seconds["seconds until the other team's run"] = await on.runs(owner.name, 2) - began
                taken.counts["of the 4 pods still running"] = len(on.pods.running(borrower.name))
                ended = time.monotonic()
            back = await on.runs(borrower.name, 4)
            taken.seconds["seconds until all 4 run after it was deleted"] = back - ended
        return taken


async def queued(on: Scene, round_: int, jobs: int = QUEUED) -> Taken:
    """So many jobs of 2 pods, whose pods succeed after a second, through a queue with room for 20 at once."""
    names = [f"queued-{round_}-{number:03}" for number in range(jobs)]

    brief = [Asked(name, 2, 2, ONE, brief=True) for name in names]
    async with on.measured() as taken:
        began = time.monotonic()
        taken.seconds["seconds until all are created"] = await all_of(
            [partial(on.create, each) for each in brief]
        )
        await _all_complete(on, jobs)
        taken.seconds["seconds until all have ended"] = time.monotonic() - began
    taken.counts["most pods at once"] = on.pods.most
    await all_of([partial(on.client.delete, on.system.kind, name, NAMESPACE) for name in names])
    return taken


Scenario = Callable[[Scene, int], Awaitable[Taken]]
SCENARIOS: Final[Mapping[str, tuple[str, Scenario]]] = {
    "start": ("a job of 4 is created", started),
    "delete": ("a pod of 4 is deleted", deleted_pod),
    "fail": ("a pod of 4 fails", failed_pod),
    "drain": ("the node of a pod of 4 is drained", drained_node),
    "resize": ("2 → 4 → 2 workers", resized),
    "reclaim": ("2 borrowed GPUs of 4 are taken back", reclaimed),
    "queue": (f"{QUEUED} jobs of 2 pods, 20 at once", queued),
}


async def played(playing: Awaitable[Taken]) -> Taken:
    """One run. Raises Refused, also for what did not come in time and for any error of the server's."""
    try:
        return await playing
    except (TooLate, ApiError) as error:
        raise Refused(str(error)) from error


async def noted(playing: Awaitable[Taken], title: str, runs: Runs) -> None:
    """One run, which is said and added to the runs, and so is a refusal."""
    try:
        taken = await played(playing)
    except Refused as refused:
        say(f"  {title}: {refused}")
        runs.refusals.append(str(refused))
        return
    runs.taken.append(taken)
    say(f"  {title}: {', '.join(f'{name} {value:.2f}' for name, value in taken.figures().items())}")


async def _fail(on: Scene, name: str) -> None:
    pod = await on.client.get(POD.untyped(), name, NAMESPACE)
    ended: dict[str, Any] = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    statuses = [{**each, "ready": False, "state": ended} for each in pod["status"]["containerStatuses"]]
    patch = {"status": {"phase": "Failed", "containerStatuses": statuses}}
    await on.client.merge_patch(POD.untyped(), name, patch, NAMESPACE, subresource="status")


async def _evict(on: Scene, name: str) -> None:
    """Ask until the eviction is granted and the pod is gone."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": NAMESPACE},
    }
    until = time.monotonic() + PATIENCE
    while True:
        try:
            await on.client.post(POD, name, "eviction", eviction, NAMESPACE)
            break
        except NotFound:
            return
        except TooManyRequests:
            if time.monotonic() > until:
                raise TooLate(f"not within {PATIENCE:.0f} s: the eviction of {name} is granted") from None
            await asyncio.sleep(0.5)
        except Conflict:
            await asyncio.sleep(0.1)
    gone = f"the evicted pod {name} has gone"
    await on.pods.until(lambda: name not in on.pods.names(), gone, PATIENCE, settled=0)


async def _all_complete(on: Scene, jobs: int) -> None:
    until, done = time.monotonic() + LONGEST, 0
    while done < jobs:
        found = await on.client.list(on.system.kind, NAMESPACE)
        done = sum("Complete" in queues.conditions(each) for each in found)
        if time.monotonic() > until:
            raise Refused(f"not within {LONGEST:.0f} s: {done} of {jobs} jobs have ended")
        await asyncio.sleep(0.2)
