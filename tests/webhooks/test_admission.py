"""Admission as the API server sees it: an AdmissionReview's request in, an answer out."""

from __future__ import annotations

import base64
import re
from typing import Any

import msgspec
import pytest
from msgspec import structs

from elasticjob.api.diengine.checks import AFTER_ITS_START
from elasticjob.api.v1alpha1.checks.advice import QUEUES
from elasticjob.api.v1alpha1.checks.changes import WHILE_IT_RUNS
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, Gang
from elasticjob.api.v1alpha1.kueue import MAX_EXEC_TIME, PRIORITY_CLASS, QUEUE_NAME
from elasticjob.controllers.parts import names
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import SERVICE_ACCOUNT
from elasticjob.kube.webhook.review import Answer, Request, UserInfo, Webhook, mutate, validate
from elasticjob.webhooks import WEBHOOKS, dijob, elasticjob, jobresource, scaleplan
from lab.build.jobs import NOW, at
from lab.build.manifests import ABSENT, ROLE, changed, declared, job


class Jobs:
    """The jobs of a cluster, by namespace and name."""

    def __init__(self, *jobs: ElasticJob) -> None:
        self.jobs = {(one.metadata.namespace, one.metadata.name): one for one in jobs}

    async def find(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Any:
        return self.jobs.get((namespace or "", name))


def request(new: Manifest | None, old: Manifest | None = None) -> Request:
    return Request(
        uid="u",
        operation="UPDATE" if old else "CREATE",
        namespace="lab",
        name="digits",
        object=msgspec.Raw(msgspec.json.encode(new)),
        old_object=msgspec.Raw(msgspec.json.encode(old)),
    )


async def answer(webhook: Webhook[Any], changes: dict[str, Any], old: dict[str, Any] | None = None) -> Answer:
    base = declared(webhook.kind)
    before = changed(base, old) if old is not None else None
    return await validate(webhook, request(changed(base, changes), before), Jobs(job()))


def applied(manifest: Manifest, patch: Answer) -> Manifest:
    """What the API server makes of a patch that only adds."""
    operations = (
        msgspec.json.decode(base64.b64decode(patch.manifest("u")["response"]["patch"])) if patch.patch else []
    )
    for operation in operations:
        assert operation["op"] == "add"
        path = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        node = manifest
        for part in path[:-1]:
            node = node[part]
        node[path[-1]] = operation["value"]
    return manifest


@pytest.mark.parametrize("webhook", WEBHOOKS, ids=lambda webhook: webhook.kind.name)
async def test_what_is_right_is_let_through(webhook: Webhook[Any]) -> None:
    found = await answer(webhook, {})
    assert (found.allowed, list(found.warnings)) == (True, [])


def says(status: str, reason: str) -> dict[str, str]:
    """What its queue says of a job."""
    return {
        "type": "Admitted",
        "status": status,
        "reason": reason,
        "message": "",
        "lastTransitionTime": at(NOW),
    }


QUEUED = {"metadata/labels": {QUEUE_NAME: "ours"}}
REFUSED: list[tuple[Webhook[Any], dict[str, Any], dict[str, Any] | None, str]] = [
    (elasticjob.WEBHOOK, {"spec/replicaSpecs/worker/minReplicas": 5}, None,
     "spec.replicaSpecs[worker].minReplicas: 5 is more than maxReplicas 4: write at most 4"),
    (elasticjob.WEBHOOK, {"spec/managedBy": "me"}, {},
     "spec.managedBy: it cannot change from '' to 'me': delete the job and create it again"),
    (elasticjob.WEBHOOK, {},
     {**QUEUED, "status": {"phase": "Running", "conditions": [says("True", "Admitted")]}},
     f"metadata.labels[{QUEUE_NAME}]: the queue cannot change from 'ours' to '' {WHILE_IT_RUNS}"),
    (elasticjob.WEBHOOK, QUEUED, {"status": {"phase": "Running", "conditions": [says("False", "NotQueued")]}},
     f"metadata.labels[{QUEUE_NAME}]: the queue cannot change from '' to 'ours' {WHILE_IT_RUNS}"),
    (elasticjob.WEBHOOK, {"spec/runPolicy": {"scheduling": {"queue": "theirs"}}},
     {"spec/runPolicy": {"scheduling": {"queue": "ours"}}, "status": {"phase": "Running"}},
     f"spec.runPolicy.scheduling.queue: the queue cannot change from 'ours' to 'theirs' {WHILE_IT_RUNS}"),
    (elasticjob.WEBHOOK, {**QUEUED, "spec/runPolicy": {"scheduling": {"priorityClassName": "high"}}},
     {**QUEUED, "status": {"phase": "Running", "conditions": [says("True", "Admitted")]}},
     "spec.runPolicy.scheduling.priorityClassName: in a queue it cannot change from '' to 'high' "
     f"{WHILE_IT_RUNS}"),
    (elasticjob.WEBHOOK, {"metadata/labels": {QUEUE_NAME: "ours", PRIORITY_CLASS: "high"}},
     {**QUEUED, "status": {"phase": "Running", "conditions": [says("True", "Admitted")]}},
     f"metadata.labels[{PRIORITY_CLASS}]: no class can be added {WHILE_IT_RUNS}; another one may take its "
     "place at any time"),
    (elasticjob.WEBHOOK, QUEUED,
     {"metadata/labels": {QUEUE_NAME: "ours", PRIORITY_CLASS: "high"},
      "status": {"phase": "Suspended", "conditions": [says("False", "Queued")]}},
     f"metadata.labels[{PRIORITY_CLASS}]: no class can be taken away {WHILE_IT_RUNS}; another one may take"
     " its place at any time"),
    (elasticjob.WEBHOOK, {"metadata/labels": {QUEUE_NAME: "ours", MAX_EXEC_TIME: "60"}},
     {**QUEUED, "status": {"phase": "Running", "conditions": [says("True", "Admitted")]}},
     f"metadata.labels[{MAX_EXEC_TIME}]: it cannot change {WHILE_IT_RUNS}"),
    (elasticjob.WEBHOOK, {"metadata/labels": {QUEUE_NAME: "ours", MAX_EXEC_TIME: "soon"}}, None,
     f"metadata.labels[{MAX_EXEC_TIME}]: 'soon' is no number of seconds: write one from 1 to 999999999"),
    (dijob.WEBHOOK, {"metadata/labels": {QUEUE_NAME: "ours", MAX_EXEC_TIME: "0"}}, None,
     f"metadata.labels[{MAX_EXEC_TIME}]: '0' is no number of seconds: write one from 1 to 999999999"),
    (dijob.WEBHOOK, {}, {**QUEUED, "status": {"phase": "Running"}},
     f"metadata.labels[{QUEUE_NAME}]: the queue cannot change from 'ours' to '' {AFTER_ITS_START}"),
    (jobresource.WEBHOOK, {"spec/selector/name": "Digits"}, None,
     "spec.selector.name: 'Digits' is not a name: write at most 63 small letters, digits and inner dashes"),
    (scaleplan.WEBHOOK, {"spec/ownerJob": "letters"}, None,
     "spec.ownerJob: there is no ElasticJob 'letters' in lab: create it first, or correct the name"),
    (scaleplan.WEBHOOK, {"spec/replicaResourceSpecs/worker/replicas": 9}, None,
     "spec.replicaResourceSpecs[worker].replicas: 9 is outside what job digits allows, 1 to 4: "
     "change the plan, or the job's minReplicas and maxReplicas"),
    (scaleplan.WEBHOOK, {"spec/replicaResourceSpecs/worker/replicas": 2}, {},
     "spec: the spec of a ScalePlan cannot change: create another plan, which supersedes this one"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("webhook", "changes", "old"),
    [
        (elasticjob.WEBHOOK, {}, QUEUED),  # before anything was made
        (
            elasticjob.WEBHOOK,
            {},
            {**QUEUED, "status": {"phase": "Suspended", "conditions": [says("False", "Queued")]}},
        ),
        (elasticjob.WEBHOOK, {"spec/suspend": True}, {**QUEUED, "status": {"phase": "Running"}}),
        (elasticjob.WEBHOOK, {}, {**QUEUED, "status": {"phase": "Succeeded"}}),
        (dijob.WEBHOOK, {}, {**QUEUED, "status": {"phase": "Failed"}}),
    ],
)
async def test_a_job_that_does_not_run_leaves_its_queue(
    webhook: Webhook[Any], changes: dict[str, Any], old: dict[str, Any]
) -> None:
    assert (await answer(webhook, changes, old)).allowed


@pytest.mark.parametrize(("webhook", "changes", "old", "message"), REFUSED)
async def test_what_is_wrong_is_refused_with_path_and_advice(
    webhook: Webhook[Any], changes: dict[str, Any], old: dict[str, Any] | None, message: str
) -> None:
    response = (await answer(webhook, changes, old)).manifest("u")["response"]
    assert response["allowed"] is False
    assert response["status"]["code"] == 422
    assert response["status"]["message"] == message
    assert response["status"]["details"]["kind"] == webhook.kind.name
    assert response["status"]["details"]["causes"][0]["field"] == message.partition(":")[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"spec/replicaSpecs": "many"},
        {"spec": None},
        {"spec/replicaSpecs/worker/template/spec/containers": {"main": 1}},
        {"spec/replicaSpecs/worker/template": ABSENT},
        {"spec/resourceLimits": {"cpu": True}},
        {"metadata": {}},
    ],
)
async def test_what_no_schema_would_let_pass_is_refused_and_never_crashes(changes: dict[str, Any]) -> None:
    found = await answer(elasticjob.WEBHOOK, changes)
    assert found.code in (200, 422)


