"""A job that must be in one domain of a topology, in a queue of the real Kueue: it grows where it began."""

from __future__ import annotations

from pathlib import Path

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD, Pod
from lab.clusters.plane import pretended, queues
from lab.clusters.plane.whole_kueue import real_kueue
from lab.waiting import until
from tests.controllers.kueue.test_whole_job import comes_to, job
from tests.kit.controllers.whole_kueue import REAL_KUEUE, TEAM, furnish, operator

pytestmark = REAL_KUEUE
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
POOL = {"type": "kwok"}
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
SIZES = {"r1": ("2", "1"), "r2": ("2", "2")}
"""Processors of the machines of each rack; Kueue begins in the smaller one."""


async def set_up(client: Client) -> None:
    machines = [
        pretended.machine(name, pretended.AMOUNTS | {"cpu": cpu}, POOL | {RACK: rack, HOST: name})
        for rack, sizes in SIZES.items()
        for name, cpu in ((f"{rack}-{number}", cpu) for number, cpu in enumerate(sizes))
    ]
    await client.create(queues.TOPOLOGY, queues.topology("racks", RACK, HOST))
    await furnish(client, queues.flavor(labels=POOL, topology="racks"), *machines)
    await client.create(queues.CLUSTER_QUEUE, queues.cluster_queue("ours", {"cpu": "7"}))
    await client.create(queues.LOCAL_QUEUE, queues.local_queue("ours", TEAM, "ours"))


async def test_it_grows_in_the_rack_where_it_began(tmp_path: Path) -> None:
    """Of four workers the rack has room for three; the fourth would fit only into another rack."""
    async with real_kueue(tmp_path) as client:
        await set_up(client)
        async with operator(client):
            made = job(4)
            template = made["spec"]["replicaSpecs"]["worker"]["template"]
            template["metadata"] = {"annotations": {REQUIRED: RACK}}
            await client.create(ELASTICJOB.untyped(), made)
            await comes_to(client, "3/3")

            async def one_waits() -> bool:
                found = await client.list(queues.WORKLOAD, TEAM)
                return [RACK in str(e["spec"]) and "topology" in waits(e) for e in found].count(True) == 1

            await until(one_waits, "the fourth worker waits for a machine of the rack")
            assert {rack_of(pod) for pod in await client.list(POD, TEAM)} == {"r1"}


def rack_of(pod: Pod) -> str:
    return pod.spec.node_name.partition("-")[0]


def waits(workload: Manifest) -> str:
    """Why it has no quota; "" where it has."""
    found = workload.get("status", {}).get("conditions", ())
    told = (e["message"] for e in found if e["type"] == "QuotaReserved" and e["status"] == "False")
    return next(told, "")
