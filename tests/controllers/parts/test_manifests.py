"""What is made for a job: pods, the master, services, rights."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from elasticjob.api.rpc.environment import BRAIN, BRAIN_TOKEN_FILE, CPUS, GRACE
from elasticjob.api.v1alpha1.common import LABEL_JOB, MAIN_CONTAINER
from elasticjob.api.v1alpha1.containers import main_container
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.placing import resources_of
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.elasticjob.master import Provision, master_pod, verdict, why_anew
from elasticjob.controllers.elasticjob.objects import foundation, job_resource, rights
from elasticjob.controllers.jobresource.pods import Birth, pod_manifest
from elasticjob.controllers.kueue.grant import Grant, Place
from elasticjob.controllers.nodes.exits import Exit
from elasticjob.controllers.nodes.relaunch import Life, Node, life_of
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.environment import identity, tolerations
from elasticjob.controllers.parts.owners import kinds_outside_caches
from elasticjob.controllers.parts.placing import away_from
from elasticjob.controllers.passes.plan import Outcome
from elasticjob.devcluster.node.pod.decide import Probe, Stop
from elasticjob.devcluster.node.pod.record import Check
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import POD, SECRET, SERVICE, OwnerReference
from elasticjob.sizing.exits import ExitReason
from lab.build.jobs import ended, job, resource, role, template
from lab.clusters.accounts import RULES
from lab.clusters.rights import Right, allows
from lab.virtual.kubelet import VirtualKubelet

ADDRESS = "10.0.0.1:50001"
PROVISION = Provision("elasticjob/trainer:test", "IfNotPresent", {"cpu": "100m"})


def pod(spec: ElasticJob | None = None, birth: Birth | None = None, master: str = ADDRESS) -> Manifest:
    return pod_manifest(spec or job(), resource(), birth or Birth("worker", 1), master=master, nodes=2)


def env(container: Manifest) -> dict[str, Any]:
    return {
        variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in container["env"]
    }


def test_a_pod_says_who_it_is() -> None:
    made = pod(birth=Birth("worker", 1, relaunch=2, restarts=1))
    assert made["metadata"]["name"] == "digits-worker-1-2"
    assert made["metadata"]["labels"] == {
        "app.kubernetes.io/name": "elasticjob",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/managed-by": "elasticjob",
        "elasticjob.dlrover/name": "digits",
        "elasticjob.dlrover/replica-type": "worker",
        "elasticjob.dlrover/replica-index": "1",
        "elasticjob.dlrover/rank-index": "1",
        "elasticjob.dlrover/relaunch-count": "2",
    }
    assert [owner["kind"] for owner in made["metadata"]["ownerReferences"]] == ["JobResource"]
    assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == ("digits-worker-1-2", "digits")
    assert made["spec"]["restartPolicy"] == "Never"
    assert made["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("role_", "relaunch", "host"),
    [
        ("worker", 0, "digits-worker-1"),
        ("worker", 2, "digits-worker-1-2"),
        ("ps", 0, "digits-ps-1"),
        ("ps", 2, "digits-ps-1"),
    ],
)
def test_a_parameter_server_keeps_the_host_name_of_its_node(role_: str, relaunch: int, host: str) -> None:
    given = job({"worker": role(1), "ps": role(2)}, distributionStrategy="ParameterServerStrategy")
    made = pod(given, Birth(role_, 1, relaunch))
    assert (made["spec"]["hostname"], made["spec"]["subdomain"]) == (host, "digits")


def test_a_pod_knows_its_master_and_its_place() -> None:
    (container,) = pod()["spec"]["containers"]
    found = env(container)
    assert container["command"] == ["train"]
    assert found["ELASTICJOB_NODE"] == "digits-worker-1"
    assert found["ELASTICJOB_MASTER"] == found["DLROVER_MASTER_ADDR"] == ADDRESS
    assert (found["ELASTICJOB_ROLE"], found["ELASTICJOB_INDEX"], found["NODE_NUM"]) == ("worker", "1", "2")
    assert found["POD_IP"] == {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    assert found["ELASTICJOB_TOKEN_FILE"] == "/var/run/secrets/elasticjob/token"
    assert container["volumeMounts"][0]["mountPath"] == "/var/run/secrets/elasticjob"
    assert found["ELASTICJOB_TERMINATION_LOG"] == "/dev/termination-log"


@pytest.mark.parametrize(("role", "checked"), [("worker", True), ("evaluator", False)])
def test_nodes_that_train_are_checked_if_the_job_says_so(role: str, checked: bool) -> None:
    spec = {"nodeCheck": "ExcludeFaults", "replicaSpecs": {"worker": {}, "evaluator": {}}}
    given = ElasticJob.model_validate({"metadata": {"name": "digits", "uid": "1"}, "spec": spec})
    assert any(one["name"] == "ELASTICJOB_NODE_CHECK" for one in identity(given, role, 0)) is checked


def test_the_form_of_log_lines_is_the_operators_unless_the_job_has_its_own() -> None:
    own = job(envs={"ELASTICJOB_LOG_FORMAT": {"value": "people"}})
    for given, form in ((job(), "json"), (own, "people")):
        made = pod_manifest(given, resource(), Birth("worker", 1), master="", nodes=2, log_format="json")
        master = master_pod(given, Node("master", 0), replace(PROVISION, log_format="json")).manifest
        for each in (made, master):
            assert env(each["spec"]["containers"][0])["ELASTICJOB_LOG_FORMAT"] == form
    assert "ELASTICJOB_LOG_FORMAT" not in env(pod()["spec"]["containers"][0])


def test_the_users_variables_win_over_defaults_and_never_over_identity() -> None:
    mine = [
        {"name": "PET_RDZV_ID", "value": "mine"},
        {"name": "ELASTICJOB_NODE", "value": "other"},
        {"name": "A", "value": "2"},
    ]
    spec = job(
        {"worker": {**role(), "template": template(env=mine)}},
        envs={"A": {"value": "1"}, "B": {"value": "$(A)"}},
    )
    found = env(pod(spec)["spec"]["containers"][0])
    assert (found["PET_RDZV_ID"], found["ELASTICJOB_NODE"], found["A"], found["B"]) == (
        "mine",
        "digits-worker-1",
        "2",
        "$(A)",
    )


@pytest.mark.parametrize(("given", "links"), [({}, False), ({"enableServiceLinks": True}, True)])
def test_other_services_set_no_variables_unless_the_template_says_so(given: Manifest, links: bool) -> None:
    asked = template()
    asked["spec"] |= given
    roles = {name: {"replicas": 1, "template": asked} for name in ("worker", "dlrover-master")}
    made = master_pod(job(roles), Node("master", 0), PROVISION).manifest
    assert [spec["spec"]["enableServiceLinks"] for spec in (pod(job(roles)), made)] == [links, links]


SPARE = {"priorityClassName": "gold", "lowPriorityClassName": "spare"}


@pytest.mark.parametrize(
    ("priority", "by_template", "scheduling", "classes"),
    [
        ("", "", {}, [None, None, None, None]),
        ("", "", SPARE, ["gold", "gold", "gold", "gold"]),
        ("high", "", SPARE, ["gold", "gold", "gold", "gold"]),
        ("low", "", SPARE, ["spare", "spare", "spare", "spare"]),
        ("0.5", "", SPARE, ["gold", "gold", "spare", "spare"]),
        ("0.3", "", SPARE, ["gold", "gold", "spare", "spare"]),
        ("0.5", "mine", SPARE, ["mine", "mine", "spare", "spare"]),
        ("0.5", "mine", {}, ["mine", "mine", "mine", "mine"]),
        ("urgent", "", SPARE, ["gold", "gold", "gold", "gold"]),  # let through where no webhook is
    ],
)
def test_priority_classes(
    priority: str, by_template: str, scheduling: Manifest, classes: list[str | None]
) -> None:
    given = job({"worker": role(4, priority=priority)}, runPolicy={"scheduling": scheduling})
    if by_template:
        given.spec.replica_specs["worker"].template["spec"]["priorityClassName"] = by_template
    pods = (
        pod_manifest(given, resource({"worker": 4}), Birth("worker", index), master="", nodes=4)
        for index in range(4)
    )
    assert [made["spec"].get("priorityClassName") for made in pods] == classes


def test_a_job_without_a_master_has_no_token() -> None:
    made = pod(job(distributionStrategy="Local"), master="")
    assert "volumes" not in made["spec"]
    assert "ELASTICJOB_TOKEN_FILE" not in env(made["spec"]["containers"][0])


def test_the_template_is_kept() -> None:
    given = template()
    given["spec"] |= {
        "nodeSelector": {"gpu": "a100"},
        "initContainers": [{"name": "fetch", "image": "busybox"}],
    }
    given["metadata"] = {"labels": {"team": "vision"}, "annotations": {"note": "hello"}}
    made = pod(job({"worker": {**role(), "template": given}}))
    assert made["spec"]["nodeSelector"] == {"gpu": "a100"}
    assert "ELASTICJOB_NODE" in env(made["spec"]["initContainers"][0])
    assert made["metadata"]["labels"]["team"] == "vision"
    assert made["metadata"]["annotations"] == {
        "note": "hello",
        MAIN_CONTAINER: "main",
        "elasticjob.dlrover/restarts": "0",
    }


@pytest.mark.parametrize(
    ("given", "resource", "grace", "cpus"),
    [
        ({}, {}, "30", None),
        ({"limits": {"cpu": "1500m"}, "requests": {"cpu": "1"}}, {}, "30", "1.5"),
        ({"requests": {"cpu": 2}}, {}, "30", "2"),
        ({"requests": {"cpu": "2"}}, {"cpu": "500m"}, "30", "0.5"),
        ({"limits": {"cpu": "2"}}, {"cpu": "4"}, "30", "4"),
        ({}, {"cpu": "3"}, "30", "3"),
        ({"limits": {"cpu": "many"}, "requests": {"cpu": "0"}}, {}, "30", None),
        ({}, {}, "90", None),
        ({}, {}, "0", None),
        ({"limits": {"cpu": "1"}}, {}, "mine", "mine"),
    ],
)
def test_every_container_is_told_the_grace_of_its_pod_and_the_cores_of_its_workers(
    given: Manifest, resource: Manifest, grace: str, cpus: str | None
) -> None:
    mine = [{"name": name, "value": "mine"} for name in (GRACE, CPUS)]
    of_user: dict[str, Any] = {"env": mine if grace == "mine" else []}
    asked = template(resources=given, **of_user)
    asked["spec"]["containers"].append({"name": "beside", **of_user})
    asked["spec"] |= {} if grace in ("30", "mine") else {"terminationGracePeriodSeconds": int(grace)}
    made = pod(job({"worker": {**role(), "template": asked}}), Birth("worker", 0, resource=resource))["spec"]
    for container in made["containers"]:
        assert (env(container)[GRACE], env(container).get(CPUS)) == (grace, cpus)


def test_resources_of_a_plan_replace_those_of_the_template() -> None:
    (container,) = pod(birth=Birth("worker", 0, resource={"memory": "1Gi", "cpu": "2"}))["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}


def test_a_limit_on_processor_time_follows_where_there_was_one() -> None:
    given = {"resources": {"limits": {"cpu": "1"}}}
    assert resources_of(given, {"cpu": "2"}) == {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    assert resources_of({}, {}) == {}


def test_machines_with_broken_hardware_are_avoided_in_every_alternative() -> None:
    given = template()
    exists = {"key": "a", "operator": "Exists"}
    terms: list[Manifest] = [{"matchExpressions": [exists]}, {"matchExpressions": []}]
    given["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    }
    made = pod(job({"worker": {**role(), "template": given}}), Birth("worker", 0, avoid=("m1", "m2")))
    found = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    shut = [{"key": "metadata.name", "operator": "NotIn", "values": [m]} for m in ("m1", "m2")]
    assert [term["matchFields"] for term in found["nodeSelectorTerms"]] == [shut, shut]
    assert found["nodeSelectorTerms"][0]["matchExpressions"] == terms[0]["matchExpressions"]


NOT_READY, UNREACHABLE = (
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
)


@pytest.mark.parametrize(
    ("own", "all_"),
    [
        ([], [NOT_READY, UNREACHABLE]),
        (
            [{"key": "gpu", "operator": "Exists"}],
            [{"key": "gpu", "operator": "Exists"}, NOT_READY, UNREACHABLE],
        ),
        ([UNREACHABLE | {"tolerationSeconds": 5}], [UNREACHABLE | {"tolerationSeconds": 5}, NOT_READY]),
        ([{"operator": "Exists"}], [{"operator": "Exists"}]),
    ],
)
def test_a_pod_leaves_a_silent_machine_soon_unless_its_template_says_when(
    own: list[Manifest], all_: list[Manifest]
) -> None:
    assert tolerations({"tolerations": own}) == all_
    given = role(template={"spec": template()["spec"] | {"tolerations": own}})
    assert pod(job({"worker": given}))["spec"]["tolerations"] == all_


def test_a_drain_meets_no_emptydir_of_ours() -> None:
    made = [pod()["spec"], master_pod(job(), Node("master", 0), PROVISION).manifest["spec"]]
    assert not any("emptyDir" in volume for spec in made for volume in spec["volumes"])


def test_the_master_is_restricted() -> None:
    spec = master_pod(job(), Node("master", 0), PROVISION).manifest["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert (container["image"], container["imagePullPolicy"]) == ("elasticjob/trainer:test", "IfNotPresent")
    assert container["command"] == ["elasticjob", "master"]
    assert spec["serviceAccountName"] == "digits-master"


LEFT = Exit(ExitReason.RUN_AGAIN, code=0, words='{"verdict": "Stopped", "message": "SIGTERM"}')
LIFE = Life("digits-master-0", "1", "master", 0, ended=LEFT)
NEVER_FIXED: dict[str, Any] = {"runAsUser": None, "runAsGroup": None, "fsGroup": None}
OF_THE_CLUSTER = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
SILENT = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
DEFAULTS = {
    "imagePullSecrets": [{"name": "ours"}],
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "pool", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "securityContext": NEVER_FIXED,
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, DEFAULTS | {"securityContext": OF_THE_CLUSTER}),
        ({"nodeSelector": {"mine": "1"}}, DEFAULTS | {"nodeSelector": {"mine": "1"}}),
        (
            {"imagePullSecrets": [{"name": "mine"}]},
            DEFAULTS | {"imagePullSecrets": [{"name": "mine"}, {"name": "ours"}]},
        ),
        ({"tolerations": []}, DEFAULTS | {"tolerations": []}),
        ({"securityContext": {"runAsUser": 7}}, DEFAULTS | {"securityContext": {"runAsUser": 7}}),
    ],
    ids=["no template", "selector", "pull secrets", "tolerations", "securityContext"],
)
def test_masters_have_what_the_installation_says_unless_their_template_does(
    given: Manifest, expected: Manifest
) -> None:
    roles = {"worker": role()} | ({"master": {"replicas": 1, "template": {"spec": given}}} if given else {})
    provision = replace(PROVISION, pod=DEFAULTS, security={"readOnlyRootFilesystem": None})
    spec = master_pod(job(roles), Node("master", 0), provision).manifest["spec"]
    expected = {**expected}
    if expected["securityContext"] is NEVER_FIXED:
        del expected["securityContext"]
    tolerated = [each for each in spec.pop("tolerations") if each["key"] not in SILENT]
    assert tolerated == expected.pop("tolerations")
    assert spec.items() >= expected.items()
    assert "readOnlyRootFilesystem" not in spec["containers"][0]["securityContext"]


def test_a_master_that_starts_slowly_is_left_alone_for_three_minutes() -> None:
    kubelet = VirtualKubelet(POD.convert(master_pod(job(), Node("master", 0), PROVISION).manifest))
    kubelet.after(1)
    assert not [each for each in kubelet.done if isinstance(each, Probe)]  # one that fails is an event
    kubelet.after(170)
    assert Stop("main") not in kubelet.done
    kubelet.probes = dict.fromkeys((("main", check.value) for check in Check), True)
    kubelet.after(3)
    assert kubelet.condition("Ready")[0] == "True"
    kubelet.probes["main", "liveness"] = False
    kubelet.after(60)
    assert Stop("main") in kubelet.done


@pytest.mark.parametrize(
    ("life", "words"),
    [
        (LIFE, "told to stop although its pod was not deleted, which a kubelet does after failed probes"),
        (replace(LIFE, terminating=True), "left before the end: SIGTERM"),
        (replace(LIFE, ended=Exit(ExitReason.TAKEN_AWAY)), "taken away by the cluster"),
        (replace(LIFE, ended=None, machine="m1", lost=True), "its machine m1 is no longer in the cluster"),
    ],
)
def test_the_end_of_a_master_is_told(life: Life, words: str) -> None:
    assert words in why_anew(life)


def test_a_masters_own_command_may_write_files() -> None:
    given = {"spec": {"containers": [{"name": "main", "command": ["mine"]}]}}
    roles = {"worker": role(), "master": {"replicas": 1, "template": given}}
    (container,) = master_pod(job(roles), Node("master", 0), PROVISION).manifest["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is False


def test_a_master_is_relaunched_under_the_next_name() -> None:
    node = Node("master", 0, (ended(0, 2, role="master", restarts_before=1),))
    made = master_pod(job(), node, PROVISION).manifest
    assert made["metadata"]["name"] == "digits-master-0-3"
    assert made["metadata"]["annotations"] == {MAIN_CONTAINER: "main", "elasticjob.dlrover/restarts": "2"}
    taken = Node("master", 0, (ended(0, 2, 137, role="master", machine="m7"),))
    made = master_pod(job(), taken, PROVISION, repeats=4).manifest
    assert made["metadata"]["annotations"][names.REPEATS] == "4"
    assert made["spec"]["affinity"] == away_from({}, (), ("m7",))


@pytest.mark.parametrize("word", ["master", "dlrover-master"])
def test_the_users_master_template_is_kept(word: str) -> None:
    given = {
        "spec": {"containers": [{"name": "main", "image": "mine", "resources": {"limits": {"cpu": "1"}}}]}
    }
    roles = {"worker": role(), word: {"replicas": 1, "template": given}}
    (container,) = master_pod(job(roles), Node("master", 0), PROVISION).manifest["spec"]["containers"]
    assert container["image"] == "mine"
    assert container["resources"] == {"limits": {"cpu": "1"}}
    assert container["command"] == ["elasticjob", "master"]


def test_each_pod_of_a_role_has_the_labels_and_annotations_of_its_template_and_ours_win() -> None:
    metadata = {"labels": {"team": "a", LABEL_JOB: "other"}, "annotations": {"sidecar": "no"}}
    given = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "mine"}]}}
    made = job({name: {"replicas": 1, "template": given} for name in ("worker", "master")})
    for each in (pod(made, Birth("worker", 0)), master_pod(made, Node("master", 0), PROVISION).manifest):
        assert each["metadata"]["labels"].items() >= {"team": "a", LABEL_JOB: "digits"}.items()
        assert each["metadata"]["annotations"]["sidecar"] == "no"


def test_the_main_container_of_the_masters_template_is_the_master() -> None:
    given = {"spec": {"containers": [{"name": "proxy", "image": "proxy"}, {"name": "main", "image": "mine"}]}}
    roles = {"worker": role(), "dlrover-master": {"replicas": 1, "template": given}}
    proxy, main = master_pod(job(roles), Node("master", 0), PROVISION).manifest["spec"]["containers"]
    assert proxy == {"name": "proxy", "image": "proxy"}
    assert (main["image"], main["command"]) == ("mine", ["elasticjob", "master"])


@pytest.mark.parametrize("named", ["main", "pytorch"])
@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("injected", range(3))
def test_a_container_that_admission_puts_anywhere_is_not_the_main_one(
    named: str, code: int, injected: int
) -> None:
    """As Istio does with holdApplicationUntilProxyStarts (cases/19-injector)."""
    beside = {"name": "beside", "image": "beside"}
    given = {"spec": {"containers": [{"name": named, "image": "mine"}, beside]}}
    roles = {
        "worker": {"replicas": 1, "template": given},
        "dlrover-master": {"replicas": 1, "template": given},
    }
    masters = master_pod(job(roles), Node("master", 0), PROVISION).manifest
    for made in (pod(job(roles), Birth("worker", 0)), masters):
        made["spec"]["containers"].insert(injected, {"name": "istio-proxy", "image": "proxy"})
        running = {"name": "istio-proxy", "state": {"running": {}}}
        end = {"name": named, "state": {"terminated": {"exitCode": code}}}
        stored = POD.convert({**made, "status": {"phase": "Running", "containerStatuses": [running, end]}})
        life = life_of(stored, {""})
        assert life is not None
        assert life.ended is not None
        assert (life.ended.code, life.lingers) == (code, True)


@pytest.mark.parametrize(
    ("containers", "annotation", "main"),
    [
        (["a", "main"], None, "main"),  # of an earlier release
        (["a", "b"], None, "a"),
        ([], None, None),
        (["a", "main"], "a", "a"),
        (["a", "main"], "gone", "main"),
    ],
)
def test_the_main_container_is_the_one_that_the_annotation_names(
    containers: list[str], annotation: str | None, main: str | None
) -> None:
    about = {"name": "a", "annotations": {MAIN_CONTAINER: annotation} if annotation else {}}
    made = POD.convert({"metadata": about, "spec": {"containers": [{"name": name} for name in containers]}})
    found = main_container(made)
    assert (found.name if found else None) == main


VERDICTS: list[tuple[str, ExitReason, Outcome | None]] = [
    (
        '{"verdict": "Succeeded", "reason": "Done", "message": "97 %"}',
        ExitReason.SUCCEEDED,
        Outcome(True, "Done", "97 %"),
    ),
    (
        '{"verdict": "Failed", "message": "no"}',
        ExitReason.FATAL_ERROR,
        Outcome(False, "TrainingFailed", "no"),
    ),
    ('{"verdict": "Stopped"}', ExitReason.SUCCEEDED, None),
    ("", ExitReason.SUCCEEDED, Outcome(True, "MasterSucceeded", "the master ended with exit code 0")),
    ("", ExitReason.KILLED, None),
    ("Traceback: boom", ExitReason.FATAL_ERROR, None),
    ('{"verdict": "Failed", "more": ' + "[" * 4000, ExitReason.FATAL_ERROR, None),
]


@pytest.mark.parametrize(("words", "reason", "outcome"), VERDICTS)
def test_verdict(words: str, reason: ExitReason, outcome: Outcome | None) -> None:
    assert verdict(Exit(reason, words=words)) == outcome


def test_the_job_resource_begins_with_the_users_sizes() -> None:
    made = job_resource(job({"worker": role(3), "evaluator": role(None)})).manifest
    assert made["spec"]["replicaResourceSpecs"] == {"worker": {"replicas": 3}}
    notes = made["metadata"]["annotations"]
    assert notes.keys() - {names.MADE_FROM, names.TOKEN} == {
        "elasticjob.dlrover/asked",
        "elasticjob.dlrover/asked-at",
        "elasticjob.dlrover/template-resources",
        "elasticjob.dlrover/network-policy",
        names.SIZES,
    }
    assert json.loads(notes["elasticjob.dlrover/asked"]) == {"worker": 3}
    assert json.loads(notes["elasticjob.dlrover/template-resources"]) == {
        name: {"cpu": "100m", "memory": "512Mi"} for name in ("evaluator", "worker")
    }


@pytest.mark.parametrize(
    ("spares", "unit", "places", "replicas"),
    [(0, 1, 2, 2), (1, 1, 3, 2), (2, 1, 3, 2), (0, 2, 3, 2), (0, 1, 9, 4)],
    ids=[
        "as many as it has places for",
        "spares take places",
        "but none of the least workers",
        "whole units",
        "no more than asked for",
    ],
)
def test_in_a_queue_the_job_resource_begins_with_what_that_admits(
    spares: int, unit: int, places: int, replicas: int
) -> None:
    given = job({"worker": role(4, minReplicas=2, maxReplicas=4, spares=spares)}, nodeUnit=unit)
    grant = Grant("team", admitted=True, places=(Place("base", "worker", places),))
    made = job_resource(given, grant=grant).manifest
    assert made["spec"]["replicaResourceSpecs"] == {"worker": {"replicas": replicas}}


def test_everything_belongs_to_the_job() -> None:
    for create in (*foundation(job(), "t0ken", ()), job_resource(job())):
        (owner,) = create.manifest["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("ElasticJob", "job-1", True)


def secrets(brain_key: bytes) -> dict[str, Manifest]:
    made = (create.manifest for create in foundation(job(), "t0ken", (), brain_key) if create.kind is SECRET)
    return {each["metadata"]["name"]: each["data"] for each in made}


def test_a_job_that_is_older_than_brain_gets_its_token_in_a_secret_of_its_own() -> None:
    """The Secret of the job is immutable, so that it cannot take another token."""
    before, after = secrets(b""), secrets(b"key")
    assert after == before | {"digits-brain-token": {"brain-token": ANY}}
    for key, volumes in ((b"key", after), (b"", before)):
        provision = replace(PROVISION, brain="brain:8090", brain_key=key)
        spec = master_pod(job(), Node("master", 0), provision).manifest["spec"]
        (volume,) = spec["volumes"]
        alone = {"name": "digits-token", **volume.get("secret", {})}
        parts = [each["secret"] for each in volume.get("projected", {}).get("sources", ())] or [alone]
        mounted = {(part["name"], item["key"]) for part in parts for item in part["items"]}
        assert mounted == {(name, entry) for name, data in volumes.items() for entry in data}
        told = env(spec["containers"][0])
        assert (told[BRAIN], BRAIN_TOKEN_FILE in told) == ("brain:8090", bool(key))


def test_only_pods_of_the_job_reach_them() -> None:
    own = {"podSelector": {"matchLabels": {"elasticjob.dlrover/name": "digits"}}}
    assert network_policy() == {**own, "policyTypes": ["Ingress"], "ingress": [{"from": [own]}]}


def test_prometheus_and_brain_reach_the_port_of_the_master_where_they_may() -> None:
    given = [{"kubernetes.io/metadata.name": "monitoring"}, {"team": "a", "scrapes": "yes"}]
    assert network_policy(*given)["ingress"][1:] == [
        {
            "from": [{"namespaceSelector": {"matchLabels": labels}} for labels in given],
            "ports": [{"port": 50001, "protocol": "TCP"}],
        }
    ]


def network_policy(*scrapers: dict[str, str]) -> Manifest:
    made = {create.kind.name: create.manifest for create in foundation(job(), "t0ken", scrapers)}
    spec: Manifest = made["NetworkPolicy"]["spec"]
    return spec


def lacks(wanted: set[Right]) -> set[Right]:
    """What the operator may not do with all objects of a cluster."""
    return {right for right in wanted if not allows(RULES, right)}


def test_the_operator_may_delete_what_the_garbage_collector_has_missed() -> None:
    owner = OwnerReference(ELASTICJOB.api_version, ELASTICJOB.name, "digits", "job-1")
    looked_at = {kind for kind, _ in kinds_outside_caches(owner)}
    followed: set[Kind[Any]] = {SERVICE, SCALEPLAN, JOBRESOURCE, POD}
    kinds, verbs = looked_at | followed, ("get", "delete")
    assert not lacks({Right(kind.group, kind.plural, verb, "") for kind in kinds for verb in verbs})


def test_the_operator_holds_what_it_hands_out() -> None:
    """RBAC refuses a Role that grants more than its author has."""
    given = {
        Right(group, resource_, verb, "")
        for rule in rights("digits")
        for group in rule["apiGroups"]
        for resource_ in rule["resources"]
        for verb in rule["verbs"]
    }
    assert not lacks(given)


PAGE = Path(__file__).parents[3] / "docs" / "without-operator.md"


def shown_rules() -> list[Manifest]:
    """The rules of the page's table, with the verbs before any remark."""
    rows = [[cell.strip(" `") for cell in line.split("|")[1:4]] for line in PAGE.read_text().splitlines()]
    return [
        {
            "apiGroups": [row[0]],
            "resources": row[1].split(", "),
            "verbs": re.split(r"[,;] ?", row[2].split(" (")[0]),
        }
        for row in rows
        if len(row) == 3 and "-" not in row[0] and row[0] != "group"
    ]