MAIN = "spec/replicaSpecs/worker/template/spec/containers/0"
MAIN_PATH = "spec.replicaSpecs[worker].template.spec.containers[0]"
ALONE = "this has no effect without a gang: write gang: required, or leave it out"
OTHERS = (
    "cannot speak to this job's master: write elasticjob run, with torchrun's flags and your script; "
    "elasticjob convert writes it anew"
)
NAMED, LONGEST = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/max-exec-time-seconds"
WARNED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"spec/runPolicy": {"scheduling": {"gang": "none"}}}, []),
    ({"spec/runPolicy": {"scheduling": {"gang": "volcano", "queue": "a", "priorityClassName": "b"}}}, []),
    ({"spec/runPolicy": {"scheduling": {"minAvailable": 2, "timeoutSeconds": 9}}},
     [f"spec.runPolicy.scheduling.minAvailable: {ALONE}",
      f"spec.runPolicy.scheduling.timeoutSeconds: {ALONE}"]),
    ({"spec/runPolicy": {"scheduling": {"gang": "required"}}, "spec/managedBy": "x.example/y"},
     ["spec.runPolicy.scheduling.gang: the operator makes no gang for a job of x.example/y: leave it out"]),
    ({"spec/replicaSpecs/worker/priority": "0.5"},
     ["spec.replicaSpecs[worker].priority: nodes of low priority are scheduled like the others: "
      "name a PriorityClass in spec.runPolicy.scheduling.lowPriorityClassName"]),
    ({"spec/replicaSpecs/worker/priority": "high"}, []),
    ({"spec/replicaSpecs/worker/priority": "0.5",
      "spec/runPolicy": {"scheduling": {"lowPriorityClassName": "spare"}}}, []),
    ({"spec/optimizeMode": "manual", "spec/brainService": "brain.dlrover:50001"},
     ["spec.brainService: this has no effect: write optimizeMode: cluster, or leave it out"]),
    ({"spec/brainService": "brain.dlrover:50001"},
     ["spec.brainService: this has no effect: write optimizeMode: cluster, or leave it out"]),
    ({f"{MAIN}/command": ["/bin/bash", "-c", "cd /code && dlrover-run --nnodes=2 train.py"]},
     [f"{MAIN_PATH}.command: dlrover-run {OTHERS}"]),
    ({f"{MAIN}/args": ["python", "-m", "dlrover.trainer.torch.elastic_run", "train.py"]},
     [f"{MAIN_PATH}.args: dlrover.trainer.torch.elastic_run {OTHERS}"]),
    ({f"{MAIN}/command": ["elasticjob", "run", "/code/dlrover/trainer/train.py"]}, []),
    ({"metadata/labels": {"kueue.x-k8s.io/queue-name": "team-queue"}}, []),
    ({"metadata/annotations": {"scheduling.volcano.sh/queue-name": "team"}},
     ["metadata.annotations[scheduling.volcano.sh/queue-name]: this has no effect: "
      "ElasticJobs have spec.runPolicy.scheduling.queue for it, with gang: volcano"]),
    ({"metadata/labels": {NAMED: "a", LONGEST: "3600"}}, []),
    ({"metadata/labels": {LONGEST: "3600"}, "spec/runPolicy": {"scheduling": {"queue": "a"}}}, []),
    ({"metadata/labels": {NAMED: "a"}, "spec/suspend": True},
     ["spec.suspend: the job is in no queue until this is false: "
      "Kueue does not change it, as it does for its own kinds"]),
    ({"metadata/labels": {LONGEST: "3600"}},
     [f"metadata.labels[{LONGEST}]: this has no effect without a queue: "
      "write runPolicy.activeDeadlineSeconds"]),
    ({"spec/optimizeMode": "cluster"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "warnings"), WARNED)
