"""KubeRay's RayJob: its entrypoint runs on each worker; there is no head and no driver."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import yaml

from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import CleanPodPolicy
from elasticjob.cli.convert import pods, training
from elasticjob.cli.convert.launchers.containers import rewritten
from elasticjob.cli.convert.launchers.launch import Launch
from elasticjob.cli.convert.runpolicy import manager
from elasticjob.cli.convert.system import Fields, Marks, System, Unconvertible, Verdict, child, kind
from elasticjob.cli.convert.training import Training, node_fields, role_of, within
from elasticjob.kube.objects.kinds import Manifest

GROUP: Final = "ray.io"
OURS: Final = "ray.io/kuberay-operator"
WORKERS: Final = "spec.replicaSpecs.worker"
LARGEST: Final = 64 * 1024
NO_COMMAND: Final = (
    "a RayCluster has pods and no command: write a RayJob with spec.entrypoint, or an ElasticJob of your "
    "training script"
)
NO_CLUSTER: Final = (
    "spec.rayClusterSpec is absent: the pods are those of another RayCluster; write its workerGroupSpecs here"
)
NO_HEAD: Final = "there is no head: the job's master is a small pod of the operator's own"
DRIVEN: Final = "the entrypoint ran there: write into the template of worker, if the script needs it"
OF_THE_DRIVER: Final = re.compile(
    r"(image|workingDir|env|envFrom|volumes|volumeMounts|securityContext|serviceAccountName|imagePullSecrets"
    r"|initContainers|spec\.containers)$"
)
"""Fields of the head's pod that the entrypoint may need; others are for Ray itself, or say where it is."""
NO_RAY: Final = (
    "the script runs on each worker and must not call Ray: docs/from-kuberay.md has a "
    "line for each call of Ray Train"
)
IN_THE_IMAGE: Final = "nothing is installed or fetched at the start: the image has it; env_vars are spec.envs"
LEARNT: Final = "optimizeMode: single-job learns the number of workers from the training speed"
ONE_GROUP: Final = "the first group trains: write another role in spec.replicaSpecs for pods of another kind"
BOUNDS: Final = ("minReplicas", "maxReplicas")
NO_RANGE: Final = "a range has a minimum and a maximum of at least 1: write both in spec.replicaSpecs.worker"
RANGED: Final = "the number may change while it trains; with KubeRay only by enableInTreeAutoscaling"
OF_RAY: Final = "it is for Ray, which does not run here"
FIELDS_OF_RAY: Final = (
    "rayVersion gcsFaultToleranceOptions headServiceAnnotations historyServerOptions tlsOptions authOptions "
    "upgradeStrategy"
)
FIELDS_OF_SUBMISSION: Final = (
    "jobId submissionMode submitterPodTemplate submitterConfig entrypointNumCpus entrypointNumGpus "
    "entrypointResources metadata"
)

MARKS: Final = Marks(
    labels=((r"ray\.io/cluster", LABEL_JOB), (r"ray\.io/group", LABEL_ROLE), (r"ray\.io/.+", "")),
    variables=((r"(?:RAY|KUBERAY|FQ_RAY)_[A-Z_]+", ""),),
    hosts=r"[\w-]*-head-svc",
)
"""What KubeRay puts into pods."""


def _read(whole: Fields) -> list[Manifest]:
    """Return the job of the first group of workers. Raises Unconvertible without an entrypoint."""
    spec = whole.below("spec")
    if whole.source.manifest["kind"] == "RayCluster":
        raise Unconvertible(NO_COMMAND)
    entrypoint = spec.peek("entrypoint")
    if not isinstance(entrypoint, str) or not entrypoint.strip():
        raise Unconvertible("spec.entrypoint is absent: write the command of the training script")
    if "rayClusterSpec" not in spec:
        raise Unconvertible(NO_CLUSTER)
    cluster = spec.below("rayClusterSpec")
    worker, sizes, more = _group(cluster, spec, entrypoint)
    made: Manifest = {
        "suspend": spec.flag("suspend"),
        "managedBy": manager(spec, OURS),
        **node_fields(worker.launch),
        **more,
        "envs": {name: {"value": value} for name, value in _runtime(spec).items()},
        "replicaSpecs": {"worker": role_of(worker, sizes)},
        "runPolicy": _policy(spec),
    }
    _rest(spec, cluster)
    return [pods.job(whole, made)]


