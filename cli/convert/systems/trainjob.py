"""Kubeflow Trainer's TrainJob: the trainer and its patches, over a runtime that is not part of the job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.cli.convert import pods, training
from elasticjob.cli.convert.launchers.containers import list_of
from elasticjob.cli.convert.launchers.launch import Launch
from elasticjob.cli.convert.runpolicy import manager
from elasticjob.cli.convert.system import Fields, Marks, System, Verdict, child, kind
from elasticjob.cli.convert.training import Training, node_fields, note_near, role_of
from elasticjob.kube.objects.kinds import Manifest

GROUP: Final = "trainer.kubeflow.org"
OURS: Final = "trainer.kubeflow.org/trainjob-controller"
WORKERS: Final = "spec.replicaSpecs.worker"
NO_RUNTIMES: Final = (
    "there are no runtimes: the template is in the job. kubectl get clustertrainingruntime {} -o "
    "yaml shows what it "
    "adds, such as the image"
)
OF_THE_RUNTIME: Final = (
    "is absent: if the runtime has one, write it, with elasticjob run in place of torchrun"
)
INITIALIZER: Final = "write an init container in the template, or a Job before this one"
PATCHED: Final = f"as {WORKERS}.template"
NODE: Final = ("node", "trainer", "trainer-node")
"""Names that runtimes give to the pods that train."""
LISTS: Final = ("volumes", "tolerations", "imagePullSecrets", "schedulingGates")

MARKS: Final = Marks(
    labels=(
        (r"(?:batch\.kubernetes\.io/)?job-name|jobset\.sigs\.k8s\.io/jobset-name", LABEL_JOB),
        (r"jobset\.sigs\.k8s\.io/replicatedjob-name", LABEL_ROLE),
        (r"batch\.kubernetes\.io/job-completion-index", LABEL_INDEX),
        (r"(?:jobset\.sigs\.k8s\.io|batch\.kubernetes\.io|trainer\.kubeflow\.org)/.+|controller-uid", ""),
    ),
    variables=(
        (r"JOB_COMPLETION_INDEX", "NODE_RANK"),
        (r"PET_NODE_RANK", "NODE_RANK"),
        (r"PET_NNODES", "NODE_NUM"),
        (r"\$[({]?(?:MASTER_ADDR|MASTER_PORT|WORLD_SIZE|RANK)", ""),
        (r"(?:PET|OMPI|PMIX?)_\w+|COORDINATOR_ADDRESS|NUM_PROCESSES|PROCESS_ID", ""),
    ),
    hosts=r"{job}-(?:node|trainer-node|launcher)-\d+(?:-\d+)?",
    objects=(r"/etc/mpi(?:/\w+)?",),
)
"""What JobSet and the runtimes' plugins put into pods."""


def _read(whole: Fields) -> list[Manifest]:
    """Return the job, with the image of the trainer or ours."""
    spec = whole.below("spec")
    _runtime(spec)
    found, count = _worker(spec)
    made: Manifest = {
        "suspend": spec.flag("suspend"),
        "managedBy": manager(spec, OURS),
        **node_fields(found.launch),
        "replicaSpecs": {"worker": role_of(found, {"replicas": count})},
        "runPolicy": pods.without_empty({"activeDeadlineSeconds": spec.number("activeDeadlineSeconds")}),
    }
    framework = "jax" if "jax" in str(spec.below("runtimeRef").peek("name")) else ""
    return [pods.job(whole, made, framework=framework)]


def _runtime(spec: Fields) -> None:
    runtime = spec.below("runtimeRef")
    for field in ("apiGroup", "kind"):
        runtime.keep(field, "see runtimeRef.name")
    runtime.change("name", NO_RUNTIMES.format(runtime.peek("name")))
    spec.drop("initializer", INITIALIZER)


def _worker(spec: Fields) -> tuple[Training, int]:
    trainer = spec.below("trainer")
    count = trainer.number("numNodes", f"as {WORKERS}.replicas")
    each = training.processes(trainer, "numProcPerNode")
    container: Manifest = {
        "name": "main",
        "image": trainer.text("image"),
        "command": trainer.keep("command"),
        "args": trainer.keep("args"),
        "env": trainer.keep("env"),
        "resources": trainer.keep("resourcesPerNode", "as resources of the main container"),
    }
    template = _patch_template(spec, pods.without_empty(container))
    written = Fields(spec.source, {"template": template}, trainer.path, spec.log)
    found = training.training_template(written, defaults=Launch("", processes=each or "auto"))
    _note_where_written(spec, trainer)
    if not (found.container.get("command") or found.container.get("args")):
        note_near(spec, child(trainer.path, "command"), Verdict.CHANGED, OF_THE_RUNTIME)
    return found, 1 if count is None else count


