"""No number of the user's changes silently: it is where its note says, or the note has the new number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.cli.convert.system import Note, Verdict, child
from elasticjob.kube.objects.kinds import Manifest
from tests.cli.convert.converted import converted
from tests.cli.convert.test_manifests import objects

POD: Final = "template: {spec: {containers: [{name: main, image: i, command: [python, t.py]}]}}"
MPIRUN: Final = "template: {spec: {containers: [{name: main, image: i, command: [mpirun, python, t.py]}]}}"
RANGE: Final = "replicas: 0, minReplicas: 0, maxReplicas: 0"
POLICY: Final = "backoffLimit: 0, activeDeadlineSeconds: 9, ttlSecondsAfterFinished: 0"

JOBS: Final[dict[str, tuple[str, str]]] = {
    "DLRover": (
        "elastic.iml.github.io/v1alpha1/ElasticJob",
        f"{{nodeUnit: 1, replicaSpecs: {{worker: {{{RANGE}, template: {{spec: {{containers: "
        f"[{{name: main, image: i, command: [torchrun, --nnodes, '2:4', t.py]}}]}}}}}}}}}}",
    ),
    "et-operator": (
        "kai.alibabacloud.com/v1alpha1/TrainingJob",
        f"{{backoffLimit: 0, etReplicaSpecs: {{launcher: {{{MPIRUN}}}, worker: {{{RANGE}, {POD}}}}}}}",
    ),
    "PyTorchJob": (
        "kubeflow.org/v1/PyTorchJob",
        f"{{elasticPolicy: {{minReplicas: 0, maxReplicas: 0}}, runPolicy: {{{POLICY}}}, "
        f"pytorchReplicaSpecs: {{Worker: {{replicas: 0, {POD}}}}}}}",
    ),
    "PyTorchJob with a Master": (
        "kubeflow.org/v1/PyTorchJob",
        f"{{elasticPolicy: {{minReplicas: 0, maxReplicas: 0}}, "
        f"pytorchReplicaSpecs: {{Master: {{replicas: 0, {POD}}}, Worker: {{replicas: 0, {POD}}}}}}}",
    ),
    "TFJob": (
        "kubeflow.org/v1/TFJob",
        f"{{runPolicy: {{{POLICY}}}, tfReplicaSpecs: {{PS: {{replicas: 0, {POD}}}, "
        f"Chief: {{replicas: 0, {POD}}}, Worker: {{replicas: 0, {POD}}}}}}}",
    ),
    "TFJob without servers": (
        "kubeflow.org/v1/TFJob",
        f"{{tfReplicaSpecs: {{Chief: {{replicas: 0, {POD}}}, Worker: {{replicas: 0, {POD}}}}}}}",
    ),
    "MPIJob": (
        "kubeflow.org/v2beta1/MPIJob",
        f"{{slotsPerWorker: 2, runPolicy: {{{POLICY}}}, "
        f"mpiReplicaSpecs: {{Launcher: {{{MPIRUN}}}, Worker: {{replicas: 0, {POD}}}}}}}",
    ),
    "MPIJob of one template": ("kubeflow.org/v1alpha1/MPIJob", f"{{gpus: 0, gpusPerNode: 0, {MPIRUN}}}"),
    "JAXJob": (
        "kubeflow.org/v1/JAXJob",
        f"{{runPolicy: {{{POLICY}}}, jaxReplicaSpecs: {{Worker: {{replicas: 0, {POD}}}}}}}",
    ),
    "TrainJob": (
        "trainer.kubeflow.org/v1alpha1/TrainJob",
        "{runtimeRef: {name: torch}, activeDeadlineSeconds: 9, "
        "trainer: {numNodes: 0, image: i, command: [torchrun, t.py]}}",
    ),
    "HyperPod": (
        "sagemaker.amazonaws.com/v1/HyperPodPyTorchJob",
        f"{{elasticPolicy: {{minReplicas: 0, maxReplicas: 0, replicaIncrementStep: 1}}, "
        f"replicaSpecs: [{{name: a, replicas: 0, maxReplicas: 0, {POD}}}]}}",
    ),
    "HyperPod of two groups": (
        "sagemaker.amazonaws.com/v1/HyperPodPyTorchJob",
        "{elasticPolicy: {minReplicas: 0}, replicaSpecs: "
        f"[{{name: a, replicas: 0, maxReplicas: 0, {POD}}}, {{name: b, replicas: 0, {POD}}}]}}",
    ),
    "Volcano": (
        "batch.volcano.sh/v1alpha1/Job",
        f"{{minAvailable: 0, maxRetry: 0, ttlSecondsAfterFinished: 0, tasks: [{{name: ps, replicas: 0, "
        f"minAvailable: 0, {POD}}}, {{name: worker, replicas: 0, minAvailable: 0, {POD}}}]}}",
    ),
    "Volcano with ranks": (
        "batch.volcano.sh/v1alpha1/Job",
        f"{{minAvailable: 0, plugins: {{pytorch: []}}, tasks: [{{name: master, replicas: 0, "
        f"minAvailable: 0, {POD}}}, {{name: worker, replicas: 0, minAvailable: 0, {POD}}}]}}",
    ),
    "Volcano with MPI": (
        "batch.volcano.sh/v1alpha1/Job",
        f"{{tasks: [{{name: master, {MPIRUN}}}, {{name: worker, replicas: 0, {POD}}}]}}",
    ),
    "RayJob": (
        "ray.io/v1/RayJob",
        "{entrypoint: python t.py, backoffLimit: 0, rayClusterSpec: {enableInTreeAutoscaling: true, "
        f"workerGroupSpecs: [{{groupName: g, numOfHosts: 0, {RANGE}, {POD}}}]}}}}",
    ),
    "Paddle": (
        "paddlepaddle.org/v1/TrainingJob",
        "{image: i, port: 7164, ports_num: 1, fault_tolerant: true, trainer: {entrypoint: python t.py, "
        "min-instance: 1, max-instance: 2}, pserver: {min-instance: 1, max-instance: 1}}",
    ),
}
REQUIRED: Final = frozenset({"replicas", "numNodes"})
FIXED: Final = frozenset({"activeDeadlineSeconds", "slotsPerWorker", "port", "ports_num"})
OF_RUN: Final = "spec.runPolicy"
SHORT: Final = {"runPolicy.": f"{OF_RUN}.", "scheduling.": f"{OF_RUN}.scheduling."}
"""Notes leave out the beginning of these paths."""
NOW: Final = re.compile(r"is (\d+) now\b")
MOVED: Final = re.compile(r"as ((?:spec\.|runPolicy\.|scheduling\.)[\w.-]+\w)")
COUNTED: Final = re.compile(r"counted in (spec\.replicaSpecs\.worker)")


def numbers(value: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Find the members of objects that are numbers: path, object, name."""
    for path, place in objects(value):
        yield from ((child(path, name), place, name) for name, member in place.items() if type(member) is int)


