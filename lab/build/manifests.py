"""Manifests for tests: small valid ones, and variations of them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.kube.objects.kinds import Kind, Manifest

ABSENT: Any = object()
"""Put in the place of a value: the field is taken away."""

POD: Manifest = {"containers": [{"name": "main", "image": "python:3.11", "command": ["python", "train.py"]}]}
ROLE: Manifest = {"replicas": 2, "template": {"spec": POD}}
JOB: Manifest = {
    "apiVersion": ELASTICJOB.api_version,
    "kind": "ElasticJob",
    "metadata": {"name": "digits", "namespace": "lab"},
    "spec": {"replicaSpecs": {"worker": {**ROLE, "minReplicas": 1, "maxReplicas": 4}}},
}
RESOURCE: Manifest = {
    "apiVersion": JOBRESOURCE.api_version,
    "kind": "JobResource",
    "metadata": {"name": "digits", "namespace": "lab"},
    "spec": {"selector": {"name": "digits"}, "replicaResourceSpecs": {"worker": {"replicas": 2}}},
}
PLAN: Manifest = {
    "apiVersion": SCALEPLAN.api_version,
    "kind": "ScalePlan",
    "metadata": {"name": "more", "namespace": "lab"},
    "spec": {"ownerJob": "digits", "replicaResourceSpecs": {"worker": {"replicas": 3}}},
}

TRAINING: Manifest = {
    "apiVersion": "paddlepaddle.org/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "digits", "namespace": "lab", "uid": "t"},
    "spec": {"image": "i", "trainer": {"entrypoint": "train", "min-instance": 2, "max-instance": 4}},
}

WAITS: Manifest = {
    "name": "di-container",
    "image": "python:3.11",
    "command": ["python", "-c", "import signal; signal.pause()"],
}
TEMPLATE: Manifest = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [WAITS]}}
DIJOB: Manifest = {
    "apiVersion": "diengine.opendilab.org/v1alpha1",
    "kind": "DIJob",
    "metadata": {"name": "cartpole", "namespace": "lab", "uid": "u", "generation": 1},
    "spec": {
        "group": "team",
        "priorityClassName": "",
        "cleanPodPolicy": "Running",
        "coordinator": {"template": TEMPLATE},
        "collector": {"template": TEMPLATE},
        "learner": {"template": TEMPLATE},
    },
}
AGGREGATORCONFIG: Manifest = {
    "apiVersion": "diengine.opendilab.org/v1alpha1",
    "kind": "AggregatorConfig",
    "metadata": {"name": "aggregator-config", "namespace": "lab"},
    "spec": {"aggregator": {"template": TEMPLATE}},
}

DECLARED: tuple[Manifest, ...] = (JOB, RESOURCE, PLAN, TRAINING, DIJOB, AGGREGATORCONFIG)


def changed(manifest: Manifest, changes: dict[str, Any]) -> Manifest:
    """Return a copy with the values of dotted paths set; `*` in a path means every item of a list."""
    found = deepcopy(manifest)
    for path, value in changes.items():
        _put(found, path.split("/"), value)
    return found


def job(**changes: Any) -> ElasticJob:
    """Return the job of JOB with changes, paths with / between the fields: job(**{"spec/nodeUnit": 2})."""
    return ELASTICJOB.convert(changed(JOB, changes))


def job_resource(**changes: Any) -> JobResource:
    """Return the JobResource of RESOURCE with changes."""
    return JOBRESOURCE.convert(changed(RESOURCE, changes))


def plan(**changes: Any) -> ScalePlan:
    """Return the ScalePlan of PLAN with changes."""
    return SCALEPLAN.convert(changed(PLAN, changes))


def declared(kind: Kind[Any]) -> Manifest:
    """Return the manifest above of a kind."""
    return next(each for each in DECLARED if each["kind"] == kind.name)


def _put(node: Any, path: list[str], value: Any) -> None:
    here: Any = int(path[0]) if isinstance(node, list) else path[0]
    if len(path) > 1:
        if isinstance(node, dict) and here not in node:
            node[here] = {}
        _put(node[here], path[1:], value)
    elif value is ABSENT:
        del node[here]
    else:
        node[here] = value
