"""From a TrainingJob to the ElasticJob that runs it, with notes of what could not be carried over. Pure.

What follows from each field is the table in docs/trainingjob.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from elasticjob.api.paddle.trainingjob import Instance, TrainingJob, TrainingJobSpec
from elasticjob.api.roles import MASTER, PS, WORKER
from elasticjob.api.v1alpha1.checks.advice import queues_take_no_job
from elasticjob.api.v1alpha1.checks.changes import what_nodes_are_made_from_stays
from elasticjob.api.v1alpha1.checks.common import volume_problems
from elasticjob.api.v1alpha1.checks.elasticjob import problems as problems_of_a_job
from elasticjob.api.v1alpha1.checks.launchers import launcher_of
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, DistributionStrategy, ElasticJob, OptimizeMode
from elasticjob.api.v1alpha1.kueue import PRIORITY_CLASS, QUEUE_NAME
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.problem import Problem

OLD_GPU: Final = "alpha.kubernetes.io/nvidia-gpu"
GPU: Final = "nvidia.com/gpu"
OF_ITS_QUEUE: Final = (QUEUE_NAME, PRIORITY_CLASS)
"""Labels of a TrainingJob that its ElasticJob has as well."""
MOST_PORTS: Final = 100
SHELL: Final = ("&&", "||", "|", ";", ">", ">>", "<", "&")
"""Words that mean something to a shell alone."""


@dataclass(frozen=True)
class Note:
    """What a field would have said, and what is done instead."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def elasticjob_of(job: TrainingJob) -> Manifest:
    """Return the ElasticJob of a valid TrainingJob, without an owner."""
    spec = job.spec
    roles: dict[str, Manifest] = {
        WORKER: {
            "replicas": spec.trainer.min_instance,
            "minReplicas": spec.trainer.min_instance,
            "maxReplicas": spec.trainer.max_instance,
            "template": {"spec": _pod(job, spec.trainer, spec.trainer.entrypoint, spec.trainer.workspace)},
        }
    }
    if spec.pserver is not None:
        pod = _pod(job, spec.pserver, spec.pserver.entrypoint)
        roles[PS] = {"replicas": spec.pserver.min_instance, "autoScale": False, "template": {"spec": pod}}
    if spec.fault_tolerant is False:
        roles = {name: {**role, "restartCount": 0} for name, role in roles.items()}
    if master := _master(spec):
        roles[MASTER] = {"template": {"spec": master}}
    strategy = DistributionStrategy.PARAMETER_SERVER if spec.pserver else DistributionStrategy.ALLREDUCE
    mode = OptimizeMode.CLUSTER if spec.elastic else OptimizeMode.MANUAL
    labelled = {"labels": labels} if (labels := queue_labels(job)) else {}
    return {
        "apiVersion": ELASTICJOB.api_version,
        "kind": ELASTICJOB.name,
        "metadata": {"name": job.metadata.name, "namespace": job.metadata.namespace, **labelled},
        "spec": {
            "distributionStrategy": strategy.value,
            "optimizeMode": mode.value,
            "replicaSpecs": roles,
        },
    }


def queue_labels(job: TrainingJob | ElasticJob) -> dict[str, str]:
    """Return the labels that put a job into a queue of Kueue."""
    return {name: job.metadata.labels[name] for name in OF_ITS_QUEUE if name in job.metadata.labels}


def passes(spec: TrainingJobSpec) -> int:
    """Return the number of passes over the data, wherever it is written."""
    return spec.passes if spec.trainer.passes is None else spec.trainer.passes


def resources(given: Mapping[str, Any]) -> Manifest:
    """Return requests and limits of a container; devices have today's name, and are in both."""
    found = {
        kind: {GPU if name == OLD_GPU else name: amount for name, amount in given[kind].items()}
        for kind in ("requests", "limits")
        if given.get(kind)
    }
    if devices := found.get("limits", {}).get(GPU):
        found["requests"] = {**found.get("requests", {}), GPU: devices}
    return found


