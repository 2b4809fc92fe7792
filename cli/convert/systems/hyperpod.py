"""HyperPodPyTorchJob of Amazon SageMaker: groups of pods that train together, and an elastic policy."""

from __future__ import annotations

import re
from typing import Any, Final

from elasticjob.cli.convert import pods, training
from elasticjob.cli.convert.launchers.launch import Launch
from elasticjob.cli.convert.runpolicy import clean_pod_policy
from elasticjob.cli.convert.system import Fields, Marks, System, Unconvertible, kind
from elasticjob.cli.convert.systems.pytorchjob import MARKS as KUBEFLOW
from elasticjob.cli.convert.systems.pytorchjob import WORKERS, bounds
from elasticjob.cli.convert.training import Training, node_fields, role_of, within
from elasticjob.kube.objects.kinds import Manifest

GROUP: Final = "sagemaker.amazonaws.com"
BY_STEPS: Final = "hangs are noticed by the steps of workers: docs/health.md"
NOT_AT_ONCE: Final = "nodes join and leave between two steps: docs/training.md"
IN_ALL: Final = "no job starts again as a whole: nodes are replaced, while restartCount and backoffLimit last"

MARKS: Final = Marks(
    labels=((rf"{re.escape(GROUP)}/.+", ""), *KUBEFLOW.labels),
    variables=KUBEFLOW.variables,
    hosts=r"{job}-[a-z][\w-]*-\d+",
)


def _read(whole: Fields) -> list[Manifest]:
    """Return the job: its groups are one role of workers."""
    spec = whole.below("spec")
    groups = spec.each("replicaSpecs")
    if not groups:
        raise Unconvertible("spec.replicaSpecs has no group: write one, with its template")
    defaults = Launch("", processes=training.processes(spec, "nprocPerNode") or "auto")
    found = [
        training.training_template(group, ("pytorch",), defaults=defaults, plainly=True) for group in groups
    ]
    for group, each in zip(groups[1:], found[1:], strict=True):
        training.compare(group, each.template, found[0].template)
    elastic = spec.below("elasticPolicy")
    made: Manifest = {
        **node_fields(found[0].launch),
        "nodeUnit": elastic.number("replicaIncrementStep", "as spec.nodeUnit"),
        "replicaSpecs": {"worker": _worker(groups, elastic, found[0])},
        "runPolicy": _policy(spec.below("runPolicy")),
    }
    for field, value in elastic.value.items():
        if field == "replicaDiscreteValues":
            elastic.drop(field, f"write spec.nodeUnit: sizes are its multiples, not {value}")
        elif field.endswith("TimeoutInSeconds") or field.endswith("TimeInSeconds"):
            elastic.drop(field, NOT_AT_ONCE)
    return [pods.job(whole, made)]


def _worker(groups: list[Fields], elastic: Fields, found: Training) -> Manifest:
    where = "as" if len(groups) == 1 else "counted in"
    counts = [_count(group, f"{where} {WORKERS}.replicas") for group in groups]
    sizes: dict[str, Any] = bounds(elastic)
    known = [each for each in counts if each is not None]
    if known:
        sizes["replicas"] = sum(known)
    if "maxReplicas" not in sizes:
        most = [group.number("maxReplicas", f"{where} {WORKERS}.maxReplicas") for group in groups]
        if any(each is not None for each in most):
            pairs = zip(most, counts, strict=True)
            sizes["maxReplicas"] = sum(least or 0 if each is None else each for each, least in pairs)
    for group in groups:
        group.keep("name", "the role is worker")
        if "maxReplicas" in elastic:
            group.drop("maxReplicas", "elasticPolicy.maxReplicas is the largest size of all groups")
    if None in counts and found.launch is not None:
        sizes = {**found.launch.sizes(), **sizes}
    return role_of(found, within(groups[0], sizes, elastic, *groups[1:]))


def _count(group: Fields, where: str) -> int | None:
    """Return a group's number of pods; templates may have a variable there."""
    given = group.peek("replicas")
    if isinstance(given, str):
        group.drop("replicas", f"{given!r} is no number: write {WORKERS}.replicas")
        return None
    return group.number("replicas", where) if "replicas" in group else 1


def _policy(policy: Fields) -> Manifest:
    restarts = policy.below("restartPolicy")
    policy.drop("logMonitoringConfiguration", BY_STEPS)
    for field in ("numRestartBeforeFullJobRestart", "maxFullJobRestarts", "scaleDownPolicy"):
        restarts.drop(field, IN_ALL)
    found: Manifest = {
        "backoffLimit": policy.number("jobMaxRetryCount", "as runPolicy.backoffLimit"),
        "cleanPodPolicy": clean_pod_policy(policy),
        "ttlSecondsAfterFinished": policy.number("ttlSecondsAfterFinished"),
        "activeDeadlineSeconds": policy.number("activeDeadlineSeconds"),
        "forgiveRestartsAfterSeconds": restarts.number(
            "evalPeriodSeconds", "as runPolicy.forgiveRestartsAfterSeconds"
        ),
    }
    return pods.without_empty(found)


HYPERPOD: Final = System("SageMaker HyperPodPyTorchJob", (kind(GROUP, "HyperPodPyTorchJob"),), _read, MARKS)
