"""Manifests of DLRover, EasyDL, TorchElastic, Paddle and et-operator: input → output, and what is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from elasticjob.cli.convert.conversion import Outcome, outcome
from elasticjob.cli.convert.launchers.table import OF_RANKS
from elasticjob.cli.convert.reading import sources
from elasticjob.cli.convert.system import UNKNOWN
from elasticjob.cli.convert.systems import SYSTEMS
from elasticjob.cli.convert.systems.etoperator import NO_SCRIPT
from elasticjob.cli.convert.systems.paddle import AS_GANG, IN_A_RANGE, OTHER_SCHEDULER
from elasticjob.cli.convert.todays import CANNOT_SPEAK, NO_COUNT
from elasticjob.cli.convert.training import NO_IMAGE
from elasticjob.client.objects import IMAGE
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.admitted import refusals

TEMPLATE = "{spec: {containers: [{name: main, image: i, command: [train]}]}}"
POD = {"spec": {"containers": [{"name": "main", "image": "i", "command": ["train"]}]}}


@dataclass(frozen=True)
class Row:
    name: str
    given: str
    spec: dict[str, Any]
    lost: tuple[str, ...] = ()
    kind: str = "ElasticJob"
    labels: Manifest = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def converted(text: str) -> Outcome:
    [source] = sources("job.yaml", text)
    return outcome(source, SYSTEMS)


def lossy(found: Outcome) -> tuple[str, ...]:
    assert found.converted is not None, found.refusal
    return tuple(f"{note.line} {note}" for note in found.converted.notes if note.lossy)


def headed(api: str, kind: str, spec: str) -> str:
    return f"apiVersion: {api}\nkind: {kind}\nmetadata: {{name: digits, namespace: lab}}\nspec:\n{spec}"


def running(*words: str) -> Manifest:
    return {"spec": {"containers": [{"name": "main", "image": "i", "command": list(words)}]}}


OUR_RUN = "elasticjob run --nproc-per-node 2"
PADDLES = {
    "name": "main",
    "image": "paddlepaddle/paddlecloud-job",
    "env": [
        {"name": "PADDLE_JOB_NAME", "value": "digits"},
        {"name": "PADDLE_INIT_PORT", "value": "7164"},
        {"name": "PADDLE_INIT_PORTS_NUM", "value": "1"},
        {"name": "PADDLE_INIT_PORTS_NUM_FOR_SPARSE", "value": "1"},
        {"name": "PADDLE_INIT_NUM_PASSES", "value": "1"},
    ],
    "ports": [
        {"name": "jobport-7164", "containerPort": 7164},
        {"name": "jobport-7165", "containerPort": 7165},
    ],
}
LAUNCHERS_COMMAND = "spec.etReplicaSpecs.launcher.template.spec.containers[0].command"
OF_SCRIPT = ("t.py", "--lr", "1")
OURS = "elastic.iml.github.io/v1alpha1"
ROWS = [
    Row(
        "a job of ours comes out as it went in",
        headed(OURS, "ElasticJob", f"""
  optimizeMode: manual
  nodeUnit: 2
  runPolicy: {{cleanPodPolicy: All, scheduling: {{gang: required}}}}
  envs: {{A: {{value: b}}}}
  replicaSpecs:
    worker: {{replicas: 2, minReplicas: 2, maxReplicas: 4, template: {TEMPLATE}}}
"""),
        {
            "optimizeMode": "manual",
            "nodeUnit": 2,
            "runPolicy": {"cleanPodPolicy": "All", "scheduling": {"gang": "required"}},
            "envs": {"A": {"value": "b"}},
            "replicaSpecs": {"worker": {"replicas": 2, "minReplicas": 2, "maxReplicas": 4, "template": POD}},
        },
    ),
    Row(
        "DLRover",
        headed(OURS, "ElasticJob", f"""
  distributionStrategy: parameter_server
  enableDynamicSharding: true
  resourceLimits: {{cpu: "6"}}
  replicaSpecs:
    ps: {{replicas: 1, restartTimeout: 600, BatchScheduler: volcano, template: {TEMPLATE}}}
    worker: {{replicas: 2, BatchScheduler: elastic, template: {TEMPLATE}}}
    dlrover-master:
      template: {{spec: {{restartPolicy: Never, containers: [{{name: main, image: "x/dlrover:v0.2"}}]}}}}
