"""What planners of the whole cluster read from its objects."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.brain.fulfilment.observed import Objects, observe
from elasticjob.brain.fulfilment.state import Cluster, Job
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import NODE, POD, Node, Pod
from lab.build.jobs import NOW as BEGUN
from lab.build.jobs import at, job, plan, resource, role

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


MADE: Manifest = {"apiVersion": JOBRESOURCE.api_version, "kind": "JobResource", "name": "digits"}
NO_ROOM: Manifest = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
NO_ROOM |= {"message": "0/1 nodes are available: 1 Insufficient cpu."}


def a_pod(
    name: str,
    machine: str = "",
    *,
    index: int | str | None = None,
    going: bool = False,
    owner: str = "res-1",
    looked: Manifest | None = NO_ROOM,
    cpu: str = "1500m",
    **more: Any,
) -> Pod:
    """A pod of 1500m; with an index, a worker of the job."""
    labels = {"elasticjob.dlrover/name": "digits", "elasticjob.dlrover/replica-type": "worker"}
    labels["elasticjob.dlrover/replica-index"] = str(index)
    about: Manifest = {"name": name, "namespace": "ml", "uid": name, "creationTimestamp": at(BEGUN)}
    if index is not None:
        about |= {"labels": labels, "ownerReferences": [{**MADE, "uid": owner, "controller": True}]}
    about |= {"deletionTimestamp": at(BEGUN)} if going else {}
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    spec = {"nodeName": machine, "containers": [container], **more}
    status = {"phase": "Running" if machine else "Pending", "conditions": [looked] if looked else []}
    return POD.convert({"metadata": about, "spec": spec, "status": status})


def look(
    given: ElasticJob, *pods: Pod, machines: int = 1, plans: Any = (), heard: Any = None
) -> tuple[Cluster, tuple[Job, ...]]:
    nodes = [a_machine(f"machine-{index}") for index in range(machines)]
    resources = {Key("ml", "digits"): resource({"worker": 2})}
    return observe(Objects(nodes, pods, [given], resources, plans, heard or {}), passes())


def passes() -> Passes:
    return Passes("sharing", VirtualClock(), Metrics(CollectorRegistry()))


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
    cluster, _ = observe(Objects(nodes, [], [], {}, []), passes())
    assert [machine.name for machine in cluster.machines] == ["open"]


@pytest.mark.parametrize("index", ["x", "", "-1", "9" * 60, "²", "None"])
def test_labels_of_anybody_make_no_instance(index: str) -> None:
    """Pods of others may carry the labels of a job; its own ones may have lost theirs."""
    stray, own = a_pod("tenant", index=index, owner="another"), a_pod("w0", "machine-0", index=index)
    cluster, (found,) = look(a_job(), stray, own)
    assert found.machines == ("machine-0", None)
    assert [demand.key for demand in cluster.demands] == ["ml/tenant"]


@pytest.mark.parametrize(
    ("more", "waits"),
    [
        ({}, True),
        ({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, False),
        ({"looked": None}, False),  # none has looked: its scheduler is another, or away
        ({"looked": {**NO_ROOM, "status": "True"}}, False),
        ({"looked": {**NO_ROOM, "reason": "SchedulingGated"}}, False),
        ({"looked": {**NO_ROOM, "message": "pod has unbound immediate PersistentVolumeClaims"}}, False),
        ({"looked": {**NO_ROOM, "message": "1 Insufficient cpu, 1 had volume node affinity conflict"}}, True),
        ({"looked": {**NO_ROOM, "message": "pod group is not ready, 3 Pending"}}, True),
        ({"going": True}, False),
        ({"machine": "machine-0"}, False),
    ],
    ids=str,
)
def test_pods_for_which_a_scheduler_found_no_room_are_demands(more: dict[str, Any], waits: bool) -> None:
    cluster, _ = look(a_job(), a_pod("queued-0", **more))
    assert bool(cluster.demands) is waits


def test_one_objects_error_costs_the_plan_no_other(caplog: pytest.LogCaptureFixture) -> None:
    bad = job({"worker": {**role(None), **RANGE}}, metadata={"name": "bad"}, optimizeMode="cluster")
    bad = bad.model_copy(update={"status": a_job().status})  # and it has no time of creation
    resources = {Key("ml", name): resource({"worker": 2}) for name in ("digits", "bad")}
    broken = a_machine("broken")
    broken.status.allocatable["cpu"] = "many"
    pods = [a_pod("web", cpu="many"), a_pod("db", "m", cpu="many"), a_pod("api")]
    given = Objects([a_machine("m"), broken], pods, [bad, a_job()], resources, [])
    cluster, found = observe(given, passes())
    assert [each.key for each in found] == ["ml/digits"]
    assert [each.key for each in cluster.demands] == ["ml/api"]
    assert [each.name for each in cluster.machines] == ["m"]
    failed = [getattr(each, "object", "") for each in caplog.records]
    assert failed == ["pod ml/web", "pod ml/db", "ml/bad", "node broken"]


def test_the_settle_time_is_counted_by_the_clock_that_looks() -> None:
    grown, seen = plan("grow", {"worker": 2}), BEGUN + timedelta(minutes=10)
    heard = {grown.metadata.uid: seen}
    assert look(a_job(), plans=[grown], heard=heard)[1][0].changed == seen
