"""The master's pod, and what its end says about the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os.path import dirname
from typing import Any, Final

import msgspec

from elasticjob.api.rpc import environment as env
from elasticjob.api.rpc.environment import MASTER_PORT
from elasticjob.api.v1alpha1.common import MAIN_CONTAINER
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, RestartPolicy
from elasticjob.controllers.nodes.exits import Exit
from elasticjob.controllers.nodes.relaunch import Life, Node, Policy
from elasticjob.controllers.parts import environment, names, placing
from elasticjob.controllers.parts.owners import controlled_by, manifest_of
from elasticjob.controllers.passes.plan import Create, Outcome
from elasticjob.kube.json import JsonReader
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD
from elasticjob.sizing.exits import ExitReason

COMMAND: Final = ["elasticjob", "master"]
CONTAINER: Final = "main"
NOBODY: Final = 65532
BUDGET: Final = 5
"""Crashes after which the master is restarted; being killed, evicted or stopped does not count."""

STARTS_IN: Final = 2
"""Seconds in which a master starts on a machine with free cores: each probe that fails is an event."""

SECURE: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
UNPRIVILEGED: Final[Mapping[str, Any]] = {
    "runAsNonRoot": True,
    "runAsUser": NOBODY,
    "runAsGroup": NOBODY,
    "fsGroup": NOBODY,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True)
class Provision:
    """The defaults of every master's pod, and the labels of the namespaces that may read its metrics."""

    image: str
    pull_policy: str = ""
    requests: Mapping[str, str] = field(default_factory=dict)
    scrapers: Sequence[Mapping[str, str]] = ()
    brain: str = ""
    """Brain's address as host:port."""
    brain_key: bytes = field(default=b"", repr=False)
    """The key of the tokens with which masters ask Brain."""
    gang_scheduler: str = ""
    """The schedulerName of pods in gangs of scheduler-plugins that name none."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the pod for jobs whose template has none of its own; its imagePullSecrets are added, for the
    image is ours. Those in its securityContext are added to UNPRIVILEGED, and null takes one away."""
    security: Mapping[str, Any] = field(default_factory=dict)
    """The same for the securityContext of the container, and SECURE."""
    log_format: str = ""
    """The format of log lines of jobs."""

    @property
    def has_token(self) -> bool:
        """Whether masters get a token for Brain."""
        return bool(self.brain and self.brain_key)


STOPPED: Final = (
    "it was told to stop although its pod was not deleted, which a kubelet does after failed probes: "
    "kubectl describe pod shows them"
)


class _Words(msgspec.Struct):
    verdict: str = ""
    reason: str = ""
    message: str = ""


_WORDS = JsonReader(_Words)


def policy(job: ElasticJob) -> Policy:
    """Return how often the master is restarted."""
    spec = job.spec.master
    budget = max(BUDGET, spec.restart_count) if spec else BUDGET
    return Policy(RestartPolicy.ON_FAILURE, budget)


def verdict(end: Exit) -> Outcome | None:
    """Return what a master that ended says about its job; None if it was stopped, killed or crashed."""
    try:
        words = _WORDS.decode(end.words or "{}")
    except msgspec.DecodeError:  # a crash leaves any text there
        words = _Words()
    match words.verdict:
        case "Succeeded":
            return Outcome(
                True, words.reason or "TrainingSucceeded", words.message or "the training succeeded"
            )
        case "Failed":
            return Outcome(False, words.reason or "TrainingFailed", words.message or "the training failed")
        case "" if end.reason is ExitReason.SUCCEEDED:
            return Outcome(True, "MasterSucceeded", "the master ended with exit code 0")
        case _:
            return None


def why_anew(life: Life) -> str:
    """Return the end of a master that is made again, in a sentence."""
    if life.ended is None:
        return f"its machine {life.machine} {life.loss}"
    if life.ended.reason is ExitReason.RUN_AGAIN and not life.terminating:
        return STOPPED
    return life.ended.sentence