"""),
        {
            "distributionStrategy": "ParameterServerStrategy",
            "resourceLimits": {"cpu": "6"},
            "runPolicy": {"scheduling": {"gang": "volcano"}},
            "replicaSpecs": {
                "ps": {"replicas": 1, "template": POD},
                "worker": {"replicas": 2, "template": POD},
                "dlrover-master": {"template": {"spec": {"containers": [{"name": "main"}]}}},
            },
        },
        (
            "7 spec.enableDynamicSharding: dropped (the script asks for shards: docs/shards.md)",
            f"11 spec.replicaSpecs.worker.BatchScheduler: dropped ({UNKNOWN})",
        ),
    ),
    Row(
        "a plan of DLRover",
        headed(OURS, "ScalePlan", """
  ownerJob: my-job
  migratePods:
  - {name: my_job-edljob-ps-0, resource: {cpu: 4}}
  - {name: my-job-edljob-worker-1, resource: {cpu: 1}}
  removePods: [my-job-edljob-worker-2]
  createPods: []
  psHosts: [my-job-ps-0.lab.svc:2222]
"""),
        {
            "ownerJob": "my-job",
            "migratePods": [
                {"name": "my-job-ps-0", "resource": {"cpu": 4}},
                {"name": "my-job-worker-1", "resource": {"cpu": 1}},
            ],
            "removePods": ["my-job-worker-2"],
            "psHosts": ["my-job-ps-0.lab.svc:2222"],
        },
        kind="ScalePlan",
    ),
    Row(
        "EasyDL, as its design page has it",
        headed("elastic.easydl.org/v1alpha1", "ElasticJob", """
  command: "python -m model_zoo.iris.dnn_estimator"
  image:
  parameter_server: {image: "e:1"}
  worker: {image: "e:1"}
  evaluator: {image: "e:2"}
"""),
        {
            "distributionStrategy": "ParameterServerStrategy",
            "replicaSpecs": {
                role: {
                    "template": {
                        "spec": {
                            "containers": [
                                {
                                    "name": "main",
                                    "image": image,
                                    "command": ["python", "-m", "model_zoo.iris.dnn_estimator"],
                                }
                            ]
                        }
                    }
                }
                for role, image in (("ps", "e:1"), ("worker", "e:1"), ("evaluator", "e:2"))
            },
        },
    ),
    Row(
        "EasyDL's sizes, as its design page has them",
        headed("elastic.easydl.org/v1alpha1", "JobResource", """
  selector:
    name: deepctr  // Job Name
  parameter_server: {replicas: 4, resource: {cpu: 4, memory: 4096, disk: 8192, gpu: 1}}
  worker: {replicas: 2}
  resource_updation: [{name: deepctr-ps-0, resource: {cpu: 8, memory: 8Gi}}]
"""),
        {
            "selector": {"name": "deepctr"},
            "replicaResourceSpecs": {
                "ps": {
                    "replicas": 4,
                    "resource": {
                        "cpu": 4,
                        "memory": "4096Mi",
                        "ephemeral-storage": "8192Mi",
                        "nvidia.com/gpu": 1,
                    },
                },
                "worker": {"replicas": 2},
            },
            "nodes": [{"name": "deepctr-ps-0", "resource": {"cpu": 8, "memory": "8Gi"}}],
        },
        ("7 spec.selector.name: changed (is deepctr now: YAML's comments begin with #)",),
        kind="JobResource",
    ),
    Row(
        "TorchElastic",
        headed("elastic.pytorch.org/v1alpha1", "ElasticJob", """
  rdzvEndpoint: etcd-service:2379
  minReplicas: 1
  maxReplicas: 4
  RunPolicy: {cleanPodPolicy: None, backoffLimit: 2, schedulingPolicy: {queue: q, minAvailable: 2}}
  replicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: ExitCode
      template:
        apiVersion: v1
        kind: Pod
        spec:
          containers:
          - {name: sidecar, image: s}
          - {name: elasticjob-worker, image: i, command: [train]}