def _group(cluster: Fields, spec: Fields, entrypoint: str) -> tuple[Training, dict[str, Any], Manifest]:
    """Return the workers of the first group, or of the head where there is none."""
    groups = cluster.each("workerGroupSpecs") if "workerGroupSpecs" in cluster else []
    head = cluster.below("headGroupSpec")
    autoscaled = cluster.peek("enableInTreeAutoscaling") is True
    cluster.change("enableInTreeAutoscaling", LEARNT) if autoscaled else cluster.drop(
        "enableInTreeAutoscaling", "the range of replicas says so", harmless=True
    )
    cluster.drop("autoscalerOptions", LEARNT)
    sizes: dict[str, Any] = {"replicas": 1}
    more: Manifest = {}
    first = head
    if groups:
        first = groups[0]
        cluster.log.opened.discard(head.path)
        first.keep("groupName", "the role is worker")
        sizes = _sizes(first, autoscaled=autoscaled)
        hosts = first.number("numOfHosts", "as spec.nodeUnit: workers come in multiples of it")
        if hosts is not None and hosts < 1:
            first.change("numOfHosts", "each worker has one node: at least one trains")
        if hosts and hosts > 1:
            more = {"nodeUnit": hosts}
            sizes = {name: _times(first, name, size, hosts) for name, size in sizes.items()}
        first.drop("scaleStrategy", "write removePods of a ScalePlan: docs/scaleplans.md")
        first.drop("idleTimeoutSeconds", LEARNT)
        first.drop("suspend", "suspend the job: spec.suspend")
        for group in groups[1:]:
            group.note(group.path, Verdict.DROPPED, ONE_GROUP)
            group.log.opened.discard(group.path)
    else:
        head.leave("enableIngress headService serviceType", OF_RAY)
    first.drop("rayStartParams", OF_RAY, harmless=True)
    found = _training_template(first, spec, entrypoint, sizes["replicas"])
    if groups:
        given = head.peek("template")
        lost = training.missing(given, found.template) if isinstance(given, dict) else []
        lost = [path for path in lost if OF_THE_DRIVER.search(path)]
        why = f"{NO_HEAD}; {DRIVEN}: {', '.join(lost)}" if lost else NO_HEAD
        cluster.drop("headGroupSpec", why, harmless=not lost)
    return found, sizes, more


def _sizes(group: Fields, *, autoscaled: bool) -> dict[str, Any]:
    """Return sizes in workers of Ray: a range if the group has both bounds."""
    kept = {name: group.number(name, f"as {WORKERS}.{name}") for name in ("replicas", *BOUNDS)}
    count, least, most = kept["replicas"], kept["minReplicas"], kept["maxReplicas"]
    if least is None or most is None or most < 1:
        for name in BOUNDS:
            group.drop(name, NO_RANGE)
        return {"replicas": _positive(group, "replicas", 1 if count is None else count)}
    for name in BOUNDS:
        if not autoscaled:
            group.change(name, RANGED)
    sizes = {"replicas": least if count is None else count, "minReplicas": least, "maxReplicas": most}
    return within(group, {name: _positive(group, name, size) for name, size in sizes.items()})


def _positive(group: Fields, name: str, size: int) -> int:
    """Return a size of at least 1, with a note if it changes."""
    if size < 1 and name in group:
        group.change(name, f"is 1 now: with {size} workers nothing trains")
    return max(size, 1)


def _times(group: Fields, name: str, size: int, hosts: int) -> int:
    """Return a size in nodes, of which each worker has several."""
    if name in group:
        was = group.log.notes[child(group.path, name)]
        verdict = Verdict.CHANGED if was.lossy else Verdict.KEPT
        group.note(was.field, verdict, f"is {size * hosts} now: nodes, {hosts} for each worker")
    return size * hosts


