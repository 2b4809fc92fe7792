"""Whatever is sent: it does not decode, or it is checked. Nothing crashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.api.v1alpha1 import older
from elasticjob.api.v1alpha1.checks import elasticjob, jobresource, scaleplan
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.problem import Problem
from lab.build.manifests import JOB, PLAN, RESOURCE, changed, job

FULL_JOB = changed(
    JOB,
    {
        "spec/distributionStrategy": "AllreduceStrategy",
        "spec/optimizeMode": "manual",
        "spec/image": "python:3.11",
        "spec/worker": {"image": "python:3.11"},
        "spec/resourceLimits": {"cpu": 64},
        "spec/envs": {"A": {"value": "b"}},
        "spec/runPolicy": {"scheduling": {"minAvailable": 1}},
        "spec/replicaSpecs/worker/priority": "0.5",
        "spec/replicaSpecs/worker/template/metadata": {"labels": {"a": "b"}},
        "spec/replicaSpecs/worker/template/spec/volumes": [{"name": "v", "emptyDir": {}}],
        "spec/replicaSpecs/worker/template/spec/initContainers": [{"name": "i", "image": "i"}],
        "spec/replicaSpecs/worker/template/spec/containers/0/resources": {"requests": {"cpu": 1}},
        "spec/replicaSpecs/worker/template/spec/containers/0/volumeMounts": [
            {"name": "v", "mountPath": "/v"}
        ],
    },
)
FULL_RESOURCE = changed(RESOURCE, {"spec/nodes": [{"name": "digits-worker-0", "resource": {"cpu": 1}}]})
FULL_PLAN = changed(
    PLAN,
    {
        "spec/migratePods": [{"name": "digits-worker-0", "resource": {"cpu": 1}}],
        "spec/removePods": ["digits-worker-1"],
        "spec/createPods": [{"name": "digits-worker-3"}],
    },
)


def paths(node: Any, above: str = "") -> Iterator[str]:
    """Yield the path of every value in a manifest."""
    for key, child in (
        node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    ):
        path = f"{above}/{key}" if above else str(key)
        yield path
        yield from paths(child, path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def check(manifest: Manifest, old: Manifest) -> list[Problem]:
    """Return what is wrong with a new and an updated object of any kind."""
    match manifest["kind"]:
        case "ElasticJob":
            new = ELASTICJOB.convert(manifest)
            older.todays_job(manifest["spec"])
            return elasticjob.problems(new) + elasticjob.problems(new, ELASTICJOB.convert(old))
        case "JobResource":
            resource = JOBRESOURCE.convert(manifest)
            return jobresource.problems(resource) + jobresource.problems(resource, JOBRESOURCE.convert(old))
        case _:
            plan = SCALEPLAN.convert(manifest)
            older.todays_plan(manifest["spec"])
            return scaleplan.problems(plan, job=job()) + scaleplan.problems(
                plan, SCALEPLAN.convert(old), job=None
            )


@pytest.mark.parametrize(
    "manifest", [FULL_JOB, FULL_RESOURCE, FULL_PLAN], ids=lambda manifest: str(manifest["kind"])
)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_value_in_any_place_is_refused_or_checked(manifest: Manifest, data: st.DataObject) -> None:
    place = data.draw(
        st.sampled_from([path for path in paths(manifest) if path.startswith(("spec", "metadata"))])
    )
    broken = changed(manifest, {place: data.draw(JSON)})
    try:
        found = check(broken, manifest)
    except ValueError:  # it does not decode: admission answers with the decoder's sentences
        return
    assert all(problem.path and problem.message for problem in found)


@pytest.mark.parametrize(
    "manifest", [FULL_JOB, FULL_RESOURCE, FULL_PLAN], ids=lambda manifest: str(manifest["kind"])
)
def test_what_the_others_start_from_is_right(manifest: Manifest) -> None:
    assert check(manifest, manifest) == []
