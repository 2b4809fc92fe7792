"""Gangs and broken devices on a whole cluster; the CRDs are those of scheduler-plugins and of Volcano."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from elasticjob.controllers.parts.gangs.apis import APIS, Api
from elasticjob.kube.crd.installing import install
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import CRD, POD
from lab.jobs.site import Site, Stage
from lab.jobs.whole import role
from lab.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

CRDS = {
    "coscheduling": yaml.safe_load(Path("tests/kit/gangs/scheduler-plugins.yaml").read_text()),
    "volcano": yaml.safe_load(Path("tests/kit/gangs/volcano.yaml").read_text()),
}
API: dict[str, Api] = {str(api.word): api for api in APIS}


@pytest_asyncio.fixture(loop_scope="module")
async def scheduler_plugins(stage: Stage) -> AsyncIterator[None]:
    await install(stage.client, [CRDS["coscheduling"]], "test")
    yield
    await stage.client.delete(CRD, CRDS["coscheduling"]["metadata"]["name"])


@pytest_asyncio.fixture(loop_scope="module")
async def volcano(stage: Stage) -> AsyncIterator[None]:
    await install(stage.client, [CRDS["volcano"]], "test")
    yield
    await stage.client.delete(CRD, CRDS["volcano"]["metadata"]["name"])


def local(gang: str, *, least: int = 2, **scheduling: Any) -> Manifest:
    """A job without a master, of two nodes."""
    return {
        "distributionStrategy": "Local",
        "replicaSpecs": {"worker": role(minReplicas=least, maxReplicas=4)},
        "runPolicy": {"scheduling": {"gang": gang, **scheduling}},
    }


async def group(site: Site, gang: str) -> Manifest:
    return await site.client.get(API[gang].kinds[-1].untyped(), "digits", site.namespace)


@pytest.mark.usefixtures("scheduler_plugins")
async def test_the_group_is_there_before_its_pods_and_follows_the_job(site: Site) -> None:
    await site.apply(local("required", timeoutSeconds=30))
    await site.until(lambda: len(site.running()) == 2)
    made = await group(site, "coscheduling")
    assert made["spec"] == {"minMember": 2, "scheduleTimeoutSeconds": 30}
    assert made["metadata"]["ownerReferences"][0]["kind"] == "ElasticJob"
    pods = site.pods().values()
    assert {pod.metadata.labels["scheduling.x-k8s.io/pod-group"] for pod in pods} == {"digits"}
    assert all(int(made["metadata"]["resourceVersion"]) < int(pod.metadata.resource_version) for pod in pods)
    sentence = "PodGroup digits of scheduling.x-k8s.io/v1alpha1: pods are placed where 2 fit"
    await site.until(lambda: site.condition("Gang") == ("True", "GangMade", sentence))
    await site.patch({"replicaSpecs": {"worker": {"minReplicas": 1}}})

    async def follows() -> bool:
        return bool((await group(site, "coscheduling"))["spec"]["minMember"] == 1)

    await until(follows, "the least number follows minReplicas")
    assert len(site.running()) == 2


@pytest.mark.usefixtures("volcano")
async def test_volcano_is_told_of_roles_and_queue(site: Site) -> None:
    """No Volcano runs here: its pods wait for it."""
    await site.apply(local("volcano", queue="lab"))
    await site.until(lambda: len(site.pods()) == 2)
    assert (await group(site, "volcano"))["spec"] == {
        "minMember": 2,
        "minTaskMember": {"worker": 2},
        "queue": "lab",
    }
    for pod in site.pods().values():
        assert pod.spec.scheduler_name == "volcano"
        assert pod.metadata.annotations["scheduling.k8s.io/group-name"] == "digits"
        assert pod.metadata.annotations["volcano.sh/task-spec"] == "worker"


async def test_a_job_whose_gang_no_api_can_place_waits_and_says_so(site: Site) -> None:
    await site.apply(local("volcano"))
    sentence = "gang volcano: the cluster does not serve PodGroup of scheduling.volcano.sh/v1beta1"
    await site.event(sentence, "GangUnavailable")
    await site.until(lambda: site.condition("Gang") == ("False", "GangUnavailable", sentence))
    assert site.job().status.reason == "GangUnavailable"
    assert site.pods() == {}


async def test_where_a_gang_is_only_preferred_the_job_goes_on_without_one(site: Site) -> None:
    await site.apply(local("preferred", queue="lab"))
    await site.until(lambda: len(site.running()) == 2)
    await site.event("pods are placed one by one", "GangUnavailable")
    await site.until(lambda: site.condition("Gang")[:2] == ("False", "GangUnavailable"))


async def test_a_node_whose_device_is_broken_begins_anew(site: Site) -> None:
    await site.apply({"distributionStrategy": "Local", "replicaSpecs": {"worker": role(2, memory="64Mi")}})
    await site.until(lambda: len(site.running()) == 2)
    seen = await site.client.get(POD.untyped(), "digits-worker-1", site.namespace)
    old, (status,) = seen["metadata"]["uid"], seen["status"]["containerStatuses"]
    health = [{"name": "memory", "resources": [{"resourceID": "GPU-3", "health": "Unhealthy"}]}]
    patch = {"status": {"containerStatuses": [{**status, "allocatedResourcesStatus": health}]}}
    written = await site.client.merge_patch(
        POD.untyped(), "digits-worker-1", patch, site.namespace, subresource="status"
    )
    if "allocatedResourcesStatus" not in written["status"]["containerStatuses"][0]:
        pytest.skip("this API server has ResourceHealthStatus off, as by default before Kubernetes 1.36")
    await site.event("memory GPU-3 unhealthy", "DeviceUnhealthy")
    # whether its name is that of the one before depends on whether its end was seen
    await site.until(lambda: len(site.running()) == 2)
    await site.until(lambda: all(pod.metadata.uid != old for pod in site.pods().values()))
    await site.until(lambda: len(site.running()) == 2)
    assert site.job().status.restarts in (None, 0)
