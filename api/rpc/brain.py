"""Requests of masters to Brain: statistics in, sizes out. Amounts are quantities, as in manifests.

Each is `POST /v1/brain/<verb>` with a bearer token; errors are problem+json (message.py). Brain keys what it
keeps by the uid of the job, and a token is good for one uid: the operator and Brain share the key, masters do
not have it.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from elasticjob.api.rpc.message import Count, Empty, Message, Name, Request

Quantities = dict[str, str]
Text = Annotated[str, msgspec.Meta(max_length=1024)]
MOST_RECORDS = 256
MOST_NODES = 4096


def job_token(key: bytes, uid: str) -> str:
    """Return the token of a job: HMAC-SHA256 of its uid, in hexadecimal digits."""
    return hmac.new(key, uid.encode(), hashlib.sha256).hexdigest()


class StageName(StrEnum):
    """How far the sizing of a job is; the same on both sides."""

    CREATE = "Create"
    WORKER_INITIAL = "WorkerInitial"
    PS_INITIAL = "PSInitial"
    RUNNING = "Running"


class RoleFacts(Message, frozen=True, kw_only=True):
    """The user's settings of a role; without `count` the optimizer decides the number of nodes."""

    count: Count | None = None
    least: Count = 1
    most: Count | None = None
    unit: Count = 1
    auto: bool = True
    resource: Quantities = msgspec.field(default_factory=dict)


class JobFacts(Message, frozen=True, kw_only=True):
    """The job's identity and its user's settings."""

    namespace: Name
    name: Name
    uid: Name
    strategy: str = ""
    roles: dict[str, RoleFacts] = msgspec.field(default_factory=dict)
    limits: Quantities = msgspec.field(default_factory=dict)


class NodeUse(Message, frozen=True, kw_only=True):
    """Configured and used resources of a node: cores, bytes; 0 if unknown."""

    name: Name
    role: Name
    cpu: float = 0.0
    memory: Count = 0
    cores: float = 0.0
    bytes: Count = 0


class Statistics(Message, frozen=True, kw_only=True):
    """The job at one time while all its nodes train: steps and records a second."""

    at: datetime
    workers: Count
    steps: float = 0.0
    samples: float = 0.0
    nodes: Annotated[tuple[NodeUse, ...], msgspec.Meta(max_length=MOST_NODES)] = ()


class Placement(Message, frozen=True, kw_only=True):
    """Desired sizes and resources, and the capacity left in the cluster."""

    sizes: dict[str, Count] = msgspec.field(default_factory=dict)
    resources: dict[str, Quantities] = msgspec.field(default_factory=dict)
    nodes: dict[str, Quantities] = msgspec.field(default_factory=dict)
    room: dict[str, Count] | None = None
    machine: Quantities | None = None


class Size(Message, frozen=True, kw_only=True):
    """The new size of a role; absent fields stay unchanged."""

    count: Count | None = None
    resource: Quantities = msgspec.field(default_factory=dict)


class Sizes(Message, frozen=True, kw_only=True):
    """Brain's answer: what it does not name stays as it is. `reason` is a sentence for people."""

    groups: dict[str, Size] = msgspec.field(default_factory=dict)
    nodes: dict[str, Quantities] = msgspec.field(default_factory=dict)
    reason: Text = ""
    algorithm: str = ""


Records = Annotated[tuple[Statistics, ...], msgspec.Meta(max_length=MOST_RECORDS)]


class AskSizes(Request[Sizes], frozen=True, kw_only=True):
    """Request the sizes of a job at a stage."""

    PATH: ClassVar[str] = "brain/sizes"

    job: JobFacts
    stage: StageName
    placed: Placement = Placement()
    records: Records = ()
    settled: bool = False
    """Whether all nodes train at the present size for long enough, so that numbers may change."""


class AskRecovery(Request[Sizes], frozen=True, kw_only=True):
    """Request new sizes after these pods were killed for memory."""

    PATH: ClassVar[str] = "brain/recovery"

    job: JobFacts
    nodes: tuple[Name, ...]
    placed: Placement = Placement()
    records: Records = ()


class AskFirst(Request[Sizes], frozen=True, kw_only=True):
    """Request default sizes for a job without history."""

    PATH: ClassVar[str] = "brain/first"

    job: JobFacts


class TellStatistics(Request[Empty], frozen=True, kw_only=True):
    """New records of a job. `dropped` counts those that were lost on the way, since the master began."""

    PATH: ClassVar[str] = "brain/statistics"

    job: JobFacts
    records: Records
    dropped: Count = 0
