"""Manifests of other operators: a row for each thing that users look for, and laws over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.cli.convert.conversion import Outcome, outcome
from elasticjob.cli.convert.reading import sources
from elasticjob.cli.convert.system import Note, Verdict
from elasticjob.cli.convert.systems import SYSTEMS
from tests.kit.blocks import yaml_problems


def converted(text: str) -> Outcome:
    [source] = sources("job.yaml", text)
    return outcome(source, SYSTEMS)


def at(job: Any, path: str) -> Any:
    """Return the value at a path such as spec.replicaSpecs.worker.replicas; None if there is none."""
    for step in path.split("."):
        if isinstance(job, list):
            job = job[int(step)] if int(step) < len(job) else None
        else:
            job = job.get(step) if isinstance(job, Mapping) else None
    return job


WORKER = "spec.replicaSpecs.worker"
MAIN = f"{WORKER}.template.spec.containers.0"
POD = "template: {spec: {containers: [{name: main, image: i, command: [%s]}]}}"
TRAIN = POD % "torchrun, --nproc_per_node=2, t.py"
PYTHON = POD % "python, t.py"

PYTORCH = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n"
TF = "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: a}\nspec:\n"
MPI = "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: a}\nspec:\n"
TRAINER = (
    "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: a}\nspec:\n"
    "  runtimeRef: {name: torch-distributed}\n"
)
HYPERPOD = "apiVersion: sagemaker.amazonaws.com/v1\nkind: HyperPodPyTorchJob\nmetadata: {name: a}\nspec:\n"
VOLCANO = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: a}\nspec:\n"
RAY = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\nspec:\n"
RAY_POD = "template: {spec: {containers: [{name: w, image: i, resources: {limits: {nvidia.com/gpu: 4}}}]}}"

ROWS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "master and worker are workers": (
        PYTORCH + f"  pytorchReplicaSpecs:\n    Master: {{{PYTHON}}}\n    Worker: "
f"{{replicas: 3, {PYTHON}}}\n",
        {f"{WORKER}.replicas": 4, f"{MAIN}.command": ["elasticjob", "run", "t.py"]},
        ["spec.pytorchReplicaSpecs.Worker.replicas: kept (counted in spec.replicaSpecs.worker.replicas)"],
    ),
    "the elastic policy is the range": (
        PYTORCH + "  elasticPolicy: "
"{minReplicas: 1, maxReplicas: 4, maxRestarts: 9, rdzvBackend: etcd, metrics: [{}]}\n"
        f"  nprocPerNode: '8'\n  pytorchReplicaSpecs:\n    Worker: {{replicas: 2, "
f"{POD % 'torchrun, t.py'}}}\n"
        "  runPolicy: {suspend: true, ttlSecondsAfterFinished: 5, schedulingPolicy: {queue: q}}\n",
        {f"{WORKER}.replicas": 2, f"{WORKER}.minReplicas": 1, f"{WORKER}.maxReplicas": 4,
         f"{MAIN}.command": ["elasticjob", "run", "--nproc-per-node", "8", "--max-restarts", "9", "t.py"],
         "spec.suspend": True, "spec.runPolicy.ttlSecondsAfterFinished": 5,
         "spec.runPolicy.scheduling": {"gang": "volcano", "queue": "q"}},
        ["spec.elasticPolicy.rdzvBackend: dropped", "spec.elasticPolicy.metrics: dropped (optimizeMode"],
    ),
    "an image's own command is told": (
        PYTORCH + "  pytorchReplicaSpecs:\n    Worker: {template: {spec: {containers: "
"[{name: pytorch, image: i}]}}}\n",
        {f"{WORKER}.replicas": 1},
        ["spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command: changed (is absent"],
    ),
    "the container called pytorch trains": (
        PYTORCH + "  pytorchReplicaSpecs:\n    Worker: {template: {spec: {containers: "
"[{name: side, image: s}, "
        "{name: pytorch, image: i, command: [torchrun, t.py]}]}}}\n",
        {f"{MAIN}.name": "pytorch", f"{MAIN}.command": ["elasticjob", "run", "t.py"]},
        ["spec.pytorchReplicaSpecs.Worker.template.spec.containers[1].command: kept (elasticjob "
"run in place of torchrun"],
    ),
    "the last Python of a shell's script trains": (
        PYTORCH + "  pytorchReplicaSpecs:\n    Worker: {template: {spec: {containers: [{name: a, image: i, "
        "command: [sh, -c, 'python prep.py && python -u t.py --x 1; python -m pip list; echo a']}]}}}\n",
        {f"{MAIN}.command.2":
         "python prep.py && elasticjob run t.py --x 1; python -m pip list; echo a"},
        [],
    ),
    "workers of JAX": (
        PYTORCH.replace("PyTorch", "JAX") + f"  jaxReplicaSpecs:\n    Worker: {{replicas: 2, {PYTHON}}}\n",
        {f"{WORKER}.replicas": 2, "metadata.annotations": {"elasticjob.dlrover/framework": "jax"},
         f"{MAIN}.command": ["elasticjob", "run", "t.py"]},
        ["spec.jaxReplicaSpecs.Worker.template.spec.containers[0].env: changed (COORDINATOR_ADDRESS"],
    ),
    "servers and workers of TensorFlow": (
        TF + f"  tfReplicaSpecs:\n    PS: {{replicas: 2, {PYTHON}}}\n    Worker: {{replicas: 3, {PYTHON}}}\n"
        f"    Chief: {{{PYTHON}}}\n    Evaluator: {{{PYTHON}}}\n",
        {"spec.distributionStrategy": "ParameterServerStrategy", "spec.replicaSpecs.ps.replicas": 2,
         f"{WORKER}.replicas": 3, f"{MAIN}.command": ["python", "t.py"],
         "metadata.annotations": {"elasticjob.dlrover/framework": "tensorflow"},
         "spec.runPolicy.successPolicy": "ChiefOrWorker0"},
        [],
    ),
    "without servers the chief is a worker": (
        TF + "  cleanPodPolicy: All\n  successPolicy: AllWorkers\n  tfReplicaSpecs:\n    Chief: "
f"{{{PYTHON}}}\n"
        f"    Worker: {{replicas: 2, {PYTHON}}}\n",
        {"spec.distributionStrategy": "AllreduceStrategy",
         f"{WORKER}.replicas": 3, "spec.replicaSpecs.chief": None,
         "spec.runPolicy": {"cleanPodPolicy": "All", "successPolicy": "AllWorkers"}},
        ["spec.tfReplicaSpecs.Chief.replicas: kept (without parameter servers"],
    ),
    "workers run what the launcher starts": (
        MPI + "  slotsPerWorker: 2\n  mpiReplicaSpecs:\n"
        "    Launcher: {template: {spec: {containers: [{name: l, image: i, command: [mpirun], "
        "args: [-np, '4', -x, A=1, python, t.py]}]}}}\n"
        "    Worker: {replicas: 2, template: {spec: {containers: [{name: w, image: j, command: [sshd]}]}}}\n",
        {f"{WORKER}.replicas": 2, f"{MAIN}.image": "j", f"{MAIN}.env": [{"name": "A", "value": "1"}],
         f"{MAIN}.command": ["elasticjob", "run", "--nproc-per-node", "2", "t.py"]},
        ["spec.mpiReplicaSpecs.Worker.template.spec.containers[0].command: changed (the workers "
"run the launcher's"],
    ),
    "DeepSpeed over MPIJob's hostfile": (
        MPI + "  mpiReplicaSpecs:\n    Launcher: {template: {spec: {containers: "
"[{name: l, image: i, command: "
        "[sh, -c, 'deepspeed --hostfile /etc/mpi/hostfile t.py']}]}}}\n"
        "    Worker: {replicas: 4, template: {spec: {containers: [{name: w, image: j}]}}}\n",
        {f"{WORKER}.replicas": 4, f"{MAIN}.command": ["sh", "-c", "elasticjob run t.py"]},
        [],
    ),
    "a trainer and its patches": (
        TRAINER + "  trainer:\n    numNodes: 3\n    numProcPerNode: 2\n    image: i\n    command: "
"[torchrun, t.py]\n"
        "    resourcesPerNode: {limits: {cpu: 1}}\n  runtimePatches:\n  - manager: m\n    "
"trainingRuntimeSpec:\n"
        "      template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: "
        "{nodeSelector: {a: b}}}}}}]}}\n",
        {f"{WORKER}.replicas": 3, f"{MAIN}.command": ["elasticjob", "run", "--nproc-per-node", "2", "t.py"],
         f"{WORKER}.template.spec.nodeSelector": {"a": "b"}, f"{MAIN}.resources": {"limits": {"cpu": 1}}},
        ["spec.runtimeRef.name: changed (there are no runtimes"],
    ),
    "overrides of Trainer 2.0": (
        TRAINER + "  trainer: {command: [torchrun, t.py]}\n  podTemplateOverrides:\n  - "
"targetJobs: [{name: node}]\n"
        "    spec: {serviceAccountName: s, containers: [{name: node, env: [{name: A, value: b}]}]}\n",
        {f"{WORKER}.template.spec.serviceAccountName": "s", f"{MAIN}.env": [{"name": "A", "value": "b"}]},
        ["spec.trainer.image: changed (is absent"],
    ),
    "groups of HyperPod": (
        HYPERPOD + "  nprocPerNode: '8'\n  elasticPolicy: "
"{minReplicas: 2, maxReplicas: 8, replicaIncrementStep: 2, "
        "gracefulShutdownTimeoutInSeconds: 9}\n  runPolicy: {jobMaxRetryCount: 5, restartPolicy: "
"{evalPeriodSeconds: 60}}\n"
        f"  replicaSpecs:\n  - {{name: pods, replicas: 4, {POD % 'hyperpodrun, t.py'}}}\n",
        {f"{WORKER}.replicas": 4, f"{WORKER}.minReplicas": 2, f"{WORKER}.maxReplicas": 8, "spec.nodeUnit": 2,
         "spec.runPolicy": {"backoffLimit": 5, "forgiveRestartsAfterSeconds": 60},
         f"{MAIN}.command": ["elasticjob", "run", "--nproc-per-node", "8", "t.py"]},
        ["spec.elasticPolicy.gracefulShutdownTimeoutInSeconds: dropped (nodes join"],
    ),
    "tasks of Volcano that are ranked": (
        VOLCANO + "  minAvailable: 2\n  queue: q\n  maxRetry: 5\n  plugins: {pytorch: []}\n  tasks:\n"
        f"  - {{name: master, replicas: 1, {PYTHON}}}\n  - {{name: worker, replicas: 2, {PYTHON}}}\n",
        {"spec.distributionStrategy": "AllreduceStrategy", f"{WORKER}.replicas": 3,
         f"{MAIN}.command": ["elasticjob", "run", "t.py"],
         "spec.runPolicy": {"backoffLimit": 5, "scheduling": {"gang": "volcano",
         "minAvailable": 2, "queue": "q"}}},
        [],
    ),
    "servers of Volcano": (
        VOLCANO + "  plugins: {svc: [], env: []}\n  tasks:\n"
        f"  - {{name: ps, replicas: 2, {POD % 'sh, -c, cat /etc/volcano/ps.host'}}}\n"
        f"  - {{name: trainer, replicas: 3, minAvailable: 1, {PYTHON}, "
        f"policies: [{{event: PodEvicted, action: RestartJob}}]}}\n",
        {"spec.distributionStrategy": "ParameterServerStrategy", "spec.replicaSpecs.ps.replicas": 2,
         f"{WORKER}.minReplicas": 1, f"{WORKER}.maxReplicas": 3, f"{MAIN}.env.0.name": "VC_TASK_INDEX"},
        ["spec.tasks[0].template.spec.containers[0].command: changed (reads /etc/volcano/ps.host",
         "spec.tasks[1].policies[0].action: changed (a pod that is evicted"],
    ),
    "a pair of Volcano's tasks over ssh": (
        VOLCANO + "  plugins: {ssh: []}\n  tasks:\n"
        f"  - {{name: launcher, replicas: 1, {POD % 'sh, -c, mpirun -np 4 python t.py'}}}\n"
        f"  - {{name: mpiworker, replicas: 2, {POD % 'sshd'}}}\n",
        {f"{WORKER}.replicas": 2, f"{MAIN}.command": ["sh", "-c", "elasticjob run --nproc-per-node 2 t.py"]},
        [],
    ),
    "other tasks keep their names": (
        VOLCANO + f"  tasks:\n  - {{name: a, replicas: 1, {POD % 'x'}}}\n  - "
f"{{name: b1, replicas: 2, {POD % 'y'}}}\n",
        {"spec.distributionStrategy": "CustomStrategy", "spec.replicaSpecs.b1.replicas": 2},
        [],
    ),
    "Volcano's volumes": (
        VOLCANO + f"  volumes: [{{mountPath: /in, volumeClaimName: c}}, "
        f"{{mountPath: /out, volumeClaim: {{}}}}]\n"
        f"  tasks:\n  - {{name: w, {PYTHON}}}\n",
        {f"{MAIN}.volumeMounts": [{"name": "volume-0", "mountPath": "/in"}, {"name": "volume-1",
         "mountPath": "/out"}],
         f"{WORKER}.template.spec.volumes.0.persistentVolumeClaim.claimName": "c"},
        [],
    ),
    "an entrypoint of Ray on each worker": (
        RAY + "  entrypoint: python t.py --x 1\n  shutdownAfterJobFinishes: true\n  "
"ttlSecondsAfterFinished: 9\n"
        "  runtimeEnvYAML: |\n    pip: [a]\n    env_vars: {A: '1'}\n  rayClusterSpec:\n    "
"enableInTreeAutoscaling: true\n"
        f"    headGroupSpec: {{{RAY_POD}}}\n    workerGroupSpecs:\n"
        f"    - {{groupName: g, replicas: 2, minReplicas: 1, maxReplicas: 5, rayStartParams: {{}}, "
        f"{RAY_POD}}}\n"
        f"    - {{groupName: h, {RAY_POD}}}\n",
        {f"{WORKER}.replicas": 2, f"{WORKER}.minReplicas": 1, f"{WORKER}.maxReplicas": 5,
         f"{MAIN}.command": ["elasticjob", "run", "--nproc-per-node", "4", "t.py", "--x", "1"],
         f"{MAIN}.env": [{"name": "A", "value": "1"}], "spec.runPolicy.cleanPodPolicy": "All",
         "spec.runPolicy.ttlSecondsAfterFinished": 9},
        ["spec.entrypoint: changed (", "spec.runtimeEnvYAML: changed (pip:",
         "spec.rayClusterSpec.workerGroupSpecs[1]: dropped (the first group trains"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_a_manifest_becomes_a_job(row: str) -> None:
    text, wanted, notes = ROWS[row]
    made = converted(text)
    assert made.converted is not None, made.refusal
    assert {path: at(made.converted.job, path) for path in wanted} == wanted
    told = [str(note) for note in made.converted.notes]
    assert [note for note in notes if not any(each.startswith(note) for each in told)] == [], told
    assert made.problems == ()
    assert yaml_problems(yaml.safe_dump(made.converted.job)) == [], "the definition in the cluster refuses it"
    assert [each for each in told if "does not know it" in each] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (PYTORCH + "  pytorchReplicaSpecs: {}\n",
         "spec.pytorchReplicaSpecs has neither Master nor Worker: write Worker, with its template"),
        (TF + "  tfReplicaSpecs: {PS: {}}\n",
         "spec.tfReplicaSpecs has no Worker: write one, with its template"),
        (MPI + "  mpiReplicaSpecs: {Worker: {}}\n",
         "spec.mpiReplicaSpecs has no Launcher: write one, with the command"),
        (MPI + f"  mpiReplicaSpecs: {{Launcher: {{{POD % 'mpirun, ./pi'}}}}}\n",
         "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].command starts ./pi, which is "
"no Python script: "
         "only MPI starts it with its ranks. Keep the job as it is, or write a script that calls "
"torch.distributed"),
        (PYTORCH.replace("PyTorchJob", "XGBoostJob"),
         "XGBoost's workers meet at a tracker in the Master, which no ElasticJob has: keep the XGBoostJob"),
        (HYPERPOD + "  replicaSpecs: []\n", "spec.replicaSpecs has no group: write one, with its template"),
        (VOLCANO + "  tasks: []\n", "spec.tasks has no task: write one, with its template"),
        (RAY + "  rayClusterSpec: {}\n",
         "spec.entrypoint is absent: write the command of the training script"),
        (RAY.replace("RayJob", "RayCluster") + "  rayVersion: '2'\n",
         "a RayCluster has pods and no command: write a RayJob with spec.entrypoint, or an "
"ElasticJob of your "
         "training script"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_job_is_refused_in_a_sentence(text: str, why: str) -> None:
    assert converted(text).refusal == why


KEYS = st.text(alphabet="abcdefghijklmnop", min_size=6, max_size=9).map(lambda name: f"x{name}")


def mappings(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the paths of all mappings but those of pod templates, free texts and labels."""
    found = [path] if isinstance(value, dict) else []
    listed = enumerate(value) if isinstance(value, list) else ()
    for name, member in value.items() if isinstance(value, dict) else listed:
        if name not in ("labels", "annotations", "volumeClaim", "limits", "env", "command", "metrics"):
            found += mappings(member, (*path, name))
    return found