def problems(new: TrainingJob, old: TrainingJob | None = None) -> list[Problem]:
    """Return the errors of a TrainingJob that is created, or updated from `old`."""
    if old is not None and (new.spec == old.spec or new.metadata.deletion_timestamp is not None):
        return []
    found = [*_problems(new.spec), *(_changes(new.spec, old.spec) if old is not None else ())]
    if found:
        return found
    converted = ElasticJob.model_validate(elasticjob_of(new))
    return [Problem("spec", f"its ElasticJob is refused: {each}") for each in problems_of_a_job(converted)]


def what_waits(new: TrainingJob, old: TrainingJob) -> list[Note]:
    """Return what a change of a job that has begun waits for: its nodes are made from one template."""
    begun = old.status.phase is not None and not old.status.phase.is_terminal
    jobs = (ElasticJob.model_validate(elasticjob_of(each)) for each in (old, new))
    if not begun or not [*what_nodes_are_made_from_stays(*jobs)]:
        return []
    name = new.metadata.name
    what = (
        "takes effect, with all that is changed later, when the ElasticJob is suspended: "
        f"elasticjob suspend {name}, then elasticjob resume {name}"
    )
    return [Note("spec", what)]


def notes(job: TrainingJob) -> list[Note]:
    """Return what is accepted without effect, or means something else than in EDL."""
    spec, found = job.spec, list[Note]()
    if spec.master is not None and spec.master.etcd_endpoint:
        found.append(Note("spec.master.etcd-endpoint", "has no effect: the master keeps its own state"))
    if spec.pserver is not None and spec.pserver.max_instance != spec.pserver.min_instance:
        what = f"has no effect: there are always {spec.pserver.min_instance} parameter servers"
        found.append(Note("spec.pserver.max-instance", what))
    for field, given, advice in (
        ("mountPath", spec.mount_path, "write volumes and VolumeMounts"),
        ("schedulerName", spec.scheduler_name, "the scheduler of the cluster places the pods"),
        ("podGroupName", spec.pod_group_name, "an ElasticJob has gangs, a TrainingJob has none"),
    ):
        if given:
            found.append(Note(f"spec.{field}", f"has no effect: {advice}"))
    for path, line in _command_lines(spec):
        words = _words(line) or []
        if any(word in SHELL for word in words):
            found.append(Note(path, "is not given to a shell: write sh -c '…' around a line for one"))
        elif launcher := launcher_of(words):
            found.append(Note(path, " ".join(launcher)))
    return [*found, *(Note(each.path, each.message) for each in queues_take_no_job(job))]


def _problems(spec: TrainingJobSpec) -> Iterator[Problem]:
    trainer = spec.trainer
    if not spec.image:
        yield Problem("spec.image", "is missing: name the image of trainers and parameter servers")
    if trainer.min_instance > trainer.max_instance:
        what = f"is more than max-instance {trainer.max_instance}: lower it, or raise max-instance"
        yield Problem("spec.trainer.min-instance", what)
    if spec.pserver is not None and spec.pserver.min_instance > spec.pserver.max_instance:
        what = f"is more than max-instance {spec.pserver.max_instance}: lower it, or raise max-instance"
        yield Problem("spec.pserver.min-instance", what)
    if spec.passes not in (1, passes(spec)):
        yield Problem("spec.passes", f"is not as spec.trainer.passes {passes(spec)}: write one of them")
    if spec.fault_tolerant is False and spec.elastic:
        what = "is false, and the number of trainers may change: make it true, or min-instance = max-instance"
        yield Problem("spec.fault_tolerant", what)
    both = {spec.host_network, spec.host_network_in_camel_case} - {None}
    if len(both) > 1:
        yield Problem("spec.hostNetwork", "is not as host_network says: write one of them")
    count = spec.ports_num + spec.ports_num_for_sparse
    if count > MOST_PORTS or spec.port + count - 1 > 65_535:
        what = f"leads to {count} ports from {spec.port} on: use at most {MOST_PORTS}, up to 65535"
        yield Problem("spec.ports_num", what)
    yield from volume_problems("spec.volumes", spec.volumes)
    for path, line in _command_lines(spec):
        if _words(line) is None:
            yield Problem(path, "has a quotation mark without its end: close it")
    for path, instance in _instances(spec):
        yield from _resource_problems(path, instance.resources)


