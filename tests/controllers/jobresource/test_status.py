"""What is said about the nodes of a job."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.v1alpha1.jobresource import JobResourceStatus
from elasticjob.controllers.jobresource.decide import Seen, decide
from elasticjob.controllers.jobresource.status import alteration_event, describe
from elasticjob.controllers.passes.plan import Note
from lab.build.jobs import NOW, ended, job, life, oom, pending, resource, role


def seen(*lives: Any, resource_: Any = None, job_: Any = None) -> Seen:
    return Seen(resource_ or resource(), job_ or job(), lives, "10.0.0.1:50001")


def status(given: Seen) -> Any:
    return describe(given, decide(given, NOW), NOW)


READY: list[tuple[str, Seen, tuple[str, str, str]]] = [
    ("all ready", seen(life(0), life(1)), ("True", "AsSpecified", "all nodes are ready")),
    ("done counts", seen(ended(0, code=0), life(1)), ("True", "AsSpecified", "all nodes are ready")),
    ("pending", seen(life(0), pending(1, waiting="Unschedulable: 0/1 nodes")),
     ("False", "Pending", "digits-worker-1 is pending: Unschedulable: 0/1 nodes")),
    ("starting", seen(life(0), pending(1)), ("False", "Starting", "digits-worker-1 is starting")),
    ("not there", seen(life(0)), ("False", "Starting", "worker 1 is starting")),
    ("failed, and worse things first",
     seen(ended(0, 3, restarts_before=3), oom(1), job_=job({"worker": role(2, minReplicas=1)})),
     ("False", "RestartsSpent",
      "digits-worker-0-3 failed and is not replaced: exit code 1; "
      "digits-worker-1 failed and will be replaced: OOMKilled at 512Mi")),
    ("succeeded under Always",
     seen(ended(0, code=0, at=NOW), life(1),
          job_=job({"worker": role(restartPolicy="Always")}, distributionStrategy="Local")),
     ("False", "Restarting", "digits-worker-0 will be replaced: succeeded")),
    ("surplus", seen(life(0), life(1), life(2)), ("False", "Leaving", "digits-worker-2 leaves")),
    ("on its way out", seen(life(0, terminating=True), life(1)),
     ("False", "Leaving", "digits-worker-0 is on its way out and will be replaced")),
    ("another resource",
     seen(life(0), life(1), resource_=resource(nodes={"digits-worker-1": {"memory": "1Gi"}})),
     ("False", "Resizing", "digits-worker-1 is given other resources")),
    ("a resize that the kubelet has not carried out",
     seen(life(0), life(1, unresized="the kubelet has not resized it: memory is in use")),
     ("False", "Resizing", "digits-worker-1: the kubelet has not resized it: memory is in use")),
    ("many", seen(*(pending(n) for n in range(5)), resource_=resource({"worker": 5})),
     ("False", "Starting",
      "digits-worker-0 is starting; digits-worker-1 is starting; "
      "digits-worker-2 is starting; and 2 more")),
    ("suspended", seen(resource_=resource(suspend=True)), ("False", "Suspended", "the job is suspended")),
    ("no job", Seen(resource(), None),
     ("False", "JobNotFound", "there is no ElasticJob digits that owns this object")),
]  # fmt: skip


@pytest.mark.parametrize(("case", "given", "expected"), READY, ids=[case[0] for case in READY])
def test_ready(case: str, given: Seen, expected: tuple[str, str, str]) -> None:
    (condition,) = status(given).conditions
    assert (condition.status, condition.reason, condition.message) == expected


def test_counts_and_restarts() -> None:
    given = seen(
        ended(0, restarts_before=1),
        pending(0, 1, restarts_before=2),
        life(1),
        life(2, terminating=True),
        job_=job({"worker": role(2)}),
    )
    found = status(given)
    assert found.replica_statuses["worker"].manifest() == {"desired": 2, "current": 2, "ready": 1}
    assert found.restarts == {"worker": {"0": 2}}
    assert found.observed_generation == 1


def test_a_node_that_was_scaled_away_begins_afresh() -> None:
    remembered = resource({"worker": 1}, status={"restarts": {"worker": {"0": 1, "4": 3}}})
    assert status(seen(life(0), resource_=remembered)).restarts == {"worker": {"0": 1}}


def test_what_nodes_have_achieved_and_suffered_outlives_what_is_seen_of_their_job() -> None:
    facts: Any = {"restarts": {"worker": {"0": 2}}, "completedIndexes": {"worker": "1"}}
    found = status(Seen(resource(status=facts), None, (life(0),))).manifest()
    assert {name: found[name] for name in facts} == facts


def test_what_admission_changes_is_told_once() -> None:
    changed: Any = {"resource": {"cpu": "250m"}, "asked": {"cpu": "300m"}}
    lives = (life(0, **changed), life(1, **changed))
    specified = {"worker": {"cpu": "300m"}}
    found = status(seen(*lives, resource_=resource(resources=specified)))
    told = "admission made cpu 250m of 300m: digits-worker-0, digits-worker-1"
    assert [(c.type, c.status, c.message) for c in found.conditions] == [
        ("Ready", "True", "all nodes are ready"),
        ("ResourcesAltered", "True", told),
    ]
    assert alteration_event(JobResourceStatus(), found) == Note(
        "AdmissionChangedResources", told, warning=True
    )
    again = status(seen(*lives, resource_=resource(resources=specified, status=found.manifest())))
    assert alteration_event(found, again) is None
    cured = status(seen(life(0), life(1), resource_=resource(status=found.manifest())))
    assert [c.status for c in cured.conditions] == ["True", "False"]
