"""/status of a job's master, as the page reads it: any process may answer there, so everything is bounded."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final

import msgspec

from elasticjob.api.numbers import Count, Finite, Name, Nodes
from elasticjob.api.rpc.message import Message
from elasticjob.api.rpc.nodes import Kept, Usage

LARGEST: Final = 4 << 20
"""Bytes of an answer: a job of 4,096 nodes tells less."""
Text = Annotated[str, msgspec.Meta(max_length=4096)]
Time = Annotated[datetime, msgspec.Meta(tz=True)]


class NodeStatus(Message, frozen=True, kw_only=True, rename="camel"):
    """A node: what it does, when it was last heard, how fast it is, and its last failure."""

    name: Name
    role: Text = ""
    state: Text = ""
    pod: Text = ""
    heard: Finite | None = None
    failures: Count = 0
    failure: Text = ""
    excluded: Text = ""
    usage: Usage | None = None
    memory_peak: Count | None = None
    step_seconds: Finite | None = None
    samples_per_second: Finite | None = None


class Done(Message, frozen=True, kw_only=True):
    """How far the training is."""

    step: Count = 0
    epoch: Finite = 0.0
    total_steps: Count = 0
    samples: Count = 0
    loss: Finite | None = None


class Finding(Message, frozen=True, kw_only=True):
    """A verdict about workers or nodes."""

    at: Time
    reason: Text
    message: Text


class Round(Message, frozen=True, kw_only=True):
    """A change of the world."""

    round: Count
    reason: Text
    formed: Time
    nodes: Nodes
    workers: Nodes
    lost: tuple[Text, ...] = ()
    left: tuple[Text, ...] = ()
    joined: tuple[Text, ...] = ()
    others: Count = 0
    step_before: Count = 0
    standstill: Finite | None = None


class Bounds(Message, frozen=True, kw_only=True):
    """How many nodes may train together."""

    min: Count = 0
    max: Count | None = None
    unit: Count = 1


class Status(Message, frozen=True, kw_only=True, rename="camel"):
    """All that the page reads of a master; other fields are ignored."""

    sentence: Text = ""
    round: Count = 0
    bounds: Bounds = Bounds()
    nodes: Annotated[tuple[NodeStatus, ...], msgspec.Meta(max_length=1 << 16)] = ()
    progress: Done | None = None
    steps_per_second: Finite | None = None
    samples_per_second: Finite | None = None
    eta: Finite | None = None
    standstill: Finite = 0.0
    checkpoint: Kept = Kept()
    goodput_ratio: Finite | None = None
    productive_seconds: Finite = 0.0
    badput_seconds: Annotated[dict[Text, Finite], msgspec.Meta(max_length=64)] = msgspec.field(
        default_factory=dict
    )
    restarts: Count = 0
    findings: Annotated[tuple[Finding, ...], msgspec.Meta(max_length=256)] = ()
    slow: tuple[Text, ...] = ()
    check: Text | None = None
    rounds: Annotated[tuple[Round, ...], msgspec.Meta(max_length=4096)] = ()

    @property
    def workers(self) -> int:
        """How many workers the newest world has."""
        return self.rounds[-1].workers if self.rounds else 0


_DECODER: Final = msgspec.json.Decoder(Status)


def status_of(body: bytes) -> Status:
    """Return the status in an answer. Raises UNREADABLE."""
    return _DECODER.decode(body)
