"""A DIJob in a queue of the real Kueue: its coordinator is the base, and each other pod waits for a slice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from elasticjob.api.diengine.dijob import DIJOB, DIJobPhase
from elasticjob.api.diengine.names import Role
from elasticjob.api.diengine.pods import role_of
from elasticjob.api.v1alpha1.kueue import QUEUE_NAME
from elasticjob.controllers.kueue.kinds.dijob import is_gated
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD, Pod
from lab.build.dijobs import Caller, di_server
from lab.build.manifests import DIJOB as MANIFEST
from lab.build.manifests import changed
from lab.clusters.plane import pretended, queues
from lab.clusters.plane.whole_kueue import real_kueue
from lab.waiting import until
from tests.kit.controllers.whole_kueue import REAL_KUEUE, TEAM, furnish, is_admitted, operator, template

pytestmark = REAL_KUEUE
POOL = {"pool": "games"}


async def set_up(client: Client) -> None:
    """A queue with 3 processors, on machines that Kueue chooses, and a DIJob whose pods have one each."""
    found = pretended.machine("n1", labels=POOL | {"kubernetes.io/hostname": "n1"})
    await client.create(queues.TOPOLOGY, queues.topology("machines", "kubernetes.io/hostname"))
    await furnish(client, queues.flavor(labels=POOL, topology="machines"), found)
    await client.create(queues.CLUSTER_QUEUE, queues.cluster_queue("games", {"cpu": "3"}))
    await client.create(queues.LOCAL_QUEUE, queues.local_queue("queue", TEAM, "games"))


def job() -> Manifest:
    roles = {
        f"spec/{role}/template": template("di-container") for role in ("coordinator", "collector", "learner")
    }
    about = {"name": "cartpole", "namespace": TEAM, "labels": {QUEUE_NAME: "queue"}}
    return changed(MANIFEST, {**roles, "metadata": about})


@asynccontextmanager
async def at_work(client: Client) -> AsyncIterator[Caller]:
    """The operator and di-server in this process."""
    async with operator(client), di_server(client) as url, aiohttp.ClientSession() as session:
        yield Caller(session, url, TEAM)


async def pods(client: Client) -> list[Pod]:
    return [p for p in await client.list(POD, TEAM) if p.metadata.deletion_timestamp is None]


async def counted(client: Client) -> tuple[int, int, int]:
    """How many coordinators and collectors run, and how many collectors wait."""
    found = [(role_of(p), p.status.phase == "Running", is_gated(p)) for p in await pods(client)]
    return (
        found.count((Role.COORDINATOR, True, False)),
        found.count((Role.COLLECTOR, True, False)),
        found.count((Role.COLLECTOR, False, True)),
    )


async def come_to(client: Client, *wanted: int) -> None:
    async def holds() -> bool:
        return await counted(client) == wanted

    await until(holds, f"coordinators, collectors, waiting collectors are {wanted}")


async def waits(client: Client) -> bool:
    status = (await client.get(DIJOB, "cartpole", TEAM)).status
    admitted = status.condition("Admitted")
    why = (admitted.status, admitted.reason, admitted.message[:29]) if admitted else ()
    return status.phase is DIJobPhase.CREATED and why == ("False", "Queued", "queue queue: after Preempted,")


async def has_finished(client: Client) -> bool:
    [base] = await client.list(queues.WORKLOAD, TEAM)
    [usage] = (await client.get(queues.CLUSTER_QUEUE, "games", ""))["status"]["flavorsUsage"]
    used = [each["total"] for each in usage["resources"]]
    kept = base["metadata"].get("finalizers")
    return "Finished" in queues.conditions(base) and not kept and used == ["0"]


async def test_its_pods_take_turns_with_others_and_its_end_returns_all_quota(tmp_path: Path) -> None:
    async with real_kueue(tmp_path) as client:
        await set_up(client)
        async with at_work(client) as caller:
            await client.create(DIJOB.untyped(), job())
            await come_to(client, 1, 0, 0)
            assert (await caller.add(collectors=3)).success
            await come_to(client, 1, 2, 1)
            chosen = [p.spec.node_selector for p in await pods(client) if not is_gated(p)]
            assert chosen == [{**POOL, "kubernetes.io/hostname": "n1"}] * 3

            other = queues.workload("other", TEAM, "queue", 1, {"cpu": "1"})
            await client.create(queues.WORKLOAD, other)
            await is_admitted(client, "other")
            await come_to(client, 1, 1, 1)

            big = queues.workload("big", TEAM, "queue", 3, {"cpu": "1"}, priority=100)
            await client.delete(queues.WORKLOAD, "other", TEAM)
            await client.create(queues.WORKLOAD, big)
            await is_admitted(client, "big")
            await come_to(client, 0, 0, 0)
            await until(lambda: waits(client), "the DIJob says that it waits in its queue")

            await client.delete(queues.WORKLOAD, "big", TEAM)
            await come_to(client, 1, 0, 0)
            done = {"status": {"phase": "Succeeded"}}
            await client.merge_patch(POD, "cartpole-coordinator", done, TEAM, subresource="status")
            await until(lambda: has_finished(client), "its Workload is Finished, and no quota is used")
