"""What people see of a cluster and of a job: given what was read, this JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from math import nan
from typing import Any, Final

import msgspec
import pytest

from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import EVENT, NODE, POD, Event, Node, Pod
from elasticjob.page.seen import Cluster, Fleet, Master, One, Past, Standing
from elasticjob.page.series import Point
from elasticjob.page.status import Status, status_of
from elasticjob.page.view import MOST_JOBS, MOST_PODS, SPARK, fleet, one
from elasticjob.page.words import LONGEST
from lab.build.jobs import LONG_AGO, NOW, at, job, plan, role
from lab.build.objects import view

HERE: Final = Cluster(server="https://here", ready=True)
THEN: Final = NOW.timestamp()
TRAINING: Final[Manifest] = {
    "step": 900,
    "stepsPerSecond": 4.0,
    "samplesPerSecond": 256.0,
    "worldSize": 2,
    "goodput": 0.9,
    "progress": 0.3,
    "badputSeconds": {"init": 30, "hang": 10},
}
FAILED: Final = {"type": "Failed", "status": "True", "reason": "Broken", "message": "it broke"}
SLOW: Final = {"time": at(NOW), "reason": "Straggler", "message": "worker-0 is slow"}
SPECIFIED: Final = {"worker": role(2, minReplicas=1, maxReplicas=4)}


def status(phase: str = "Running", training: Mapping[str, Any] | None = None, **more: Any) -> Manifest:
    return {
        "phase": phase,
        "observedGeneration": 1,
        "startTime": at(LONG_AGO),
        "workers": "2/2",
        "replicaStatuses": {"worker": {"desired": 2, "active": 2}},
        **({"training": {**TRAINING, **training}} if training is not None else {}),
        **more,
    }


def pod(name: str = "digits-worker-0", phase: str = "Running", **more: Any) -> Pod:
    labels = {"elasticjob.dlrover/name": "digits", "elasticjob.dlrover/replica-type": "worker"}
    labels["elasticjob.dlrover/replica-index"] = name.rpartition("-")[2]
    container = {
        "name": "main",
        "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "4Gi"}},
    }
    about, spec = {"uid": name, "labels": labels}, {"nodeName": "node-1", "containers": [container]}
    return view(POD, name, "ml", metadata=about, spec=spec, status={"phase": phase, **more})


def ended(state: Manifest) -> Manifest:
    return {"containerStatuses": [{"name": "main", "state": state}]}


def node(name: str = "node-1", ready: str = "True", **more: Any) -> Node:
    has = {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "4", "pods": "110"}
    conditions = [{"type": "Ready", "status": ready}]
    return view(NODE, name, spec=more, status={"allocatable": has, "conditions": conditions})


def event(reason: str, minutes: int, **more: Any) -> Event:
    about = {"kind": "Pod", "name": "digits-worker-0"}
    when = at(NOW - timedelta(minutes=minutes))
    return view(EVENT, "e", reason=reason, involvedObject=about, lastTimestamp=when, **more)


def told(**more: Any) -> Status:
    """Return a master's answer as it is on the wire."""
    formed = (NOW - timedelta(minutes=2)).isoformat()
    body = {
        "job": "digits",
        "sentence": "round 2 trains with 3 nodes, 3 workers",
        "round": 2,
        "nodes": [
            {
                "name": "digits-worker-0",
                "pod": "digits-worker-0",
                "state": "training",
                "usage": {"cpu": 1.5, "memory": 1 << 30},
                "memoryPeak": 2 << 30,
                "stepSeconds": 0.2,
                "failures": 1,
                "failure": "OOM",
                "excluded": "",
            }
        ],
        "progress": {"step": 1000, "total_steps": 3000, "loss": 0.5},
        "stepsPerSecond": 5.0,
        "samplesPerSecond": 320.0,
        "goodputRatio": 0.95,
        "productiveSeconds": 95.0,
        "badputSeconds": {"init": 4.0, "hang": 1.0, "drain": 0.0},
        "standstill": 1.5,
        "restarts": 1,
        "checkpoint": {"stored": 800, "seconds": 2.0},
        "rounds": [
            {"round": 2, "reason": "grew", "formed": formed, "nodes": 3, "workers": 3, "standstill": 1.5}
        ],
        "findings": [{"at": formed, "reason": "Straggler", "message": "worker-0 is slow"}],
        **more,
    }
    return status_of(json.dumps(body).encode())


