"""What was seen → what is said, and the command that comes next."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from elasticjob.api.crds import manifests
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.cli.commands import doctor
from elasticjob.cli.doctor import cluster, job, observe
from elasticjob.cli.doctor.finding import Finding, Grade
from elasticjob.cli.doctor.job import REMEDIES
from elasticjob.cli.doctor.observe import lacking
from elasticjob.cli.doctor.seen import Cluster, OneJob, Trial, span
from elasticjob.kube.errors import ServerError, Unreachable
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import EVENT, LEASE, NODE, POD, PodStatus
from lab.build.objects import view

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


def at(**before: float) -> str:
    """Return a timestamp so long before NOW."""
    return (NOW - timedelta(**before)).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_job(status: Manifest | None = None, spec: Manifest | None = None, **metadata: Any) -> ElasticJob:
    worker = {"replicas": 2, "minReplicas": 1, "template": {"spec": {"containers": [{"name": "main"}]}}}
    return view(
        ELASTICJOB,
        "digits",
        metadata={"generation": 2, "creationTimestamp": at(hours=1), **metadata},
        spec={"replicaSpecs": {"worker": worker}} | (spec or {}),
        status={"phase": "Running", "observedGeneration": 2} | (status or {}),
    )


def condition(type_: str, reason: str, message: str, status: str = "True", **before: float) -> Manifest:
    words = {"type": type_, "status": status, "reason": reason, "message": message}
    return {**words, "lastTransitionTime": at(**(before or {"minutes": 10}))}


def a_pod(name: str = "digits-worker-0", status: Manifest | None = None, **spec: Any) -> Any:
    main = {"name": "main", "image": "shop/trainer:1"} | spec
    return view(POD, name, spec={"containers": [main]}, status=status or {})


def ended(code: int, message: str, **before: float) -> Manifest:
    end = {"exitCode": code, "message": message, "reason": "Error", "finishedAt": at(**before)}
    return {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": end}}]}


PENDING = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
}
GPUS = {"requests": {"nvidia.com/gpu": "8", "memory": "16Gi"}}
NODES = tuple(
    view(NODE, name, status={"allocatable": {"nvidia.com/gpu": gpus, "memory": "64Gi"}})
    for name, gpus in (("a", "4"), ("b", "2"))
)
PLAN = view(
    SCALEPLAN,
    "digits-7",
    metadata={"creationTimestamp": at(minutes=9)},
    spec={"ownerJob": "digits"},
    status={"phase": "Failed", "conditions": [condition("Failed", "Late", "2 nodes are not ready")]},
)
FAILS = {"time": at(minutes=50), "reason": "WorkerFailed", "message": "boom"}
WARNING = view(
    EVENT,
    "e",
    involvedObject={"kind": "ElasticJob", "name": "digits"},
    type="Warning",
    reason="NodeLost",
    message="node a is gone",
    lastTimestamp=at(minutes=3),
)
UNSCHEDULABLE = {
    "phase": "Pending",
    "reason": "Unschedulable",
    "conditions": [condition("Running", "Pending", "0 of 2 nodes run", "False")],
    "replicaStatuses": {"worker": {"desired": 2}},
}


def test_what_its_master_has_found_is_told_once() -> None:
    found = {"time": at(minutes=3), "reason": "NodeLost", "message": "node a is gone, and more"}
    seen = OneJob(a_job({"training": {"findings": [found]}}), events=(WARNING,))
    assert len([each for each in job.examine(seen, NOW) if "node a is gone" in each.sentence]) == 1


@pytest.mark.parametrize(
    ("seen", "grade", "sentence", "command"),
    [
        (OneJob(a_job(spec={"managedBy": "x"})), Grade.WRONG, "spec.managedBy is x: ", "kubectl delete"),
        (OneJob(a_job({"observedGeneration": 1})), Grade.WRONG,
         "the last change is not seen yet: generation 2, seen 1", "elasticjob doctor"),
        (OneJob(a_job({"phase": None, "observedGeneration": None})), Grade.WRONG,
         "no operator has looked at the job", "elasticjob doctor"),
        (OneJob(a_job(deletionTimestamp=at(minutes=5), finalizers=["x/y"])), Grade.WRONG,
         "the job is being deleted since 5 min; it is held by finalizers x/y", "kubectl get pods -n team"),
        (OneJob(a_job(deletionTimestamp=at(seconds=5))), Grade.DOUBTFUL, "the job is being deleted", ""),
        (OneJob(a_job({"phase": "Failed",
                       "conditions": [condition("Failed", "OutOfMemory", "OOMKilled at 4Gi")]})), Grade.WRONG,
         "the job has failed: OutOfMemory: OOMKilled at 4Gi", "raise resourceLimits.memory"),
        (OneJob(a_job(UNSCHEDULABLE)), Grade.WRONG, "Unschedulable: 0 of 2 nodes run",
         "elasticjob scale digits -n team 1"),
        (OneJob(a_job(UNSCHEDULABLE), pods=(a_pod(status=PENDING, resources=GPUS),), nodes=NODES),
         Grade.WRONG, "digits-worker-0 asks for 8 of nvidia.com/gpu, and no node has more than 4",
         "lower resources.requests"),
        (OneJob(a_job(), pods=(a_pod(status=ended(1, "ValueError: x", minutes=4)),)), Grade.DOUBTFUL,
         "digits-worker-0 failed 4 min ago: exit code 1: ValueError: x",
         "kubectl logs digits-worker-0 -n team"),
        (OneJob(a_job({"conditions": [condition("Training", "NoStepYet", "", "False", minutes=7)]})),
         Grade.DOUBTFUL, "nodes run since 7 min, and no step has been made",
         "elasticjob logs digits -n team"),
        (OneJob(a_job({"training": {"findings": [{"time": at(minutes=2), "reason": "Hang",
                                                  "message": "no step"}]}})), Grade.WRONG,
         "Hang, 2 min ago: no step", "elasticjob logs"),
        (OneJob(a_job({"training": {"findings": [{"time": at(minutes=40), "until": at(minutes=2),
                                                  "reason": "Hang", "message": "no"}]}})), Grade.DOUBTFUL,
         "Hang, 40 min ago (over): no", "elasticjob logs"),
        (OneJob(a_job({"training": {"findings": [FAILS | {"count": 22, "lastTime": at(minutes=1)}]}})),
         Grade.WRONG, "WorkerFailed, 60 s ago (22 times): boom", "elasticjob logs"),
        (OneJob(a_job({"training": {"findings": [FAILS | {"time": at(minutes=9)}]}})), Grade.DOUBTFUL,
         "WorkerFailed, 9 min ago: boom", "elasticjob logs"),
        (OneJob(a_job(), plans=(PLAN,)), Grade.DOUBTFUL, "digits-7 failed: 2 nodes are not",
         "scaleplan/digits-7"),
        (OneJob(a_job({"training": {"step": 9, "goodput": 0.5,
                                    "badputSeconds": {"restart": 90, "hang": 5}}})), Grade.DOUBTFUL,
         "50% of the workers' time was productive; lost: restart 90 s, hang 5 s", "elasticjob explain"),
        (OneJob(a_job(), events=(WARNING,)), Grade.DOUBTFUL, "NodeLost, 3 min ago: node a is gone",
         "kubectl describe"),
        (OneJob(a_job(spec={"suspend": True})), Grade.DOUBTFUL, "the job is suspended",
         "elasticjob resume digits"),
        (OneJob(a_job({"workers": "2/2", "training": {"step": 1200, "stepsPerSecond": 3.14159}})), Grade.WELL,
         "digits is Running, workers 2/2, step 1,200, 3.14 steps/s", ""),
    ],
)  # fmt: skip
def test_a_job(seen: OneJob, grade: Grade, sentence: str, command: str) -> None:
    has(job.examine(seen, NOW), grade, sentence, command)


def test_a_job_that_is_well_has_one_finding() -> None:
    assert [each.grade for each in job.examine(OneJob(a_job()), NOW)] == [Grade.WELL]


def test_old_troubles_of_a_job_are_not_told() -> None:
    old = a_pod(status=ended(1, "ValueError: x", hours=4))
    finished = a_job({"phase": "Succeeded"})
    assert [each.grade for each in job.examine(OneJob(a_job(), pods=(old,)), NOW)] == [Grade.WELL]
    assert [each.grade for each in job.examine(OneJob(finished, plans=(PLAN,)), NOW)] == [Grade.WELL]


def test_findings_go_to_stdout_with_their_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    doctor._show((Finding(Grade.WRONG, "it has failed", ("look here",)),))
    assert capsys.readouterr() == ("✗ it has failed\n    → look here\n", "")


def test_each_remedy_is_a_sentence_or_a_command() -> None:
    for made in REMEDIES.values():
        assert all(made(OneJob(a_job())))


def a_lease(**before: float) -> Any:
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": at(**before)[:-1] + ".000000Z"}
    return view(LEASE, "elasticjob-operator", "system", spec=spec)


def a_program(component: str, *, ready: bool, waiting: str = "") -> Any:
    state = {"waiting": {"reason": waiting, "message": "no such image"}} if waiting else {"running": {}}
    status = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{"name": component, "state": state}],
    }
    labels = {"app.kubernetes.io/component": component}
    return view(POD, f"{component}-1", "system", metadata={"labels": labels}, status=status)


WELL = Cluster(
    version="v1.35.4",
    leases=(a_lease(seconds=3),),
    programs=(a_program("operator", ready=True),),
    trial=Trial(refused=True),
    nodes=(view(NODE, "a", status={"conditions": [{"type": "Ready", "status": "True"}]}),),
    jobs=(a_job(),),
)


@pytest.mark.parametrize(
    ("seen", "grade", "sentence", "command"),
    [
        (replace(WELL, version="v1.28.3"), Grade.WRONG, "the API server is v1.28.3", ""),
        (replace(WELL, missing=("elasticjobs.x", "scaleplans.x")), Grade.WRONG,
         "does not know elasticjobs.x, scaleplans.x", "elasticjob crds --apply"),
        (replace(WELL, older={"dijobs.x": "spec.new"}), Grade.WRONG, "dijobs.x lacks spec.new",
         "crds --apply"),
        (replace(WELL, leases=(), programs=(), jobs=(a_job({"observedGeneration": 1}),)), Grade.WRONG,
         "no operator runs: nothing has looked at team/digits", "helm install"),
        (replace(WELL, leases=(), programs=()), Grade.WELL,
         "an operator outside of the cluster looks at jobs", ""),
        (replace(WELL, leases=(), programs=(), jobs=()), Grade.DOUBTFUL, "no operator is seen",
         "helm install"),
        (replace(WELL, leases=(a_lease(minutes=12),)), Grade.WRONG,
         "no operator leads: its lease in system has not been renewed for 12 min", "kubectl logs -n system"),
        (replace(WELL, jobs=(a_job({"observedGeneration": 1}),)), Grade.WRONG,
         "the operator runs, and team/digits have not been looked at", "kubectl logs"),
        (replace(WELL, programs=(a_program("brain", ready=False, waiting="ErrImagePull"),)), Grade.WRONG,
         "brain brain-1 is not ready: ErrImagePull no such image", "kubectl describe pod brain-1 -n system"),
        (replace(WELL, trial=Trial(failed='failed calling webhook "x"')), Grade.WRONG,
         'jobs cannot be created or changed: failed calling webhook "x"', "kubectl get endpoints"),
        (replace(WELL, trial=Trial()), Grade.DOUBTFUL, "webhooks are not registered", "kubectl get"),
        (replace(WELL, jobs=(a_job(spec={"optimizeMode": "cluster"}),)), Grade.DOUBTFUL,
         "team/digits ask Brain for sizes, and no Brain is seen", "brain.enabled=true"),
        (replace(WELL, nodes=NODES), Grade.WRONG, "no node takes pods", "kubectl get nodes"),
        (replace(WELL, nodes=(*WELL.nodes, *NODES)), Grade.DOUBTFUL, "not ready: a, b",
         "kubectl describe nodes"),
        (replace(WELL, jobs=(a_job(UNSCHEDULABLE),)), Grade.DOUBTFUL,
         "team/digits is Pending: Unschedulable: 0 of 2 nodes run", "elasticjob doctor digits -n team"),
        (replace(WELL, unread={"nodes": "no"}), Grade.UNKNOWN, "nodes cannot be read: no", ""),
    ],
)  # fmt: skip
def test_a_cluster(seen: Cluster, grade: Grade, sentence: str, command: str) -> None:
    has(cluster.examine(seen, NOW), grade, sentence, command)


def test_a_cluster_that_is_well() -> None:
    assert {each.grade for each in cluster.examine(WELL, NOW)} == {Grade.WELL}


def test_an_operator_that_may_not_be_seen_is_not_missed_and_an_evicted_pod_is_no_trouble() -> None:
    unread = {"leases": "no", "pods": "no"}
    ordinary = cluster.examine(replace(WELL, leases=(), programs=(), jobs=(), unread=unread), NOW)
    assert {each.grade for each in ordinary} == {Grade.WELL, Grade.UNKNOWN}
    failed = msgspec.structs.replace(a_program("operator", ready=False), status=PodStatus(phase="Failed"))
    evicted = cluster.examine(replace(WELL, programs=(*WELL.programs, failed)), NOW)
    assert {each.grade for each in evicted} == {Grade.WELL}


def test_a_job_with_its_fewest_workers_is_not_told_to_have_fewer() -> None:
    servers = {**UNSCHEDULABLE, "replicaStatuses": {"ps": {"desired": 2}, "worker": {"desired": 1}}}
    told = " ".join(command for each in job.examine(OneJob(a_job(servers)), NOW) for command in each.commands)
    assert "elasticjob scale" not in told


async def test_what_the_server_cannot_list_now_is_unread_and_ends_nothing() -> None:
    class Away:
        async def list(self, kind: object, *where: object, **selectors: object) -> object:
            raise (ServerError(503, "", "etcd is away") if kind is NODE else Unreachable("cut"))

        async def raw(self, *request: object) -> bytes:
            return b'{"gitVersion": "v1.35.4"}'

        async def create(self, *manifest: object, **options: object) -> object:
            raise Unreachable("cut")

    away: Any = Away()
    seen = await observe.cluster(away, "team", manifests())
    assert (seen.unread["nodes"], seen.unread["pods"], seen.trial) == ("etcd is away", "cut", None)


def test_the_newest_warning_is_told_also_where_events_have_the_newer_form() -> None:
    old = {"lastTimestamp": None, "eventTime": at(minutes=29)[:-1] + ".000000Z", "message": "an older one"}
    series = EVENT.convert({**msgspec.to_builtins(WARNING), **old})
    told = [each.sentence for each in job.examine(OneJob(a_job(), events=(WARNING, series)), NOW)]
    assert "NodeLost, 3 min ago: node a is gone" in told


def test_a_definition_that_lacks_a_field_is_found() -> None:
    for definition in manifests():
        assert lacking(definition, definition) == ""
    ours, older = (
        next(each for each in manifests() if each["spec"]["names"]["kind"] == "ElasticJob") for _ in range(2)
    )
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del schema["spec"]["properties"]["replicaSpecs"]["additionalProperties"]["properties"]["spares"]
    assert lacking(ours, older) == "spec.replicaSpecs.spares"


@pytest.mark.parametrize(
    ("seconds", "words"), [(-1, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 days")]
)
def test_spans(seconds: int, words: str) -> None:
    assert span(timedelta(seconds=seconds)) == words


def has(found: tuple[Finding, ...], grade: Grade, sentence: str, command: str) -> None:
    """Check that a finding has these words; what is wrong stands before what is well."""
    assert [each.grade for each in found] == sorted((each.grade for each in found), key=list(Grade).index)
    mine = [each for each in found if sentence in each.sentence]
    assert [each.grade for each in mine] == [grade], found
    assert command in " ".join(mine[0].commands)