def _resource_problems(path: str, given: Mapping[str, Any]) -> Iterator[Problem]:
    for kind, amounts in given.items():
        if kind not in ("requests", "limits"):
            yield Problem(f"{path}.{kind}", "is unknown: resources have requests and limits")
        elif not isinstance(amounts, Mapping):
            yield Problem(f"{path}.{kind}", "is no object: write amounts by resource, such as cpu: 500m")
        elif OLD_GPU in amounts and GPU in amounts:
            yield Problem(f"{path}.{kind}", f"has {OLD_GPU} and {GPU}: write one of them")


def _changes(new: TrainingJobSpec, old: TrainingJobSpec) -> Iterator[Problem]:
    if (new.pserver is None) is not (old.pserver is None):
        what = "cannot be added or removed while the job exists: delete the job and create it again"
        yield Problem("spec.pserver", what)


def _pod(job: TrainingJob, instance: Instance, line: str, directory: str = "") -> Manifest:
    spec = job.spec
    container = {
        "name": "main",
        "image": spec.image,
        "command": _words(line),
        "workingDir": directory,
        "env": _env(job.metadata.name, spec),
        "ports": [
            {"name": f"jobport-{port}", "containerPort": port}
            for port in range(spec.port, spec.port + spec.ports_num + spec.ports_num_for_sparse)
        ],
        "resources": resources(instance.resources),
        "volumeMounts": spec.volume_mounts,
    }
    pod = {
        "containers": [_without_empty(container)],
        "volumes": spec.volumes,
        "imagePullSecrets": spec.image_pull_secrets,
        "nodeSelector": spec.node_selector,
        "hostNetwork": bool(spec.host_network or spec.host_network_in_camel_case),
    }
    return _without_empty(pod)


def _master(spec: TrainingJobSpec) -> Manifest:
    """Return what the job says about its master's pod, which needs neither its volumes nor its network."""
    sizes = resources(spec.master.resources) if spec.master is not None else {}
    pod = _without_empty({"imagePullSecrets": spec.image_pull_secrets, "nodeSelector": spec.node_selector})
    main = _without_empty({"name": "main", "resources": sizes})
    return {"containers": [main], **pod} if sizes or pod else {}


def _env(name: str, spec: TrainingJobSpec) -> list[Manifest]:
    """Return what EDL's images read, but for the sizes: those change."""
    values = {
        "PADDLE_JOB_NAME": name,
        "PADDLE_INIT_PORT": spec.port,
        "PADDLE_INIT_PORTS_NUM": spec.ports_num,
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": spec.ports_num_for_sparse,
        "PADDLE_INIT_NUM_PASSES": passes(spec),
    }
    return [{"name": variable, "value": str(value)} for variable, value in values.items()]


def _instances(spec: TrainingJobSpec) -> Iterable[tuple[str, Instance]]:
    found = {"trainer": spec.trainer, "pserver": spec.pserver, "master": spec.master}
    return [(f"spec.{name}.resources", each) for name, each in found.items() if each is not None]


def _command_lines(spec: TrainingJobSpec) -> Iterator[tuple[str, str]]:
    yield "spec.trainer.entrypoint", spec.trainer.entrypoint
    if spec.pserver is not None:
        yield "spec.pserver.entrypoint", spec.pserver.entrypoint


def _words(line: str) -> list[str] | None:
    """Return a command line as words; None if a quotation mark has no end."""
    try:
        return shlex.split(line)
    except ValueError:
        return None


def _without_empty(manifest: Manifest) -> Manifest:
    return {name: value for name, value in manifest.items() if value}