# the cluster


@pytest.mark.parametrize(
    ("given", "field", "shown"),
    [
        (status(training={}), "samples", 256.0),
        (status(training={}), "goodput", 0.9),
        (status(training={}), "workers", "2/2"),
        (status(training={}), "most", 4),
        (status(), "samples", None),
        (status("Succeeded", {}), "samples", None),  # what was is no speed
        (status("Suspended", {"stepsPerSecond": 0.0}), "steps", None),
        ({}, "phase", "Created"),
        (status("Failed", reason="DeadlineExceeded"), "reason", "DeadlineExceeded"),
        (
            status(
                "Pending",
                reason="Unschedulable",
                conditions=[
                    {"type": "Created", "status": "True", "reason": "Accepted", "message": "accepted"},
                    {"type": "Running", "status": "False", "reason": "Unschedulable", "message": "no room"},
                ],
            ),
            "message",
            "no room",
        ),
        (status("Failed", reason="x" * 5000), "reason", "x" * (LONGEST - 1) + "…"),
    ],
)
def test_a_job_in_the_list(given: Manifest, field: str, shown: object) -> None:
    (row,) = fleet(Fleet(HERE, [job(SPECIFIED, status=given)]), NOW)["jobs"]
    assert row[field] == shown


def test_jobs_in_trouble_come_first_then_those_that_go_on_and_then_the_newest() -> None:
    jobs = [
        job(
            metadata={"name": name, "creationTimestamp": at(NOW - timedelta(hours=hours))},
            status=status(phase, conditions=[FAILED] if phase == "Failed" else []),
        )
        for name, phase, hours in (
            *(
                ("old", "Running", 9),
                ("done", "Succeeded", 1),
                ("new-10", "Pending", 2),
                ("new-9", "Pending", 2),
            ),
            ("broken", "Failed", 8),
        )
    ]
    found = fleet(Fleet(HERE, jobs), NOW)
    assert [row["name"] for row in found["jobs"]] == ["broken", "new-9", "new-10", "old", "done"]
    first = found["jobs"][0]["trouble"]
    assert (first["cause"], first["grade"], found["sums"]["trouble"]) == ("Broken", "wrong", 1)


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        (status("Failed", conditions=[FAILED], completionTime=at(LONG_AGO)), "Broken"),
        (status("Failed", conditions=[FAILED], completionTime=at(NOW - timedelta(days=2))), None),
        (
            status(
                "Pending",
                reason="Queued",
                conditions=[{"type": "Running", "status": "False", "message": "it waits"}],
            ),
            None,
        ),
        (status(training={"goodput": 0.2}), None),
        (status(training={"goodput": 0.2, "findings": [SLOW]}), "Straggler"),
    ],
)
def test_what_waits_its_turn_and_what_is_long_over_is_no_trouble(given: Manifest, cause: str | None) -> None:
    (row,) = fleet(Fleet(HERE, [job(SPECIFIED, status=given)]), NOW)["jobs"]
    assert (row["trouble"] and row["trouble"]["cause"]) == cause


def test_the_sums_of_jobs_count_those_that_go_on() -> None:
    jobs = [
        job(SPECIFIED, status=status(training={})),
        job(SPECIFIED, status=status(training={"goodput": 0.7, "findings": [SLOW]})),
        job(SPECIFIED, status=status("Succeeded", {})),
    ]
    found = fleet(Fleet(HERE, jobs), NOW)
    assert found["sums"] == {
        "phases": {"Running": 2, "Succeeded": 1},
        "going": 2,
        "samples": 512.0,
        "world": 4,
        "active": 4,
        "desired": 4,
        "goodput": pytest.approx(0.8),
        "trouble": 1,
    }
    assert found["spent"] == {"init": 90.0, "hang": 30.0}