async def test_what_has_no_effect_is_let_through_with_a_warning(
    changes: dict[str, Any], warnings: list[str]
) -> None:
    assert await answer(elasticjob.WEBHOOK, changes) == Answer(True, warnings=warnings)


TWICE = [{"name": "A", "value": "1"}, {"name": "B", "value": "x"}, {"name": "A", "value": "2"}]


async def test_a_variable_that_is_there_twice_is_refused_before_the_server_does() -> None:
    base = declared(elasticjob.WEBHOOK.kind)
    new = changed(base, {f"{MAIN}/env": TWICE})
    found = await mutate(elasticjob.WEBHOOK, request(new))
    assert (found.allowed, found.code) == (False, 422)
    assert [str(each) for each in found.problems] == [f"{MAIN_PATH}.env[2]: A is there twice: leave one out"]
    stored = request(changed(new, {"metadata/labels": {"a": "b"}}), new)
    assert (await mutate(elasticjob.WEBHOOK, stored)).allowed
    assert (await mutate(elasticjob.WEBHOOK, request(new, base))).code == 422


async def test_a_job_in_cluster_mode_is_told_that_there_is_no_brain() -> None:
    for changes in ({}, {"spec/optimizeMode": "cluster", "spec/brainService": "brain:1"}):
        assert await answer(elasticjob.WITHOUT_BRAIN, changes) == Answer(True, warnings=[])
    found = await answer(elasticjob.WITHOUT_BRAIN, {"spec/optimizeMode": "cluster"})
    assert found.warnings == [
        "spec.optimizeMode: the operator knows no Brain, so the job's master chooses sizes alone: "
        "write single-job, or install Brain"
    ]


