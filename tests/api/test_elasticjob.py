"""What is refused of an ElasticJob, and what every reader sees."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from elasticjob.api.v1alpha1.checks.elasticjob import problems
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, Bounds, DistributionStrategy, ReplicaSpec
from tests.kit.manifests import ABSENT, POD, ROLE, job

RULE = {"action": "Count", "onExitCodes": {"operator": "In", "values": [42]}}
W = "spec/replicaSpecs/worker"
C = f"{W}/template/spec/containers/0"
PS = {"spec/distributionStrategy": "ParameterServerStrategy", "spec/replicaSpecs/ps": ROLE}

REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("name with a dot", {"metadata/name": "a.b"}, "metadata.name", "cannot name services"),
    ("name with a digit first", {"metadata/name": "3d"}, "metadata.name", "a letter first"),
    ("long name", {"metadata/name": "a" * 55}, "metadata.name", "write at most 50"),
    ("no roles", {"spec/replicaSpecs": {}}, "spec.replicaSpecs", "there is no role to run"),
    ("only a master", {"spec/replicaSpecs": {"dlrover-master": {}}}, "spec.replicaSpecs", "no role to run"),
    (
        "EasyDL form",
        {"spec/replicaSpecs": ABSENT, "spec/parameter_server": {"image": "a"}},
        "spec.parameter_server",
        "write spec.replicaSpecs[ps]",
    ),
    (
        "role in capitals",
        {"spec/replicaSpecs/My_Role": ROLE},
        "spec.replicaSpecs[My_Role]",
        "dashes: my-role",
    ),
    (
        "role like an index",
        {"spec/replicaSpecs/side-1": ROLE},
        "spec.replicaSpecs[side-1]",
        "ends in a number",
    ),
    (
        "two masters",
        {"spec/replicaSpecs/master": {}, "spec/replicaSpecs/dlrover-master": {}},
        "spec.replicaSpecs[master]",
        "the same role",
    ),
    ("ps beside allreduce", {"spec/replicaSpecs/ps": ROLE}, "spec.replicaSpecs[ps]", "has no role ps"),
    (
        "mistyped worker",
        {"spec/replicaSpecs": {"workers": ROLE}},
        "spec.replicaSpecs[worker]",
        "write worker for workers",
    ),
    (
        "parameter servers without ps",
        {"spec/distributionStrategy": "ParameterServerStrategy"},
        "spec.replicaSpecs[ps]",
        "needs a role ps",
    ),
    (
        "master of a local job",
        {"spec/distributionStrategy": "Local", "spec/replicaSpecs/master": {}},
        "spec.replicaSpecs[master]",
        "leave it out",
    ),
    (
        "min > max",
        {f"{W}/minReplicas": 5},
        "spec.replicaSpecs[worker].minReplicas",
        "5 is more than maxReplicas 4",
    ),
    ("replicas < min", {f"{W}/minReplicas": 3}, "spec.replicaSpecs[worker].replicas", "write 3 to 4"),
    (
        "replicas > max",
        {f"{W}/replicas": 9},
        "spec.replicaSpecs[worker].replicas",
        "9 is more than maxReplicas 4",
    ),
    (
        "two masters in one role",
        {"spec/replicaSpecs/master": {"replicas": 2}},
        "spec.replicaSpecs[master].replicas",
        "a job has one master",
    ),
    (
        "two chiefs",
        {**PS, "spec/replicaSpecs/chief": ROLE},
        "spec.replicaSpecs[chief].replicas",
        "has one chief",
    ),
    (
        "0 for ever",
        {f"{W}/replicas": 0, f"{W}/minReplicas": 0, f"{W}/maxReplicas": 0},
        "spec.replicaSpecs[worker].maxReplicas",
        "0 nodes can never train",
    ),
    (
        "a failure rule for another role",
        {"spec/runPolicy/failurePolicy": {"rules": [RULE | {"roles": ["worker", "elf"]}]}},
        "spec.runPolicy.failurePolicy.rules[0].roles[1]",
        "the job has no role 'elf': write one of worker",
    ),
    (
        "a leader without a role for it",
        {
            "spec/distributionStrategy": "CustomStrategy",
            "spec/replicaSpecs": {"elf": ROLE},
            "spec/runPolicy/successPolicy": "ChiefOrWorker0",
        },
        "spec.runPolicy.successPolicy",
        "ChiefOrWorker0 needs a role chief or worker: write AllWorkers",
    ),
    ("unit above max", {"spec/nodeUnit": 5}, "spec.nodeUnit", "no multiple of 5 lies from 1 to 4 workers"),
    (
        "unit between sizes",
        {"spec/nodeUnit": 4, f"{W}/minReplicas": 5, f"{W}/replicas": 6, f"{W}/maxReplicas": 7},
        "spec.nodeUnit",
        "no multiple of 4 lies from 5 to 7",
    ),
    ("unit above replicas", {"spec/nodeUnit": 3}, "spec.replicaSpecs[worker].replicas", "write 3 or more"),
    (
        "no template",
        {f"{W}/template": ABSENT},
        "spec.replicaSpecs[worker].template.spec.containers",
        "there is no container",
    ),
    (
        "no containers",
        {f"{W}/template/spec/containers": []},
        "spec.replicaSpecs[worker].template.spec.containers",
        "there is no container",
    ),
    (
        "no image",
        {f"{C}/image": ABSENT},
        "spec.replicaSpecs[worker].template.spec.containers[0].image",
        "no image",
    ),
    (
        "image with blank",
        {f"{C}/image": "a "},
        "spec.replicaSpecs[worker].template.spec.containers[0].image",
        "'a'",
    ),
    (
        "container name",
        {f"{C}/name": "Main"},
        "spec.replicaSpecs[worker].template.spec.containers[0].name",
        "is not a container name",
    ),
    (
        "containers are text",
        {f"{W}/template/spec/containers": "main"},
        "spec.replicaSpecs[worker].template.spec.containers",
        "write a list here",
    ),
    (
        "command is text",
        {f"{C}/command": "python"},
        "spec.replicaSpecs[worker].template.spec.containers[0].command",
        "write a list here",
    ),
    (
        "env value is a number",
        {f"{C}/env": [{"name": "A", "value": 1}]},
        "spec.replicaSpecs[worker].template.spec.containers[0].env[0].value",
        "1 is not text",
    ),
    (
        "malformed quantity",
        {f"{C}/resources": {"limits": {"cpu": "4x"}}},
        "spec.replicaSpecs[worker].template.spec.containers[0].resources.limits[cpu]",
        "write 4, 0.5 or 500m",
    ),
    (
        "negative quantity",
        {f"{C}/resources": {"requests": {"memory": "-1Gi"}}},
        "spec.replicaSpecs[worker].template.spec.containers[0].resources.requests[memory]",
        "-1Gi is negative",
    ),
    (
        "millibytes",
        {f"{C}/resources": {"requests": {"memory": "500m"}}},
        "spec.replicaSpecs[worker].template.spec.containers[0].resources.requests[memory]",
        "write 500Mi",
    ),
    (
        "part of a device",
        {f"{C}/resources": {"limits": {"nvidia.com/gpu": "0.5"}}},
        "spec.replicaSpecs[worker].template.spec.containers[0].resources.limits[nvidia.com/gpu]",
        "whole number",
    ),
    (
        "request above limit",
        {f"{C}/resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}},
        "spec.replicaSpecs[worker].template.spec.containers[0].resources.requests[cpu]",
        "2 is more than the limit 1",
    ),
    (
        "two containers of one name",
        {f"{W}/template/spec/containers": [POD["containers"][0], POD["containers"][0]]},
        "spec.replicaSpecs[worker].template.spec.containers[1].name",
        "two containers are called main",
    ),
    (
        "mount without volume",
        {f"{C}/volumeMounts": [{"name": "nas", "mountPath": "/nas"}]},
        "spec.replicaSpecs[worker].template.spec.containers[0].volumeMounts[0].name",
        "no volume 'nas'",
    ),
    (
        "mistyped field of the pod",
        {f"{W}/template/spec/nodeSelecter": {"a": "b"}},
        "spec.replicaSpecs[worker].template.spec.nodeSelecter",
        "unknown field; did you mean nodeSelector?",
    ),
    (
        "mistyped field of a container",
        {f"{C}/env": [{"name": "A", "valeu": "b"}]},
        "spec.replicaSpecs[worker].template.spec.containers[0].env[0].valeu",
        "unknown field; did you mean value?",
    ),
    (
        "field of no server",
        {f"{C}/future": {"a": 1}},
        "spec.replicaSpecs[worker].template.spec.containers[0].future",
        "unknown field in Kubernetes v1.35",
    ),
    (
        "label's key",
        {f"{W}/template/metadata": {"labels": {"a b": "c"}}},
        "spec.replicaSpecs[worker].template.metadata.labels[a b]",
        "'a b' is not a label's key",
    ),
    (
        "prefix of a label's key",
        {f"{W}/template/metadata": {"labels": {"Team_/a": "c"}}},
        "spec.replicaSpecs[worker].template.metadata.labels[Team_/a]",
        "is not a label's key",
    ),
    (
        "label's value",
        {f"{W}/template/metadata": {"labels": {"team": "vision team"}}},
        "spec.replicaSpecs[worker].template.metadata.labels[team]",
        "'vision team' is not a label's value",
    ),
    (
        "node selector's value",
        {f"{W}/template/spec/nodeSelector": {"zone": "a/b"}},
        "spec.replicaSpecs[worker].template.spec.nodeSelector[zone]",
        "'a/b' is not a label's value",
    ),
    (
        "image in capitals",
        {f"{C}/image": "YOUR_IMAGE:1"},
        "spec.replicaSpecs[worker].template.spec.containers[0].image",
        "'YOUR_IMAGE:1' is not an image name",
    ),
    (
        "image with a blank inside",
        {f"{C}/image": "python :3.11"},
        "spec.replicaSpecs[worker].template.spec.containers[0].image",
        "is not an image name",
    ),
    (
        "port 0",
        {f"{C}/ports": [{"containerPort": 0}]},
        "spec.replicaSpecs[worker].template.spec.containers[0].ports[0].containerPort",
        "0 is not a port: write 1 to 65535",
    ),
    (
        "host port",
        {f"{C}/ports": [{"containerPort": 1, "hostPort": 65536}]},
        "spec.replicaSpecs[worker].template.spec.containers[0].ports[0].hostPort",
        "65536 is not a port",
    ),
    (
        "port's name",
        {f"{C}/ports": [{"containerPort": 1, "name": "tensorboard-http"}]},
        "spec.replicaSpecs[worker].template.spec.containers[0].ports[0].name",
        "write at most 15",
    ),
    (
        "two ports of one name",
        {f"{C}/ports": [{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]},
        "spec.replicaSpecs[worker].template.spec.containers[0].ports[1].name",
        "two ports are called a",
    ),
    ("variable name", {"spec/envs": {"1A": {"value": "x"}}}, "spec.envs[1A]", "cannot name a variable"),
    ("variable of another name", {"spec/envs": {"A": {"name": "B"}}}, "spec.envs[A].name", "write A"),
    (
        "two values",
        {"spec/envs": {"A": {"value": "x", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}}},
        "spec.envs[A].valueFrom",
        "exclude each other",
    ),
    ("priority word", {f"{W}/priority": "urgent"}, "spec.replicaSpecs[worker].priority", "high, low, or"),
    ("priority 0", {f"{W}/priority": "0"}, "spec.replicaSpecs[worker].priority", "is no priority"),
    ("priority 1.5", {f"{W}/priority": "1.5"}, "spec.replicaSpecs[worker].priority", "is no priority"),
    ("malformed limit", {"spec/resourceLimits": {"cpu": "many"}}, "spec.resourceLimits[cpu]", "'many'"),
    (
        "limit below the least",
        {
            "spec/resourceLimits": {"cpu": 7},
            f"{W}/minReplicas": 2,
            f"{C}/resources": {"requests": {"cpu": 4}},
        },
        "spec.resourceLimits[cpu]",
        "7 is less than the least sizes need, 8 (worker 8)",
    ),
    ("brain address", {"spec/brainService": "a b"}, "spec.brainService", "write host:port"),
    (
        "gang above all",
        {"spec/runPolicy": {"scheduling": {"minAvailable": 9}}},
        "spec.runPolicy.scheduling.minAvailable",
        "9 is more than all 4 pods",
    ),
    (
        "a queue where there is none",
        {"spec/runPolicy": {"scheduling": {"gang": "coscheduling", "queue": "a"}}},
        "spec.runPolicy.scheduling.queue",
        "gang coscheduling has no queue: leave it out, or write gang: volcano",
    ),
    (
        "a time limit where there is none",
        {"spec/runPolicy": {"scheduling": {"gang": "volcano", "timeoutSeconds": 9}}},
        "spec.runPolicy.scheduling.timeoutSeconds",
        "gang volcano has no timeoutSeconds: leave it out, or write gang: coscheduling",
    ),
    (
        "two priorities in a gang of one",
        {
            f"{W}/priority": "0.5",
            "spec/runPolicy": {"scheduling": {"gang": "kubernetes", "lowPriorityClassName": "spare"}},
        },
        "spec.runPolicy.scheduling.lowPriorityClassName",
        "gang kubernetes has no nodes of different PriorityClasses: leave it out, or write gang: ",
    ),
    (
        "what no API has together",
        {"spec/runPolicy": {"scheduling": {"gang": "required", "queue": "a", "timeoutSeconds": 9}}},
        "spec.runPolicy.scheduling.gang",
        "there is no API that has queue and timeoutSeconds together: leave one out",
    ),
]


@pytest.mark.parametrize(
    ("changes", "path", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused_with_path_and_advice(changes: dict[str, Any], path: str, words: str) -> None:
    found = problems(job(**changes))
    assert [problem.path for problem in found] == [path]
    assert words in found[0].message


ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("as it is", {}),
    (
        "no replicas: the optimizer decides",
        {f"{W}/replicas": ABSENT, f"{W}/minReplicas": ABSENT, f"{W}/maxReplicas": ABSENT},
    ),
    ("only a least size", {f"{W}/replicas": ABSENT, f"{W}/maxReplicas": ABSENT}),
    ("a spare node", {"spec/nodeUnit": 2, f"{W}/replicas": 3}),
    ("a role of one's own", {"spec/replicaSpecs/dashboard": ROLE}),
    ("parameter servers", {**PS, "spec/replicaSpecs/evaluator": {**ROLE, "replicas": 1}}),
    (
        "master without an image",
        {"spec/replicaSpecs/dlrover-master": {"template": {"spec": {"containers": [{"name": "main"}]}}}},
    ),
    (
        "custom without a worker",
        {"spec/distributionStrategy": "CustomStrategy", "spec/replicaSpecs": {"actor": ROLE}},
    ),
    ("local", {"spec/distributionStrategy": "Local"}),
    ("generated name", {"metadata/name": ABSENT, "metadata/generateName": "digits-"}),
    ("longest name", {"metadata/name": "a" * 50}),
    ("share of high nodes", {f"{W}/priority": "0.5"}),
    ("any gang with a queue", {"spec/runPolicy": {"scheduling": {"gang": "preferred", "queue": "a"}}}),
    (
        "names that servers take",
        {
            f"{W}/template/metadata": {"labels": {"example.org/team": "A_b.c", "empty": ""}},
            f"{W}/template/spec/nodeSelector": {"kubernetes.io/arch": "amd64"},
            f"{C}/image": f"registry.example:5000/a_b/c--d/e.f:V1.0@sha256:{'0a' * 32}",
            f"{C}/ports": [{"name": "http-2", "containerPort": 80, "hostPort": 0}, {"containerPort": 81}],
        },
    ),
    (
        "fields of any name",
        {
            f"{W}/template/metadata": {"annotations": {"any": "x"}},
            f"{C}/resources": {"limits": {"example.org/any": 1}},
            f"{W}/template/spec/volumes": [
                {"name": "v", "csi": {"driver": "d", "volumeAttributes": {"a": "b"}}}
            ],
            f"{C}/livenessProbe": {"httpGet": {"port": "http"}},
        },
    ),
    ("limits that fit", {"spec/resourceLimits": {"cpu": 4}, f"{C}/resources": {"requests": {"cpu": 4}}}),
    ("brain with a port", {"spec/brainService": "brain.dlrover:50001"}),
]


@pytest.mark.parametrize("changes", [row[1] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_accepted(changes: dict[str, Any]) -> None:
    assert problems(job(**changes)) == []


SUSPENDED = {"spec/suspend": True}
UPDATES: list[tuple[str, dict[str, Any], dict[str, Any], list[str]]] = [
    ("strategy", {}, {"spec/distributionStrategy": "Local"}, ["spec.distributionStrategy"]),
    ("strategy said aloud", {}, {"spec/distributionStrategy": "AllreduceStrategy"}, []),
    (
        "older form that an earlier release ignored",
        {"spec/worker": {"image": "b"}},
        {"spec/worker": {"image": "b"}, f"{W}/replicas": 3},
        [],
    ),
    ("image of the older form", {}, {"spec/worker": {"image": "b"}}, ["spec.worker"]),
    ("command of all roles", {}, {"spec/command": "a"}, ["spec.command"]),
    ("the EasyDL form left out", {"spec/command": "a", "spec/image": "b", "spec/worker": {}}, {}, []),
    ("size 0", {}, {f"{W}/replicas": 0, f"{W}/minReplicas": ABSENT, "spec/nodeUnit": 1}, []),
    ("manager", {}, {"spec/managedBy": "kueue.x-k8s.io/multikueue"}, ["spec.managedBy"]),
    ("sizes", {}, {f"{W}/replicas": 4, f"{W}/maxReplicas": 8}, []),
    ("suspend", {}, SUSPENDED, []),
    ("new role", {}, {"spec/replicaSpecs/side": ROLE}, ["spec.replicaSpecs[side]"]),
    ("role gone", {"spec/replicaSpecs/side": ROLE}, {}, ["spec.replicaSpecs[side]"]),
    ("image", {}, {f"{C}/image": "b"}, ["spec.replicaSpecs[worker].template.spec.containers[0].image"]),
    (
        "image and command",
        {},
        {f"{C}/image": "b", f"{C}/command": []},
        ["spec.replicaSpecs[worker].template.spec.containers[0]"],
    ),
    ("image while suspended", SUSPENDED, {**SUSPENDED, f"{C}/image": "b"}, []),
    ("image and go on", SUSPENDED, {f"{C}/image": "b"}, []),
    (
        "image and suspend",
        {},
        {**SUSPENDED, f"{C}/image": "b"},
        ["spec.replicaSpecs[worker].template.spec.containers[0].image"],
    ),
    ("envs", {}, {"spec/envs": {"A": {"value": "b"}}}, ["spec.envs"]),
    ("unit", {}, {"spec/nodeUnit": 2}, ["spec.nodeUnit"]),
    (
        "gang",
        {},
        {"spec/runPolicy": {"scheduling": {"gang": "required"}}},
        ["spec.runPolicy.scheduling.gang"],
    ),
    ("gang while suspended", SUSPENDED, {"spec/runPolicy": {"scheduling": {"gang": "required"}}}, []),
    (
        "least number of a gang",
        {"spec/runPolicy": {"scheduling": {"gang": "required"}}},
        {"spec/runPolicy": {"scheduling": {"gang": "required", "minAvailable": 2}}},
        [],
    ),
    (
        "finalizer of what was always wrong",
        {f"{C}/image": ""},
        {f"{C}/image": "", "metadata/labels": {"a": "b"}},
        [],
    ),
    (
        "while it is being deleted",
        {},
        {f"{C}/image": "", "metadata/deletionTimestamp": "2026-01-01T00:00:00Z"},
        [],
    ),
    (
        "size of what an earlier release let through",
        {f"{C}/future": 1, f"{C}/image": "A"},
        {f"{C}/future": 1, f"{C}/image": "A", f"{W}/replicas": 3},
        [],
    ),
    (
        "typing error in a changed template",
        SUSPENDED,
        {**SUSPENDED, f"{C}/imagePullPolcy": "Always"},
        ["spec.replicaSpecs[worker].template.spec.containers[0].imagePullPolcy"],
    ),
    ("new mistakes", {}, {f"{W}/minReplicas": 9}, ["spec.replicaSpecs[worker].minReplicas"]),
]


@pytest.mark.parametrize(
    ("before", "now", "paths"), [row[1:] for row in UPDATES], ids=[row[0] for row in UPDATES]
)
def test_updates(before: dict[str, Any], now: dict[str, Any], paths: list[str]) -> None:
    assert [problem.path for problem in problems(job(**now), job(**before))] == paths


def test_of_a_template_full_of_errors_the_first_hundred_are_told() -> None:
    many = range(1000)
    unknown = problems(job(**{f"{W}/template/spec/nodeSelecter{index}": {} for index in many}))
    mounts = problems(job(**{f"{C}/volumeMounts": [{"name": "data", "mountPath": "/data"} for _ in many]}))
    shapes = problems(job(**{f"{W}/template/spec/containers": [None for _ in many]}))
    assert [len(found) for found in (unknown, mounts, shapes)] == [100, 100, 100]


def test_a_changed_template_is_told_how_it_can_change() -> None:
    [problem] = problems(job(**{f"{C}/image": "b"}), job())
    assert "set suspend: true first" in problem.message


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
    assert (spec.bounds, spec.elastic) == (bounds, elastic)


@pytest.mark.parametrize(
    ("bounds", "replicas", "clamped"), [((1, 4), 9, 4), ((1, 4), 0, 1), ((1, None), 9, 9), ((2, 4), 3, 3)]
)
def test_clamp(bounds: tuple[int, int | None], replicas: int, clamped: int) -> None:
    assert Bounds(*bounds).clamp(replicas) == clamped


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
    changes = {f"spec/replicaSpecs/{role}": spec for role, spec in roles.items()}
    assert job(**{"spec/distributionStrategy": strategy, **changes}).spec.needs_master is needed


def test_the_master_goes_by_two_names() -> None:
    for name in ("master", "dlrover-master"):
        spec = job(**{f"spec/replicaSpecs/{name}": {"restartCount": 7}}).spec
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
