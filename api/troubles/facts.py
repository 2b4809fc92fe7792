"""What is known of a cluster or of one job, as frozen values, and what could not be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.roles import MASTER_ALIAS
from elasticjob.api.v1alpha1.common import LABEL_ROLE
from elasticjob.api.v1alpha1.containers import main_status
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.kube.objects.views import Event, Lease, Node, Pod, WebhookConfiguration

UNSEEN: Final = timedelta(seconds=30)
"""An operator that works has looked at a job by then."""
UNREADY: Final = timedelta(seconds=15)
"""A master whose probe fails for so long is in trouble, to the operator and to doctor."""


@dataclass(frozen=True)
class Trial:
    """The answer to a job that the webhooks must refuse, sent as a dry run: nothing is stored."""

    refused: bool = False
    """Whether the webhooks refused it."""
    failed: str = ""
    """Why the API server could not ask them, in its words; "" where it could."""


@dataclass(frozen=True)
class ClusterFacts:
    """What the installation consists of, and all jobs that may be read."""

    version: str = ""
    missing: Sequence[str] = ()
    """Definitions that the API server does not have."""
    older: Mapping[str, str] = field(default_factory=dict)
    """Definitions that lack a field of this version, and which."""
    leases: Sequence[Lease] = ()
    """Leases of operators."""
    programs: Sequence[Pod] = ()
    """Pods of operators, Brain and di-server."""
    webhooks: Sequence[WebhookConfiguration] = ()
    """Configurations that name our API group."""
    trial: Trial | None = None
    nodes: Sequence[Node] = ()
    jobs: Sequence[ElasticJob] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    """What could not be read, and why."""


@dataclass(frozen=True)
class JobFacts:
    """A job and what stands around it."""

    job: ElasticJob
    pods: Sequence[Pod] = ()
    plans: Sequence[ScalePlan] = ()
    events: Sequence[Event] = ()
    """Events about the job, its plans and its pods."""
    nodes: Sequence[Node] = ()
    master: str | None = None
    """Why the job's master does not answer; "" if it does, None where nobody asked it."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """What could not be read, and why."""
    behind: str = ""
    """How its status has differed from its pods for seconds; "" if it does not."""


def difference(job: ElasticJob, pods: Iterable[Pod]) -> str:
    """Return how many nodes of a role the status calls active beyond the pods that there are, "" if none."""
    there = Counter(pod.metadata.labels.get(LABEL_ROLE, "") for pod in pods)
    active = {role: each.active for role, each in job.status.replica_statuses.items()}
    return "; ".join(
        f"the status says that {count} of role {role} run, and there are {there[role]} pods"
        for role, count in active.items()
        if count > there[role]
    )


def is_unseen(job: ElasticJob, now: datetime) -> bool:
    """Whether no operator has looked at the present spec of a job that is ours, which is not new."""
    behind = (job.status.observed_generation or 0) < job.metadata.generation
    return job.spec.is_ours and behind and now - (job.metadata.creation_timestamp or now) >= UNSEEN


def when(event: Event) -> float:
    """Return when an event was last seen, in seconds; 0 where it does not say so."""
    return event.latest.timestamp() if event.latest else 0.0


def running_master(pods: Iterable[Pod]) -> Pod | None:
    """Return the pod of a job's master whose program runs."""
    own = (pod for pod in pods if pod.metadata.labels.get(LABEL_ROLE) == MASTER_ALIAS)
    return next((pod for pod in own if (status := main_status(pod)) and status.state.running), None)
