"""All that was read for the page, in frozen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.kube.objects.views import Event, Node, Pod
from elasticjob.page.series import Point
from elasticjob.page.status import Status


@dataclass(frozen=True)
class Standing:
    """Whether something answers: why it does not, since when, and what to do; "" where it does."""

    away: str = ""
    since: datetime | None = None
    act: str = ""


@dataclass(frozen=True)
class Cluster:
    """Where the page looks: the namespace ("": all), what reads it, and whether the API server answers.

    `nodes_away` is why nodes are not shown, such as a missing right.
    """

    namespace: str = ""
    server: str = ""
    api: Standing = Standing()
    ready: bool = True
    nodes_away: str = ""
    brain: Standing | None = None
    """None where the page is served without a Brain."""


@dataclass(frozen=True)
class Fleet:
    """The jobs, their pods, the nodes; series and the jobs that Brain remembers by uid."""

    cluster: Cluster
    jobs: Sequence[ElasticJob] = ()
    pods: Sequence[Pod] = ()
    nodes: Sequence[Node] = ()
    series: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    past: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Master:
    """What the master of a job said last, when, and why it does not answer now."""

    status: Status | None = None
    heard: datetime | None = None
    away: Standing = Standing()


@dataclass(frozen=True)
class Past:
    """What Brain keeps of a job: its row, samples as points, decisions, and pods with their last lines."""

    job: Mapping[str, Any]
    points: Sequence[Point] = ()
    decisions: Sequence[Mapping[str, Any]] = ()
    pods: Sequence[Mapping[str, Any]] = ()
    cost: str = ""


@dataclass(frozen=True)
class One:
    """A job: its object (None where it is deleted, or Brain alone knows it), and all around it."""

    cluster: Cluster
    namespace: str
    name: str
    job: ElasticJob | None = None
    pods: Sequence[Pod] = ()
    nodes: Sequence[Node] = ()
    plans: Sequence[ScalePlan] = ()
    events: Sequence[Event] = ()
    events_away: str = ""
    master: Master = Master()
    series: Sequence[Point] = ()
    past: Past | None = None
