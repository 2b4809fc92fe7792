"""MultiKueue between two real clusters: the manager's queue admits a job, and the worker cluster runs it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, Phase
from elasticjob.api.v1alpha1.kueue import QUEUE_NAME
from elasticjob.controllers.install import install
from elasticjob.controllers.main import compose
from elasticjob.controllers.settings import Settings
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NAMESPACE, NODE, POD, SECRET
from lab.clusters.plane import queues
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.kueue import Kueue, why_missing
from lab.waiting import until

TEAM, KUEUES = "team", "kueue-system"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
FRAMEWORKS = {"multiKueue": {"externalFrameworks": [{"name": "ElasticJob.v1alpha1.elastic.iml.github.io"}]}}
CLUSTER = Kind(
    queues.GROUP, queues.VERSION, "MultiKueueCluster", "multikueueclusters", dict, namespaced=False
)
CONFIG = Kind(queues.GROUP, queues.VERSION, "MultiKueueConfig", "multikueueconfigs", dict, namespaced=False)
CHECK = Kind(queues.GROUP, queues.VERSION, "AdmissionCheck", "admissionchecks", dict, namespaced=False)
MACHINE: Manifest = {
    "metadata": {"name": "n1", "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": {"type": "kwok"}},
    "status": {name: {"cpu": "64", "memory": "64Gi", "pods": "110"} for name in ("allocatable", "capacity")},
}


async def set_up(client: Client, **more: Any) -> None:
    await install(client)
    await client.create(NAMESPACE, {"metadata": {"name": TEAM}})
    await client.create(queues.RESOURCE_FLAVOR, queues.flavor())
    await client.create(queues.CLUSTER_QUEUE, queues.cluster_queue("all", {"cpu": "4"}, **more))
    await client.create(queues.LOCAL_QUEUE, queues.local_queue("queue", TEAM, "all"))


async def connect(manager: Client, worker: ControlPlane) -> None:
    """What the administrator of the manager cluster sets up."""
    kubeconfig = base64.b64encode(worker.kubeconfig_of("manager", ("system:masters",)).read_bytes()).decode()
    await manager.create(NAMESPACE, {"metadata": {"name": KUEUES}})
    about = {"name": "worker", "namespace": KUEUES}
    await manager.create(SECRET.untyped(), {"metadata": about, "data": {"kubeconfig": kubeconfig}})
    source = {"kubeConfig": {"location": "worker", "locationType": "Secret"}}
    await manager.create(CLUSTER, {"metadata": {"name": "worker"}, "spec": {"clusterSource": source}})
    await manager.create(CONFIG, {"metadata": {"name": "all"}, "spec": {"clusters": ["worker"]}})
    parameters = {"apiGroup": queues.GROUP, "kind": "MultiKueueConfig", "name": "all"}
    spec = {"controllerName": MULTIKUEUE, "parameters": parameters}
    await manager.create(CHECK, {"metadata": {"name": "elsewhere"}, "spec": spec})


def job() -> Manifest:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    pod = {"containers": [container], "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}]}
    worker = {"replicas": 3, "minReplicas": 1, "maxReplicas": 3, "template": {"spec": pod}}
    about = {"name": "digits", "namespace": TEAM, "labels": {QUEUE_NAME: "queue"}}
    spec = {
        "distributionStrategy": "Local",
        "optimizeMode": "manual",
        "managedBy": MULTIKUEUE,
        "replicaSpecs": {"worker": worker},
    }
    return {"apiVersion": ELASTICJOB.api_version, "kind": "ElasticJob", "metadata": about, "spec": spec}


@asynccontextmanager
async def at_work(client: Client) -> AsyncIterator[None]:
    operator = compose(client, Settings.model_validate({"probes": "", "webhooks": False}), signals=False)
    running = asyncio.create_task(operator.run())
    await operator.wait_started()
    try:
        yield
    finally:
        operator.stop()
        await running


@pytest.mark.plane
@pytest.mark.skipif(bool(why_missing()), reason=why_missing())
async def test_a_job_runs_in_the_worker_cluster_and_grows_there(tmp_path: Path) -> None:
    with (
        ControlPlane(tmp_path / "manager") as here,
        ControlPlane(tmp_path / "worker", scheduler=True, kwok=True) as there,
        Kueue(here, tmp_path / "kueue", settings=FRAMEWORKS),
        Kueue(there, tmp_path / "worker-kueue"),
    ):
        async with Client(here.config()) as manager, Client(there.config()) as worker:
            await set_up(worker)
            await worker.create(NODE.untyped(), MACHINE)
            rules = {"admissionChecks": [{"name": "elsewhere"}]}
            await set_up(manager, admissionChecksStrategy=rules)
            await connect(manager, there)
            async with at_work(manager), at_work(worker):
                await manager.create(ELASTICJOB.untyped(), job())

                async def runs() -> bool:
                    found = await manager.get(ELASTICJOB, "digits", TEAM)
                    return (found.status.phase, found.status.workers) == (Phase.RUNNING, "3/3")

                await until(runs, "the manager's job says that 3 of 3 workers run in the worker cluster")
                assert not await manager.list(POD, TEAM)
                [base] = await manager.list(queues.WORKLOAD, TEAM)  # the slices are the worker cluster's
                assert queues.conditions(base)["PodsReady"] == "Started"

                for pod in await worker.list(POD, TEAM):
                    done = {"status": {"phase": "Succeeded"}}
                    await worker.merge_patch(POD, pod.metadata.name, done, TEAM, subresource="status")

                async def ended() -> bool:
                    found = await manager.get(ELASTICJOB, "digits", TEAM)
                    [base] = await manager.list(queues.WORKLOAD, TEAM)
                    over = found.status.phase is Phase.SUCCEEDED
                    return over and queues.conditions(base).get("Finished") == "Succeeded"

                await until(ended, "the manager's job and its Workload have succeeded")

                async def is_gone() -> bool:
                    return not await worker.list(ELASTICJOB, TEAM)

                await until(is_gone, "MultiKueue has removed the job of the worker cluster")