def _training_template(group: Fields, spec: Fields, entrypoint: str, count: int) -> Training:
    """Return the group's template with the entrypoint as the command of its main container."""
    template = pods.template(group)
    found = pods.containers(template)
    if not found:
        raise Unconvertible(f"{group.path}.template has no container: write one, with its image")
    main = {name: value for name, value in found[0].items() if name not in ("command", "args", "lifecycle")}
    path = f"{child(group.path, 'template')}.spec.containers[0]"
    for field in ("command", "args", "lifecycle"):
        if field in found[0]:
            group.note(child(path, field), Verdict.DROPPED, OF_RAY, harmless=True)
    gpus = training.devices(main)
    defaults = Launch("", slots=str(gpus) if gpus > 1 else "", nodes=(count, count))
    read = rewritten({**main, "command": _words(entrypoint)}, plainly=True, defaults=defaults)
    training.say(spec, replace(read, field="entrypoint").notes(spec.path))
    spec.change("entrypoint", f"as {WORKERS}'s command, with elasticjob run: {NO_RAY}")
    return Training(
        training.with_main(template, training.with_image(group, path, read.container)), read.launch
    )


def _words(entrypoint: str) -> list[str]:
    """Return the words of an entrypoint, or sh -c if it has shell syntax."""
    with suppress(ValueError):
        if not re.search(r"[;&|<>$`\n]", entrypoint):
            return shlex.split(entrypoint)
    return ["sh", "-c", entrypoint]


def _runtime(spec: Fields) -> dict[str, str]:
    """Return the variables of the runtime environment; packages and files are in the image here."""
    given = spec.peek("runtimeEnvYAML")
    if given is None:
        return {}
    try:
        found = yaml.safe_load(given) if isinstance(given, str) and len(given) <= LARGEST else None
    except (yaml.YAMLError, RecursionError):
        found = None
    if not isinstance(found, dict):
        spec.drop(
            "runtimeEnvYAML",
            "it cannot be read: write env of the main container, and packages into the image",
        )
        return {}
    env = found.get("env_vars")
    rest = sorted(str(name) for name in found if name != "env_vars")
    spec.change("runtimeEnvYAML", f"{', '.join(rest)}: {IN_THE_IMAGE}") if rest else spec.keep(
        "runtimeEnvYAML", "env_vars are spec.envs"
    )
    return {str(name): str(value) for name, value in env.items()} if isinstance(env, dict) else {}


def _policy(spec: Fields) -> Manifest:
    finished = spec.flag("shutdownAfterJobFinishes", "as runPolicy.cleanPodPolicy")
    ttl = spec.peek("ttlSecondsAfterFinished")
    if ttl == 0:
        spec.drop(
            "ttlSecondsAfterFinished", "0 deletes pods and keeps the RayJob: cleanPodPolicy", harmless=True
        )
    retries = spec.number("backoffLimit", "as nodes that may be replaced, in all")
    if retries == 0:
        spec.drop("backoffLimit", "0 is the default of KubeRay; nodes are replaced here", harmless=True)
    found: Manifest = {
        "backoffLimit": retries or None,
        "activeDeadlineSeconds": spec.number("activeDeadlineSeconds"),
        "pendingTimeoutSeconds": spec.number(
            "preRunningDeadlineSeconds", "as runPolicy.pendingTimeoutSeconds"
        ),
        "ttlSecondsAfterFinished": spec.number("ttlSecondsAfterFinished", "of the job itself")
        if ttl
        else None,
        "cleanPodPolicy": CleanPodPolicy.ALL.value if finished else None,
    }
    spec.drop("deletionStrategy", "write runPolicy.cleanPodPolicy and ttlSecondsAfterFinished")
    return pods.without_empty(found)


def _rest(spec: Fields, cluster: Fields) -> None:
    cluster.leave(FIELDS_OF_RAY, OF_RAY)
    cluster.drop("managedBy", "is said by the job", harmless=True)
    cluster.drop("suspend", "suspend the job: spec.suspend", harmless=True)
    cluster.drop(
        "networkPolicy", "spec.networkPolicy: true is the default: only the job's pods reach each other"
    )
    spec.leave(FIELDS_OF_SUBMISSION, "no job is submitted: each worker runs the command")
    spec.drop("clusterSelector", "the job has pods of its own")


RAY: Final = System(
    "KubeRay RayJob, RayCluster", (kind(GROUP, "RayJob"), kind(GROUP, "RayCluster")), _read, MARKS
)
