"""What a job asks of its queue, and when another base is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.controllers.kueue.demand import PodSetRequest, QueueRequest
from elasticjob.controllers.kueue.kinds.elasticjob import demand_of
from elasticjob.controllers.parts import names
from elasticjob.kube.objects.kinds import Manifest
from lab.build.jobs import asking, job, resource, template

QUEUED = {"labels": {"kueue.x-k8s.io/queue-name": "team"}}


def asked(
    found: JobResource | None = None, *, metadata: Manifest = QUEUED, master: str = "100m", **workers: Any
) -> QueueRequest:
    """A job whose master's container comes with the operator."""
    workers = {"replicas": 4, "minReplicas": 1, "maxReplicas": 8, **workers}
    made = job({"worker": {"template": template(), **workers}}, metadata=metadata)
    container = {"name": "main", "image": "trainer:1", "resources": {"requests": {"cpu": master}}}
    return demand_of(made, found, lambda _: {"containers": [container]})


def test_the_base_is_the_master_and_each_role_at_its_minimum() -> None:
    made = asked().base_workload(None)
    assert [(each["name"], each["count"]) for each in made["spec"]["podSets"]] == [
        ("master", 1),
        ("worker", 1),
    ]
    worker = made["spec"]["podSets"][1]["template"]["spec"]["containers"]
    assert worker == [
        {"name": "main", "resources": {"requests": {"cpu": "100m"}, "limits": {"memory": "512Mi"}}}
    ]
    assert made["spec"]["queueName"] == "team"
    assert made["metadata"]["ownerReferences"][0]["controller"]


def test_kueue_gets_what_others_hold_a_job_back_with_and_what_is_provisioned_for_it() -> None:
    provisioned = {"provreq.kueue.x-k8s.io/ValidUntilSeconds": "60"}
    gates = {"kueue.x-k8s.io/admission-gated-by": "example.com/budget"}
    made = asked(metadata={**QUEUED, "annotations": {**provisioned, **gates, "example.com/mine": "x"}})
    base = made.base_workload(None)["metadata"]["annotations"]
    assert {key: note for key, note in base.items() if "kueue" in key} == provisioned | gates
    assert made.slice_workload(made.roles[1], 1, 1, None)["metadata"]["annotations"] == provisioned


def test_nodes_that_have_succeeded_are_known_without_their_pods() -> None:
    found = asked(resource({"worker": 4}, status={"completedIndexes": {"worker": "0-1,3"}}))
    assert [sorted(role.completed) for role in found.roles] == [[], [0, 1, 3]]


TOPOLOGY = "kueue.x-k8s.io/podset-"
PAIRS = {f"{TOPOLOGY}slice-required-topology": "rack", f"{TOPOLOGY}slice-size": "2"}
IN_PAIRS = {"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 2}


@pytest.mark.parametrize(
    ("notes", "count", "request_"),
    [
        ({}, 2, None),
        ({f"{TOPOLOGY}required-topology": "zone", **PAIRS}, 2, {"required": "zone", **IN_PAIRS}),
        (PAIRS, 4, IN_PAIRS),
        (PAIRS, 3, None),  # Kueue places whole slices
        ({**PAIRS, f"{TOPOLOGY}slice-size": "many"}, 2, None),
    ],
)
def test_slices_of_a_topology_are_asked_for_as_of_a_job(
    notes: dict[str, str], count: int, request_: Manifest | None
) -> None:
    role = PodSetRequest("worker", {"metadata": {"annotations": notes}, "spec": {}}, count, count)
    found = role.pod_set(count).get("topologyRequest", {})
    assert {k: v for k, v in found.items() if k != "podIndexLabel"} == (request_ or {})


@pytest.mark.parametrize(("written", "seconds"), [("3600", 3600), ("", None), ("0", None), ("1h", None)])
def test_the_base_alone_may_run_only_so_long(written: str, seconds: int | None) -> None:
    labels = {**QUEUED["labels"], "kueue.x-k8s.io/max-exec-time-seconds": written}
    found = asked(metadata={"labels": labels})
    assert found.base == asked().base
    assert found.base_workload(None)["spec"].get("maximumExecutionTimeSeconds") == seconds
    assert "maximumExecutionTimeSeconds" not in found.slice_workload(found.roles[1], 0, 1, None)["spec"]


def test_what_is_wanted_is_what_was_asked_for_last() -> None:
    found = asking(resource({"worker": 2}), None)
    assert asked(found).roles[1].wanted == 4
    found.metadata.annotations[names.WANTED] = '{"worker": 6}'
    assert asked(found).roles[1].wanted == 6
    assert asked(asking(found, 5)).roles[1].wanted == 5


@pytest.mark.parametrize(
    ("changed", "another"),
    [
        (asked(master="2"), False),  # a setting of the operator
        (asked(resource({"worker": 3})), False),
        (asked(replicas=6), False),
        (asked(resource({"worker": 3}, resources={"worker": {"memory": "1Gi"}})), True),
        (asked(resource({"worker": 3}, nodes={"digits-worker-1": {"memory": "1Gi"}})), True),
        (asked(resource({"worker": 3}, nodes={"digits-worker-1": {"memory": "1Mi"}})), False),
        (asked(minReplicas=2), True),
        (asked(metadata={"labels": {"kueue.x-k8s.io/queue-name": "other"}}), True),
        (asked(metadata={**QUEUED, "uid": "job-2"}), True),
    ],
)
def test_another_base_is_needed_where_what_runs_at_least_changes(
    changed: QueueRequest, another: bool
) -> None:
    assert (changed.base != asked().base) is another


def test_a_job_stays_in_its_base_whatever_its_workload_priority_class() -> None:
    forms = {
        asked(metadata={"labels": {**QUEUED["labels"], **classed}}).form
        for classed in ({}, *({"kueue.x-k8s.io/priority-class": name} for name in ("low", "high")))
    }
    assert len(forms) == 1


def test_many_nodes_are_asked_for_in_few_slices() -> None:
    [_, worker] = asked(maxReplicas=100).roles
    assert worker.step == 4
    assert replace(worker, unit=8).step == 8
