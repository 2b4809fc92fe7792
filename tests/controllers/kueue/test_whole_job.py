"""An ElasticJob in a queue of the real Kueue: it grows into idle quota, and gives back what others need."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.kueue import QUEUE_NAME
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, PlanPhase
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.conditions import find
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import CRD, NODE, POD
from lab.clusters.plane import pretended, queues
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.kueue import Kueue
from lab.clusters.plane.whole_kueue import real_kueue
from lab.waiting import until
from tests.kit.controllers.whole_kueue import REAL_KUEUE, TEAM, furnish, is_admitted, operator, template

pytestmark = REAL_KUEUE
QUOTA = {"ours": "3", "theirs": "3"}
COHORTS = {"ours": "all", "theirs": "lab"}
"""Of the two teams; `lab` is below `all`."""


async def set_up(client: Client) -> None:
    """Two queues of 3 processors each below one cohort; the second one takes back what it lends."""
    await furnish(client, queues.flavor(), pretended.machine("n1"))
    await client.create(queues.COHORT, queues.cohort("lab", "all"))
    for name, cpu in QUOTA.items():
        made = queues.cluster_queue(name, {"cpu": cpu}, cohort=COHORTS[name])
        await client.create(queues.CLUSTER_QUEUE, made)
        await client.create(queues.LOCAL_QUEUE, queues.local_queue(name, TEAM, name))


def job(workers: int, least: int = 1) -> Manifest:
    """A job of so many workers with a processor each."""
    worker = {"replicas": workers, "minReplicas": least, "maxReplicas": workers, "template": template()}
    spec = {"distributionStrategy": "Local", "optimizeMode": "manual", "replicaSpecs": {"worker": worker}}
    return {"metadata": {"name": "digits", "namespace": TEAM, "labels": {QUEUE_NAME: "ours"}}, "spec": spec}


async def comes_to(client: Client, workers: str, reason: str = "Admitted") -> None:
    """Wait until the job shows so many workers, and this reason of its condition Admitted."""

    async def holds() -> bool:
        status = (await client.get(ELASTICJOB, "digits", TEAM)).status
        admitted = find(status.conditions, "Admitted")
        return status.workers == workers and admitted is not None and admitted.reason == reason

    await until(holds, f"workers {workers}, {reason}")


async def no_definition(client: Client) -> bool:
    return all(each["spec"]["group"] != queues.GROUP for each in await client.list(CRD.untyped()))


async def nothing_is_used(client: Client) -> bool:
    every = [await client.get(queues.CLUSTER_QUEUE, name, "") for name in QUOTA]
    used = [each["total"] for one in every for each in one["status"]["flavorsUsage"][0]["resources"]]
    left = [each for each in await client.list(queues.WORKLOAD, TEAM) if each["metadata"].get("finalizers")]
    return used == ["0", "0"] and not left


async def scale(client: Client, replicas: int) -> None:
    """As an autoscaler does."""
    body = {"spec": {"replicas": replicas}}
    await client.merge_patch(JOBRESOURCE.untyped(), "digits", body, TEAM, subresource="scale")


async def stop(client: Client, policy: str) -> None:
    await client.merge_patch(queues.CLUSTER_QUEUE, "ours", {"spec": {"stopPolicy": policy}}, "")


async def test_it_grows_gives_back_is_evicted_and_returns_all_quota(tmp_path: Path) -> None:
    async with real_kueue(tmp_path) as client:
        await set_up(client)
        async with operator(client):
            await client.create(ELASTICJOB.untyped(), job(5))
            await comes_to(client, "5/5")
            await scale(client, 3)
            await comes_to(client, "3/3")
            await asyncio.sleep(2)
            await comes_to(client, "3/3")
            await scale(client, 5)
            await comes_to(client, "5/5")
            other = queues.workload("other", TEAM, "theirs", 2, {"cpu": "1"})
            await client.create(queues.WORKLOAD, other)
            await is_admitted(client, "other")
            await comes_to(client, "4/4")

            same = queues.workload("same", TEAM, "ours", 1, {"cpu": "1"}, priority=-1)
            await client.create(queues.WORKLOAD, same)  # for which Kueue takes nothing back
            await is_admitted(client, "same")
            await comes_to(client, "3/3")

            await stop(client, "HoldAndDrain")
            await comes_to(client, "0/1", "QueueUnavailable")
            assert await client.list(POD, TEAM) == []
            await stop(client, "None")
            await comes_to(client, "1/1")
            kept = await client.get(ELASTICJOB, "digits", TEAM)
            assert isinstance(kept, ElasticJob)
            assert not kept.spec.suspend

            for name in ("other", "same"):
                await client.delete(queues.WORKLOAD, name, TEAM)
            done = {"status": {"phase": "Succeeded"}}
            for pod in await client.list(POD, TEAM):
                await client.merge_patch(POD, pod.metadata.name, done, TEAM, subresource="status")
            await until(lambda: nothing_is_used(client), "no quota is used, and no finalizer is left")


async def planned(client: Client, name: str, cpu: str) -> str:
    """Have each worker get so much by a plan of an optimizer; returns how that ended."""
    sizes = {"worker": {"resource": {"cpu": cpu}}}
    spec = {"ownerJob": "digits", "manualScaling": False, "replicaResourceSpecs": sizes}
    await client.create(SCALEPLAN.untyped(), {"metadata": {"name": name, "namespace": TEAM}, "spec": spec})

    async def began() -> bool:
        phase = (await client.get(SCALEPLAN, name, TEAM)).status.phase
        return phase is not None and phase is not PlanPhase.PENDING

    await until(began, f"plan {name} is carried out")
    status = (await client.get(SCALEPLAN, name, TEAM)).status
    return status.conditions[-1].message if status.phase is PlanPhase.FAILED else str(status.phase)


async def pods(client: Client) -> dict[str, str]:
    """What each pod asks for, by uid."""
    found = await client.list(POD, TEAM)
    return {pod.metadata.uid: str(pod.spec.containers[0].resources.requests["cpu"]) for pod in found}


async def size(client: Client) -> int:
    return len([each for each in await client.list(POD, TEAM) if each.metadata.deletion_timestamp is None])


def elsewhere(name: str) -> Manifest:
    """An important Workload for machines that no flavour has."""
    made = queues.workload(name, TEAM, "ours", 1, {"cpu": "1"}, priority=9)
    made["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {"pool": "none"}
    return made


async def test_a_plan_for_other_amounts_costs_no_pod(tmp_path: Path) -> None:
    async with real_kueue(tmp_path) as client:
        await set_up(client)
        async with operator(client):
            await client.create(ELASTICJOB.untyped(), job(3, 3))
            await comes_to(client, "3/3")
            before = await pods(client)
            never = await planned(client, "never", "3")
            assert never == "queue ours has 6 cpu of flavor default at most, and the job would need 9"
            await client.create(queues.WORKLOAD, queues.workload("other", TEAM, "theirs", 2, {"cpu": "1"}))
            await is_admitted(client, "other")
            await planned(client, "more", "2")  # for which there is no quota yet
            await until(lambda: has(client, 3), "a larger Workload waits")
            assert await pods(client) == before

            await client.delete(queues.WORKLOAD, "other", TEAM)
            await until(lambda: all_get(client, "2"), "all pods are larger")
            await until(lambda: has(client, 1), "the smaller Workload is gone")
            await client.create(queues.WORKLOAD, queues.workload("same", TEAM, "ours", 3, {"cpu": "1"}))
            await planned(client, "less", "500m")  # although another one waits
            await until(lambda: all_get(client, "500m"), "all pods are smaller")
            await comes_to(client, "3/3")


async def has(client: Client, workloads: int) -> bool:
    return len(await client.list(queues.WORKLOAD, TEAM)) == workloads


async def all_get(client: Client, cpu: str) -> bool:
    return list((await pods(client)).values()) == [cpu] * 3


async def test_nothing_is_given_back_in_vain_and_a_kueue_that_goes_stops_no_job(tmp_path: Path) -> None:
    with (
        ControlPlane(tmp_path / "plane", scheduler=True, kwok=True) as plane,
        Kueue(plane, tmp_path / "kueue") as kueue,
    ):
        async with Client(plane.config()) as client:
            await set_up(client)
            flavor = queues.flavor(labels={"type": "kwok", "pool": "all"})
            await client.merge_patch(NODE, "n1", {"metadata": {"labels": {"pool": "all"}}})
            await client.merge_patch(queues.RESOURCE_FLAVOR, "default", {"spec": flavor["spec"]}, "")
            async with operator(client):
                await client.create(ELASTICJOB.untyped(), job(5))
                await comes_to(client, "5/5")
                for number in range(9):
                    await client.create(queues.WORKLOAD, elsewhere(f"hopeless-{number}"))
                large = queues.workload("large", TEAM, "theirs", 6, {"cpu": "1"}, priority=5)
                await client.create(queues.WORKLOAD, large)
                for _ in range(20):
                    assert await size(client) == 5
                    await asyncio.sleep(1)
                same = queues.workload("same", TEAM, "ours", 1, {"cpu": "1"}, priority=-1)
                await client.create(queues.WORKLOAD, same)
                await is_admitted(client, "same")
                await client.delete(queues.WORKLOAD, "same", TEAM)
                await comes_to(client, "5/5")  # whatever else waits

                label = {"metadata": {"labels": {QUEUE_NAME: None}}}
                await client.merge_patch(ELASTICJOB, "digits", label, TEAM)
                urgent = queues.workload("urgent", TEAM, "ours", 2, {"cpu": "1"}, priority=9)
                await client.create(queues.WORKLOAD, urgent)
                await is_admitted(client, "urgent")
                await client.merge_patch(ELASTICJOB, "digits", {"metadata": job(5)["metadata"]}, TEAM)

                before = {each.metadata.uid for each in await client.list(POD, TEAM)}
                assert before
                await asyncio.to_thread(kueue.unregister)
                kueue.stop()
                for each in await client.list(CRD.untyped()):
                    if each["spec"]["group"] == queues.GROUP:
                        await client.delete(CRD, each["metadata"]["name"])
                free: Manifest = {"metadata": {"finalizers": []}}
                for kind in (queues.WORKLOAD, queues.CLUSTER_QUEUE, queues.RESOURCE_FLAVOR):
                    for each in await client.list(kind):
                        about = each["metadata"]
                        if not about.get("ownerReferences"):  # others let go of theirs as well
                            await client.merge_patch(kind, about["name"], free, about.get("namespace", ""))
                await comes_to(client, "5/5", "KueueAbsent")  # what is wanted
                assert before <= {each.metadata.uid for each in await client.list(POD, TEAM)}

                await until(partial(no_definition, client), "Kueue's definitions are gone")
                await asyncio.to_thread(kueue.install)
                await asyncio.to_thread(kueue.start)
                await asyncio.to_thread(kueue.register)
                await comes_to(client, "0/1", "QueueUnavailable")