def test_advice_about_queues_names_gangs_that_there_are() -> None:
    named = {gang for text in QUEUES.values() for gang in re.findall(r"gang: ([\w-]+)", text)}
    assert named == {"volcano", "coscheduling"} <= {gang.value for gang in Gang}


async def test_a_queue_that_is_named_later_is_told_once() -> None:
    queue = {"metadata/labels": {"runai/queue": "team-queue"}}
    assert len((await answer(elasticjob.WEBHOOK, queue, {})).warnings) == 1
    more = {"metadata/labels": {"runai/queue": "team-queue", "a": "b"}}
    assert (await answer(elasticjob.WEBHOOK, more, queue)).warnings == []


async def test_a_write_that_keeps_the_spec_brings_no_warning() -> None:
    cluster = {"spec/optimizeMode": "cluster"}
    found = await answer(elasticjob.WEBHOOK, {**cluster, "metadata/labels": {"a": "b"}}, cluster)
    assert found == Answer(True, warnings=[])


@pytest.mark.parametrize(
    ("user", "refused"),
    [
        ("system:serviceaccount:lab:digits-master", False),
        ("system:serviceaccount:lab:letters-master", True),
        ("system:serviceaccount:lab:gone-master", True),  # its job is gone, and left it behind
        ("system:serviceaccount:lab:ci-master", False),  # a tool's
        ("system:serviceaccount:lab:nobody-master", False),  # RBAC alone decides
        ("system:serviceaccount:other:letters-master", False),
        ("alice", False),
    ],
)
async def test_a_master_plans_for_its_own_job(user: str, refused: bool) -> None:
    """The pod of a master may run any container, and create ScalePlans."""

    class Accounts(Jobs):
        async def find(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Any:
            if kind is not SERVICE_ACCOUNT:
                return await super().find(kind, name, namespace)
            known = ("digits-master", "letters-master", "gone-master", "ci-master")
            made = names.job_labels(name.removesuffix("-master"), "job") if name != "ci-master" else {}
            found = {"metadata": {"name": name, "namespace": namespace, "labels": made}}
            return kind.convert(found) if name in known else None

    given = structs.replace(request(declared(scaleplan.WEBHOOK.kind)), user_info=UserInfo(user))
    answered = await validate(scaleplan.WEBHOOK, given, Accounts(job()))
    assert answered.allowed is not refused
    assert [str(problem) for problem in answered.problems] == [
        f"spec.ownerJob: the master of job {name} plans for its own job: write {name}"
        for name in ("letters", "gone")
        if refused and name in user
    ]


async def test_a_plan_for_a_job_that_has_gone_can_still_be_labelled() -> None:
    base = declared(scaleplan.WEBHOOK.kind)
    new = changed(base, {"metadata/labels": {"a": "b"}})
    assert await validate(scaleplan.WEBHOOK, request(new, base), Jobs()) == Answer(True)


@pytest.mark.parametrize(
    ("webhook", "changes", "labels"),
    [
        (elasticjob.WEBHOOK, {}, None),
        (jobresource.WEBHOOK, {}, {"elasticjob.dlrover/name": "digits"}),
        (
            scaleplan.WEBHOOK,
            {"spec/manualScaling": True},
            {"elasticjob.dlrover/name": "digits", "elasticjob.dlrover/scale-type": "manual"},
        ),
        (
            scaleplan.WEBHOOK,
            {"metadata/labels": {"elasticjob.dlrover/scale-type": "manual", "a": "b"}},
            {"elasticjob.dlrover/name": "digits", "elasticjob.dlrover/scale-type": "manual", "a": "b"},
        ),
        (jobresource.WEBHOOK, {"spec/selector/name": "no name"}, None),
    ],
)
async def test_mutation_of_todays_form_adds_labels_and_nothing_else(
    webhook: Webhook[Any], changes: dict[str, Any], labels: dict[str, str] | None
) -> None:
    manifest = changed(declared(webhook.kind), changes)
    wanted = changed(manifest, {"metadata/labels": labels} if labels else {})
    assert applied(changed(manifest, {}), await mutate(webhook, request(manifest))) == wanted


@pytest.mark.parametrize("webhook", WEBHOOKS, ids=lambda webhook: webhook.kind.name)
async def test_mutation_is_done_once(webhook: Webhook[Any]) -> None:
    once = applied(
        changed(declared(webhook.kind), {}), await mutate(webhook, request(declared(webhook.kind)))
    )
    assert (await mutate(webhook, request(once))).patch in ((), [])


EASYDL: Manifest = {
    "apiVersion": "elastic.iml.github.io/v1alpha1",
    "kind": "ElasticJob",
    "metadata": {"name": "elastic-deepctr-job", "namespace": "lab"},
    "spec": {
        "command": "python -m 'model zoo'.iris",
        "image": None,
        "parameter_server": {"image": "elasticdl:iris_estimator"},
        "worker": {"image": "elasticdl:iris_estimator", "command": "python work.py"},
        "evaluator": {"image": "elasticdl:iris_estimator"},
    },
}


def one_container(*command: str) -> Manifest:
    main = {"name": "main", "image": "elasticdl:iris_estimator", "command": list(command)}
    return {"template": {"spec": {"containers": [main]}}}


async def admitted(webhook: Webhook[Any], new: Manifest, old: Manifest | None = None) -> Any:
    """Return what readers see of a write that both webhooks let through, and that neither changes."""
    stored = applied(changed(new, {}), await mutate(webhook, request(new, old)))
    assert stored["spec"] == new["spec"]
    found = await validate(webhook, request(stored, old), Jobs(job()))
    assert found.allowed, found.problems
    return webhook.kind.convert(stored)


async def test_the_easydl_form_is_read_as_roles() -> None:
    read = await admitted(elasticjob.WEBHOOK, EASYDL)
    assert read.spec.distribution_strategy == "ParameterServerStrategy"
    assert {role: spec.template for role, spec in read.spec.replica_specs.items()} == {
        "ps": one_container("python", "-m", "model zoo.iris")["template"],
        "worker": one_container("python", "work.py")["template"],
        "evaluator": one_container("python", "-m", "model zoo.iris")["template"],
    }
    assert await admitted(elasticjob.WEBHOOK, changed(EASYDL, {"metadata/labels": {"a": "b"}}), EASYDL)


async def test_scaling_a_job_in_the_easydl_form_leaves_its_template() -> None:
    scaled = changed(EASYDL, {"spec/replicaSpecs": {"worker": {"replicas": 3}}})
    read = await admitted(elasticjob.WEBHOOK, scaled, EASYDL)
    assert read.spec.roles["worker"].replicas == 3
    assert read.spec.roles["worker"].template == one_container("python", "work.py")["template"]


W = "spec/replicaSpecs/worker"
MAINS = f"{W}/template/spec/containers"
SIDE = {"name": "side", "image": "b"}
NO_BOUNDS = {f"{W}/minReplicas": ABSENT, f"{W}/maxReplicas": ABSENT}
STRATEGY, PS = "spec/distributionStrategy", {"spec/distributionStrategy": "ParameterServerStrategy"}
BC = {"spec/image": "a", "spec/command": "b c"}
OLDER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "words": ({STRATEGY: "allreduce"}, {STRATEGY: "AllreduceStrategy"}),
    "mode": ({"spec/optimizeMode": "Single_Job"}, {"spec/optimizeMode": "single-job"}),
    "underscores": ({STRATEGY: "parameter_server", "spec/replicaSpecs/ps": ROLE}, PS),
    "parameter servers without a strategy": ({"spec/replicaSpecs/ps": ROLE}, PS),
    "another spelling of parameter_server": (
        {"spec/parameterServer": {"image": "elasticdl:iris_estimator", "command": "ps"}},
        {**PS, "spec/replicaSpecs/ps": one_container("ps")},
    ),
    "image and command of all roles": (
        {**BC, f"{MAIN}/image": ABSENT, f"{MAIN}/command": ABSENT},
        {f"{MAIN}/image": "a", f"{MAIN}/command": ["b", "c"]},
    ),
    "the command of main, which is not first": (
        {"spec/command": "b c", MAINS: [SIDE, {"name": "main", "image": "a"}]},
        {MAINS: [SIDE, {"name": "main", "image": "a", "command": ["b", "c"]}]},
    ),
    "a role's own image": (BC, {}),
    "0: the optimizer decides": ({f"{W}/replicas": 0}, {f"{W}/replicas": ABSENT}),
    "0 without bounds": ({f"{W}/replicas": 0, **NO_BOUNDS}, {f"{W}/replicas": ABSENT}),
    "0 where none is allowed": ({f"{W}/replicas": 0, f"{W}/minReplicas": 0}, {}),
}
"""Cases, what is written, and what of it is read as something else, or beside it."""