def at(job: Manifest, path: str) -> Any:
    """Return the value at a path; a role without a bound has its number of replicas."""
    found: Any = job
    whole = next((path.replace(a, b, 1) for a, b in SHORT.items() if path.startswith(a)), path)
    for step in whole.split("."):
        last, found = found, found.get(step) if isinstance(found, dict) else None
    if found is None and step == "nodeUnit":
        return 1
    return last.get("replicas") if found is None and step in ("minReplicas", "maxReplicas") else found


def drawn(data: st.DataObject, text: tuple[str, str]) -> Manifest:
    made = manifest_of(text)
    for path, holder, field in list(numbers(made)):
        if field not in REQUIRED | FIXED and not data.draw(st.booleans(), label=f"has {path}"):
            del holder[field]
        elif field not in FIXED:
            holder[field] = data.draw(st.integers(0, 6), label=path)
    return made


@pytest.mark.parametrize("name", JOBS)
def test_no_number_changes_silently(name: str) -> None:
    @settings(max_examples=30)
    @given(st.data())
    def law(data: st.DataObject) -> None:
        manifest = drawn(data, JOBS[name])
        found = converted(yaml.safe_dump(manifest))
        if found.converted is None:
            assert found.refusal
            return
        given_numbers = {path: holder[field] for path, holder, field in numbers(manifest)}
        notes = {note.field: note for note in found.converted.notes if note.field in given_numbers}
        assert notes.keys() == given_numbers.keys()
        job = found.converted.job
        made = [(field, holder[field]) for _, holder, field in numbers(job)]
        for path, note in notes.items():
            problem = silent(note, given_numbers[path], job, made)
            assert not problem, f"{note}: {problem} in {yaml.safe_dump(job)}"
        counts = [note for note in notes.values() if note.field.endswith(".replicas")]
        summed = [note for note in counts if COUNTED.search(note.why)]
        if summed and all(note.verdict is Verdict.KEPT for note in counts):
            total = sum(given_numbers[note.field] for note in summed)
            assert at(job, "spec.replicaSpecs.worker.replicas") == total

    law()


