"""Manifests of the original system, through the API server: what is stored, and what it means."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJobSpec
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.errors import Invalid
from elasticjob.kube.objects.kinds import Manifest
from lab.jobs.site import Site

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEMPLATE: Manifest = {"spec": {"containers": [{"name": "main", "image": "python:3.11"}]}}


def spec(strategy: str = "allreduce", **worker: Any) -> Manifest:
    return {
        "distributionStrategy": strategy,
        "suspend": True,
        "replicaSpecs": {"worker": {"template": TEMPLATE, **worker}},
    }


async def stored(site: Site) -> Manifest:
    job = await site.client.get(ELASTICJOB.untyped(), "digits", site.namespace)
    found: Manifest = job["spec"]
    return found


async def read(site: Site) -> ElasticJobSpec:
    return (await site.client.get(ELASTICJOB, "digits", site.namespace)).spec


async def test_older_words_and_sizes_stay_as_written_and_mean_todays_however_often_applied(
    site: Site,
) -> None:
    for _ in range(2):
        await site.apply(spec(replicas=0))
        found = await stored(site)
        assert (found["distributionStrategy"], found["replicaSpecs"]["worker"]["replicas"]) == (
            "allreduce",
            0,
        )
        meant = await read(site)
        assert (meant.distribution_strategy, meant.roles["worker"].replicas) == ("AllreduceStrategy", None)
    with pytest.raises(Invalid, match="set suspend: true to stop the job"):
        await site.scale(0)
    await site.patch({"distributionStrategy": "AllreduceStrategy"})  # another spelling of the same
    with pytest.raises(Invalid, match="distributionStrategy cannot change"):
        await site.patch({"distributionStrategy": "Local"})


async def test_the_easydl_form_stays_as_written_and_means_roles(site: Site) -> None:
    flat = {"suspend": True, "command": "python -m iris", "image": None, "parameter_server": {"image": "a"}}
    await site.create({**flat, "worker": {"image": "a"}})
    assert "replicaSpecs" not in await stored(site)
    meant = await read(site)
    assert meant.distribution_strategy == "ParameterServerStrategy"
    main = {"name": "main", "image": "a", "command": ["python", "-m", "iris"]}
    assert {role: one.pod for role, one in meant.roles.items()} == {
        "ps": {"containers": [main]},
        "worker": {"containers": [main]},
    }
    await site.scale(3)
    scaled = (await read(site)).roles["worker"]
    assert (scaled.replicas, scaled.pod) == (3, {"containers": [main]})


async def test_a_word_without_a_meaning_is_refused_with_those_that_have_one(site: Site) -> None:
    with pytest.raises(Invalid, match="AllreduceStrategy"):
        await site.create(spec("Ring"))


async def test_a_plan_with_older_pod_names_and_label_is_manual_and_names_nodes(site: Site) -> None:
    await site.create(spec(replicas=2, minReplicas=1))
    plan = {
        "apiVersion": SCALEPLAN.api_version,
        "kind": "ScalePlan",
        "metadata": {"name": "less", "namespace": site.namespace, "labels": {"scale-type": "manual"}},
        "spec": {"ownerJob": "digits", "removePods": ["digits-edljob-worker-1"]},
    }
    await site.client.create(SCALEPLAN.untyped(), plan)
    found = await site.client.get(SCALEPLAN, "less", site.namespace)
    assert found.manual
    assert [pod.name for pod in found.spec.remove_pods] == ["digits-worker-1"]
