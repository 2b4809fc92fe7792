"""What is said about a job: phase, conditions, numbers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, DistributionStrategy, ElasticJobStatus, Phase
from elasticjob.controllers.elasticjob.decide import decide
from elasticjob.controllers.elasticjob.seen import Seen
from elasticjob.controllers.elasticjob.status import describe
from elasticjob.controllers.kueue.grant import Grant
from elasticjob.controllers.nodes.drains import Notice
from elasticjob.controllers.nodes.exits import Exit
from elasticjob.controllers.parts.gangs import gang as gangs
from elasticjob.controllers.parts.gangs.gang import Gang
from elasticjob.controllers.passes.plan import REFUSED, Plan
from elasticjob.kube.objects.conditions import find
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.sizing.exits import ExitReason
from lab.build.jobs import (
    LONG_AGO,
    NOW,
    at,
    ended,
    job,
    life,
    master,
    oom,
    over,
    pending,
    plan,
    resource,
    role,
)

MASTERS = (master(),)
UP = (life(0), life(1))
NO_IMAGE = "ImagePullBackOff: no/such:image"
UNSCHEDULABLE = "Unschedulable: 0/3 nodes are available: 3 Insufficient memory."


def seen(
    job_: Any = None, resource_: Any = None, lives: Any = (), masters: Any = MASTERS, plans: Any = ()
) -> Seen:
    return Seen(job_ or job(), resource_ or resource(), masters, lives, plans)


def status(given: Seen, moment: Any = NOW) -> ElasticJobStatus:
    return describe(given, decide(given, moment), moment)


def conditions(given: Seen) -> dict[str, tuple[str, str, str]]:
    return {c.type: (c.status, c.reason, c.message) for c in status(given).conditions}


SUCCEEDED = ended(
    0, code=0, role="master", words='{"verdict": "Succeeded", "reason": "Trained", "message": "97 %"}'
)
BLOCKED = {"conditions": [{"type": "Ready", "status": "False", "reason": "NameTaken", "message": "Pod a"}]}
FETCH = Exit(ExitReason.FATAL_ERROR, 3, "no route", at=LONG_AGO, container="fetch")
SLOW: dict[str, Any] = {"start": "ContainerCreating: m1 has not started the pod", "since": LONG_AGO}
DONE = (ended(0, code=0), ended(1, code=0))
CREW = {"actor": role(2), "learner": role(1)}
TWO_OF_THREE = (life(0, role="actor"), life(0, role="learner"))
ENDED_BEFORE = {"completedIndexes": {"worker": "0,2-3"}, "failedIndexes": {"worker": "1"}}
STARTED: Manifest = {"startTime": at(LONG_AGO)}
PENDS_FOR_ROOM = pending(0, waiting=UNSCHEDULABLE)
SHOWN: list[tuple[str, Seen, dict[str, Any]]] = [
    ("nothing made yet", Seen(job()), {"phase": Phase.CREATED}),
    ("no node runs", seen(lives=(pending(0), pending(1))), {"phase": Phase.PENDING, "reason": None}),
    ("some run", seen(lives=(life(0), pending(1))), {"phase": Phase.RUNNING, "workers": "1/2"}),
    ("a plan is carried out", seen(lives=UP, plans=(plan(phase="Scaling"),)), {"phase": Phase.SCALING}),
    ("a finished plan", seen(lives=UP, plans=(plan(phase="Succeeded"),)), {"phase": Phase.RUNNING}),
    ("a node is replaced", seen(lives=(ended(0), life(1))), {"phase": Phase.RESTARTING, "restarts": 0}),
    ("a replacement starts", seen(lives=(ended(0), pending(0, 1), life(1))), {"phase": Phase.RESTARTING}),
    ("it runs", seen(lives=(ended(0), life(0, 1), life(1))), {"phase": Phase.RUNNING}),
    ("a pod was deleted", seen(lives=(life(0, terminating=True), life(1))), {"phase": Phase.RESTARTING}),
    ("the master is replaced", seen(lives=UP, masters=(ended(code=137, role="master"),)),
     {"phase": Phase.RESTARTING}),
    ("suspended", seen(job(suspend=True), lives=(PENDS_FOR_ROOM,)),
     {"phase": Phase.SUSPENDED, "reason": None}),
    ("suspended, and a node runs yet", seen(job(suspend=True), lives=(life(0),)), {"phase": Phase.SUSPENDED}),
    ("the verdict before the end of the pods", seen(masters=(SUCCEEDED,), lives=UP),
     {"phase": Phase.SUCCEEDED, "workers": "2/2", "completion_time": NOW}),
    ("succeeded since", seen(job(status=over()), lives=DONE),
     {"phase": Phase.SUCCEEDED, "reason": None, "workers": "2/2", "completion_time": LONG_AGO}),
    ("failed since, then suspended", seen(job(status=over("Failed"), suspend=True)), {"phase": Phase.FAILED}),
    ("all runs", seen(lives=UP), {"reason": None, "strategy": DistributionStrategy.ALLREDUCE}),
    ("unschedulable", seen(lives=(PENDS_FOR_ROOM, life(1))), {"reason": "Unschedulable"}),
    ("an image", seen(lives=(pending(0, waiting="ErrImagePull: a:1"), life(1))),
     {"reason": "ImagePullBackOff"}),
    ("the master's image", seen(masters=(pending(role="master", waiting="X: y"),)), {"reason": "X"}),
    ("a ConfigMap", seen(lives=(pending(0, waiting="CreateContainerConfigError: configmap"),)),
     {"reason": "CreateContainerConfigError"}),
    ("a volume", seen(lives=(pending(0, **SLOW), life(1))), {"reason": "ContainerCreating"}),
    ("not yet slow", seen(lives=(pending(0, **{**SLOW, "since": NOW}), life(1))), {"reason": None}),
    ("a foreign pod", seen(resource_=resource(status=BLOCKED)), {"reason": "NameTaken"}),
    ("a foreign JobResource", Seen(job(), resource(owner="job-0")), {"reason": "NameTaken"}),
    ("an init container", seen(lives=(pending(0, ended=FETCH), life(1))), {"reason": "InitContainerFailed"}),
    ("out of memory", seen(lives=(oom(0), life(1))), {"reason": "OOMKilled"}),
    ("a resize", seen(lives=(life(0, unresized="the kubelet has not resized it: x"), life(1))),
     {"reason": "Resizing"}),
    ("pods of a failed job still run", seen(job(status=over("Failed")), lives=UP),
     {"reason": "Because", "workers": "0/2"}),
    ("pods of a job that has succeeded are deleted", seen(job(status=over(workers="2/2"))),
     {"workers": "2/2"}),
    ("one of a failed job failed", seen(job(status=over("Failed")), lives=(ended(0, code=0), ended(1))),
     {"workers": "1/2"}),
    ("roles of one's own",
     seen(job(CREW, distributionStrategy="CustomStrategy"), resource({"actor": 2, "learner": 1}),
          TWO_OF_THREE), {"workers": "2/3"}),
    ("replaced", seen(lives=(ended(0), pending(0, 1, restarts_before=1), life(1))), {"restarts": 1}),
    ("not yet again", seen(lives=(ended(0), ended(0, 1, restarts_before=1), life(1))), {"restarts": 1}),
    ("killed", seen(lives=(ended(0, code=137), life(0, 1), life(1))), {"restarts": 1}),
    ("deleted after two", seen(lives=(life(0, restarts_before=2), life(1, 1))), {"restarts": 3}),
    ("once too often", seen(lives=(ended(0, 3, restarts_before=3),)), {"restarts": 3}),
    ("moved twice", seen(lives=(life(0, 2, moves=2), life(1))), {"restarts": 0}),
    ("moved twice and killed", seen(lives=(life(0, 3, moves=2), life(1))), {"restarts": 1}),
    ("it may not restart", seen(job(runPolicy={"backoffLimit": 0}), lives=(ended(0), life(1))),
     {"restarts": 0}),
    ("restarts never fall", seen(job(status={"restarts": 7}), lives=UP), {"restarts": 7}),
    ("restarts of a status before", seen(lives=(life(0, 2), life(1))), {"restarts": 2}),
    ("restarts inside of pods", seen(job(status={"training": {"restarts": 4}}), lives=(life(0, 2), life(1))),
     {"restarts": 6}),
    ("a strategy that was written", seen(job(distributionStrategy="Local")),
     {"strategy": DistributionStrategy.LOCAL}),
    ("it begins", seen(), {"start_time": NOW}),
    ("its start is kept", seen(job(status=STARTED)), {"start_time": LONG_AGO}),
    ("also when another takes one of its names",
     seen(job(status=STARTED), resource_=resource(status=BLOCKED)),
     {"start_time": LONG_AGO, "reason": "NameTaken"}),
    ("it cannot begin under a name of others", Seen(job(), resource(owner="job-0")), {"start_time": None}),
    ("and begins afresh after a suspension", seen(job(suspend=True, status=STARTED)), {"start_time": None}),
    ("the last plan is the one folded in", seen(resource_=resource(folded="up-3/uid")),
     {"last_scale_plan": "up-3"}),
]  # fmt: skip


@pytest.mark.parametrize(("given", "shown"), [row[1:] for row in SHOWN], ids=[row[0] for row in SHOWN])
def test_what_the_status_shows(given: Seen, shown: dict[str, Any]) -> None:
    found = status(given)
    assert {field: getattr(found, field) for field in shown} == shown


OOM = "a node was killed for lack of memory"
VOLCANO = "scheduling.volcano.sh/v1beta1"
UNSERVED = f"the cluster does not serve PodGroup of {VOLCANO}"


def together(gang: str, **scheduling: Any) -> Any:
    return job(runPolicy={"scheduling": {"gang": gang, **scheduling}})


def running(message: str) -> tuple[str, str, str, str]:
    return "Running", "True", "NodesRunning", message


SAYINGS: dict[str, tuple[Seen, tuple[str, str, str, str]]] = {
    "why it is pending": (
        seen(lives=(pending(0, waiting=UNSCHEDULABLE), pending(1))),
        ("Running", "False", "Pending", f"0 of 2 nodes run; no machine fits the pods: "
         f"digits-worker-0 is pending: {UNSCHEDULABLE}")),
    "why the master is pending": (
        seen(masters=(pending(role="master", waiting=NO_IMAGE),)),
        ("Running", "False", "Pending", f"0 of 2 nodes run; the image cannot be pulled: "
         f"digits-master-0 is pending: {NO_IMAGE}")),
    "memory that a node cannot give back yet": (
        seen(lives=(life(0), life(1, unresized="the kubelet has not resized it: x"))),
        running("2 of 2 nodes run; pods have not got their new resources yet: digits-worker-1: the kubelet "
                "has not resized it: x")),
    "a drain that has to wait": (
        seen(lives=(life(0), life(1, notice=Notice("is cordoned")))),
        running("2 of 2 nodes run; a machine is to be emptied, and minReplicas keeps a worker there: "
                "digits-worker-1 stays: m1 is cordoned, and minReplicas 2 forbids an "
                "eviction until another worker is ready")),
    "one that does not": (
        seen(lives=(life(0), life(1, notice=Notice("is cordoned")), life(2, stands_in=1))),
        running("2 of 2 nodes run")),
    "a master whose probe fails": (
        seen(masters=(master(unready=NOW - timedelta(seconds=20)),), lives=UP),
        running("2 of 2 nodes run; the job's master does not answer, so no lost node is replaced: "
                "digits-master-0 does not answer its probe")),
    "a master that has just begun": (
        seen(masters=(master(unready=NOW - timedelta(seconds=5)),), lives=UP), running("2 of 2 nodes run")),
    "a container beside the master's waits": (
        seen(masters=(master(waiting="CrashLoopBackOff: back-off 10s"),), lives=UP),
        running("2 of 2 nodes run")),
    "a part of an elastic job is lost": (
        seen(job({"worker": role(2, minReplicas=1, maxReplicas=2)}),
             lives=(life(0), ended(1, 3, restarts_before=3, words="boom"))),
        running("1 of 2 nodes run; a node has spent its restarts: digits-worker-1-3 "
                "failed and is not replaced: exit code 1: boom")),
    "a failed node": (
        seen(lives=(oom(0), life(1))),
        ("Restarting", "True", "NodesReplaced", f"{OOM}: digits-worker-0 failed: OOMKilled at 512Mi")),
    "its replacement": (
        seen(lives=(oom(0), pending(0, 1), life(1))),
        ("Restarting", "True", "NodesReplaced",
         f"{OOM}: digits-worker-0-1 replaces digits-worker-0: OOMKilled at 512Mi")),
    "a plan": (
        seen(lives=UP, plans=(plan("up", {"worker": 3}, reason="speed grows"),)),
        ("Scaling", "True", "PlanInProgress", "up: speed grows")),
    "the end": (seen(masters=(SUCCEEDED,)), ("Complete", "True", "Trained", "97 %")),
    "its mirror": (seen(masters=(SUCCEEDED,)), ("Succeeded", "True", "Trained", "97 %")),
    "pods on their way out": (
        seen(job(suspend=True), lives=(life(0, terminating=True),)),
        ("Suspended", "False", "Suspending", "pods of the job are on their way out")),
    "some pods on their way out": (
        seen(job(suspend=True), masters=(), lives=(ended(0, code=0), life(1, terminating=True))),
        ("Suspended", "False", "Suspending", "pods of the job are on their way out")),
    "no pods": (
        seen(job(suspend=True), masters=(), lives=(ended(0, code=0),)),
        ("Suspended", "True", "JobSuspended", "the job is suspended and has no pods")),
    "a name that is taken": (
        Seen(job(), resource(owner="job-0")),
        ("Created", "False", "NameTaken",
         "JobResource digits belongs to another job: waiting until it is gone")),
    "a gang": (
        seen(together("volcano"), resource(gang=gangs.written(Gang(VOLCANO, "digits", 2)))),
        ("Gang", "True", "GangMade", f"PodGroup digits of {VOLCANO}: pods are placed where 2 fit")),
    "no API for a gang": (
        Seen(together("volcano")), ("Gang", "False", "GangUnavailable", f"gang volcano: {UNSERVED}")),
    "the same, where it is only preferred": (
        seen(together("preferred", queue="lab")),
        ("Gang", "False", "GangUnavailable", f"gang preferred: {UNSERVED}: pods are placed one by one")),
}  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), SAYINGS.values(), ids=SAYINGS)
def test_condition(given: Seen, expected: tuple[str, str, str, str]) -> None:
    type_, *said = expected
    assert conditions(given)[type_] == (*said,)


NO_QUOTA = Grant("team", reason="Queued", sentence="no quota")
WAITS_FOR_QUOTA = replace(seen(job(suspend=True), masters=()), grant=NO_QUOTA)
ELASTIC = job({"worker": role(2, minReplicas=1, maxReplicas=2)})
VERDICTS: dict[str, tuple[Seen, str, str]] = {
    "nothing made yet": (Seen(job()), "InProgress", "Pending"),
    "no machine": (seen(lives=(PENDS_FOR_ROOM, pending(1))), "InProgress", "Pending"),
    "too few nodes": (seen(lives=(life(0), pending(1))), "InProgress", "Pending"),
    "enough nodes": (seen(ELASTIC, lives=(life(0), pending(1))), "Current", "NodesRunning"),
    "all nodes": (seen(lives=UP), "Current", "NodesRunning"),
    "a worker is done": (seen(lives=(ended(0, code=0), life(1))), "Current", "NodesRunning"),
    "a node is replaced": (seen(lives=(oom(0), life(1))), "InProgress", "NodesReplaced"),
    "scaling": (seen(lives=UP, plans=(plan(phase="Scaling"),)), "Current", "NodesRunning"),
    "another size is asked for": (
        seen(job({"worker": role(5, minReplicas=1)}), resource({"worker": 2}), UP),
        "InProgress",
        "Resizing",
    ),
    "suspended": (seen(job(suspend=True), masters=()), "Current", "JobSuspended"),
    "suspending": (seen(job(suspend=True), lives=UP), "InProgress", "Suspending"),
    "queued": (WAITS_FOR_QUOTA, "InProgress", "JobQueued"),
    "a foreign name": (Seen(job(), resource(owner="job-0")), "InProgress", "NameTaken"),
    "succeeded": (seen(job(status=over())), "Current", "Because"),
    "failed": (seen(job(status=over("Failed"))), "Failed", "Because"),
}


def kstatus(given: Seen) -> str:
    """As `Compute` of cli-utils, pkg/kstatus/status, for an object of the generation that was observed."""
    is_ = {type_: said[0] == "True" for type_, said in conditions(given).items()}
    abnormal = {"Reconciling": "InProgress", "Stalled": "Failed"}
    found = next((abnormal[type_] for type_, true in is_.items() if true and type_ in abnormal), None)
    return found or ("Current" if is_["Ready"] else "InProgress")


@pytest.mark.parametrize(("given", "said", "reason"), VERDICTS.values(), ids=VERDICTS)
def test_kstatus_is_told_how_far_the_job_is(given: Seen, said: str, reason: str) -> None:
    assert (kstatus(given), conditions(given)["Ready"][1]) == (said, reason)


def test_a_refused_write_is_a_reason() -> None:
    message = 'pods "digits-worker-0" is forbidden: exceeded quota: compute, requested: pods=1'
    found = describe(seen(), Plan(REFUSED, message), NOW)
    assert found.reason == "QuotaExceeded"
    assert describe(seen(), Plan(REFUSED, "spec.containers: Required value"), NOW).reason == REFUSED


def test_a_slow_start_is_looked_at_when_it_is_slow() -> None:
    started = NOW - timedelta(seconds=10)
    assert decide(seen(lives=(pending(0, since=started), life(1))), NOW).again_in == timedelta(seconds=20)
    assert decide(seen(lives=(pending(0, since=LONG_AGO), life(1))), NOW).again_in == timedelta(seconds=30)


def test_a_job_that_names_a_queue_where_there_is_no_kueue_says_so_and_runs() -> None:
    given = replace(Seen(job()), queueless="team")
    sentence = "the cluster has no Kueue: the job runs without quota of its queue team"
    assert conditions(given)["Admitted"] == ("False", "KueueAbsent", sentence)
    plan_ = decide(given, NOW)
    assert [note.sentence for note in plan_.notes if note.warning] == [sentence]
    assert "Admitted" not in conditions(replace(seen(job(status=over())), queueless="team"))


def test_a_job_that_has_ended_is_not_suspended() -> None:
    given = seen(job(status=over(), suspend=True), masters=(), lives=DONE)
    assert "Suspended" not in conditions(given)  # its queue admits it no more, either


def test_conditions_that_were_never_true_are_not_said() -> None:
    local = job(distributionStrategy="Local")
    assert set(conditions(seen(local, lives=UP))) == {"Created", "Running", "Ready"}


STEPS: dict[str, Any] = {"training": {"step": 1, "round": 1}}
FORMED: dict[str, Any] = {"training": {"worldSize": 2, "round": 1}}


@pytest.mark.parametrize(
    ("case", "given", "phase", "training"),
    [
        ("no pod runs", seen(), Phase.PENDING, ("False", "Pending")),
        ("pods run", seen(lives=UP), Phase.RUNNING, ("False", "NoStepYet")),
        ("a world was formed", seen(job(status=FORMED), lives=UP), Phase.RUNNING, ("False", "NoStepYet")),
        ("the first step", seen(job(status=STEPS), lives=UP), Phase.RUNNING, ("True", "StepsMade")),
        ("succeeded", seen(job(status=over() | STEPS)), Phase.SUCCEEDED, ("False", "JobFinished")),
        ("failed", seen(job(status=over("Failed") | STEPS)), Phase.FAILED, ("False", "JobFailed")),
    ],
)
def test_running_and_training_are_two_things(
    case: str, given: Seen, phase: Phase, training: tuple[str, str]
) -> None:
    assert status(given).phase is phase
    assert conditions(given)["Training"][:2] == training


def test_numbers() -> None:
    lives = (life(0), pending(1), ended(2, code=0), ended(3, 3, restarts_before=3), life(4, terminating=True))
    found = status(seen(job({"worker": role(4, minReplicas=1)}), resource({"worker": 4}), lives))
    assert found.replica_statuses["worker"].manifest() == {
        "desired": 4,
        "pending": 1,
        "active": 1,
        "succeeded": 1,
        "failed": 1,
    }
    assert (found.workers, found.replicas, found.restarts) == ("1/4", 2, 3)
    assert found.selector == "elasticjob.dlrover/name=digits,elasticjob.dlrover/replica-type=worker"
    assert found.observed_generation == 1


def test_a_node_that_failed_counts_as_failed_where_the_job_ends_with_it() -> None:
    lives = (ended(0, 1, restarts_before=1), life(1))
    for limit, failed in ((0, 1), (9, 0)):
        given = seen(job(runPolicy={"backoffLimit": limit}), lives=lives)
        assert describe(given, decide(given, NOW), NOW).replica_statuses["worker"].failed == failed


def test_nodes_whose_pods_are_gone_are_counted_as_they_ended() -> None:
    found = status(seen(resource_=resource({"worker": 4}, status=ENDED_BEFORE))).replica_statuses
    assert (found["worker"].succeeded, found["worker"].failed) == (3, 1)


def test_how_the_nodes_of_a_finished_job_ended_is_counted_on_after_their_pods_are_gone() -> None:
    counted = {"worker": {"desired": 3, "succeeded": 1, "failed": 2}}
    before: Manifest = {"workers": "1/3", "replicaStatuses": counted}
    asked = {"worker": role(3, minReplicas=1)}
    for left in ((), (ended(0, code=0),), (ended(1, 3, restarts_before=3),)):
        found = status(seen(job(asked, status=over("Failed", **before)), resource({"worker": 3}), left))
        counts = found.replica_statuses["worker"]
        assert (counts.desired, counts.succeeded, counts.failed) == (3, 1, 2)
        assert found.workers == "1/3"


LASTING = {row[0]: row[1] for row in SHOWN if row[0] != "not yet slow"} | {
    f"{name}, to kstatus": row[0] for name, row in VERDICTS.items()
}


@pytest.mark.parametrize("given", LASTING.values(), ids=LASTING)
def test_a_status_that_is_written_is_not_written_again(given: Seen) -> None:
    first = status(given)
    stored = given.job.model_copy(update={"status": ELASTICJOB.convert(_with(given, first)).status})
    again = describe(replace(given, job=stored), decide(given, NOW), NOW + timedelta(minutes=1))
    assert again.manifest() == first.manifest()


def _with(given: Seen, status_: ElasticJobStatus) -> dict[str, Any]:
    return {"metadata": {"name": "digits"}, "spec": given.job.spec.manifest(), "status": status_.manifest()}


def test_transitions_are_dated() -> None:
    known = {"type": "Running", "status": "False", "lastTransitionTime": at(LONG_AGO)}
    for lives, since in (((), LONG_AGO), (UP, NOW)):
        found = find(status(seen(job(status={"conditions": [known]}), lives=lives)).conditions, "Running")
        assert found is not None
        assert found.last_transition_time == since


def test_many_obstacles_are_summed_up() -> None:
    lives = tuple(pending(n, waiting="Unschedulable") for n in range(5))
    message = conditions(seen(job({"worker": role(5)}), resource({"worker": 5}), lives))["Running"][2]
    assert message.endswith("digits-worker-2 is pending: Unschedulable; and 2 more")


def test_an_eviction_is_a_restart_with_its_reason() -> None:
    end = Exit(ExitReason.TAKEN_AWAY, 137, "The node was low on memory.", at=LONG_AGO)
    condition = conditions(seen(lives=(pending(0, 0, ended=end), life(1))))["Restarting"]
    assert condition[2].startswith("the cluster took a pod away: digits-worker-0 failed: ")
    assert condition[2].endswith("taken away by the cluster: The node was low on memory.")
