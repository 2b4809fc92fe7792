"""Manifests of the original system, through the API server: admission comes before the schema."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.errors import Invalid
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.controllers.site import Site

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


async def test_older_words_and_sizes_are_stored_as_todays_however_often_they_are_applied(site: Site) -> None:
    for _ in range(2):
        await site.apply(spec(replicas=0))
        found = await stored(site)
        assert found["distributionStrategy"] == "AllreduceStrategy"
        assert "replicas" not in found["replicaSpecs"]["worker"]
    await site.scale(0)
    assert (await stored(site))["replicaSpecs"]["worker"]["replicas"] == 0
    await site.apply(spec(replicas=0))
    assert (await stored(site))["replicaSpecs"]["worker"]["replicas"] == 0


async def test_the_easydl_form_is_stored_with_its_roles(site: Site) -> None:
    flat = {"suspend": True, "command": "python -m iris", "image": None, "parameter_server": {"image": "a"}}
    await site.create({**flat, "worker": {"image": "a"}})
    found = await stored(site)
    assert found["distributionStrategy"] == "ParameterServerStrategy"
    main = {"name": "main", "image": "a", "command": ["python", "-m", "iris"]}
    pods = {role: one["template"]["spec"] for role, one in found["replicaSpecs"].items()}
    assert pods == {"ps": {"containers": [main]}, "worker": {"containers": [main]}}


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
