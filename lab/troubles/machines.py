"""Machines of a devcluster: one is drained as `kubectl drain` does, or loses an agent."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Final

from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.cli.story.processes import main_of, of_pod
from elasticjob.kube.errors import NotFound
from elasticjob.kube.objects.views import NODE, POD, Pod
from lab.jobs.digits import PATIENCE, WORKERS, Digits
from lab.story import Trouble

STAND_IN: Final = (0.0, 6.0)
"""Seconds between the cordon and the first eviction."""
RANK_ZERO: Final = 0.5
"""How often the machine of rank 0 is chosen."""


async def drain(scene: Digits) -> str:
    """Drain a random machine of the job, and wait until all is as before."""
    client, chance, began = scene.here.client, scene.chance, time.monotonic()
    running = [pod for pod in await scene.pods() if pod.status.phase == "Running"]
    first = next(filter(is_worker, running))  # the oldest has rank 0
    others = sorted({pod.spec.node_name for pod in running})
    machine = first.spec.node_name if chance.random() < RANK_ZERO else chance.choice(others)
    await client.merge_patch(NODE, machine, {"spec": {"unschedulable": True}})
    await asyncio.sleep(chance.uniform(*STAND_IN))
    leaving = [pod for pod in await scene.pods() if pod.spec.node_name == machine]
    for pod in leaving:
        await evict(scene, pod)
    uids = {pod.metadata.uid for pod in leaving}
    await scene.until(lambda seen: not any(pod.uid in uids for pod in seen.pods))
    await client.merge_patch(NODE, machine, {"spec": {"unschedulable": None}})
    await scene.goes_well(scene.seen.step + 5)
    names = ", ".join(pod.metadata.name for pod in leaving)
    return f"drained {machine} ({names}) in {time.monotonic() - began:.1f} s, step {scene.seen.step}"


def is_worker(pod: Pod) -> bool:
    """Return whether a pod is one of the workers."""
    return "-worker-" in pod.metadata.name


async def evict(scene: Digits, pod: Pod) -> None:
    """Evict a pod once the job's budget allows it; devcluster keeps no budgets itself."""
    name, namespace = pod.metadata.name, pod.metadata.namespace
    async with asyncio.timeout(PATIENCE):
        while is_worker(pod) and not await may_leave(scene):  # noqa: ASYNC110  # the server is asked
            await asyncio.sleep(0.2)
    about = {"name": name, "namespace": namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
    try:
        await scene.here.client.post(POD, name, "eviction", body, namespace)
    except NotFound:  # it has left by itself
        return


async def may_leave(scene: Digits) -> bool:
    """Return whether more workers are ready than the budget keeps, as the disruption controller counts."""
    key = scene.job.key
    resource = await scene.here.client.get(JOBRESOURCE, key.name, key.namespace)
    ready = [pod for pod in await scene.pods() if is_worker(pod) and is_ready(pod)]
    least = resource.status.min_available
    return least is not None and len(ready) > least


def is_ready(pod: Pod) -> bool:
    """Return whether a pod is ready and stays."""
    ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
    return ready and pod.metadata.deletion_timestamp is None


async def lose_agent(scene: Digits) -> str:
    """Kill an agent with its worker, and note the seconds until all workers train again."""
    oldest = list(filter(is_worker, await scene.pods()))
    member = scene.chance.choice(oldest[:WORKERS]).metadata.name  # the youngest is the spare
    before, killed = scene.seen.round, time.time()
    agent = main_of(of_pod(member, scene.seen.uid))
    assert agent is not None
    os.kill(agent.pid, signal.SIGKILL)
    await scene.until(lambda seen: seen.round > before and seen.world == WORKERS)
    at = next(step.at for step in scene.watched.steps if step.round > before and step.world == WORKERS)
    scene.recoveries.append(at - killed)
    return f"killed the agent of {member}; the next step came after {at - killed:.2f} s"


ON: Final = ("machines",)
TROUBLES: Final = (Trouble("drain", Digits, drain, ON), Trouble("lost-agent", Digits, lose_agent, ON))