"""),
        {
            "distributionStrategy": "AllreduceStrategy",
            "runPolicy": {
                "cleanPodPolicy": "None",
                "backoffLimit": 2,
                "scheduling": {"gang": "volcano", "queue": "q", "minAvailable": 2},
            },
            "replicaSpecs": {
                "worker": {
                    "replicas": 2,
                    "minReplicas": 1,
                    "maxReplicas": 4,
                    "restartPolicy": "ExitCode",
                    "template": {
                        "spec": {
                            "containers": [
                                {"name": "elasticjob-worker", "image": "i", "command": ["train"]},
                                {"name": "sidecar", "image": "s"},
                            ]
                        }
                    },
                }
            },
        },
    ),
    Row(
        "Paddle, with fields of co-scheduling",
        headed("paddlepaddle.org/v1", "TrainingJob", """
  image: python:3.11
  fault_tolerant: true
  schedulerName: kube-batchd
  podGroupName: podgroup-1
  mountPath: /home/work
  master: {etcd-endpoint: "etcd:2379"}
  priority: high
  trainer:
    entrypoint: train
    passes: 3
    min-instance: 2
    max-instance: 4
    resources: {limits: {alpha.kubernetes.io/nvidia-gpu: 1}}
"""),
        {
            "distributionStrategy": "AllreduceStrategy",
            "optimizeMode": "cluster",
            "runPolicy": {"scheduling": {"gang": "preferred"}},
            "replicaSpecs": {
                "worker": {
                    "replicas": 2,
                    "minReplicas": 2,
                    "maxReplicas": 4,
                    "template": {
                        "spec": {
                            "containers": [
                                {
                                    "name": "main",
                                    "image": "python:3.11",
                                    "command": ["train"],
                                    "env": [
                                        {"name": "PADDLE_JOB_NAME", "value": "digits"},
                                        {"name": "PADDLE_INIT_PORT", "value": "7164"},
                                        {"name": "PADDLE_INIT_PORTS_NUM", "value": "1"},
                                        {"name": "PADDLE_INIT_PORTS_NUM_FOR_SPARSE", "value": "1"},
                                        {"name": "PADDLE_INIT_NUM_PASSES", "value": "3"},
                                    ],
                                    "ports": [
                                        {"name": "jobport-7164", "containerPort": 7164},
                                        {"name": "jobport-7165", "containerPort": 7165},
                                    ],
                                    "resources": {
                                        "limits": {"nvidia.com/gpu": 1},
                                        "requests": {"nvidia.com/gpu": 1},
                                    },
                                }
                            ]
                        }
                    },
                }
            },
        },
        (
            f"8 spec.schedulerName: dropped ({OTHER_SCHEDULER})",
            f"9 spec.podGroupName: changed ({AS_GANG})",
            "10 spec.mountPath: dropped (has no effect: write volumes and VolumeMounts)",
            "12 spec.priority: dropped (write runPolicy.scheduling.priorityClassName)",
        ),
    ),
    Row(
        "et-operator's nodes to remove",
        headed("kai.alibabacloud.com/v1alpha1", "ScaleIn", """
  selector: {name: digits}
  toDelete: {podNames: [digits-worker-1]}
  timeout: 60
  script: echo
"""),
        {"ownerJob": "digits", "removePods": [{"name": "digits-worker-1"}], "manualScaling": True},
        (
            f"9 spec.script: dropped ({NO_SCRIPT})",
        ),
        kind="ScalePlan",
    ),
    Row(
        "dlrover-run in a script",
        headed(OURS, "ElasticJob", """
  replicaSpecs:
    worker:
      replicas: 4
      template:
        spec:
          restartPolicy: Always
          containers:
          - name: main
            image: i
            command:
            - /bin/bash
            - -c
            - "cd /code && dlrover-run --network-check --nnodes=3:$NODE_NUM --nproc_per_node=2 t.py --lr 1"
"""),
        {
            "nodeCheck": "ExcludeFaults",
            "replicaSpecs": {
                "worker": {
                    "replicas": 4,
                    "minReplicas": 3,
                    "maxReplicas": 4,
                    "template": running("/bin/bash", "-c", f"cd /code && {OUR_RUN} t.py --lr 1"),
                }
            },
        },
    ),
    Row(
        "DLRover's own program",
        headed(OURS, "ElasticJob", f"""
  distributionStrategy: ParameterServerStrategy
  replicaSpecs:
    ps: {{template: {TEMPLATE}}}
    worker: {{template: {{spec: {{containers: [{{name: main, image: i,
      command: [python, -m, dlrover.trainer.entry.local_entry, --platform=Kubernetes]}}]}}}}}}
