"""What was seen → what is said, and the command that comes next."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from elasticjob.api.crds import manifests
from elasticjob.api.roles import MASTER_ALIAS
from elasticjob.api.troubles import cluster, job
from elasticjob.api.troubles.causes import CAUSES, REFINED, trouble_of
from elasticjob.api.troubles.facts import ClusterFacts, JobFacts, Trial
from elasticjob.api.troubles.trouble import Grade, Trouble, span
from elasticjob.api.v1alpha1.common import LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.cli.commands import doctor
from elasticjob.cli.doctor import observe
from elasticjob.cli.doctor.observe import lacking
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.errors import ServerError, Unreachable
from elasticjob.kube.objects.kinds import Key, Manifest
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


def a_pod(
    name: str = "digits-worker-0",
    status: Manifest | None = None,
    resources: Manifest | None = None,
    **metadata: Any,
) -> Any:
    main = {"name": "main", "image": "shop/trainer:1", "resources": resources or {}}
    return view(POD, name, metadata=metadata, spec={"containers": [main]}, status=status or {})


def a_master(ready: str, **before: float) -> Any:
    status = {
        "phase": "Running",
        "conditions": [condition("Ready", "", "", ready, **before)],
        "containerStatuses": [{"name": "main", "state": {"running": {}}}],
    }
    return a_pod("digits-master-0", status, labels={LABEL_ROLE: MASTER_ALIAS})


def found(*findings: Manifest) -> JobFacts:
    return JobFacts(a_job({"training": {"findings": list(findings)}}))


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


def an_event(kind: str, name: str, reason: str, message: str = "", **times: Any) -> Any:
    about = {"kind": kind, "name": name}
    return view(EVENT, "e", involvedObject=about, type="Warning", reason=reason, message=message, **times)


UNMOUNTED = an_event(
    "Pod",
    "digits-worker-0",
    "FailedMount",
    'MountVolume.SetUp failed for volume "rates" : configmap "rates" not found',
    lastTimestamp=at(minutes=1),
)
REFUSED = a_pod(
    status={"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices"}
)
LATE_NEWS = an_event("ElasticJob", "digits", "Unschedulable", firstTimestamp=at(minutes=1))
UNSAVED = {"time": at(minutes=3), "reason": "CheckpointTrouble"}
FAILS = {"time": at(minutes=50), "reason": "WorkerFailed", "message": "boom"}
WARNING = an_event("ElasticJob", "digits", "NodeLost", "node a is gone", lastTimestamp=at(minutes=3))
UNSCHEDULABLE = {
    "phase": "Pending",
    "reason": "Unschedulable",
    "conditions": [condition("Running", "Pending", "0 of 2 nodes run; no room", "False")],
    "replicaStatuses": {"worker": {"desired": 2}},
}
SLOW: Manifest = {"training": {"step": 9, "goodput": 0.5, "badputSeconds": {"a": 90}}}
LEAVING = {
    "reason": "Terminating",
    "conditions": [
        condition("Running", "NodesRunning", "2 of 2 nodes run"),
        condition("Restarting", "NodesReplaced", "digits-worker-1 is on its way out"),
    ],
}
NO_CLAIM = UNSCHEDULABLE | {
    "conditions": [
        condition("Running", "", 'digits-worker-0: persistentvolumeclaim "data" not found', "False")
    ]
}


def test_what_its_master_has_found_is_told_once() -> None:
    found = {"time": at(minutes=3), "reason": "NodeLost", "message": "node a is gone, and more"}
    seen = JobFacts(a_job({"training": {"findings": [found]}}), events=(WARNING,))
    assert len([each for each in job.examine(seen, NOW) if "node a is gone" in each.sentence]) == 1


@pytest.mark.parametrize(
    ("seen", "grade", "cause", "line"),
    [
        (JobFacts(a_job(spec={"managedBy": "x"})), "wrong", "ManagedElsewhere", ": x"),
        (JobFacts(a_job({"observedGeneration": 1})), "wrong", "NotReconciled", "generation 2, seen 1"),
        (JobFacts(a_job({"phase": None, "observedGeneration": None})), "wrong", "NotReconciled", "seen 0"),
        (JobFacts(a_job(deletionTimestamp=at(minutes=5), finalizers=["x/y"])), "wrong", "DeletionHeld",
         "finalizer x/y (since 5 min)"),
        (JobFacts(a_job(deletionTimestamp=at(seconds=5))), "doubtful", "Deleting", ""),
        (JobFacts(a_job(), pods=(a_pod(deletionTimestamp=at(minutes=5), finalizers=["x/y"]),)), "wrong",
         "PodHeld", "digits-worker-0: finalizer x/y (since 5 min)"),
        (JobFacts(a_job({"phase": "Failed",
                         "conditions": [condition("Failed", "OutOfMemory", "OOMKilled at 4Gi")]})), "wrong",
         "OutOfMemory", "OOMKilled at 4Gi (since 10 min)"),
        (JobFacts(a_job(UNSCHEDULABLE)), "wrong", "Unschedulable", "no room (since 10 min)"),
        (JobFacts(a_job(LEAVING)), "doubtful", "Terminating", "waits for it: digits-worker-1 is on its way"),
        (JobFacts(a_job(NO_CLAIM)), "wrong", "VolumeMissing", 'persistentvolumeclaim "data" not found'),
        (JobFacts(a_job(UNSCHEDULABLE), pods=(a_pod(status=PENDING, resources=GPUS),), nodes=NODES), "wrong",
         "NeverFits", "digits-worker-0 asks for 8 of nvidia.com/gpu, and no machine has more than 4"),
        (JobFacts(a_job(), pods=(a_pod(status={"phase": "Pending"}),), events=(UNMOUNTED,)), "wrong",
         "VolumeMissing", 'configmap "rates" not found (last 60 s ago)'),
        (JobFacts(a_job(), pods=(REFUSED,) * 3), "wrong", "RefusedByMachine", "no healthy devices (3 times)"),
        (JobFacts(a_job(), pods=(REFUSED,)), "doubtful", "RefusedByMachine", "UnexpectedAdmissionError"),
        (JobFacts(a_job(), pods=(a_master("False", minutes=2),), master="no answer"), "wrong",
         "MasterUnreachable", "no answer (since 2 min)"),
        (JobFacts(a_job(), pods=(a_master("False", minutes=2),)), "wrong", "MasterUnreachable", "its probe"),
        (JobFacts(a_job(), pods=(a_master("True", hours=2),), master="no answer"), "unknown",
         "NotRead", "the master's page: no answer"),
        (JobFacts(a_job({"phase": "Restarting"}), pods=(a_pod(status=ended(1, "ValueError: x", minutes=4)),)),
         "doubtful", "WorkersRestart", "digits-worker-0: exit code 1: ValueError: x (last 4 min ago)"),
        (JobFacts(a_job(), pods=(a_pod(status=ended(1, "ValueError: x", minutes=4)),)), "over",
         "WorkersRestart", "last 4 min ago"),
        (JobFacts(a_job({"conditions": [condition("Training", "NoStepYet", "", "False", minutes=7)]})),
         "doubtful", "NoStepYet", "(since 7 min)"),
        (found({"time": at(minutes=2), "reason": "Hang", "message": "no step"}), "wrong", "Hang",
         "no step (since 2 min, last 2 min ago)"),
        (found({"time": at(minutes=40), "until": at(minutes=2), "reason": "Hang", "message": "no"}), "over",
         "Hang", "no (last 2 min ago)"),
        (found(FAILS | {"count": 22, "lastTime": at(minutes=1)}), "wrong", "WorkerFailed",
         "boom (since 50 min, 22 times, last 60 s ago)"),
        (found(FAILS | {"time": at(minutes=9)}), "doubtful", "WorkerFailed", "boom (since 9 min"),
        (found(*(UNSAVED | {"message": f"node-{n}: read-only"} for n in range(9))), "wrong",
         "CheckpointTrouble", "node-0: read-only (since 3 min, 9 times"),
        (JobFacts(a_job(), plans=(PLAN,)), "doubtful", "PlanFailed", "digits-7: 2 nodes are not"),
        (JobFacts(a_job({"startTime": at(hours=1)} | SLOW)), "doubtful",
         "LowGoodput", "50% is; lost: a 90 s"),
        (JobFacts(a_job(), events=(WARNING,)), "doubtful", "NodeLost", "node a is gone (last 3 min ago)"),
        (JobFacts(a_job(spec={"suspend": True})), "doubtful", "Suspended", ""),
        (JobFacts(a_job(), behind="1 runs, and there are 0 pods"), "wrong", "NotReconciled", "0 pods"),
        (JobFacts(a_job(UNSCHEDULABLE), events=(LATE_NEWS,)), "wrong", "Unschedulable", "(since 60 s)"),
        (JobFacts(a_job(), unread={"events": "forbidden"}), "unknown", "NotRead", "events: forbidden"),
        (JobFacts(a_job({"workers": "2/2", "training": {"step": 1200, "stepsPerSecond": 3.14159}})), "well",
         "", "digits is Running, workers 2/2, step 1,200, 3.14 steps/s"),
    ],
)  # fmt: skip
def test_a_job(seen: JobFacts, grade: str, cause: str, line: str) -> None:
    has(job.examine(seen, NOW), grade, cause, line)


def test_a_job_that_is_well_has_one_finding() -> None:
    assert [each.grade for each in job.examine(JobFacts(a_job()), NOW)] == [Grade.WELL]


def test_old_troubles_of_a_job_are_not_told() -> None:
    old = a_pod(status=ended(1, "ValueError: x", hours=4))
    finished = a_job({"phase": "Succeeded"})
    assert [each.grade for each in job.examine(JobFacts(a_job(), pods=(old,)), NOW)] == [Grade.WELL]
    assert [each.grade for each in job.examine(JobFacts(finished, plans=(PLAN,)), NOW)] == [Grade.WELL]


def test_findings_go_to_stdout_with_their_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    doctor._show((Trouble("", "it has failed", Grade.WRONG, "mend it", ("look here",)),), NOW)
    assert capsys.readouterr() == ("✗ it has failed\n    → mend it\n    $ look here\n", "")


def test_each_cause_has_a_sentence_and_commands_that_are_filled_in() -> None:
    words = {"install": "helm install", "namespace": "team", "pod": "a"}
    for cause, row in CAUSES.items():
        made = trouble_of(cause, a_job(), "why", **words)
        assert made.sentence == f"{cause}: {row.title}: why"
        assert not re.search("[{}]", f"{made.act} {made.commands}")
        assert all(command.split()[0] in ("kubectl", "elasticjob", "helm") for command in made.commands)
    assert {cause for _, _, cause in REFINED} <= CAUSES.keys()


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


WELL = ClusterFacts(
    version="v1.35.4",
    leases=(a_lease(seconds=3),),
    programs=(a_program("operator", ready=True),),
    trial=Trial(refused=True),
    nodes=(view(NODE, "a", status={"conditions": [{"type": "Ready", "status": "True"}]}),),
    jobs=(a_job(),),
)


@pytest.mark.parametrize(
    ("seen", "grade", "cause", "line"),
    [
        (replace(WELL, version="v1.28.3"), "wrong", "OldKubernetes", "v1.28.3"),
        (replace(WELL, missing=("jobs.x", "plans.x")), "wrong", "DefinitionsMissing", "jobs.x, plans.x"),
        (replace(WELL, older={"dijobs.x": "spec.new"}), "wrong", "DefinitionsOld", "dijobs.x lacks spec.new"),
        (replace(WELL, leases=(), programs=(), jobs=(a_job({"observedGeneration": 1}),)), "wrong",
         "OperatorMissing", "nothing has looked at team/digits"),
        (replace(WELL, leases=(), programs=()), "well", "", "an operator outside of the cluster"),
        (replace(WELL, leases=(), programs=(), jobs=()), "doubtful", "OperatorUnseen", ""),
        (replace(WELL, leases=(), jobs=()), "doubtful", "OperatorSilent", "none of them leads"),
        (replace(WELL, leases=(a_lease(minutes=12),)), "wrong", "OperatorSilent",
         "its lease in system is not renewed (since 12 min)"),
        (replace(WELL, jobs=(a_job({"observedGeneration": 1}),)), "wrong", "OperatorSilent",
         "has not looked at team/digits"),
        (replace(WELL, programs=(a_program("brain", ready=False, waiting="ErrImagePull"),)), "wrong",
         "ProgramNotReady", "brain brain-1: ErrImagePull no such image"),
        (replace(WELL, trial=Trial(failed='failed calling webhook "x"')), "wrong", "WebhooksFail",
         'failed calling webhook "x"'),
        (replace(WELL, trial=Trial()), "doubtful", "WebhooksAbsent", "they are not registered"),
        (replace(WELL, jobs=(a_job(spec={"optimizeMode": "cluster"}),)), "doubtful", "BrainMissing",
         "team/digits"),
        (replace(WELL, nodes=NODES), "wrong", "NoMachines", "a, b"),
        (replace(WELL, nodes=(*WELL.nodes, *NODES)), "doubtful", "MachinesAway", "a, b"),
        (replace(WELL, jobs=(a_job(UNSCHEDULABLE),)), "doubtful", "JobInTrouble",
         "team/digits is Pending: Unschedulable: no machine fits the pods: no room (since 10 min)"),
        (replace(WELL, unread={"nodes": "no"}), "unknown", "NotRead", "nodes: no"),
    ],
)  # fmt: skip
def test_a_cluster(seen: ClusterFacts, grade: str, cause: str, line: str) -> None:
    has(cluster.examine(seen, NOW), grade, cause, line)


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
    told = " ".join(
        command for each in job.examine(JobFacts(a_job(servers)), NOW) for command in each.commands
    )
    assert "elasticjob scale" not in told


async def test_what_the_server_cannot_list_now_is_unread_and_ends_nothing() -> None:
    class Away:
        config = Config(server="https://away")

        async def list(self, kind: object, *where: object, **selectors: object) -> object:
            raise (ServerError(503, "", "etcd is away") if kind is NODE else Unreachable("cut"))

        async def raw(self, *request: object) -> bytes:
            return b'{"gitVersion": "v1.35.4"}'

        async def create(self, *manifest: object, **options: object) -> object:
            raise Unreachable("cut")

    away: Any = Away()
    seen = await observe.cluster(away, "team", manifests())
    assert (seen.unread["nodes"], seen.unread["pods"], seen.trial) == ("etcd is away", "cut", None)


async def test_a_source_that_hangs_is_a_line_and_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        config = Config(server="https://hanging")

        async def get(self, kind: object, *named: object) -> object:
            return a_job()

        async def list(self, kind: object, *where: object, **selectors: object) -> object:
            return [a_master("False", minutes=2)] if kind is POD else await asyncio.Event().wait()

        async def status(self, pod: object) -> object:
            return await asyncio.Event().wait()

    monkeypatch.setattr(observe, "PATIENCE", 0.01)
    hanging: Any = Hanging()
    seen = await observe.one_job(hanging, Key("team", "digits"), hanging)
    told = {each.line(NOW) for each in job.examine(seen, NOW)}
    assert seen.unread.keys() == {"scaleplans", "events", "nodes"}
    assert "NotRead: this was not read: events: no answer within 0.01 s" in told
    master = trouble_of("MasterUnreachable", seen.job, "digits-master-0 does not answer within 0.01 s")
    assert f"{master.sentence} (since 2 min)" in told


def test_the_newest_warning_is_told_also_where_events_have_the_newer_form() -> None:
    old = {"lastTimestamp": None, "eventTime": at(minutes=29)[:-1] + ".000000Z", "message": "an older one"}
    series = EVENT.convert({**msgspec.to_builtins(WARNING), **old})
    told = [each.sentence for each in job.examine(JobFacts(a_job(), events=(WARNING, series)), NOW)]
    assert "NodeLost: node a is gone" in told


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


def has(troubles: tuple[Trouble, ...], grade: str, cause: str, line: str) -> None:
    """Check that a trouble has these words; what is wrong stands before what is well."""
    assert [each.grade for each in troubles] == sorted(
        (each.grade for each in troubles), key=list(Grade).index
    )
    mine = [each for each in troubles if each.cause == cause and line in each.line(NOW)]
    assert [each.grade for each in mine] == [grade], [each.line(NOW) for each in troubles]
