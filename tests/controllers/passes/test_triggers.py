"""Which changes of a job and of its pods cause a pass."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.triggers import life_changed, machine_changed, more_than_reports
from elasticjob.kube.cache.store import Change
from elasticjob.kube.cache.wire import Item
from elasticjob.kube.objects.views import NODE
from lab.build.caches import caches, machine, raw
from lab.build.caches import pod as a_pod


def job(*, annotations: Any = None, spec: Any = None, **status: Any) -> Item:
    about = {"name": "a", "namespace": "n", "uid": "u", "annotations": annotations or {}}
    return raw({"metadata": about, "spec": spec or {}, "status": status})


def condition(type_: str, status: str = "True", message: str = "") -> Any:
    return {"type": type_, "status": status, "message": message}


RUNS = [condition("Running", message="1 of 2 nodes run")]
MACHINES = caches((NODE, machine()))
PRESSURE = condition("MemoryPressure", "False")


@pytest.mark.parametrize(
    ("old", "new", "worth"),
    [
        (job(training={"step": 1}, phase="Running"), job(training={"step": 2}, phase="Running"), False),
        (job(), job(training={"worldSize": 2, "step": 0}), False),
        (job(training={"step": 0}), job(training={"step": 1}), True),
        (job(training={"step": 1}), job(training={"step": 1, "findings": [{"reason": "Hang"}]}), True),
        (job(training={"step": 1}), job(training={"step": 1, "restarts": 1}), True),
        (job(), job(phase="Running", startTime="2026-01-01T00:00:00Z", conditions=RUNS), False),
        (job(conditions=RUNS), job(conditions=[condition("Running", message="all run")]), False),
        (job(replicaStatuses={"worker": {"ready": 1}}), job(), False),
        (job(), job(conditions=[condition("Failed", "False")]), False),
        (job(conditions=RUNS), job(conditions=[*RUNS, condition("Failed")]), True),
        (job(conditions=[condition("Complete")]), job(), True),
        (job(), job(completionTime="2026-01-01T00:00:00Z"), True),
        (job(), job(restarts={"worker": {"0": 1}}), True),
        (job(), job(restarts=1), True),
        (job(), job(restarts=0), False),
        (job(restarts={}), job(), False),
        (job(), job(spec={"suspend": True}), True),
        (job(), job(annotations={"a": "b"}), True),
        (None, job(training={"step": 1}), True),
        (job(), None, True),
    ],
)
def test_what_is_merely_told_of_a_job_is_no_reason_for_a_pass(
    old: Item | None, new: Item | None, worth: bool
) -> None:
    assert more_than_reports(Change(old, new)) is worth


def pod(*, machine: str = "", annotations: Any = None, **more: Any) -> Item:
    """A pod of a job; `more` is its status."""
    return a_pod(metadata={"annotations": annotations or {}}, spec={"nodeName": machine}, status=more)


def main(**state: Any) -> Any:
    return [{"name": "main", "state": state}]


STARTING = {"phase": "Pending", "containerStatuses": main(waiting={"reason": "ContainerCreating"})}
UP = {"phase": "Running", "containerStatuses": main(running={"startedAt": "2026-01-01T00:00:00Z"})}
NO_IMAGE = {"phase": "Pending", "containerStatuses": main(waiting={"reason": "ErrImagePull"})}
OVER = {"phase": "Failed", "containerStatuses": main(terminated={"exitCode": 1})}


@pytest.mark.parametrize(
    ("old", "new", "worth"),
    [
        (pod(), pod(phase="Pending", conditions=[condition("PodScheduled")]), False),
        (pod(), pod(machine="m1"), False),
        (pod(), pod(**STARTING), False),
        (pod(**UP), pod(**UP, podIP="10.0.0.1", conditions=[condition("Initialized")]), False),
        (pod(**STARTING), pod(**UP), True),
        (pod(**STARTING), pod(**NO_IMAGE), True),
        (pod(**UP), pod(**UP, conditions=[condition("Ready")]), True),
        (pod(**UP), pod(**OVER), True),
        (pod(**UP), pod(**UP, annotations={names.RELEASED: "true"}), True),
        (pod(), pod(machine="gone"), True),
        (pod(), a_pod(spec={"containers": "none"}), True),
        (None, pod(), True),
        (pod(), None, True),
    ],
)
def test_a_pod_is_worth_a_pass_when_its_life_is_another(
    old: Item | None, new: Item | None, worth: bool
) -> None:
    assert life_changed(MACHINES)(Change(old, new)) is worth


def tainted(key: str) -> Item:
    return machine(taints=[{"key": key, "effect": "NoExecute"}])


OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@pytest.mark.parametrize(
    ("old", "new", "worth"),
    [
        (machine(ready=""), machine(ready="", metadata={"labels": {"a": "b"}}), False),
        (machine(ready=""), machine(), False),
        (machine(), machine(status={"conditions": [PRESSURE, condition("Ready")]}), False),
        (machine(), tainted("node.kubernetes.io/unschedulable"), True),
        (machine(), machine(ready="Unknown"), True),
        (machine(ready="Unknown"), machine(ready="False"), False),
        (machine(ready="Unknown"), machine(), True),
        (machine(), tainted(OUT_OF_SERVICE), True),
        (None, machine(), True),
        (machine(), None, True),
        (machine(), machine(taints=1), True),
    ],
)
def test_of_a_machine_counts_that_it_is_there_and_reports(
    old: Item | None, new: Item | None, worth: bool
) -> None:
    assert machine_changed(MACHINES)(Change(old, new)) is worth
