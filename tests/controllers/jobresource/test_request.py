"""JobResources of users and tools: what is planned for them, and what their status says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.jobresource.request import RULES, Seen, decide, describe, plan_name
from elasticjob.controllers.passes.plan import REFUSED, Plan
from elasticjob.kube.objects.kinds import Manifest
from lab.build.jobs import NOW, at, job, plan, role
from lab.build.plans import manifests

ELASTIC = job({"worker": role(2, minReplicas=1, maxReplicas=4)})
NAME = "digits-request-bigger-3"


def request(status: Manifest | None = None, **spec: Any) -> JobResource:
    about = {"name": "bigger", "namespace": "ml", "uid": "r", "generation": 3}
    asked = spec or {"worker": {"replicas": 3, "resource": {"memory": 1024}}}
    wanted = {"selector": {"name": "digits"}, **asked}
    return JOBRESOURCE.convert({"metadata": about, "spec": wanted, "status": status or {}})


def ready(value: str, reason: str, message: str = "", observed: int | None = None) -> Manifest:
    condition = {"type": "Ready", "status": value, "reason": reason, "message": message}
    seen = {} if observed is None else {"observedGeneration": observed}
    return {"conditions": [condition | {"observedGeneration": 3, "lastTransitionTime": at(NOW)}], **seen}


def its(phase: str, reason: str = "", message: str = "") -> Any:
    conditions = [{"type": "Complete", "status": "True", "reason": reason, "message": message}]
    made = plan(NAME, {"worker": 3}, phase=phase)
    told = SCALEPLAN.convert({**made.manifest(), "status": {"phase": phase, "conditions": conditions}})
    return made.model_copy(update={"status": told.status})


DONE = ready("True", "NodesReady", "all nodes are as planned", observed=3)
ROWS: list[tuple[str, Seen, list[str], tuple[str, str, int | None]]] = [
    ("no job", Seen(request()), [], ("False", "JobNotFound", None)),
    ("new", Seen(request(), ELASTIC), [NAME], ("False", "Scaling", None)),
    ("being carried out", Seen(request(), ELASTIC, (its("Scaling"),)), [], ("False", "Scaling", None)),
    ("done", Seen(request(), ELASTIC, (its("Succeeded", "NodesReady"),)), [], ("True", "NodesReady", 3)),
    ("failed", Seen(request(), ELASTIC, (its("Failed", "Impossible"),)), [], ("False", "Impossible", 3)),
    ("done, and its plan is forgotten", Seen(request(DONE), ELASTIC), [], ("True", "NodesReady", 3)),
    (
        "changed since",
        Seen(request(ready("True", "NodesReady", observed=2)), ELASTIC, (plan("digits-request-bigger-2"),)),
        [NAME],
        ("False", "Scaling", 2),
    ),
    ("somebody else's job", Seen(request(), job(managedBy="kueue")), [], ("", "", None)),
]


@pytest.mark.parametrize(("given", "made", "shown"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_what_becomes_of_a_request(given: Seen, made: list[str], shown: tuple[str, str, int | None]) -> None:
    decided = decide(given, NOW)
    assert [each["metadata"]["name"] for each in manifests(decided)] == made
    if decided.reason == "ManagedByOther":
        return
    status = describe(given, decided, NOW)
    (condition,) = status.conditions
    assert (condition.status, condition.reason, status.observed_generation) == shown


def test_the_status_does_not_change_by_itself() -> None:
    done = Seen(request(), ELASTIC, (its("Succeeded", "NodesReady", "all nodes are as planned"),))
    once = describe(done, Plan(), NOW)
    again = Seen(request(once.manifest()), ELASTIC, done.plans)
    assert describe(again, Plan(), NOW + timedelta(hours=1)) == once


def test_a_request_that_the_server_refuses_says_why() -> None:
    status = describe(Seen(request(), ELASTIC), Plan(REFUSED, "job digits has no such role"), NOW)
    (condition,) = status.conditions
    assert (condition.reason, condition.message) == (REFUSED, "job digits has no such role")


def test_sizes_are_brought_within_bounds_and_nodes_are_migrated() -> None:
    asked = request(
        worker={"replicas": 9}, resource_updation=[{"name": "digits-worker-1", "resource": {"memory": 2048}}]
    )
    [made] = manifests(decide(Seen(asked, ELASTIC), NOW))
    assert made["spec"] == {
        "ownerJob": "digits",
        "manualScaling": True,
        "reason": "JobResource bigger asks for it; worker 9, of which the job allows 4",
        "replicaResourceSpecs": {"worker": {"replicas": 4}},
        "migratePods": [{"name": "digits-worker-1", "resource": {"memory": "2048Mi"}}],
    }


def test_its_name_is_never_that_of_another_plan() -> None:
    assert plan_name(request()) == NAME
    assert len(RULES) == 4
