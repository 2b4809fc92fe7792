"""A job that must be in one domain of a topology, in a queue of the real Kueue: it grows where it began."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.controllers.install import install
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NAMESPACE, NODE, POD, Pod
from lab.clusters.plane import queues
from lab.clusters.plane.kueue import why_missing
from lab.clusters.plane.whole_kueue import real_kueue
from lab.waiting import until
from tests.controllers.kueue.test_whole_job import TEAM, comes_to, job, operator

RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
SIZES = {"r1": ("2", "1"), "r2": ("2", "2")}
"""Processors of the machines of each rack; Kueue begins in the smaller one."""


def machine(rack: str, number: int, cpu: str) -> Manifest:
    name = f"{rack}-{number}"
    labels = {RACK: rack, HOST: name, "type": "kwok"}
    metadata = {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": labels}
    amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
    return {"metadata": metadata, "status": {"allocatable": amounts, "capacity": amounts}}


async def set_up(client: Client) -> None:
    await install(client)
    await client.create(NAMESPACE, {"metadata": {"name": TEAM}})
    for rack, sizes in SIZES.items():
        for number, cpu in enumerate(sizes):
            await client.create(NODE.untyped(), machine(rack, number, cpu))
    await client.create(queues.TOPOLOGY, queues.topology("racks", RACK, HOST))
    await client.create(queues.RESOURCE_FLAVOR, queues.flavor(labels={"type": "kwok"}, topology="racks"))
    await client.create(queues.CLUSTER_QUEUE, queues.cluster_queue("ours", {"cpu": "7"}))
    await client.create(queues.LOCAL_QUEUE, queues.local_queue("ours", TEAM, "ours"))


@pytest.mark.plane
@pytest.mark.skipif(bool(why_missing()), reason=why_missing())
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