def test_no_jobs_are_an_empty_list_and_no_sums() -> None:
    found = fleet(Fleet(HERE), NOW)
    assert (found["jobs"], found["sums"]["goodput"], found["spent"]) == ([], None, {})


def test_more_jobs_than_are_shown_are_counted() -> None:
    jobs = [job(metadata={"name": f"j{number}"}) for number in range(MOST_JOBS + 3)]
    found = fleet(Fleet(HERE, jobs), NOW)
    assert (len(found["jobs"]), found["more"]) == (MOST_JOBS, 3)


def test_the_small_curve_is_of_records_where_a_job_counts_them() -> None:
    points = [Point(THEN + number, 1.0, nan if number < 2 else 8.0) for number in range(40)]
    (row,) = fleet(Fleet(HERE, [job()], series={"job-1": points}), NOW)["jobs"]
    assert len(row["spark"]) == SPARK
    assert row["spark"][-1] == 8.0


def test_jobs_that_brain_alone_knows_are_marked_as_deleted() -> None:
    past = [remembered("job-1"), remembered("job-0")]
    rows = fleet(Fleet(HERE, [job()], past=past), NOW)["jobs"]
    assert [(row["uid"], row.get("deleted", False)) for row in rows] == [("job-1", False), ("job-0", True)]


def remembered(uid: str) -> Mapping[str, Any]:
    return {
        **{"uid": uid, "namespace": "ml", "name": "digits", "phase": "Succeeded", "strategy": "", "mode": ""},
        **{"began": LONG_AGO, "ended": NOW, "status": {"goodput": 0.5, "worldSize": 2}},
    }


@pytest.mark.parametrize(
    ("given", "state", "ready"),
    [
        (node(), "Ready", True),
        (node(ready="False"), "NotReady", False),
        (node(unschedulable=True), "Cordoned", False),
    ],
)
def test_a_node_says_what_pods_of_jobs_request(given: Node, state: str, ready: bool) -> None:
    pods = [pod(), pod("digits-worker-1", "Succeeded")]
    (row,) = fleet(Fleet(HERE, pods=pods, nodes=[given]), NOW)["nodes"]["rows"]
    assert (row["state"], row["ready"], row["pods"]) == (state, ready, 1)
    assert row["rooms"] == [
        {"name": "cpu", "used": 2.0, "has": 8.0},
        {"name": "memory", "used": float(1 << 30), "has": float(16 << 30)},
        {"name": "nvidia.com/gpu", "used": 0.0, "has": 4.0},
    ]


@pytest.mark.parametrize(
    ("standing", "shown"),
    [
        (Standing(), None),
        (Standing("it does not answer", NOW), {"why": "it does not answer", "since": THEN, "act": ""}),
    ],
)
def test_what_does_not_answer_is_said(standing: Standing, shown: object) -> None:
    found = fleet(Fleet(replace(HERE, api=standing)), NOW)["cluster"]
    assert (found["api"], found["brain"]) == (shown, None)
    assert fleet(Fleet(replace(HERE, brain=standing)), NOW)["cluster"]["brain"] == shown


# one job


def seen(**more: Any) -> One:
    return One(HERE, "ml", "digits", job(SPECIFIED, status=status(training={})), **more)


@pytest.mark.parametrize(
    ("field", "by_the_api", "by_its_master"),
    [
        ("steps", 4.0, 5.0),
        ("samples", 256.0, 320.0),
        ("stepSeconds", 0.25, 0.2),
        ("goodput", 0.9, 0.95),
        ("step", 900, 1000),
        ("totalSteps", None, 3000),
        ("loss", None, 0.5),
        ("world", 2, 3),
        ("round", None, 2),
        ("sentence", "", "round 2 trains with 3 nodes, 3 workers"),
        ("checkpoint", None, {"stored": 800, "memory": 0, "seconds": 2.0, "error": ""}),
        (
            "spent",
            {"productive": pytest.approx(360.0), "init": 30.0, "hang": 10.0},
            {"productive": 95.0, "init": 4.0, "hang": 1.0},
        ),
    ],
)
def test_a_master_says_more_than_the_api_server(
    field: str, by_the_api: object, by_its_master: object
) -> None:
    assert one(seen(), NOW)[field] == by_the_api
    assert one(seen(master=Master(told(), NOW)), NOW)[field] == by_its_master