def silent(note: Note, number: int, job: Manifest, made: list[tuple[str, int]]) -> str:
    """Return why a note does not say what became of a number; "" if it does."""
    if note.verdict is Verdict.DROPPED or COUNTED.search(note.why):
        return ""
    if now := NOW.search(note.why):
        return "" if int(now[1]) in {value for _, value in made} else f"{now[1]} is not there"
    if note.verdict is Verdict.CHANGED:
        return ""
    if moved := MOVED.match(note.why):
        there = at(job, moved[1])
        return "" if there == number else f"{there} is there, not {number}"
    name = note.field.rpartition(".")[2]
    if not note.why and (name, number) not in made:
        return f"no {name} is {number}"
    return ""


LINES: Final = [
    ("torchrun --nnodes 2:4 t.py", {}),
    ("mpirun -np 8 -host a,b python t.py", {}),
    ("mpirun -np 7 -host a,b python t.py", {"-np": "is 6 now: 3 on each of 2 nodes"}),
    (
        "accelerate launch --num_machines 2 --num_processes 5 t.py",
        {"--num_processes": "is 4 now: 2 on each of 2 nodes"},
    ),
    (
        "deepspeed --min_elastic_nodes 4 --max_elastic_nodes 2 --num_gpus 2 t.py",
        {
            "--min_elastic_nodes": "minReplicas is 2 now: another field says so",
            "--max_elastic_nodes": "maxReplicas: 2 of the role worker, and minReplicas is 2 now",
        },
    ),
    (
        "horovodrun -np 2 --min-np 4 --max-np 2 python t.py",
        {"--max-np": "maxReplicas, with as many workers on a node as before, and minReplicas is 2 now"},
    ),
    ("#SBATCH -N 2 -n 8\nsrun python t.py", {}),
    (
        "#SBATCH -N 2 -n 7 -G 5\nsrun python t.py",
        {"-n": "is 6 now: 3 on each of 2 nodes", "-G": "is 4 now: 2 on each of 2 nodes"},
    ),
    ("#SBATCH -N 2\nsrun torchrun --nnodes 3 t.py", {"--nnodes": "replicas is 2 now: another field says so"}),
]


@pytest.mark.parametrize(("line", "changed"), LINES, ids=[line for line, _ in LINES])
def test_numbers_of_command_lines_change_with_a_line(line: str, changed: dict[str, str]) -> None:
    found = converted(line, "train.sh").converted
    assert found is not None
    notes = {note.field: note.why for note in found.notes if note.verdict is Verdict.CHANGED}
    assert {flag: notes.get(flag) for flag in changed} == changed
    assert not [why for flag, why in notes.items() if " now" in why and flag not in changed]


def test_a_flag_that_a_field_overrides_is_changed() -> None:
    manifest = manifest_of(JOBS["DLRover"], replicas=3, minReplicas=3, maxReplicas=4)
    found = converted(yaml.safe_dump(manifest)).converted
    assert found is not None
    [note] = [note for note in found.notes if note.field.endswith("--nnodes")]
    assert (note.verdict, note.why) == (Verdict.CHANGED, "minReplicas is 3 now: another field says so")


def manifest_of(text: tuple[str, str], **sizes: int) -> Manifest:
    version, _, name = text[0].rpartition("/")
    made: Manifest = {"apiVersion": version, "kind": name, "metadata": {"name": "a"}}
    made["spec"] = yaml.safe_load(text[1])
    for _, holder, field in list(numbers(made)):
        holder[field] = sizes.get(field, holder[field])
    return made
