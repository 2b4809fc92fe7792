"""Jobs, pods and machines of the cluster as the store keeps them. Pure."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from typing import Final

from elasticjob.api.numbers import MOST
from elasticjob.api.resources import Bytes, Cores, Resources
from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.common import LABEL_ROLE
from elasticjob.api.v1alpha1.containers import main_container, main_end
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, Phase
from elasticjob.brain.store import SeenJob, SeenMachine, SeenPod
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Node, Pod

TRAINING: Final = (Phase.RUNNING, Phase.SCALING, Phase.RESTARTING)
ENDED: Final = (Phase.SUCCEEDED, Phase.FAILED)
DEVICE: Final = "/"
"""Names of extended resources have one."""
LONGEST: Final = 512


def seen_job(job: ElasticJob, now: datetime) -> SeenJob:
    """Return a job as it is now."""
    main = _main_container(job)
    words = [str(word) for name in ("command", "args") for word in main.get(name) or ()]
    over = job.status.phase in ENDED
    training = job.status.training.model_dump(mode="json", by_alias=True) if job.status.training else {}
    told = training | {"fulfilment": _fulfilment(job)}
    return SeenJob(
        uid=job.metadata.uid,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        began=job.metadata.creation_timestamp or now,
        image=str(main.get("image", ""))[:LONGEST],
        script=" ".join(words)[:LONGEST],
        strategy=job.spec.distribution_strategy.value,
        mode=job.spec.optimize_mode.value,
        phase=job.status.phase.value if job.status.phase else "",
        status={name: value for name, value in told.items() if value is not None},
        ended=(job.status.completion_time or now) if over else None,
        completed=job.status.phase is Phase.SUCCEEDED,
    )


def _fulfilment(job: ElasticJob) -> float | None:
    """Return how much of its range the job's workers have: 0 at the minimum or below, 1 at the maximum.

    None for a job whose workers have no range, and for one that has ended.
    """
    spec, status = job.spec.roles.get(WORKER), job.status.replica_statuses.get(WORKER)
    if job.status.phase in ENDED or spec is None or status is None:
        return None
    if not spec.bounds.most or spec.bounds.most <= spec.bounds.least:
        return None
    return max(0, status.active - spec.bounds.least) / (spec.bounds.most - spec.bounds.least)


def _main_container(job: ElasticJob) -> Manifest:
    """Return the container that trains, of the workers or else of the first role."""
    roles = job.spec.roles
    spec = roles.get(WORKER) or next(iter(roles.values()), None)
    return (spec and spec.main_container) or {}


def seen_pod(pod: Pod, job: str, now: datetime, log: str = "") -> SeenPod:
    """Return a pod of the job with this uid as it is now; `log` are its last lines, if they are known.

    It ended when that was seen: its machine has a clock of its own, and a kill that looks older than the last
    decision would count as answered.
    """
    main, end = main_container(pod), main_end(pod)
    given = {**main.resources.requests, **main.resources.limits} if main else {}
    over = pod.status.phase in ("Succeeded", "Failed")
    reason = end.reason if end and end.exit_code else pod.status.reason
    return SeenPod(
        uid=pod.metadata.uid,
        job=job,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        role=pod.metadata.labels.get(LABEL_ROLE, ""),
        began=pod.metadata.creation_timestamp or now,
        machine=pod.spec.node_name,
        phase=pod.status.phase,
        reason=reason if over else "",
        cores=float(Cores.parse(str(given["cpu"])).value) if "cpu" in given else 0.0,
        bytes=_whole(Bytes.parse(str(given["memory"])).value) if "memory" in given else 0,
        ended=now if over else None,
        log=log or (end.message if end else ""),
    )


def seen_machine(node: Node, now: datetime) -> SeenMachine:
    """Return a machine as it is now."""
    has = Resources.parse({name: str(amount) for name, amount in node.status.allocatable.items()})
    ready = [each.status == "True" for each in node.status.conditions if each.type == "Ready"]
    return SeenMachine(
        uid=node.metadata.uid,
        name=node.metadata.name,
        began=node.metadata.creation_timestamp or now,
        cores=float(has["cpu"].value) if "cpu" in has else 0.0,
        bytes=_whole(has["memory"].value) if "memory" in has else 0,
        devices={name: _whole(amount.value) for name, amount in has.items() if DEVICE in name},
        ready=all(ready) and not node.spec.unschedulable,
    )


def _whole(amount: Fraction | int) -> int:
    """An amount as databases take it: a pod may ask for 10E of memory."""
    return min(int(amount), int(MOST))
