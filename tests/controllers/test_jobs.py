"""A job's pods and parts on a whole cluster; what else may happen to one is a story (`test_whole_jobs`)."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, Phase
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import PlanPhase
from elasticjob.kube.errors import ApiError
from elasticjob.kube.objects.views import (
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from lab.jobs.site import Site
from lab.jobs.whole import local, role

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_job_gets_its_pods_and_says_so(site: Site) -> None:
    await site.apply(local())
    await site.until(lambda: site.job().status.phase is Phase.RUNNING and site.job().status.workers == "2/2")
    assert site.running() == {"digits-worker-0", "digits-worker-1"}
    assert site.condition("Created")[:2] == ("True", "JobCreated")
    assert site.condition("Running") == ("True", "NodesRunning", "2 of 2 nodes run")
    assert site.job().status.observed_generation == 1
    assert site.job().status.replicas == 2


async def test_the_user_scales(site: Site) -> None:
    await site.apply(local(replicas=1, minReplicas=1, maxReplicas=3))
    await site.until(lambda: len(site.running()) == 1)
    await site.scale(3)
    await site.until(
        lambda: len(site.running()) == 3 and site.plans()["digits-user-2"].status.phase is PlanPhase.SUCCEEDED
    )
    assert site.plans()["digits-user-2"].status.changes == ["worker replicas 1 to 3"]
    await site.scale(1)
    await site.until(lambda: site.pods().keys() == {"digits-worker-0"})
    await site.until(lambda: site.plans()["digits-user-3"].status.phase is PlanPhase.SUCCEEDED)
    await site.until(lambda: site.job().status.last_scale_plan == "digits-user-3")
    assert site.job().status.restarts == 0
    await site.until(lambda: site.condition("Scaling")[0] != "True")  # it may have been too quick to be told


async def test_a_job_with_a_master_has_all_its_parts_and_loses_them_with_it(site: Site) -> None:
    await site.apply({"replicaSpecs": {"worker": role()}})
    await site.until(lambda: site.running() >= {"digits-master-0", "digits-worker-0", "digits-worker-1"})
    parts: list[tuple[Any, str]] = [
        (SECRET, "digits-token"),
        (SERVICE_ACCOUNT, "digits-master"),
        (ROLE, "digits-master"),
        (ROLE_BINDING, "digits-master"),
        (SERVICE, "digits"),
        (SERVICE, "digits-master"),
        (NETWORK_POLICY, "digits"),
        (JOBRESOURCE, "digits"),
        (POD_DISRUPTION_BUDGET, "digits"),
    ]
    resources = site.operator.cache(JOBRESOURCE)
    await site.until(lambda: [one.status.min_available for one in resources.list(site.namespace)] == [2])
    await site.until(lambda: site.services() == {"digits": True, "digits-master": True})
    for kind, name in parts:
        assert await site.client.find(kind, name, site.namespace), f"{kind.name} {name}"
    service = await site.client.get(SERVICE, "digits-master", site.namespace)
    env = {v.name: v.value for v in site.pods()["digits-worker-0"].spec.containers[0].env}
    assert env["ELASTICJOB_MASTER"] == f"{service.spec.cluster_ip}:50001"
    await site.client.delete(ELASTICJOB, "digits", site.namespace)
    await site.until(lambda: not site.pods() and not site.operator.cache(SERVICE).list(site.namespace))
    await site.until(lambda: not site.operator.cache(JOBRESOURCE).list(site.namespace))
    for kind, _ in parts:
        await site.has_only(kind, *(["default"] if kind is SERVICE_ACCOUNT else []))


async def test_a_job_gets_no_account_and_no_token_of_another(site: Site) -> None:
    """The thief is there before its victim: admission, which finds nothing yet, lets it through."""
    thief, own, other = local(replicas=1), role(1), local(replicas=1)
    for each in (own, other["replicaSpecs"]["worker"]):
        each["template"]["spec"]["serviceAccountName"] = "digits-master"
    source = {
        "env": [{"name": "IT", "valueFrom": {"secretKeyRef": {"name": "digits-token", "key": "token"}}}]
    }
    thief["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0] |= source
    await site.apply(thief, name="thief")
    await site.event("Secret digits-token is not there", "Refused", name="thief")
    await site.apply({"replicaSpecs": {"worker": own}})
    await site.until(lambda: site.running() >= {"digits-master-0", "digits-worker-0"})
    assert "thief-worker-0" not in site.pods()
    with pytest.raises(
        ApiError, match=r"serviceAccountName: ServiceAccount digits-master belongs to Elastic"
    ):
        await site.apply(other, name="other")