@pytest.mark.parametrize(("written", "read"), OLDER.values(), ids=OLDER)
async def test_older_forms_are_stored_as_written_and_read_as_todays(
    written: dict[str, Any], read: dict[str, Any]
) -> None:
    base, kind = declared(elasticjob.WEBHOOK.kind), elasticjob.WEBHOOK.kind
    new, wanted = changed(base, written), kind.convert(changed(base, {**written, **read}))
    assert await admitted(elasticjob.WEBHOOK, new) == wanted
    assert await admitted(elasticjob.WEBHOOK, new, new) == wanted, "the same manifest again"


@pytest.mark.parametrize("before", [2, 0, ABSENT])
async def test_0_means_the_same_whatever_was_there_before(before: Any) -> None:
    base = declared(elasticjob.WEBHOOK.kind)
    for least, read in ((0, 0), (1, None), (ABSENT, None)):
        bounds = changed(base, {f"{W}/minReplicas": least})
        old, new = (changed(bounds, {f"{W}/replicas": count}) for count in (before, 0))
        found = await admitted(elasticjob.WEBHOOK, new, old)
        assert found.spec.roles["worker"].replicas == read


async def test_a_number_that_becomes_0_and_means_no_number_is_told() -> None:
    bounds = {f"{W}/minReplicas": ABSENT}
    found = await answer(elasticjob.WEBHOOK, {**bounds, f"{W}/replicas": 0}, bounds)
    why = "0 leaves the number to the optimizer: for none write minReplicas: 0, or suspend: true"
    assert found == Answer(True, warnings=[f"spec.replicaSpecs[worker].replicas: {why}"])
    assert not (await answer(elasticjob.WEBHOOK, {f"{W}/replicas": 0})).warnings