def _note_where_written(spec: Fields, trainer: Fields) -> None:
    """Move the notes on the template to the fields of the trainer and of the patches that it is made of."""
    whole, main = child(trainer.path, "template"), ".spec.containers[0]"
    patches = [path for path in spec.log.notes if not path.startswith(trainer.path)]
    for path, note in [each for each in spec.log.notes.items() if each[0].startswith(whole)]:
        del spec.log.notes[path]
        inner = path.removeprefix(whole).replace(f"{main}.resources", f"{main}.resourcesPerNode")
        if not (field := re.match(r"\.spec\.containers\[0\](\.\w+)|\.\w+\.\w+", inner)):
            continue
        written = [one for one in patches if one.endswith(field[1] or field[0])]
        if field[1] and (not written or field[1][1:] in trainer):
            written = [f"{trainer.path}{inner.removeprefix(main)}"]
        for one in written:
            note_near(spec, one, note.verdict, note.why, harmless=note.harmless)


def _patch_template(spec: Fields, container: Manifest) -> Manifest:
    """Return the template of the workers, with the job's patches of the runtime applied."""
    about: dict[str, Any] = {}
    for field in ("labels", "annotations"):
        told = members_of(spec, field)
        about |= {field: told} if told else {}
    pod: Manifest = {}
    for patch in _patches(spec):
        metadata, inner = patch.below("metadata"), patch.below("spec")
        for field in ("labels", "annotations"):
            about[field] = {**about.get(field, {}), **members_of(metadata, field)}
        for field in inner.value:
            if field == "containers":
                container = _merge(inner, container)
            elif field == "initContainers":
                inner.drop(field, "they are those of the runtime: write them in the template")
            elif field in LISTS:
                pod[field] = [*pod.get(field, []), *list_of(inner.keep(field, PATCHED))]
            else:
                pod[field] = inner.keep(field, PATCHED)
    return pods.without_empty(
        {"metadata": pods.without_empty(about), "spec": {**pod, "containers": [container]}}
    )


def _patches(spec: Fields) -> Iterator[Fields]:
    """Find the patches of the pods that train, in today's form and in that of Trainer 2.0."""
    for patch in spec.each("runtimePatches") if "runtimePatches" in spec else ():
        patch.drop("manager", "a job has no patches: they are in its template", harmless=True)
        patch.drop("time", "a job has no patches: they are in its template", harmless=True)
        template = patch.below("trainingRuntimeSpec").below("template")
        yield Fields(
            spec.source,
            {name: value for name, value in template.value.items() if name == "metadata"},
            template.path,
            spec.log,
        )
        for job in template.below("spec").each("replicatedJobs"):
            if str(job.keep("name", "the role is worker")) in NODE:
                yield job.below("template").below("spec").below("template")
            else:
                job.note(child(job.path, "template"), Verdict.DROPPED, INITIALIZER)
    for field in ("podTemplateOverrides", "podSpecOverrides"):
        for override in spec.each(field) if field in spec else ():
            targets = [str(job.keep("name", "the role is worker")) for job in override.each("targetJobs")]
            if not set(targets) & set(NODE):
                override.note(override.path, Verdict.DROPPED, INITIALIZER)
            elif field == "podTemplateOverrides":
                yield override
            else:
                inner = {name: value for name, value in override.value.items() if name != "targetJobs"}
                holder = Fields(spec.source, {"spec": inner}, override.path, spec.log)
                for name in inner:
                    override.keep(name, PATCHED)
                yield holder


def members_of(fields: Fields, name: str) -> dict[str, str]:
    """Return the texts of a map, each kept."""
    if name not in fields:
        return {}
    whole = fields.below(name)
    return {key: whole.text(key, PATCHED) for key in whole.value if whole.peek(key)}


def _merge(inner: Fields, container: Manifest) -> Manifest:
    """Return the main container with a patch applied."""
    for each in inner.each("containers"):
        if each.keep("name", "the main container") not in NODE:
            each.note(
                each.path, Verdict.DROPPED, "it is a container of the runtime: write it in the template"
            )
            continue
        for field in ("env", "volumeMounts"):
            added = each.keep(field, PATCHED)
            if isinstance(added, list):
                container = {**container, field: [*list_of(container.get(field)), *added]}
        if "securityContext" in each:
            container = {**container, "securityContext": each.keep("securityContext", PATCHED)}
    return container


TRAINJOB: Final = System("Kubeflow TrainJob", (kind(GROUP, "TrainJob", "v1alpha1"),), _read, MARKS)