def master_pod(job: ElasticJob, node: Node, provision: Provision, repeats: int = 0) -> Create:
    """Return the next life of a job's master; `repeats` as of its node."""
    name = names.pod(job.metadata.name, names.MASTER, 0, node.next_relaunch)
    labels = names.pod_labels(job.metadata.name, names.MASTER, 0, node.next_relaunch)
    given = job.spec.master
    metadata = {
        "name": name,
        "namespace": job.metadata.namespace,
        "labels": (given.labels if given else {}) | labels,
        "annotations": {
            **(given.annotations if given else {}),
            MAIN_CONTAINER: _main(job).get("name", CONTAINER),
            names.RESTARTS: str(node.restarts),
            **({names.REPEATS: str(repeats)} if repeats else {}),
        },
        "ownerReferences": [controlled_by(job)],
    }
    spec, leave = _spec(job, name, provision), node.machines_to_leave
    away = {"affinity": placing.away_from(spec.get("affinity") or {}, (), leave)} if leave else {}
    return Create(POD, manifest_of(POD, metadata, spec={**spec, **away}))


def _spec(job: ElasticJob, name: str, provision: Provision) -> Manifest:
    given = job.spec.master.pod if job.spec.master else {}
    main = _main(job)
    containers: list[Manifest] = given.get("containers") or [main]
    placed = {**provision.pod, "securityContext": _security_context(UNPRIVILEGED, provision.pod), **given}
    secrets = [*(given.get("imagePullSecrets") or []), *(provision.pod.get("imagePullSecrets") or [])]
    spec = {
        "enableServiceLinks": False,  # a job called elasticjob would set ELASTICJOB_MASTER_PORT
        **placed,
        "containers": [_container(job, each, provision) if each is main else each for each in containers],
        "volumes": [
            *(given.get("volumes") or []),
            environment.token_volume(job, brain=provision.has_token),
        ],
        **({"imagePullSecrets": secrets} if secrets else {}),
        "tolerations": environment.tolerations(placed),
        "restartPolicy": "Never",
        "serviceAccountName": names.master(job.metadata.name),
        "automountServiceAccountToken": True,
        "hostname": name,
        "subdomain": job.metadata.name,
    }
    priority = job.spec.run_policy.scheduling.priority_class_name
    return {"priorityClassName": priority, **spec} if priority else spec


def _main(job: ElasticJob) -> Manifest:
    """Return the main container in the master's template, {} without one."""
    return (job.spec.master.main_container if job.spec.master else None) or {}


def _container(job: ElasticJob, given: Manifest, provision: Provision) -> Manifest:
    """Return the master's container; a template that names a command of its own keeps it.

    Our command writes no files: an emptyDir for them would stop `kubectl drain`. Others may.
    """
    identity = environment.identity(job, names.MASTER, 0)
    secure = {**SECURE, "readOnlyRootFilesystem": "command" not in given}
    known = [*identity, environment.termination_log(given), *_brain(provision)]
    mounts = [
        *(given.get("volumeMounts") or []),
        environment.token_mount(),
    ]
    implied: Manifest = {
        "name": CONTAINER,
        "image": provision.image,
        "command": COMMAND,
        "securityContext": _security_context(secure, {"securityContext": provision.security}),
        **environment.LAST_LINES,
        "startupProbe": _probe("/healthz", every=1, failures=180) | {"initialDelaySeconds": STARTS_IN},
        "readinessProbe": _probe("/readyz", every=1, failures=3),
        "livenessProbe": _probe("/healthz", every=10, failures=6),
    }
    if provision.pull_policy:
        implied["imagePullPolicy"] = provision.pull_policy
    if provision.requests:
        implied["resources"] = {"requests": dict(provision.requests)}
    changed = {
        "env": environment.complete(
            known,
            environment.log_format(provision.log_format),
            environment.job_variables(job),
            given.get("env") or [],
        ),
        "ports": [{"name": "http", "containerPort": MASTER_PORT, "protocol": "TCP"}],
        "volumeMounts": mounts,
    }
    return {**implied, **given, **changed}


def _brain(provision: Provision) -> list[Manifest]:
    """Where Brain is, and the token for it."""
    if not provision.brain:
        return []
    token = {"name": env.BRAIN_TOKEN_FILE, "value": f"{dirname(env.TOKEN_PATH)}/{env.BRAIN_TOKEN}"}
    return [{"name": env.BRAIN, "value": provision.brain}, *([token] if provision.has_token else [])]


def _probe(path: str, *, every: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": MASTER_PORT},
        "periodSeconds": every,
        "failureThreshold": failures,
        "timeoutSeconds": 5,
    }


def _security_context(ours: Mapping[str, Any], asked: Mapping[str, Any]) -> Manifest:
    """Return our securityContext with the fields that are asked for, without those that are null there."""
    found = {**ours, **(asked.get("securityContext") or {})}
    return {name: value for name, value in found.items() if value is not None}
