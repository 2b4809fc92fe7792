"""Jobs and others in queues of the real Kueue come, resize and go, and programs and machines die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.views import NODE, POD
from lab.clusters.plane import pretended, queues
from lab.clusters.plane.controlplane import APISERVER
from lab.clusters.plane.queues import LOCAL_QUEUE, WORKLOAD
from lab.jobs.queued import MACHINES, TEAM, Queued, job
from lab.story import Trouble


async def job_arrives(on: Queued) -> None:
    name, least = f"j{on.chance.randint(0, 2)}", on.chance.randint(1, 2)
    made = job(name, on.chance.choice("ab"), least + on.chance.randint(0, 4), least)
    await on.client.create(ELASTICJOB.untyped(), made)


async def job_resizes(on: Queued) -> None:
    patch = {"spec": {"replicaSpecs": {"worker": {"replicas": on.chance.randint(1, 6)}}}}
    await on.client.merge_patch(ELASTICJOB.untyped(), f"j{on.chance.randint(0, 2)}", patch, TEAM)


async def other_comes(on: Queued) -> None:
    name, queue = f"f{on.chance.randint(0, 1)}", on.chance.choice("ab")
    priority = on.chance.choice((0, 5))
    made = queues.workload(name, TEAM, queue, on.chance.randint(1, 4), {"cpu": "1"}, priority=priority)
    await on.client.create(WORKLOAD, made)


async def restart_operator(on: Queued) -> None:
    on.yard.operator.stop(0.0)
    await asyncio.sleep(on.chance.uniform(0, 2))
    on.yard.operator.spawn()


async def restart_kueue(on: Queued) -> None:
    on.yard.kueue.kill()
    await asyncio.sleep(on.chance.uniform(0, 2))
    await asyncio.to_thread(on.yard.kueue.start)


async def restart_server(on: Queued) -> None:
    on.yard.plane.kill(APISERVER)
    await asyncio.to_thread(on.yard.plane.start, APISERVER)


async def job_goes(on: Queued) -> None:
    await on.client.delete(ELASTICJOB, f"j{on.chance.randint(0, 2)}", TEAM)


async def other_goes(on: Queued) -> None:
    await on.client.delete(WORKLOAD, f"f{on.chance.randint(0, 1)}", TEAM)


async def queue_stops(on: Queued) -> None:
    patch = {"spec": {"stopPolicy": "HoldAndDrain"}}
    await on.client.merge_patch(LOCAL_QUEUE, on.chance.choice("ab"), patch, TEAM)


async def machine_is_lost(on: Queued) -> None:
    name = on.chance.choice(MACHINES)
    await on.client.delete(NODE, name)
    await on.client.create(NODE.untyped(), pretended.machine(name))


async def pod_is_lost(on: Queued) -> None:
    if pods := await on.client.list(POD, TEAM):
        await on.client.delete(POD, on.chance.choice(pods).metadata.name, TEAM, grace=0)


def _row(step: Callable[[Queued], Awaitable[None]]) -> Trouble:
    """Return a row; what the server refuses, or cannot do now, is not done."""
    name = step.__name__.replace("_", "-")

    async def act(on: Queued) -> str:
        with suppress(KubeError):
            await step(on)
            return name
        return ""

    return Trouble(name, Queued, act)


OFTEN: Final = (job_arrives, job_resizes, other_comes, Queued.queues_go_on)
KILLS: Final = (restart_operator, restart_kueue, restart_server)
REST: Final = (job_goes, other_goes, queue_stops, machine_is_lost, pod_is_lost)
TROUBLES: Final = tuple(_row(step) for step in (*OFTEN, *KILLS, *REST))