@given(data=st.data(), key=KEYS, row=st.sampled_from(sorted(ROWS)))
def test_a_field_that_nobody_knows_is_always_told(data: st.DataObject, key: str, row: str) -> None:
    [source] = sources("job.yaml", ROWS[row][0])
    path = data.draw(st.sampled_from(mappings(source.manifest)))
    place: Any = source.manifest
    for step in path:
        place = place[step]
    place[key] = 1
    made = outcome(source, SYSTEMS)
    assert made.converted is not None, made.refusal
    told = any(key in note.field or _drops(note, path) for note in made.converted.notes)
    assert told or key in str(made.problems), path
    assert key not in str(made.converted.job) or key in str(made.problems) or path[-1:] == ("nodeSelector",)


def _drops(note: Note, path: tuple[str | int, ...]) -> bool:
    """Whether a note says of something that the extra field is in that it is not kept as it was."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    wholes = {"".join(steps[: at + 1]).removeprefix(".") for at in range(len(steps))}
    return note.verdict is not Verdict.KEPT and note.field in wholes


WRONG: st.SearchStrategy[Any] = st.sampled_from(
    [None, 1, -3, "", "x", True, [], {}, [1], [{}], [[]], {"a": 1}, 1.5, "$N", {"spec": None}]
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the paths of everything below a manifest's apiVersion and kind."""
    found = [path] if path and path[0] not in ("apiVersion", "kind") else []
    listed = enumerate(value) if isinstance(value, list) else ()
    for name, member in value.items() if isinstance(value, dict) else listed:
        found += places(member, (*path, name))
    return found


@given(data=st.data(), row=st.sampled_from(sorted(ROWS)))
def test_values_of_any_kind_are_answered(data: st.DataObject, row: str) -> None:
    [source] = sources("job.yaml", ROWS[row][0])
    for _ in range(2):
        path = data.draw(st.sampled_from(places(source.manifest)))
        place: Any = source.manifest
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = deepcopy(data.draw(WRONG))
    made = outcome(source, SYSTEMS)
    assert made.converted is not None or made.refusal