DIFFERENT = "it differs from spec.replicaSpecs[worker], which decides: leave spec.worker out"
AMBIGUOUS: list[tuple[dict[str, Any], str]] = [
    ({"spec/worker": {"image": "another"}}, f"spec.worker: {DIFFERENT}"),
    (
        {"spec/command": "python 'train.py"},
        'spec.command: "python \'train.py" opens a quotation that it does not close: close it',
    ),
    (
        {f"{W}/replicas": 0, f"{W}/minReplicas": 0, f"{W}/maxReplicas": 0},
        "spec.replicaSpecs[worker].maxReplicas: 0 nodes can never train: write 1 or more, or set suspend",
    ),
]


@pytest.mark.parametrize(("changes", "message"), AMBIGUOUS)
async def test_older_forms_that_can_mean_two_things_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    new = changed(declared(elasticjob.WEBHOOK.kind), changes)
    stored = applied(changed(new, {}), await mutate(elasticjob.WEBHOOK, request(new)))
    found = await validate(elasticjob.WEBHOOK, request(stored), Jobs())
    assert [str(problem) for problem in found.problems] == [message]


P = "spec/replicaResourceSpecs"
OLDER_PLANS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pods": (
        {
            "spec/createPods": [{"name": "digits-edljob-worker-3", "type": "Worker", "id": 3}],
            "spec/removePods": ["digits-edljob-worker-1", {"name": "digits_worker-2"}],
            "spec/migratePods": [{"name": "digits-edljob-worker-0", "resource": {"cpu": 4}}],
        },
        {
            "spec/createPods": [{"name": "digits-worker-3", "type": "worker", "id": 3}],
            "spec/removePods": ["digits-worker-1", {"name": "digits-worker-2"}],
            "spec/migratePods": [{"name": "digits-worker-0", "resource": {"cpu": 4}}],
        },
    ),
    "one letter less": (
        {P: ABSENT, "spec/replicaResourceSpec": {"worker": {"replicas": 3}}},
        {P: {"worker": {"replicas": 3}}, "spec/replicaResourceSpec": {"worker": {"replicas": 3}}},
    ),
}