def test_a_master_that_is_away_leaves_what_it_said() -> None:
    away = Standing("connection refused", NOW)
    found = one(seen(master=Master(told(), LONG_AGO, away)), NOW)
    assert found["master"] == {
        "expected": True,
        "heard": LONG_AGO.timestamp(),
        "away": {"why": "connection refused", "since": THEN, "act": ""},
    }
    assert found["samples"] == 320.0


def test_a_job_that_is_over_has_no_speed() -> None:
    over = job(SPECIFIED, status=status("Succeeded", {}))
    found = one(One(HERE, "ml", "digits", over, master=Master(told(), NOW)), NOW)
    assert (found["steps"], found["stepSeconds"], found["master"]["expected"]) == (None, None, False)


def test_changes_of_the_world_have_reasons() -> None:
    def change(number: int, size: int, **more: Any) -> Manifest:
        formed = at(NOW - timedelta(minutes=9 - number))
        return {"round": number, "formed": formed, "nodes": size, "workers": size, **more}

    rounds = [change(1, 3, reason="all"), change(2, 2, reason="gone", lost=["digits-w-1"])]
    found = one(seen(master=Master(told(rounds=rounds, findings=[]), NOW)), NOW)
    assert [(each["title"], each["text"], each["label"], each["mark"]) for each in found["happened"]] == [
        ("2 workers on 2 nodes", "gone", "lost w-1", "fault"),
        ("3 workers on 3 nodes", "all", "", "life"),
    ]
    assert [each["workers"] for each in found["rounds"]] == [3, 2]


def test_plans_are_newest_first_with_their_reasons() -> None:
    plans = [
        plan("one", age=90, phase="Superseded"),
        plan("two", {"worker": 3}, memory={"worker": "4Gi"}, age=9, reason="more speed"),
    ]
    found = one(seen(plans=plans), NOW)["happened"]
    assert [(each["title"], each["phase"]) for each in found] == [
        ("worker ×3 memory 4Gi", "Pending"),
        ("one", "Superseded"),
    ]
    assert found[0]["text"] == "more speed"


@pytest.mark.parametrize(
    ("given", "field", "shown"),
    [
        (pod(), "phase", "Running"),
        (pod(), "state", "training"),
        (pod(), "memory", 1 << 30),
        (pod(), "peak", 2 << 30),
        (pod(), "memoryLimit", float(4 << 30)),
        (pod(), "cpuLimit", 2.0),
        (pod(), "failure", "OOM"),
        (pod("digits-worker-1"), "state", ""),
        (pod(**ended({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})), "reason",
         "OOMKilled: exit code 137"),
        (pod(**ended({"terminated": {"exitCode": 0, "reason": "Completed"}})), "reason", ""),
        (pod(**ended({"terminated": {"exitCode": 1, "message": '{"message": "no label", "exitCode": 1}'}})),
         "reason", "Error: exit code 1, no label"),
        (pod(**ended({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})), "reason",
         "ImagePullBackOff: no such image"),
        (pod(**ended({"waiting": {"reason": "ContainerCreating"}})), "reason", ""),
        (pod(phase="Pending",
             conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                          "message": "0/3 nodes"}]), "reason", "Unschedulable: 0/3 nodes"),
        (pod(phase="Failed", reason="Evicted"), "reason", "Evicted"),
    ],
)  # fmt: skip
def test_a_pod_of_a_job(given: Pod, field: str, shown: object) -> None:
    (row,) = one(seen(pods=[given], master=Master(told(), NOW)), NOW)["pods"]["rows"]
    assert row[field] == shown