"""),
        {
            "distributionStrategy": "ParameterServerStrategy",
            "replicaSpecs": {
                "ps": {"template": POD},
                "worker": {
                    "template": running(
                        "python", "-m", "dlrover.trainer.entry.local_entry", "--platform=Kubernetes"
                    )
                },
            },
        },
        (
            "10 spec.replicaSpecs.worker.template.spec.containers[0].command: changed "
            f"(dlrover.trainer.entry.local_entry {CANNOT_SPEAK})",
        ),
    ),
    Row(
        "TorchElastic's image has a launcher",
        headed("elastic.pytorch.org/v1alpha1", "ElasticJob", """
  replicaSpecs:
    Worker: {replicas: 2, template: {spec: {containers: [{name: main, image: i,
      args: [--nproc_per_node=2, t.py, --lr, "1"]}]}}}
"""),
        {
            "distributionStrategy": "AllreduceStrategy",
            "replicaSpecs": {"worker": {"replicas": 2, "template": running(*OUR_RUN.split(), *OF_SCRIPT)}},
        },
    ),
    Row(
        "et-operator",
        headed("kai.alibabacloud.com/v1alpha1", "TrainingJob", """
  cleanPodPolicy: Running
  slotsPerWorker: 2
  etReplicaSpecs:
    launcher: {replicas: 1, template: {spec: {containers: [{name: m, image: i,
      command: [sh, -c, "horovodrun -np 4 --min-np 2 --max-np 8 python t.py --lr 1"]}]}}}
    worker: {replicas: 2, minReplicas: 1, maxReplicas: 4,
      template: {spec: {containers: [{name: main, image: i}]}}}
"""),
        {
            "distributionStrategy": "AllreduceStrategy",
            "runPolicy": {"cleanPodPolicy": "Running"},
            "replicaSpecs": {
                "worker": {
                    "replicas": 2,
                    "minReplicas": 1,
                    "maxReplicas": 4,
                    "template": running("sh", "-c", f"{OUR_RUN} {' '.join(OF_SCRIPT)}"),
                }
            },
        },
        (
            f"10 {LAUNCHERS_COMMAND} horovodrun: changed ({OF_RANKS})",
        ),
    ),
    Row(
        "DLRover's first manifests, and what people get wrong",
        headed(OURS, "ElasticJob", """
  distribution_strategy: parameter_server
  resourceLimits: {cpu: 1, memory: 8Gi}
  replicaSpecs:
    PS: {replicas: 1, template: {spec: {containers: [{name: main, image: i, command: [train]}]}}}
  worker:
    replicas: 2
    template:
      metadata: {labels: {number: 1}}
      spec:
        containers:
        - name: main
          command: [sh, -c, "torchrun --nnodes=1:$WORKER_NUM t.py $WORKER_NUM"]
          env: [{name: A, value: 1}]
          resources: {requests: {cpu: 2}}
"""),
        {
            "distributionStrategy": "ParameterServerStrategy",
            "resourceLimits": {"cpu": "2", "memory": "8Gi"},
            "replicaSpecs": {
                "ps": {"replicas": 1, "template": POD},
                "worker": {
                    "replicas": 2,
                    "minReplicas": 1,
                    "maxReplicas": 2,
                    "template": {
                        "metadata": {"labels": {"number": "1"}},
                        "spec": {
                            "containers": [
                                {
                                    "name": "main",
                                    "image": IMAGE,
                                    "command": ["sh", "-c", "elasticjob run t.py $WORKER_NUM"],
                                    "env": [{"name": "A", "value": "1"}],
                                    "resources": {"requests": {"cpu": 2}},
                                }
                            ]
                        },
                    },
                },
            },
        },
        (
            "7 spec.resourceLimits.cpu: changed (1 is less than the least sizes need: is 2 now)",
            f"16 spec.worker.template.spec.containers[0].image: changed ({NO_IMAGE})",
            f"17 spec.worker.template.spec.containers[0].command $WORKER_NUM: changed ({NO_COUNT})",
        ),
    ),
    Row(
        "a plan that names its job by a label",
        headed(OURS, "ScalePlan", "  replicaResourceSpecs: {worker: {replicas: 2}}\n").replace(
            "namespace: lab", "namespace: lab, labels: {elasticjob-name: deepctr}"
        ),
        {"ownerJob": "deepctr", "replicaResourceSpecs": {"worker": {"replicas": 2}}},
        ("4 spec.ownerJob: changed (is absent: deepctr, as the label elasticjob-name says)",),
        kind="ScalePlan",
        labels={"elasticjob-name": "deepctr"},
    ),
    Row(
        "Paddle without an image, and with a range that is not tolerant",
        headed("paddlepaddle.org/v1", "TrainingJob", """
  fault_tolerant: false
  trainer: {min-instance: 1, max-instance: 2}
