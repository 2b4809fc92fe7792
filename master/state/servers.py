"""What the master knows of parameter servers and of those who train with them. Part of the snapshot."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from elasticjob.api.rpc.parameters import Phase
from elasticjob.master.state.value import Value


class Server(Value, frozen=True):
    """One process that serves at a place; `holds` is the version of the cluster whose values it has."""

    node: str
    incarnation: str
    index: int
    address: str
    pod: str
    since: datetime
    beat: datetime
    holds: int = 0

    @property
    def age(self) -> tuple[int, datetime, str]:
        """Sort key of servers at one place: by the number of the pod's relaunch, then by when they came."""
        return life_of(self.node, self.pod), self.since, self.incarnation


class Follower(Value, frozen=True):
    """A process that trains with the servers; `drained` is for which next cluster it sends nothing more."""

    incarnation: str
    beat: datetime
    drained: int = 0


class Cluster(Value, frozen=True):
    """The servers of one version, in order of their places. `version` 0: there are none yet."""

    version: int = 0
    members: tuple[Server, ...] = ()

    @property
    def who(self) -> tuple[str, ...]:
        """The processes that serve."""
        return tuple(server.incarnation for server in self.members)


class Parameters(Value, frozen=True):
    """The servers and followers that are there, the cluster in use, and the next one during a change.

    `versions` is the highest ever given. `missing` says since when a place has no server.
    """

    servers: dict[str, Server] = msgspec.field(default_factory=dict)
    followers: dict[str, Follower] = msgspec.field(default_factory=dict)
    current: Cluster = Cluster()
    next: Cluster | None = None
    moving: bool = False
    versions: int = 0
    missing: dict[int, datetime] = msgspec.field(default_factory=dict)

    @property
    def phase(self) -> Phase:
        """How far a change is."""
        if self.next is None:
            return Phase.STEADY if self.current.version else Phase.FORMING
        return Phase.MOVE if self.moving else Phase.DRAIN

    def heard(self, at: datetime) -> Parameters:
        """Return it as if all had been heard at `at`: a new master gives them time to find it."""
        servers = {name: server.but(beat=at) for name, server in self.servers.items()}
        followers = {name: each.but(beat=at) for name, each in self.followers.items()}
        return self.but(servers=servers, followers=followers, missing={})


def life_of(node: str, pod: str) -> int:
    """Return the number of a pod's relaunch, which is in its name."""
    number = pod.removeprefix(f"{node}-")
    return int(number) if number.isdecimal() else 0


def silent(beat: datetime, now: datetime, silence: timedelta) -> bool:
    """Whether nothing was heard for too long."""
    return now - beat > silence
