"""What the master knows of parameter servers and of those who train with them. Part of the snapshot."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from elasticjob.api.rpc.parameters import Kept, Phase
from elasticjob.api.rpc.shards import Position
from elasticjob.master.state.value import Value


class Server(Value, frozen=True):
    """One process that serves at a place; `holds` is the version of the cluster whose values it has.

    `gone`, `copies`, `copied`, `written`, `found` and `error` are as the request Serve has them.
    """

    node: str
    incarnation: str
    index: int
    address: str
    pod: str
    since: datetime
    beat: datetime
    holds: int = 0
    gone: int = 0
    copies: bool = False
    copied: int = 0
    written: int = 0
    found: Kept | None = None
    error: str = ""

    @property
    def age(self) -> tuple[int, datetime, str]:
        """Sort key of servers at one place: by the number of the pod's relaunch, then by when they came."""
        return life_of(self.node, self.pod), self.since, self.incarnation


class Follower(Value, frozen=True):
    """A process that trains with the servers; `drained` is for which change it sends nothing more.

    The others are as the request Follow has them.
    """

    incarnation: str
    beat: datetime
    since: datetime
    node: str = ""
    worker: str = "0"
    drained: int = 0
    prepares: bool = False
    prepared: int = 0
    finishes: bool = False
    finished: int = 0


class Cluster(Value, frozen=True):
    """The servers of one version, in order of their places. `version` 0: there are none yet.

    They take their values over, or go back to the checkpoint `restores`, 0 for none at all.
    """

    version: int = 0
    members: tuple[Server, ...] = ()
    restores: int | None = None
    since: datetime | None = None  # when it was offered

    @property
    def who(self) -> tuple[str, ...]:
        """The processes that serve."""
        return tuple(server.incarnation for server in self.members)


class Saving(Value, frozen=True):
    """A save by the servers `who`, with the `positions` of the datasets once all workers have stopped."""

    number: int
    who: tuple[str, ...]
    positions: tuple[Position, ...] | None = None
    step: int = 0  # of the training then
    copied: bool = False
    written: bool = False
    finishes: bool = False  # it counts when a chief has finished it


class Parameters(Value, frozen=True):
    """The servers and followers that are there, the cluster in use, and the next one during a change.

    `versions` is the highest number ever given, to a version or a save. `missing` says since when a place has
    no server. `offered` is the version of the last next cluster, and `restored` the one with which all went
    back to a checkpoint.

    `mark` counts the changes that are told only after they are saved, and `durable` is the last one that is:
    new numbers, and what a later master may not take back. `news` rises when others may be told something.
    """

    servers: dict[str, Server] = msgspec.field(default_factory=dict)
    followers: dict[str, Follower] = msgspec.field(default_factory=dict)
    current: Cluster = Cluster()
    next: Cluster | None = None
    draining: bool = False
    moving: bool = False
    versions: int = 0
    offered: int = 0
    missing: dict[int, datetime] = msgspec.field(default_factory=dict)
    saving: Saving | None = None
    kept: Kept = Kept(number=0)
    restored: int = 0
    mark: int = 0
    durable: int = 0
    news: int = 0

    @property
    def phase(self) -> Phase:
        """How far a change or a save is."""
        if self.next is not None:
            return Phase.MOVE if self.moving else Phase.DRAIN if self.draining else Phase.PREPARE
        if self.saving is not None and not self.saving.copied:
            return Phase.DRAIN if self.saving.positions is None else Phase.SAVE
        return Phase.STEADY if self.current.version else Phase.FORMING

    @property
    def lost(self) -> tuple[Server, ...]:
        """The servers of the cluster in use that are not there any more."""
        return tuple(each for each in self.current.members if each.incarnation not in self.servers)

    @property
    def chief(self) -> Follower | None:
        """The first worker of those that are there."""
        return min(self.followers.values(), key=lambda each: (each.since, each.incarnation), default=None)

    def after_save(self, mark: int) -> Parameters:
        """Return it after the changes up to `mark` were saved."""
        return self.but(durable=mark, news=self.news + 1) if mark > self.durable else self

    def heard(self, at: datetime) -> Parameters:
        """Return it as if all had been heard at `at`: a new master gives them time to find it."""
        servers = {name: server.but(beat=at) for name, server in self.servers.items()}
        followers = {name: each.but(beat=at) for name, each in self.followers.items()}
        return self.but(servers=servers, followers=followers, missing={}, durable=self.mark)


def life_of(node: str, pod: str) -> int:
    """Return the number of a pod's relaunch, which is in its name."""
    number = pod.removeprefix(f"{node}-")
    return int(number) if number.isdecimal() else 0


def silent(beat: datetime, now: datetime, silence: timedelta) -> bool:
    """Whether nothing was heard for too long."""
    return now - beat > silence