@pytest.mark.parametrize(("written", "read"), OLDER_PLANS.values(), ids=OLDER_PLANS)
async def test_older_plans_are_stored_as_written_and_read_as_todays(
    written: dict[str, Any], read: dict[str, Any]
) -> None:
    base = changed(declared(scaleplan.WEBHOOK.kind), {"metadata/labels": {"scale-type": "manual"}})
    labels = {
        "scale-type": "manual",
        "elasticjob.dlrover/name": "digits",
        "elasticjob.dlrover/scale-type": "manual",
    }
    new, wanted = changed(base, written), changed(base, {"metadata/labels": labels, **read})
    assert await admitted(scaleplan.WEBHOOK, new) == scaleplan.WEBHOOK.kind.convert(wanted)
    again = changed(new, {"metadata/labels": labels})
    assert await admitted(scaleplan.WEBHOOK, again, again) == scaleplan.WEBHOOK.kind.convert(wanted)


async def test_a_change_of_a_finished_job_is_let_through_with_a_warning() -> None:
    over = {"status/phase": "Succeeded"}
    for changes in ({"spec/suspend": True}, {"spec/replicaSpecs/worker/replicas": 3}):
        found = await answer(elasticjob.WEBHOOK, {**over, **changes}, over)
        assert found.allowed
        assert found.warnings == [
            "spec: the job has finished and does not start again; "
            "runPolicy still says how long it and its pods are kept"
        ]
    assert await answer(elasticjob.WEBHOOK, over, over) == Answer(True, warnings=[])
