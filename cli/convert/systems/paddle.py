"""TrainingJobs of PaddlePaddle's EDL (paddlepaddle.org), by the conversion that the operator makes, too."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from elasticjob.api.paddle.convert import OLD_GPU, elasticjob_of, notes, problems
from elasticjob.api.paddle.trainingjob import GROUP, TRAININGJOB, Instance, TrainingJob, TrainingJobSpec
from elasticjob.api.v1alpha1.elasticjob import Gang
from elasticjob.cli.convert import pods
from elasticjob.cli.convert.system import Fields, System, Unconvertible, Verdict, child, kind
from elasticjob.cli.convert.training import note_near
from elasticjob.kube.objects.kinds import Manifest

WHERE: Final = {
    "image": "the image of all roles",
    "fault_tolerant": "false is restartCount: 0; true is as without it",
    "host_network": "as hostNetwork of the templates",
    "port": "as containerPorts, and PADDLE_INIT_PORT",
    "ports_num": "as containerPorts, and PADDLE_INIT_PORTS_NUM",
    "ports_num_for_sparse": "as containerPorts, and PADDLE_INIT_PORTS_NUM_FOR_SPARSE",
    "passes": "as PADDLE_INIT_NUM_PASSES",
    "volumes": "in the templates",
    "VolumeMounts": "as volumeMounts in the templates",
    "imagePullSecrets": "in the templates",
    "hostNetwork": "in the templates",
    "NodeSelector": "as nodeSelector in the templates",
    "entrypoint": "as command, split into words without a shell",
    "workspace": "as workingDir",
    "min-instance": "as minReplicas and replicas",
    "max-instance": "as maxReplicas",
    "resources": "of the container",
}
"""The place of each field in the ElasticJob."""
ROLES: Final = {"trainer": "worker", "pserver": "ps", "master": "dlrover-master"}
ADVICE: Final = {
    "priority": "write runPolicy.scheduling.priorityClassName",
    "tolerations": "write them in the templates",
}
IMAGE: Final = "paddlepaddle/paddlecloud-job"
NO_IMAGE: Final = f"is absent: {IMAGE} as in EDL; write yours"
IN_A_RANGE: Final = "as true: a job whose number of trainers may change replaces those that are lost"
AS_GANG: Final = "runPolicy.scheduling.gang: preferred, by the API that the cluster has"
OTHER_SCHEDULER: Final = "the cluster's own scheduler: write schedulerName in the templates for another"


def _read(whole: Fields) -> list[Manifest]:
    """Return the job that the operator would run, and a note for each field."""
    try:
        job = TrainingJob.model_validate(_mend(whole))
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(step) for step in first["loc"])
        raise Unconvertible(f"{path}: {first['msg'].lower()}: correct it") from error
    if wrong := problems(job):
        raise Unconvertible("; ".join(str(each) for each in wrong))
    made = elasticjob_of(job)["spec"]
    if job.spec.pod_group_name:
        made["runPolicy"] = {"scheduling": {"gang": Gang.PREFERRED.value}}
    _told(whole.below("spec"), job)
    return [pods.job(whole, made)]


def _mend(whole: Fields) -> Manifest:
    """Return the manifest with EDL's image where it names none, and trainers that are replaced in a range."""
    given, spec = whole.source.manifest, whole.below("spec")
    mended = dict(spec.value)
    if not mended.get("image"):
        mended["image"] = IMAGE
        note_near(spec, child(spec.path, "image"), Verdict.CHANGED, NO_IMAGE)
    trainer = spec.peek("trainer")
    bounds = [trainer.get(f"{name}-instance") for name in ("min", "max")] if isinstance(trainer, dict) else []
    ranged = all(isinstance(each, int) for each in bounds) and bounds[:1] < bounds[1:]
    if spec.peek("fault_tolerant") is False and ranged:
        del mended["fault_tolerant"]
        spec.change("fault_tolerant", IN_A_RANGE)
    return {**given, "spec": mended}


def _told(spec: Fields, job: TrainingJob) -> None:
    for name in (field.alias or name for name, field in TrainingJobSpec.model_fields.items()):
        if name not in ROLES and child(spec.path, name) not in spec.log.notes:
            spec.keep(name, WHERE.get(name, ""))
    for name, role in ROLES.items():
        part = spec.below(name)
        for field in part.value:
            if field in WHERE:
                part.keep(field, _where(role, field))
    for note in notes(job):
        path, harmless = note.path, "etcd" in note.path
        verdict = Verdict.DROPPED if "no effect" in note.message else Verdict.CHANGED
        if spec.source.line(path) or not spec.source.lines:
            spec.note(path, verdict, note.message, harmless=harmless)
    if job.spec.pod_group_name:
        spec.change("podGroupName", AS_GANG)
    spec.drop("schedulerName", OTHER_SCHEDULER)
    if job.spec.pserver is not None and "pserver" in spec:
        _old_gpus(spec.below("pserver"), job.spec.pserver)
    _old_gpus(spec.below("trainer"), job.spec.trainer)


def _where(role: str, field: str) -> str:
    if role == "ps" and field == "min-instance":
        return "as spec.replicaSpecs.ps.replicas"
    if role == "ps" and field == "max-instance":
        return "parameter servers have one number"
    told = WHERE[field]
    return f"{told}, of role {role}" if field in ("resources", "min-instance", "max-instance") else told


def _old_gpus(fields: Fields, instance: Instance) -> None:
    for bound, amounts in instance.resources.items():
        if isinstance(amounts, dict) and OLD_GPU in amounts:
            path = child(child(child(fields.path, "resources"), bound), OLD_GPU)
            fields.note(path, Verdict.KEPT, "as nvidia.com/gpu, in requests and limits")


KINDS: Final = (TRAININGJOB.untyped(), kind(GROUP, "TrainingJob", "v1alpha1"))
PADDLE: Final = System("Paddle TrainingJob", KINDS, _read, advice=ADVICE)
