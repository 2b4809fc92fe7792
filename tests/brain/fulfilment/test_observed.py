"""What planners of the whole cluster read from its objects."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.brain.fulfilment.observed import Objects, observed
from elasticjob.brain.fulfilment.state import Cluster, Job
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import NODE, POD, Node, Pod
from tests.kit.controllers.build import NOW as BEGUN
from tests.kit.controllers.build import at, job, plan, resource, role

RANGE: dict[str, Any] = {"minReplicas": 1, "maxReplicas": 4}
GIB = 1 << 30


def a_job(**more: Any) -> ElasticJob:
    """A job in cluster mode of one to four workers."""
    worker = {**role(None), **RANGE, **more.pop("worker", {})}
    about = {"creationTimestamp": at(BEGUN)}
    given = {"optimizeMode": "cluster", "status": {"phase": "Running"}, **more}
    return job({"worker": worker}, metadata=about, **given)


def a_machine(name: str, **spec: Any) -> Node:
    ready = {"type": "Ready", "status": "True"}
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "conditions": [ready]}
    return NODE.convert({"metadata": {"name": name, "uid": name}, "spec": spec, "status": status})


def a_pod(name: str, machine: str = "", *, index: int | None = None, going: bool = False) -> Pod:
    """A pod of 1500m; with an index, a worker of the job."""
    labels = {"elasticjob.dlrover/name": "digits", "elasticjob.dlrover/replica-type": "worker"}
    labels["elasticjob.dlrover/replica-index"] = str(index)
    about: Manifest = {"name": name, "namespace": "ml", "uid": name, "creationTimestamp": at(BEGUN)}
    about |= {"labels": labels if index is not None else {}}
    about |= {"deletionTimestamp": at(BEGUN)} if going else {}
    container = {"name": "main", "resources": {"requests": {"cpu": "1500m"}}}
    spec = {"nodeName": machine, "containers": [container]}
    return POD.convert(
        {"metadata": about, "spec": spec, "status": {"phase": "Running" if machine else "Pending"}}
    )


def look(
    given: ElasticJob, *pods: Pod, machines: int = 1, plans: Any = ()
) -> tuple[Cluster, tuple[Job, ...]]:
    nodes = [a_machine(f"machine-{index}") for index in range(machines)]
    resources = {Key("ml", "digits"): resource({"worker": 2})}
    return observed(Objects(nodes, pods, [given], resources, plans))


def test_a_job_is_what_its_objects_say() -> None:
    bound, pending = a_pod("w0", "machine-0", index=0), a_pod("w1", index=1)
    cluster, (found,) = look(a_job(), pending, bound)
    assert (found.key, found.least, found.most, found.now) == ("ml/digits", 1, 4, 2)
    assert found.machines == ("machine-0", None)
    assert found.amount == {"cpu": 100, "memory": GIB // 2, "pods": 1}
    assert (found.permitted, found.stays) == (None, "")
    (machine,) = cluster.machines
    assert (machine.idle["cpu"], machine.soon["cpu"], machine.idle["pods"]) == (2500, 2500, 9)
    assert cluster.demands == ()


def test_what_goes_is_room_soon_and_others_that_wait_are_demands() -> None:
    cluster, (found,) = look(a_job(), a_pod("w0", "machine-0", index=0, going=True), a_pod("web"))
    (machine,) = cluster.machines
    assert (machine.idle["cpu"], machine.soon["cpu"]) == (2500, 4000)
    assert [(each.key, each.amount["cpu"]) for each in cluster.demands] == [("ml/web", 1500)]
    assert (found.machines, found.stays) == ((None, None), "a pod is terminating")


@pytest.mark.parametrize(
    "given",
    [
        a_job(optimizeMode="single-job"),
        a_job(suspend=True),
        a_job(status={"phase": "Succeeded"}),
        a_job(worker={"maxReplicas": 1}),
        a_job(worker={"autoScale": False}),
        a_job(managedBy="somebody.else/controller"),
    ],
    ids=["single job", "suspended", "ended", "no range", "no auto scale", "managed elsewhere"],
)
def test_some_jobs_are_left_alone(given: ElasticJob) -> None:
    assert look(given)[1] == ()


def test_a_plan_that_is_not_carried_out_yet_counts() -> None:
    waiting = plan("grow", {"worker": 4})
    (found,) = look(a_job(), a_pod("w0", "machine-0", index=0), plans=[waiting])[1]
    assert (found.now, found.machines) == (4, ("machine-0", None, None, None))


def test_machines_that_take_no_pods_do_not_count() -> None:
    nodes = [a_machine("open"), a_machine("closed", unschedulable=True)]
    cluster, _ = observed(Objects(nodes, [], [], {}, []))
    assert [machine.name for machine in cluster.machines] == ["open"]