@pytest.mark.parametrize("rules", [RULES, shown_rules()], ids=["operator", "page"])
def test_whoever_makes_objects_may_block_the_deletion_of_their_owners(rules: list[Manifest]) -> None:
    made = [
        job_resource(job()).manifest,
        pod_manifest(job(), resource(), Birth("worker", 1), master="", nodes=1),
    ]
    owners = [
        one for each in made for one in each["metadata"]["ownerReferences"] if one["blockOwnerDeletion"]
    ]
    plurals = {kind.name: kind.plural for kind in (ELASTICJOB, JOBRESOURCE)}
    assert {owner["kind"] for owner in owners} == plurals.keys()
    for owner in owners:
        group = owner["apiVersion"].partition("/")[0]
        assert allows(rules, Right(group, f"{plurals[owner['kind']]}/finalizers", "update", ""))


def test_a_master_reads_pods_and_changes_none() -> None:
    (verbs,) = (rule["verbs"] for rule in rights("digits") if rule["resources"] == ["pods"])
    assert verbs == ["get", "list", "watch"]


def test_a_master_may_touch_only_its_own_job_and_snapshot() -> None:
    named = {
        rule["resources"][0]: rule["resourceNames"] for rule in rights("digits") if "resourceNames" in rule
    }
    assert named == {
        "elasticjobs": ["digits"],
        "elasticjobs/status": ["digits"],
        "jobresources": ["digits"],
        "configmaps": ["digits-master-state"],
    }
    created = [rule["resources"] for rule in rights("digits") if "create" in rule["verbs"]]
    assert created == [["scaleplans"]]  # of which the webhook lets it make those of its own job
