"""What Brain keeps of the cluster's objects."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from elasticjob.api.v1alpha1.belonging import belongs
from elasticjob.brain.monitor.objects import seen_job, seen_machine, seen_pod
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NODE, POD, Pod
from lab.build.jobs import NOW, at, job, role

RANGE = {"minReplicas": 1, "maxReplicas": 5}


@pytest.mark.parametrize(
    ("sizes", "active", "phase", "fulfilment"),
    [
        (RANGE, 0, "Pending", 0.0),
        (RANGE, 1, "Running", 0.0),
        (RANGE, 3, "Running", 0.5),
        (RANGE, 5, "Running", 1.0),
        (RANGE, 0, "Succeeded", None),
        (RANGE, 0, "Failed", None),
        ({"replicas": 2}, 2, "Running", None),
    ],
)
def test_fulfilment_is_the_part_of_the_range_that_workers_have(
    sizes: dict[str, Any], active: int, phase: str, fulfilment: float | None
) -> None:
    status = {"phase": phase, "replicaStatuses": {"worker": {"active": active}}}
    given = job({"worker": {**role(None), **sizes}}, status=status)
    assert seen_job(given, NOW).status.get("fulfilment") == fulfilment


def test_whose_history_it_is_no_label_and_no_annotation_says() -> None:
    claims = {"elasticjob.dlrover/user": "team-b", "app.kubernetes.io/managed-by-user": "team-b"}
    claimed = job(metadata={"labels": claims, "annotations": claims})
    assert seen_job(claimed, NOW) == seen_job(job(), NOW)


def pod(status: Manifest | None = None, memory: str = "1Gi", **about: Any) -> Pod:
    limits = {"resources": {"limits": {"memory": memory}}}
    containers = [{"name": "istio-proxy"}, {"name": "main", **limits}]
    about = {"name": "digits-worker-0", "namespace": "ml", "uid": "p1", **about}
    return POD.convert({"metadata": about, "spec": {"containers": containers}, "status": status or {}})


@pytest.mark.parametrize("minutes", [-10, 0, 10])
def test_a_pod_ended_when_that_was_seen_whatever_the_clock_of_its_machine(minutes: int) -> None:
    end = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": at(NOW + timedelta(minutes=minutes))}
    main = {"name": "main", "state": {"terminated": end}}
    seen = seen_pod(pod({"phase": "Failed", "containerStatuses": [main]}), "u1", NOW)
    assert (seen.reason, seen.ended) == ("OOMKilled", NOW)


@pytest.mark.parametrize(
    ("owner", "found"),
    [
        ({}, True),
        ({"kind": "JobResource"}, True),
        ({"kind": "ReplicaSet"}, False),
        ({"name": "other"}, False),
        ({"controller": False}, False),
        (None, False),
    ],
)
def test_a_pod_belongs_to_the_job_that_made_it(owner: Manifest | None, found: bool) -> None:
    ours = {
        "apiVersion": "elastic.iml.github.io/v1alpha1",
        "kind": "ElasticJob",
        "name": "digits",
        "uid": "u1",
    }
    owners = [] if owner is None else [{**ours, "controller": True, **owner}]
    assert belongs(pod(ownerReferences=owners), "digits") is found


def test_amounts_are_as_databases_take_them() -> None:
    assert seen_pod(pod(memory="10E"), "u1", NOW).bytes == 10**15
    status = {"allocatable": {"cpu": "1E", "memory": "10E", "example.com/gpu": "100E"}}
    machine = seen_machine(NODE.convert({"metadata": {"name": "m", "uid": "m"}, "status": status}), NOW)
    assert (machine.bytes, machine.devices) == (10**15, {"example.com/gpu": 10**15})
