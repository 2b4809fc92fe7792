"""What is refused of an ElasticJob, and what every reader sees."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from elasticjob.api.v1alpha1.checks.elasticjob import problems
from elasticjob.api.v1alpha1.checks.times import SECONDS
from elasticjob.api.v1alpha1.common import AGENT_IMAGE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, DistributionStrategy, ReplicaSpec, RunPolicy
from lab.build.manifests import ABSENT, POD, ROLE, job

RULE = {"action": "Count", "onExitCodes": {"operator": "In", "values": [42]}}
R = "spec/replicaSpecs"
W = f"{R}/worker"
C = f"{W}/template/spec/containers/0"
LABELS = f"{W}/template/metadata/labels"
S = "spec/runPolicy/scheduling"
WORKER = "spec.replicaSpecs[worker]"
OF_POD = f"{WORKER}.template.spec"
MAIN = f"{OF_POD}.containers[0]"
AGENT_AT = f"{WORKER}.template.metadata.annotations[{AGENT_IMAGE}]"
SCHEDULING = "spec.runPolicy.scheduling"
GPU = "nvidia.com/gpu"
PS = {"spec/distributionStrategy": "ParameterServerStrategy", f"{R}/ps": ROLE}


def main(**fields: Any) -> dict[str, Any]:
    """Return changes of the main container of a worker."""
    return {f"{C}/{name}": value for name, value in fields.items()}


def brought(image: str = "team/agent:1") -> dict[str, Any]:
    """Return the change that has an image bring the agent to workers."""
    return {f"{W}/template/metadata/annotations": {AGENT_IMAGE: image}}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"metadata/name": "a.b"}, "metadata.name", "cannot name services"),
    ({"metadata/name": "3d"}, "metadata.name", "a letter first"),
    ({"metadata/name": "a" * 55}, "metadata.name", "write at most 50"),
    ({R: {}}, "spec.replicaSpecs", "there is no role to run"),
    ({R: {"dlrover-master": {}}}, "spec.replicaSpecs", "no role to run"),
    ({R: ABSENT, "spec/parameter_server": {"image": "a"}}, "spec.replicaSpecs[worker]",
     "needs a role worker"),
    ({f"{R}/My_Role": ROLE}, "spec.replicaSpecs[My_Role]", "dashes: my-role"),
    ({f"{R}/side-1": ROLE}, "spec.replicaSpecs[side-1]", "ends in a number"),
    ({f"{R}/master": {}, f"{R}/dlrover-master": {}}, "spec.replicaSpecs[master]", "the same role"),
    ({f"{R}/ps": ROLE, "spec/distributionStrategy": "allreduce"}, "spec.replicaSpecs[ps]", "has no role ps"),
    ({R: {"workers": ROLE}}, WORKER, "write worker for workers"),
    ({"spec/distributionStrategy": "ParameterServerStrategy"}, "spec.replicaSpecs[ps]", "needs a role ps"),
    ({"spec/distributionStrategy": "Local", f"{R}/master": {}}, "spec.replicaSpecs[master]", "leave it out"),
    ({f"{W}/minReplicas": 5}, f"{WORKER}.minReplicas", "5 is more than maxReplicas 4"),
    ({f"{W}/minReplicas": 3}, f"{WORKER}.replicas", "write 3 to 4"),
    ({f"{W}/replicas": 9}, f"{WORKER}.replicas", "9 is more than maxReplicas 4"),
    ({f"{R}/master": {"replicas": 2}}, "spec.replicaSpecs[master].replicas", "a job has one master"),
    ({**PS, f"{R}/chief": ROLE}, "spec.replicaSpecs[chief].replicas", "has one chief"),
    ({f"{W}/replicas": 0, f"{W}/minReplicas": 0, f"{W}/maxReplicas": 0}, f"{WORKER}.maxReplicas", "0 nodes"),
    ({"spec/runPolicy/failurePolicy": {"rules": [RULE | {"roles": ["worker", "elf"]}]}},
     "spec.runPolicy.failurePolicy.rules[0].roles[1]", "no role 'elf': write one of worker"),
    ({"spec/distributionStrategy": "CustomStrategy", R: {"elf": ROLE},
      "spec/runPolicy/successPolicy": "ChiefOrWorker0"}, "spec.runPolicy.successPolicy",
     "ChiefOrWorker0 needs a role chief or worker: write AllWorkers"),
    ({"spec/nodeUnit": 5}, "spec.nodeUnit", "no multiple of nodeUnit 5 lies from 1 to 4 workers"),
    ({"spec/nodeUnit": 4, f"{W}/minReplicas": 5, f"{W}/replicas": 6, f"{W}/maxReplicas": 7}, "spec.nodeUnit",
     "no multiple of nodeUnit 4 lies from 5 to 7"),
    ({"spec/nodeUnit": 3}, f"{WORKER}.replicas", "write 3 or more"),
    ({f"{W}/template": ABSENT}, f"{OF_POD}.containers", "there is no container"),
    ({f"{W}/template/spec/containers": []}, f"{OF_POD}.containers", "there is no container"),
    (main(image=ABSENT), f"{MAIN}.image", "no image"),
    (main(image="a "), f"{MAIN}.image", "'a'"),
    (main(name="Main"), f"{MAIN}.name", "is not a container name"),
    ({f"{W}/template/spec/containers": "main"}, f"{OF_POD}.containers", "write a list here"),
    (main(command="python"), f"{MAIN}.command", "write a list here"),
    (main(env=[{"name": "A", "value": 1}]), f"{MAIN}.env[0].value", "1 is not text"),
    (main(resources={"limits": {"cpu": "4x"}}), f"{MAIN}.resources.limits[cpu]", "write 4, 0.5 or 500m"),
    (main(resources={"requests": {"memory": "-1Gi"}}), f"{MAIN}.resources.requests[memory]", "is negative"),
    (main(resources={"requests": {"memory": "500m"}}), f"{MAIN}.resources.requests[memory]", "write 500Mi"),
    (main(resources={"limits": {"cpus": 4}}), f"{MAIN}.resources.limits[cpus]", "write cpu"),
    (main(resources={"limits": {"gpu": 1}}), f"{MAIN}.resources.limits[gpu]", f"write {GPU}"),
    (main(resources={"limits": {"requests.a.b/c": 1}}), f"{MAIN}.resources.limits[requests.a.b/c]", "domain"),
    ({"spec/resourceLimits": {"cpus": 4}}, "spec.resourceLimits[cpus]", "write cpu"),
    ({"spec/managedBy": "kueue"}, "spec.managedBy", "a domain and a path, such as example.org/queue"),
    ({"spec/managedBy": "Kueue.x-k8s.io/a"}, "spec.managedBy", "a domain and a path"),
    (main(resources={"limits": {GPU: "0.5"}}), f"{MAIN}.resources.limits[{GPU}]", "whole number"),
    (main(resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}}), f"{MAIN}.resources.requests[cpu]",
     "2 is more than the limit 1"),
    ({f"{W}/template/spec/containers": POD["containers"] * 2}, f"{OF_POD}.containers[1].name", "called main"),
    (main(volumeMounts=[{"name": "nas", "mountPath": "/nas"}]), f"{MAIN}.volumeMounts[0].name", "no volume"),
    ({f"{W}/template/spec/nodeSelecter": {"a": "b"}}, f"{OF_POD}.nodeSelecter", "did you mean nodeSelector?"),
    (main(env=[{"name": "A", "valeu": "b"}]), f"{MAIN}.env[0].valeu", "did you mean value?"),
    (main(future={"a": 1}), f"{MAIN}.future", "unknown field in Kubernetes v1.35"),
    ({LABELS: {"a b": "c"}}, f"{WORKER}.template.metadata.labels[a b]", "'a b' is not a label's key"),
    ({LABELS: {"Team_/a": "c"}}, f"{WORKER}.template.metadata.labels[Team_/a]", "is not a label's key"),
    ({LABELS: {"team": "vision team"}}, f"{WORKER}.template.metadata.labels[team]", "not a label's value"),
    ({f"{W}/template/spec/nodeSelector": {"zone": "a/b"}}, f"{OF_POD}.nodeSelector[zone]", "label's value"),
    (main(image="YOUR_IMAGE:1"), f"{MAIN}.image", "'YOUR_IMAGE:1' is not an image name"),
    (main(image="python :3.11"), f"{MAIN}.image", "is not an image name"),
    (brought("team/Agent"), AGENT_AT, "'team/Agent' is not an image name"),
    (brought(" a"), AGENT_AT, "' a' is not an image name"),
    (brought() | main(name="elasticjob-agent"), f"{MAIN}.name", "rename this one"),
    (
        brought()
        | main(volumeMounts=[{"name": "v", "mountPath": "/elasticjob/"}])
        | {f"{W}/template/spec/volumes": [{"name": "v", "emptyDir": {}}]},
        f"{MAIN}.volumeMounts[0].mountPath",
        "mount this elsewhere",
    ),
    (main(ports=[{"containerPort": 0}]), f"{MAIN}.ports[0].containerPort", "write 1 to 65535"),
    (main(ports=[{"containerPort": 1, "hostPort": 65536}]), f"{MAIN}.ports[0].hostPort", "not a port"),
    (main(ports=[{"containerPort": 1, "name": "tensorboard-http"}]), f"{MAIN}.ports[0].name", "at most 15"),
    (main(ports=[{"containerPort": n, "name": "a"} for n in (1, 2)]), f"{MAIN}.ports[1].name", "called a"),
    ({"spec/envs": {"1A": {"value": "x"}}}, "spec.envs[1A]", "cannot name a variable"),
    ({"spec/envs": {"A": {"name": "B"}}}, "spec.envs[A].name", "write A"),
    ({"spec/envs": {"A": {"value": "x", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}}},
     "spec.envs[A].valueFrom", "exclude each other"),
    ({f"{W}/priority": "urgent"}, f"{WORKER}.priority", "high, low, or"),
    ({f"{W}/priority": "0"}, f"{WORKER}.priority", "is no priority"),
    ({f"{W}/priority": "1.5"}, f"{WORKER}.priority", "is no priority"),
    ({"spec/resourceLimits": {"cpu": "many"}}, "spec.resourceLimits[cpu]", "'many'"),
    ({"spec/resourceLimits": {"cpu": 7}, f"{W}/minReplicas": 2, f"{C}/resources": {"requests": {"cpu": 4}}},
     "spec.resourceLimits[cpu]", "7 is less than the least sizes need, 8 (worker 8)"),
    ({"spec/brainService": "a b"}, "spec.brainService", "write host:port"),
    ({S: {"minAvailable": 9}}, f"{SCHEDULING}.minAvailable", "9 is more than all 4 pods"),
    ({S: {"gang": "coscheduling", "queue": "a"}}, f"{SCHEDULING}.queue", "coscheduling has no queue"),
    ({S: {"gang": "volcano", "timeoutSeconds": 9}}, f"{SCHEDULING}.timeoutSeconds", "no timeoutSeconds"),
    ({f"{W}/priority": "0.5", S: {"gang": "kubernetes", "lowPriorityClassName": "spare"}},
     f"{SCHEDULING}.lowPriorityClassName", "leave it out, or write gang: "),
    ({S: {"gang": "required", "queue": "a", "timeoutSeconds": 9}}, f"{SCHEDULING}.gang", "together"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "path", "words"), REFUSED)
def test_refused_with_path_and_advice(changes: dict[str, Any], path: str, words: str) -> None:
    found = problems(job(**changes))
    assert [problem.path for problem in found] == [path]
    assert words in found[0].message


ACCEPTED: dict[str, dict[str, Any]] = {
    "as it is": {},
    "the agent in an image that lacks it": brought("registry.example:5000/elasticjob/agent:0.1.0"),
    "no replicas": {f"{W}/replicas": ABSENT, f"{W}/minReplicas": ABSENT, f"{W}/maxReplicas": ABSENT},
    "only a least size": {f"{W}/replicas": ABSENT, f"{W}/maxReplicas": ABSENT},
    "a spare node": {"spec/nodeUnit": 2, f"{W}/replicas": 3},
    "a role of one's own": {f"{R}/dashboard": ROLE},
    "parameter servers": {**PS, f"{R}/evaluator": {**ROLE, "replicas": 1}},
    "master without an image":
     {f"{R}/dlrover-master": {"template": {"spec": {"containers": [{"name": "main"}]}}}},
    "custom without a worker": {"spec/distributionStrategy": "CustomStrategy", R: {"actor": ROLE}},
    "local": {"spec/distributionStrategy": "Local"},
    "generated name": {"metadata/name": ABSENT, "metadata/generateName": "digits-"},
    "longest name": {"metadata/name": "a" * 50},
    "share of high nodes": {f"{W}/priority": "0.5"},
    "any gang with a queue": {S: {"gang": "preferred", "queue": "a"}},
    "names that servers take": {LABELS: {"example.org/team": "A_b.c", "empty": ""},
      f"{W}/template/spec/nodeSelector": {"kubernetes.io/arch": "amd64"},
      f"{C}/image": f"registry.example:5000/a_b/c--d/e.f:V1.0@sha256:{'0a' * 32}",
      f"{C}/ports": [{"name": "http-2", "containerPort": 80, "hostPort": 0}, {"containerPort": 81}]},
    "fields of any name": {f"{W}/template/metadata": {"annotations": {"any": "x"}},
      f"{C}/resources": {"limits": {"example.org/any": 1}},
      f"{W}/template/spec/volumes": [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"a": "b"}}}],
      f"{C}/livenessProbe": {"httpGet": {"port": "http"}}},
    "limits that fit": {"spec/resourceLimits": {"cpu": 4}, f"{C}/resources": {"requests": {"cpu": 4}}},
    "brain with a port": {"spec/brainService": "brain.dlrover:50001"},
}  # fmt: skip


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(changes: dict[str, Any]) -> None:
    assert problems(job(**changes)) == []


SUSPENDED = {"spec/suspend": True}
UPDATES: dict[str, tuple[tuple[dict[str, Any], dict[str, Any]], list[str]]] = {
    "strategy": (({}, {"spec/distributionStrategy": "Local"}), ["spec.distributionStrategy"]),
    "strategy said aloud": (({}, {"spec/distributionStrategy": "AllreduceStrategy"}), []),
    "older form that an earlier release ignored": (
        ({"spec/worker": {"image": "b"}}, {"spec/worker": {"image": "b"}, f"{W}/replicas": 3}),
        [],
    ),
    "image of the older form": (({}, {"spec/worker": {"image": "b"}}), ["spec.worker"]),
    "command of all roles": (({}, {"spec/command": "a"}), ["spec.command"]),
    "the EasyDL form left out": (({"spec/command": "a", "spec/image": "b", "spec/worker": {}}, {}), []),
    "size 0": (({}, {f"{W}/replicas": 0, f"{W}/minReplicas": ABSENT, "spec/nodeUnit": 1}), []),
    "manager": (({}, {"spec/managedBy": "kueue.x-k8s.io/multikueue"}), ["spec.managedBy"]),
    "sizes": (({}, {f"{W}/replicas": 4, f"{W}/maxReplicas": 8}), []),
    "suspend": (({}, SUSPENDED), []),
    "new role": (({}, {f"{R}/side": ROLE}), ["spec.replicaSpecs[side]"]),
    "role gone": (({f"{R}/side": ROLE}, {}), ["spec.replicaSpecs[side]"]),
    "image": (({}, main(image="b")), [f"{MAIN}.image"]),
    "image and command": (({}, {f"{C}/image": "b", f"{C}/command": []}), [MAIN]),
    "image while suspended": ((SUSPENDED, {**SUSPENDED, f"{C}/image": "b"}), []),
    "image and go on": ((SUSPENDED, main(image="b")), []),
    "image and suspend": (({}, {**SUSPENDED, f"{C}/image": "b"}), [f"{MAIN}.image"]),
    "envs": (({}, {"spec/envs": {"A": {"value": "b"}}}), ["spec.envs"]),
    "unit": (({}, {"spec/nodeUnit": 2}), ["spec.nodeUnit"]),
    "gang": (({}, {S: {"gang": "required"}}), [f"{SCHEDULING}.gang"]),
    "gang while suspended": ((SUSPENDED, {S: {"gang": "required"}}), []),
    "minAvailable": (({S: {"gang": "required"}}, {S: {"gang": "required", "minAvailable": 2}}), []),
    "what was always wrong": ((main(image=""), main(image="") | {"metadata/labels": {"a": "b"}}), []),
    "being deleted": (({}, main(image="") | {"metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}), []),
    "size of what an earlier release let through": (
        ({f"{C}/future": 1, f"{C}/image": "A"}, {f"{C}/future": 1, f"{C}/image": "A", f"{W}/replicas": 3}),
        [],
    ),
    "typing error": ((SUSPENDED, {**SUSPENDED, f"{C}/imagePullPolcy": "Always"}), [f"{MAIN}.imagePullPolcy"]),
    "new mistakes": (({}, {f"{W}/minReplicas": 9}), ["spec.replicaSpecs[worker].minReplicas"]),
}


@pytest.mark.parametrize(("given", "paths"), UPDATES.values(), ids=UPDATES)
def test_updates(given: tuple[dict[str, Any], dict[str, Any]], paths: list[str]) -> None:
    before, now = given
    assert [problem.path for problem in problems(job(**now), job(**before))] == paths


@pytest.mark.parametrize("field", [RunPolicy.model_fields[name].alias for name in SECONDS])
def test_seconds_stay_within_the_calendar(field: str) -> None:
    path, hundred_years = f"spec/runPolicy/{field}", 3_153_600_000
    if field != "ttlSecondsAfterFinished":  # 32 bits of its schema are less
        assert not problems(job(**{path: hundred_years}))
        found = problems(job(**{path: hundred_years + 1}))
        assert [problem.path for problem in found] == [path.replace("/", ".")]
        of_before = {path: 10**14}
        assert not problems(job(**of_before, **{f"{W}/replicas": 3}), job(**of_before))


def test_of_a_template_full_of_errors_the_first_hundred_are_told() -> None:
    many = range(1000)
    unknown = problems(job(**{f"{W}/template/spec/nodeSelecter{index}": {} for index in many}))
    mounts = problems(job(**main(volumeMounts=[{"name": "data", "mountPath": "/data"} for _ in many])))
    shapes = problems(job(**{f"{W}/template/spec/containers": [None for _ in many]}))
    assert [len(found) for found in (unknown, mounts, shapes)] == [100, 100, 100]


FINISHED = "once the job has finished: delete it and create it again"


@pytest.mark.parametrize(
    ("phase", "suspend", "words"),
    [
        ("Running", False, "while the job runs: set suspend: true first"),
        ("Succeeded", False, FINISHED),
        ("Failed", False, FINISHED),
        ("Succeeded", True, FINISHED),  # suspending it has no effect any more
    ],
)
def test_a_changed_template_is_told_how_it_can_change(phase: str, suspend: bool, words: str) -> None:
    before = {"spec/suspend": suspend, "status/phase": phase}
    [problem] = problems(job(**before, **main(image="b")), job(**before))
    assert words in problem.message
    assert problems(job(**before, **{f"{W}/replicas": 3}), job(**before)) == []


@pytest.mark.parametrize(
    ("role", "bounds", "elastic"),
    [
        ({"replicas": 2}, (2, 2), False),
        ({"replicas": 2, "minReplicas": 1}, (1, 2), True),
        ({"replicas": 2, "maxReplicas": 4}, (2, 4), True),
        ({"minReplicas": 1, "maxReplicas": 4}, (1, 4), True),
        ({"maxReplicas": 4}, (1, 4), True),
        ({"maxReplicas": 0}, (0, 0), False),
        ({"minReplicas": 3}, (3, None), True),
        ({}, (1, None), True),
    ],
)
def test_bounds(role: dict[str, Any], bounds: tuple[int, int | None], elastic: bool) -> None:
    spec = ReplicaSpec.model_validate(role)
    assert (spec.bounds.least, spec.bounds.most, spec.elastic) == (*bounds, elastic)


@pytest.mark.parametrize(
    ("strategy", "roles", "needed"),
    [
        ("AllreduceStrategy", {}, True),
        ("Local", {}, False),
        ("CustomStrategy", {}, False),
        ("CustomStrategy", {"master": {}}, True),
    ],
)
def test_who_needs_a_master(strategy: str, roles: dict[str, Any], needed: bool) -> None:
    changes = {f"{R}/{role}": spec for role, spec in roles.items()}
    assert job(**{"spec/distributionStrategy": strategy, **changes}).spec.needs_master is needed


def test_the_master_goes_by_two_names() -> None:
    for name in ("master", "dlrover-master"):
        spec = job(**{f"{R}/{name}": {"restartCount": 7}}).spec
        assert spec.master is not None
        assert spec.master.restart_count == 7
        assert list(spec.roles) == ["worker"]


def test_wrong_types_do_not_decode() -> None:
    with pytest.raises(ValidationError, match="distributionStrategy"):
        job(**{"spec/distributionStrategy": "Ring"})


def test_defaults() -> None:
    spec = job().spec
    assert spec.distribution_strategy is DistributionStrategy.ALLREDUCE
    assert (spec.optimize_mode, spec.node_unit, spec.suspend, spec.network_policy) == (
        "single-job",
        1,
        False,
        True,
    )
    assert spec.run_policy.clean_pod_policy == "Running"
    worker = spec.replica_specs["worker"]
    assert (worker.restart_policy, worker.restart_count, worker.auto_scale) == ("OnFailure", 3, True)


def test_templates_come_back_as_they_were() -> None:
    pod = {"containers": [{"name": "main", "image": "a", "resources": {"limits": {"cpu": 1}}, "future": [1]}]}
    assert job(**{f"{W}/template/spec": pod}).spec.replica_specs["worker"].template == {"spec": pod}


SHAPED_LIKE_DLROVER = """
apiVersion: elastic.iml.github.io/v1alpha1
kind: ElasticJob
metadata: {name: ctr-auto-scale, namespace: dlrover}
spec:
  distributionStrategy: ParameterServerStrategy
  optimizeMode: cluster
  brainService: dlrover-brain.dlrover.svc.cluster.local:50001
  enableElasticScheduling: true
  enableDynamicSharding: true
  resourceLimits: {cpu: "15", memory: 10000Mi}
  envs:
    PYTHONUNBUFFERED: {name: PYTHONUNBUFFERED, value: "1"}
  replicaSpecs:
    ps: &role
      autoScale: False
      replicas: 1
      restartCount: 3
      restartTimeout: 600
      priority: high
      restartPolicy: Never
      template:
        metadata: {annotations: {sidecar.istio.io/inject: "false"}}
        spec:
          restartPolicy: Never
          containers:
            - name: main
              image: registry.example/team/ctr:v11
              imagePullPolicy: Always
              command: [/bin/bash, -c, "python -m ctr.train --conf ctr.yaml"]
              resources:
                limits: {cpu: 1, memory: 4Gi}
                requests: {cpu: 1, memory: 4096Mi}
              volumeMounts: [{name: pvc-nas, mountPath: /nas}]
          volumes: [{name: pvc-nas, persistentVolumeClaim: {claimName: pvc-nas}}]
    worker: *role
    dlrover-master:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, imagePullPolicy: Always}]
"""


def test_manifests_shaped_like_dlrovers_are_accepted() -> None:
    read = ELASTICJOB.convert(yaml.safe_load(SHAPED_LIKE_DLROVER))
    assert problems(read) == []
    assert list(read.spec.roles) == ["ps", "worker"]