"""),
        {
            "distributionStrategy": "AllreduceStrategy",
            "optimizeMode": "cluster",
            "replicaSpecs": {
                "worker": {
                    "replicas": 1,
                    "minReplicas": 1,
                    "maxReplicas": 2,
                    "template": {"spec": {"containers": [PADDLES]}},
                }
            },
        },
        (
            "4 spec.image: changed (is absent: paddlepaddle/paddlecloud-job as in EDL; write yours)",
            f"6 spec.fault_tolerant: changed ({IN_A_RANGE})",
        ),
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_manifests_are_converted(row: Row) -> None:
    found = converted(row.given)
    assert lossy(found) == row.lost
    assert found.converted is not None
    assert found.converted.job == {
        "apiVersion": OURS,
        "kind": row.kind,
        "metadata": {"name": "digits", "namespace": "lab"} | ({"labels": row.labels} if row.labels else {}),
        "spec": row.spec,
    }
    assert refusals(found.converted.job) == []
    assert not found.is_refusal


TRAINER = "  image: i\n  trainer: {{min-instance: {}, max-instance: {}}}\n"
REFUSED = [
    (
        headed("elastic.pytorch.org/v1alpha1", "ElasticJob", "  replicaSpecs: {Master: {}}\n"),
        "spec.replicaSpecs has no Worker: write one, with its template",
    ),
    (
        headed("paddlepaddle.org/v1", "TrainingJob", TRAINER.format(3, 2)),
        "spec.trainer.min-instance: is more than max-instance 2: lower it, or raise max-instance",
    ),
    (
        headed("paddlepaddle.org/v1", "TrainingJob", "  image: i\n  trainer: {min-instance: 3}\n"),
        "spec.trainer.max-instance: field required: correct it",
    ),
    (
        headed("kai.alibabacloud.com/v1alpha1", "ScaleOut", "  selector: {name: a}\n  toAdd: {count: 2}\n"),
        "spec.toAdd.count is relative, and a plan says how many there are then: write kubectl scale "
        "elasticjob a --replicas=N",
    ),
    (
        headed("kai.alibabacloud.com/v1alpha1", "TrainingJob", "  etReplicaSpecs: {launcher: {}}\n"),
        "spec.etReplicaSpecs has no worker: write one, with its template",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_what_cannot_be_converted_is_refused_with_the_field(text: str, why: str) -> None:
    found = converted(text)
    assert found.is_refusal
    assert found.refusal == why


def test_names_become_names_of_services() -> None:
    spec = f"  replicaSpecs: {{worker: {{replicas: 1, template: {TEMPLATE}}}}}\n"
    found = converted(headed(OURS, "ElasticJob", spec).replace("name: digits", "name: 1_Digits.of.me"))
    assert found.converted is not None
    assert found.converted.job["metadata"]["name"] == "job-1-digits-of-me"
    assert lossy(found) == ("3 metadata.name: changed (is job-1-digits-of-me now)",)


def test_what_the_server_wrote_is_no_loss() -> None:
    given: Manifest = yaml.safe_load(
        headed(OURS, "ElasticJob", f"  replicaSpecs: {{worker: {{template: {TEMPLATE}}}}}\n")
    )
    given["metadata"] |= {
        "uid": "u",
        "managedFields": [{}],
        "generation": 3,
        "creationTimestamp": "2020-01-01",
    }
    given["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}
    given["status"] = {"phase": "Running"}
    found = converted(yaml.safe_dump(given))
    assert lossy(found) == ()
    assert found.converted is not None
    assert found.converted.job["metadata"] == {
        "name": "digits",
        "namespace": "lab",
        "annotations": {"a": "b"},
    }
