"""What an examination reads, as frozen values: a cluster, or one job. `unread` has what could not be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.controllers.passes.conclusions import is_ours
from elasticjob.kube.objects.views import Event, Lease, Node, Pod, WebhookConfiguration

UNSEEN: Final = timedelta(seconds=30)
"""An operator that works has looked at a job by then."""


@dataclass(frozen=True)
class Trial:
    """The answer to a job that the webhooks must refuse, sent as a dry run: nothing is stored."""

    refused: bool = False
    """Whether the webhooks refused it."""
    failed: str = ""
    """Why the API server could not ask them, in its words; "" where it could."""


@dataclass(frozen=True)
class Cluster:
    """What the installation consists of, and all jobs that may be read."""

    version: str = ""
    missing: tuple[str, ...] = ()
    """Definitions that the API server does not have."""
    older: Mapping[str, str] = field(default_factory=dict)
    """Definitions that lack a field of this version, and which."""
    leases: tuple[Lease, ...] = ()
    """Leases of operators."""
    programs: tuple[Pod, ...] = ()
    """Pods of operators, Brain and di-server."""
    webhooks: tuple[WebhookConfiguration, ...] = ()
    """Configurations that name our API group."""
    trial: Trial | None = None
    nodes: tuple[Node, ...] = ()
    jobs: tuple[ElasticJob, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OneJob:
    """A job and what stands around it."""

    job: ElasticJob
    pods: tuple[Pod, ...] = ()
    plans: tuple[ScalePlan, ...] = ()
    events: tuple[Event, ...] = ()
    """Events about the job, its plans and its pods."""
    nodes: tuple[Node, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The job's name."""
        return self.job.metadata.name

    @property
    def names(self) -> str:
        """The job in the arguments of our commands, with its namespace."""
        return f"{self.name} -n {self.job.metadata.namespace}"

    @property
    def as_object(self) -> str:
        """The job in the arguments of kubectl, with its namespace."""
        return f"elasticjob/{self.name} -n {self.job.metadata.namespace}"


def is_unseen(job: ElasticJob, now: datetime) -> bool:
    """Whether no operator has looked at the present spec of a job that is ours, which is not new."""
    behind = (job.status.observed_generation or 0) < job.metadata.generation
    return is_ours(job) and behind and now - (job.metadata.creation_timestamp or now) >= UNSEEN


def ago(at: datetime | None, now: datetime) -> str:
    """Return how long ago something was, for a sentence."""
    return span(now - at) if at else "some time"


def span(length: timedelta) -> str:
    """Return a span of time for a sentence, in the largest unit of which there are two."""
    seconds = max(0, int(length.total_seconds()))
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
