"""Why a job has its size and its state: what the API server's objects say, in lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.client.described import about_the_job, pod_state
from elasticjob.client.explained import reasons_in_lines
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import EVENT, POD, Event
from lab.build.objects import view

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
JOB = view(
    ELASTICJOB,
    "digits",
    spec={"replicaSpecs": {"worker": {"minReplicas": 1, "maxReplicas": 3}}},
    status={
        "phase": "Running",
        "reason": "Unschedulable",
        "conditions": [
            {"type": "Running", "status": "True", "message": "1 of 2 nodes run"},
            {"type": "Scaling", "status": "False", "message": "all is as planned"},
        ],
        "replicaStatuses": {"worker": {"desired": 2, "active": 1}},
        "training": {
            "step": 7,
            "badputSeconds": {"schedule": 60, "init": 5},
            "findings": [
                {"time": "2026-11-27T12:00:00Z", "reason": "Straggler", "message": "rank 1 is slow"}
            ],
        },
    },
)


def plan(name: str, job: str = "digits", minute: int = 0, **status: object) -> ScalePlan:
    at = (NOON + timedelta(minutes=minute)).isoformat()
    spec = {"ownerJob": job, "reason": "it pays", "manualScaling": name.endswith("user")}
    return view(SCALEPLAN, name, metadata={"creationTimestamp": at}, spec=spec, status=status)


def event(name: str, reason: str, minute: int, type_: str = "Normal") -> Event:
    at = (NOON + timedelta(minutes=minute)).isoformat()
    words: Manifest = {"type": type_, "reason": reason, "message": "m", "lastTimestamp": at}
    return view(EVENT, "e", involvedObject={"name": name}, **words)


PLANS = [
    plan("digits-b-user", minute=1, phase="Succeeded", changes=["worker replicas 1 to 2"]),
    plan("digits-a", phase="Failed", conditions=[{"type": "Failed", "status": "True", "message": "no room"}]),
    plan("other", job="letters"),
]
UNPLACED = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes fit"}
PODS = [view(POD, "digits-worker-1", status={"phase": "Pending", "conditions": [UNPLACED]})]
EVENTS = [
    event("digits-worker-0-2", "Killed", 3, "Warning"),
    event("digits", "Created", 1),
    event("digits-more-worker-0", "Alien", 2, "Warning"),
    event("digits-b-user", "Scaled", 2),
]
KNOWN = about_the_job(JOB, PLANS, PODS, EVENTS)


def test_a_job_has_the_plans_and_events_of_its_own() -> None:
    assert [each.metadata.name for each in KNOWN.plans] == ["digits-a", "digits-b-user"]
    assert [each.reason for each in KNOWN.events] == ["Created", "Scaled", "Killed"]


def test_sizes_and_trouble_are_explained() -> None:
    assert reasons_in_lines(KNOWN) == [
        "team/digits is Running (Unschedulable)",
        "  Running: 1 of 2 nodes run",
        "Sizes: worker 1 of 2",
        "  2026-11-27 12:00:00  digits-a, by an optimizer: Failed",
        "      because it pays",
        "      no room",
        "  2026-11-27 12:01:00  digits-b-user, by hand: Succeeded",
        "      worker replicas 1 to 2",
        "      because it pays",
        "Found by the master:",
        "  Straggler: rank 1 is slow",
        "Seconds of workers that were lost:",
        "  schedule: 60",
        "  init: 5",
        "Pods that do not run:",
        "  digits-worker-1: Pending, 0/1 nodes fit",
        "Warnings:",
        "  2026-11-27 12:03:00  Warning Killed  digits-worker-0-2: m",
    ]


def test_a_description_names_all_that_belongs_to_the_job() -> None:
    text = str(KNOWN)
    for words in (
        "Phase:      Running (Unschedulable)",
        "worker: 1 of 2 run, 1 to 3 allowed",
        "digits-worker-1",
    ):
        assert words in text


def test_a_pod_says_why_it_waits_or_ended() -> None:
    def state(**status: object) -> str:
        return pod_state(view(POD, "p", status={"phase": "Running", **status}))

    waiting = [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]
    ended = [{"name": "main", "state": {"terminated": {"exitCode": 3}}}]
    assert [state(), state(containerStatuses=waiting), state(containerStatuses=ended)] == [
        "Running",
        "ImagePullBackOff",
        "exit code 3",
    ]