def test_pods_are_in_the_order_of_their_places_and_bounded() -> None:
    pods = [pod(f"digits-worker-{number}") for number in range(MOST_PODS + 2)][::-1]
    found = one(seen(pods=pods), NOW)["pods"]
    assert [row["name"] for row in found["rows"][:3]] == [f"digits-worker-{number}" for number in range(3)]
    assert (len(found["rows"]), found["more"]) == (MOST_PODS, 2)


def test_events_and_findings_are_newest_first() -> None:
    events = [event("Started", 9), event("Killing", 1, type="Warning", count=3)]
    found = one(seen(events=events, master=Master(told(), NOW)), NOW)
    assert [(each["title"], each["mark"]) for each in found["happened"] if each["kind"] != "world"] == [
        ("Killing", "fault"),
        ("Straggler", "fault"),
        ("Started", "life"),
    ]
    assert found["happened"][0]["tags"] == ["Pod digits-worker-0 ×3"]


def test_what_brain_measured_comes_before_what_was_seen_live() -> None:
    past = Past(remembered("job-1"), [Point(THEN - 60, 1.0, 2.0, 2.0, 0.5), Point(THEN + 60, 9.0)])
    found = one(seen(past=past, series=[Point(THEN, 3.0, nan, 4.0)]), NOW)["series"]
    assert found["at"] == [THEN - 60, THEN]
    assert (found["steps"], found["samples"], found["world"]) == ([1.0, 3.0], [2.0, None], [2.0, 4.0])


def test_a_job_that_is_deleted_is_what_brain_remembers() -> None:
    gone: dict[str, Any] = {
        "uid": "p",
        "name": "digits-worker-0",
        "role": "worker",
        "phase": "Failed",
        "reason": "Error",
    }
    gone |= {"machine": "node-1", "began": LONG_AGO, "ended": NOW, "log": "last words"}
    decided = {
        "number": 1,
        "at": NOW,
        "event": "Start",
        "algorithm": "start",
        "reason": "small",
        "plan": "p1",
    }
    past = Past(
        remembered("job-0"), decisions=[{**decided, "outcome": "Succeeded"}], pods=[gone], cost="2 core-hours"
    )
    found = one(One(HERE, "ml", "digits", past=past), NOW)
    assert (found["deleted"], found["phase"], found["cost"]) == (True, "Succeeded", "2 core-hours")
    assert found["pastPods"][0]["log"] == "last words"
    assert [(each["kind"], each["text"]) for each in found["happened"]] == [("decision", "small")]


def test_a_job_that_nobody_knows_is_missing() -> None:
    found = one(One(HERE, "ml", "digits"), NOW)
    assert (found["missing"], found["name"]) == (True, "digits")


# what comes from elsewhere


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b'{"stepsPerSecond": NaN}',
        b'{"stepsPerSecond": 1e999}',
        b'{"nodes": {}}',
        b'{"rounds": [{"round": 1}]}',
        b'{"sentence": "' + b"x" * 5000 + b'"}',
        b'{"badputSeconds": {' + b",".join(b'"%d": 1' % number for number in range(100)) + b"}}",
        b"[" * 100_000,
    ],
)
def test_an_answer_that_no_master_gives_is_refused(body: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, RecursionError)):
        status_of(body)


def test_whatever_is_seen_can_be_sent() -> None:
    hostile = "</script><img src=x onerror=alert(1)>\0\ud7ff"
    strange = job(SPECIFIED, status=status(training={}, reason=hostile))
    pods = [pod(**ended({"waiting": {"reason": hostile, "message": hostile}}))]
    found = one(One(HERE, "ml", hostile, strange, pods, master=Master(told(sentence=hostile), NOW)), NOW)
    sent = json.loads(msgspec.json.encode(found))
    assert sent["reason"] == sent["sentence"] == hostile  # as text: the page makes no HTML of it
