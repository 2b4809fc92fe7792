"""MultiKueue between two real clusters: the manager's queue admits a job, and the worker cluster runs it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, Phase
from elasticjob.api.v1alpha1.kueue import QUEUE_NAME
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import NAMESPACE, POD, SECRET
from lab.clusters.plane import pretended, queues
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.kueue import Kueue
from lab.waiting import until
from tests.kit.controllers.whole_kueue import REAL_KUEUE, TEAM, furnish, operator, template

pytestmark = REAL_KUEUE
KUEUES = "kueue-system"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
FRAMEWORKS = {"multiKueue": {"externalFrameworks": [{"name": "ElasticJob.v1alpha1.elastic.iml.github.io"}]}}
CLUSTER = Kind(
    queues.GROUP, queues.VERSION, "MultiKueueCluster", "multikueueclusters", dict, namespaced=False
)
CONFIG = Kind(queues.GROUP, queues.VERSION, "MultiKueueConfig", "multikueueconfigs", dict, namespaced=False)
CHECK = Kind(queues.GROUP, queues.VERSION, "AdmissionCheck", "admissionchecks", dict, namespaced=False)


async def set_up(client: Client, *machines: Manifest, **more: Any) -> None:
    await furnish(client, queues.flavor(), *machines)
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
    worker = {"replicas": 3, "minReplicas": 1, "maxReplicas": 3, "template": template()}
    about = {"name": "digits", "namespace": TEAM, "labels": {QUEUE_NAME: "queue"}}
    spec = {
        "distributionStrategy": "Local",
        "optimizeMode": "manual",
        "managedBy": MULTIKUEUE,
        "replicaSpecs": {"worker": worker},
    }
    return {"apiVersion": ELASTICJOB.api_version, "kind": "ElasticJob", "metadata": about, "spec": spec}


async def test_a_job_runs_in_the_worker_cluster_and_grows_there(tmp_path: Path) -> None:
    with (
        ControlPlane(tmp_path / "manager") as here,
        ControlPlane(tmp_path / "worker", scheduler=True, kwok=True) as there,
        Kueue(here, tmp_path / "kueue", settings=FRAMEWORKS),
        Kueue(there, tmp_path / "worker-kueue"),
    ):
        async with Client(here.config()) as manager, Client(there.config()) as worker:
            await set_up(worker, pretended.machine("n1"))
            rules = {"admissionChecks": [{"name": "elsewhere"}]}
            await set_up(manager, admissionChecksStrategy=rules)
            await connect(manager, there)
            async with operator(manager), operator(worker):
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
