"""What `submit` says of a job before it is created: what it needs, and the cluster lacks."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.client.needs import missing, needs
from elasticjob.kube.objects.kinds import Manifest
from lab.build.jobs import job, role

MAIN = {
    "name": "main",
    "image": "i",
    "resources": {"requests": {"cpu": "2"}, "limits": {"nvidia.com/gpu": "1"}},
    "envFrom": [{"secretRef": {"name": "keys", "optional": True}}],
    "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "token", "key": "a"}}}],
}
POD: Manifest = {
    "serviceAccountName": "trainer",
    "priorityClassName": "high",
    "runtimeClassName": "gvisor",
    "imagePullSecrets": [{"name": "registry"}],
    "volumes": [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "secret": {"secretName": "token"}},
        {"name": "c", "configMap": {"name": "settings", "optional": True}},
        {"name": "d", "projected": {"sources": [{"configMap": {"name": "rates"}}]}},
    ],
    "containers": [MAIN],
}
JOB = job({"worker": role(3, template={"spec": POD})}, runPolicy={"scheduling": {"queue": "training"}})
SENTENCES = {
    "data": "PersistentVolumeClaim data is not in namespace ml: pods wait until it is there",
    "token": "Secret token is not in namespace ml: pods wait until it is there",
    "registry": "Secret registry is not in namespace ml: pods wait until it is there",
    "rates": "ConfigMap rates is not in namespace ml: pods wait until it is there",
    "trainer": "ServiceAccount trainer is not in namespace ml: no pod is made until it is there",
    "high": "PriorityClass high is not in the cluster: no pod is made until it is there",
    "gvisor": "RuntimeClass gvisor is not in the cluster: no pod is made until it is there",
    "training": "LocalQueue training is not in namespace ml: with Kueue, the job waits until it is there",
}


def test_each_object_that_is_absent_is_said_once() -> None:
    assert {name for _, name in needs(JOB)} == {*SENTENCES}
    for lacking, sentence in SENTENCES.items():
        assert missing(JOB, {each: each[1] != lacking for each in needs(JOB)}) == [sentence]


def test_nothing_is_said_of_what_could_not_be_read() -> None:
    assert missing(JOB, {}) == []


def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> Manifest:
    return {"metadata": {"name": "compute"}, "spec": spec, "status": {"hard": hard, "used": used}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (quota({"pods": "4"}, {"pods": "0"}), []),  # three workers and the master
        (quota({"count/pods": "4"}, {"count/pods": "1"}), ["1 of 4 pods", "4"]),
        (quota({"requests.cpu": "10"}, {"requests.cpu": "5500m"}), ["5500m of 10 cpu", "6"]),
        (quota({"requests.nvidia.com/gpu": "2"}, {}), ["0 of 2 nvidia.com/gpu", "3"]),
        (quota({"limits.cpu": "1"}, {}), []),
        (quota({"pods": "1"}, {}, scopes=["BestEffort"]), []),
    ],
)
def test_a_quota_without_room_for_the_first_pods_is_said(given: Manifest, said: list[str]) -> None:
    ends = ("ResourceQuota compute has ", ": pods that do not fit are made when there is room")
    found = [each.removeprefix(ends[0]).removesuffix(ends[1]) for each in missing(JOB, {}, [given])]
    assert [each.split(" in use, and the job starts with ") for each in found] == ([said] if said else [])
