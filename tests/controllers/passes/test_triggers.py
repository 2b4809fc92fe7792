"""Which changes of a job and of its pods cause a pass."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from elasticjob.controllers.parts import names
from elasticjob.controllers.passes.observe import Caches
from elasticjob.controllers.passes.triggers import life_changed, machine_changed, more_than_reports
from elasticjob.kube.cache.store import Change
from elasticjob.kube.cache.wire import Item, item_of
from elasticjob.kube.objects.views import NODE
from lab.build.caches import caches


def job(version: int, *, annotations: Any = None, spec: Any = None, **status: Any) -> Item:
    metadata = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": str(version)}
    made = {"metadata": metadata | ({"annotations": annotations} if annotations else {}), "spec": spec or {}}
    return item_of(msgspec.json.encode(made | ({"status": status} if status else {})))


def condition(type_: str, status: str = "True", message: str = "") -> Any:
    return {"type": type_, "status": status, "message": message}


RUNS = [condition("Running", message="1 of 2 nodes run")]


@pytest.mark.parametrize(
    ("old", "new", "worth"),
    [
        (job(1, training={"step": 1}, phase="Running"), job(2, training={"step": 2}, phase="Running"), False),
        (job(1), job(2, training={"worldSize": 2, "step": 0}), False),
        (job(1, training={"step": 0}), job(2, training={"step": 1}), True),
        (job(1, training={"step": 1}), job(2, training={"step": 1, "findings": [{"reason": "Hang"}]}), True),
        (job(1, training={"step": 1}), job(2, training={"step": 1, "restarts": 1}), True),
        (job(1), job(2, phase="Running", startTime="2026-01-01T00:00:00Z", conditions=RUNS), False),
        (job(1, conditions=RUNS), job(2, conditions=[condition("Running", message="all run")]), False),
        (job(1, replicaStatuses={"worker": {"ready": 1}}), job(2), False),
        (job(1), job(2, conditions=[condition("Failed", "False")]), False),
        (job(1, conditions=RUNS), job(2, conditions=[*RUNS, condition("Failed")]), True),
        (job(1, conditions=[condition("Complete")]), job(2), True),
        (job(1), job(2, completionTime="2026-01-01T00:00:00Z"), True),
        (job(1), job(2, restarts={"worker": {"0": 1}}), True),
        (job(1), job(2, restarts=1), True),
        (job(1), job(2, restarts=0), False),
        (job(1, restarts={}), job(2), False),
        (job(1), job(2, spec={"suspend": True}), True),
        (job(1), job(2, annotations={"a": "b"}), True),
        (None, job(1, training={"step": 1}), True),
        (job(1), None, True),
    ],
)
def test_what_is_merely_told_of_a_job_is_no_reason_for_a_pass(
    old: Item | None, new: Item | None, worth: bool
) -> None:
    assert more_than_reports(Change(old, new)) is worth


def machines() -> Caches:
    return caches((NODE, item_of(b'{"metadata": {"name": "m1", "uid": "m"}}')))


def pod(version: int, *, machine: str = "", spec: Any = None, **more: Any) -> Item:
    labels = names.pod_labels("digits", "worker", 0, 0)
    metadata = {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": str(version), "labels": labels}
    metadata |= {"annotations": more.pop("annotations", {})}
    containers = [{"name": "main", "image": "trainer"}]
    made = {"metadata": metadata, "spec": spec or {"nodeName": machine, "containers": containers}}
    return item_of(msgspec.json.encode(made | ({"status": more} if more else {})))


def main(**state: Any) -> Any:
    return [{"name": "main", "state": state}]


STARTING = {"phase": "Pending", "containerStatuses": main(waiting={"reason": "ContainerCreating"})}
UP = {"phase": "Running", "containerStatuses": main(running={"startedAt": "2026-01-01T00:00:00Z"})}
NO_IMAGE = {"phase": "Pending", "containerStatuses": main(waiting={"reason": "ErrImagePull"})}
OVER = {"phase": "Failed", "containerStatuses": main(terminated={"exitCode": 1})}


@pytest.mark.parametrize(
    ("old", "new", "worth"),
    [
        (pod(1), pod(2, phase="Pending", conditions=[condition("PodScheduled")]), False),
        (pod(1), pod(2, machine="m1"), False),
        (pod(1), pod(2, **STARTING), False),
        (pod(1, **UP), pod(2, **UP, podIP="10.0.0.1", conditions=[condition("Initialized")]), False),
        (pod(1, **STARTING), pod(2, **UP), True),
        (pod(1, **STARTING), pod(2, **NO_IMAGE), True),
        (pod(1, **UP), pod(2, **UP, conditions=[condition("Ready")]), True),
        (pod(1, **UP), pod(2, **OVER), True),
        (pod(1, **UP), pod(2, **UP, annotations={names.RELEASED: "true"}), True),
        (pod(1), pod(2, machine="gone"), True),
        (pod(1), pod(2, spec={"containers": "none"}), True),
        (None, pod(1), True),
        (pod(1), None, True),
    ],
)
def test_a_pod_is_worth_a_pass_when_its_life_is_another(
    old: Item | None, new: Item | None, worth: bool
) -> None:
    assert life_changed(machines())(Change(old, new)) is worth


def machine(version: int, ready: str = "", taint: str = "") -> Item:
    metadata = {"name": "m1", "uid": "m", "resourceVersion": str(version)}
    conditions = [condition("MemoryPressure", "False"), *([condition("Ready", ready)] if ready else [])]
    spec = {"taints": [{"key": taint, "effect": "NoExecute"}]} if taint else {}
    made = {"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}
    return item_of(msgspec.json.encode(made))


OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@pytest.mark.parametrize(
    ("old", "new", "worth"),
    [
        (machine(1), machine(2), False),
        (machine(1), machine(2, "True"), False),
        (machine(1, "True"), machine(2, "True", "node.kubernetes.io/unschedulable"), True),
        (machine(1, "True"), machine(2, "Unknown"), True),
        (machine(1, "Unknown"), machine(2, "False"), False),
        (machine(1, "Unknown"), machine(2, "True"), True),
        (machine(1, "True"), machine(2, "True", OUT_OF_SERVICE), True),
        (None, machine(1), True),
        (machine(1), None, True),
        (machine(1), item_of(b'{"metadata": {"name": "m1"}, "spec": {"taints": 1}}'), True),
    ],
)
def test_of_a_machine_counts_that_it_is_there_and_reports(
    old: Item | None, new: Item | None, worth: bool
) -> None:
    assert machine_changed(machines())(Change(old, new)) is worth
