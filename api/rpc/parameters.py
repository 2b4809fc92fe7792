"""Requests of parameter servers and of those who train with them: which servers there are, and their change.

A cluster of servers has a version. When it changes, all workers first stop sending to the present one
(`drained`), then the servers of the next one take the values over (`holds`), then all use the next one:

    STEADY ─ others should serve ─▶ DRAIN ─ all workers drained ─▶ MOVE ─ all next servers hold ─▶ STEADY

Both requests are long polls that end as soon as the answer differs from what is `seen`, and heartbeats.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from elasticjob.api.rpc.message import Count, Empty, Index, Message, Name, Request, Wait


class Phase(StrEnum):
    """How far a change of the servers is."""

    FORMING = "Forming"  # there is no cluster yet
    STEADY = "Steady"
    DRAIN = "Drain"
    MOVE = "Move"


class ServerAt(Message, frozen=True, kw_only=True):
    """A server of a cluster: its place, which process it is, and where it is reached (host:port)."""

    index: Index
    incarnation: Name
    address: Name


class Plane(Message, frozen=True, kw_only=True):
    """The clusters of servers: that in use, and during a change the next one, in order of their places."""

    phase: Phase = Phase.FORMING
    version: Count = 0
    servers: tuple[ServerAt, ...] = ()
    next_version: Count = 0
    next_servers: tuple[ServerAt, ...] = ()

    @property
    def mark(self) -> str:
        """What differs when anything does."""
        return f"{self.phase.value} {self.version} {self.next_version}"


class Serve(Request[Plane], frozen=True, kw_only=True):
    """A server is there. `holds` is the version of the cluster whose values it has, 0 for none."""

    PATH: ClassVar[str] = "parameters/serve"

    node: Name
    incarnation: Name
    pod: str = ""
    index: Index
    address: Name
    holds: Count = 0
    seen: str = ""
    wait: Wait = 0.0


class Follow(Request[Plane], frozen=True, kw_only=True):
    """A worker is there. `drained` is the version of the next cluster for which it sends nothing any more."""

    PATH: ClassVar[str] = "parameters/follow"

    node: Name
    incarnation: Name
    drained: Count = 0
    seen: str = ""
    wait: Wait = 0.0


class Depart(Request[Empty], frozen=True, kw_only=True):
    """A worker has ended, and is not waited for any more."""

    PATH: ClassVar[str] = "parameters/depart"

    node: Name
    incarnation: Name
