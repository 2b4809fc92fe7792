"""Requests of parameter servers and of their workers: changes of servers, and saves.

A cluster of servers has a version. When it changes, all workers first prepare for the next one while they
train, then stop sending to the present one (`drained`), then the servers of the next one take the values
over (`holds`), then all use the next one. A save is a stop of the same kind, in which the servers copy their
values:

    STEADY ─ others should serve ─▶ PREPARE ─ all prepared ─▶ DRAIN ─ all drained ─▶ MOVE ─ all hold ─▶ STEADY
    STEADY ─ a save is asked for ─▶ DRAIN ─ all drained ─▶ SAVE ─ all copied ─▶ STEADY

Versions and saves are numbered in one sequence; a `drained` or `copied` is the number of what it is for.
Serve and Follow are long polls that end as soon as the answer differs from what is `seen`, and heartbeats,
with what the process uses if no agent reports that.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Final

import msgspec

from elasticjob.api.numbers import Count, Index, Name, Wait
from elasticjob.api.rpc.message import Empty, Message, Request
from elasticjob.api.rpc.nodes import Usage
from elasticjob.api.rpc.shards import Position

LONGEST: Final = 2048
"""Characters of an error, at most."""
Positions = Annotated[tuple[Position, ...], msgspec.Meta(max_length=256)]


class Phase(StrEnum):
    """How far a change of the servers is, or a save."""

    FORMING = "Forming"  # there is no cluster yet
    STEADY = "Steady"
    PREPARE = "Prepare"
    DRAIN = "Drain"
    MOVE = "Move"
    SAVE = "Save"


class ServerAt(Message, frozen=True, kw_only=True):
    """A server of a cluster: its place, its process, and its address (host:port)."""

    index: Index
    incarnation: Name
    address: Name


class Kept(Message, frozen=True, kw_only=True):
    """A checkpoint: the number of its save, and where the datasets stood then.

    A dataset that is not named had not begun.
    """

    number: Count
    positions: Positions = ()


class Plane(Message, frozen=True, kw_only=True):
    """The clusters of servers: that in use, and during a change the next one, in order of their places.

    `restores`: the next servers do not take values over, but from the checkpoint of this number, or make them
    anew if it is 0; None otherwise. `restored` is the last version for which that was done: the datasets went
    back, too. `saves` is the number of the save under way or being written, 0 for none, and `position` where
    the datasets stand in it. `written`: all servers have written it, so that the chief may finish it.
    `offered` is the version of the last cluster that was to be the next one: it may have been given up.
    `kept` is the number of the last checkpoint that counts. `chief` is the incarnation of the first worker.
    """

    phase: Phase = Phase.FORMING
    version: Count = 0
    servers: tuple[ServerAt, ...] = ()
    next_version: Count = 0
    next_servers: tuple[ServerAt, ...] = ()
    offered: Count = 0
    restores: Count | None = None
    restored: Count = 0
    saves: Count = 0
    position: Positions = ()
    written: bool = False
    kept: Count = 0
    chief: str = ""

    @property
    def mark(self) -> str:
        """The fingerprint of the clusters: it differs whenever a field does."""
        numbers = (self.version, self.next_version, self.saves, int(self.written), self.kept)
        return f"{self.phase.value} {' '.join(map(str, numbers))} {self.chief}"


class Serve(Request[Plane], frozen=True, kw_only=True):
    """A server is there. `holds` is the version of the cluster whose values it has, 0 for none.

    `gone` is the version of the next cluster for which values were nowhere to be found, or damaged in the
    checkpoint to go back to. A server that `copies` has copies of another's values, so that the loss of one
    server loses nothing. `copied` and `written` are the saves that it has in memory and in files, and `error`
    why the last one is not in files. `found` is the newest complete checkpoint that it sees in its folder: at
    its start, and anew with what is `gone`.
    """

    PATH: ClassVar[str] = "parameters/serve"

    node: Name
    incarnation: Name
    pod: str = ""
    index: Index
    address: Name
    holds: Count = 0
    gone: Count = 0
    copies: bool = False
    copied: Count = 0
    written: Count = 0
    found: Kept | None = None
    error: Annotated[str, msgspec.Meta(max_length=LONGEST)] = ""
    usage: Usage | None = None
    seen: str = ""
    wait: Wait = 0.0


class Follow(Request[Plane], frozen=True, kw_only=True):
    """A worker is there. A newer process of the same node and `worker` takes its place.

    `drained` is the number of the change or save for which it sends nothing any more. One that `prepares` is
    waited for until it has `prepared` the next version. One that `finishes` checkpoints is the last to act on
    them, as the chief, and says which it has `finished`.
    """

    PATH: ClassVar[str] = "parameters/follow"

    node: Name
    worker: Annotated[str, msgspec.Meta(max_length=64)] = "0"
    incarnation: Name
    drained: Count = 0
    prepares: bool = False
    prepared: Count = 0
    finishes: bool = False
    finished: Count = 0
    usage: Usage | None = None
    seen: str = ""
    wait: Wait = 0.0


class Save(Request[Empty], frozen=True, kw_only=True):
    """Save the values soon, and where the datasets stand; not while a save or a change is under way."""

    PATH: ClassVar[str] = "parameters/save"

    node: Name
    incarnation: Name


class Depart(Request[Empty], frozen=True, kw_only=True):
    """A worker has ended, and is not waited for any more."""

    PATH: ClassVar[str] = "parameters/depart"

    node: Name
    incarnation: Name
