"""The actions of an agent, in steps that its rules decide and its loop performs."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from elasticjob.api.rpc.nodes import Failure, Finish, Hang
from elasticjob.api.rpc.rendezvous import Join, Leave
from elasticjob.trainer.agent.group import Group
from elasticjob.trainer.link.channel import Copied, Enter, FromAgent, Hampered


@dataclass(frozen=True)
class Spawn:
    """Start a worker: without a world (elastic), or as `rank` of `round` at the store on `address`:`port`."""

    slot: int
    start: int
    enter: Enter | None = None


@dataclass(frozen=True)
class Signal:
    """Send a signal to a worker's process group."""

    slot: int
    number: signal.Signals


@dataclass(frozen=True)
class Tell:
    """Send a message to a worker."""

    slot: int
    message: FromAgent


@dataclass(frozen=True)
class Report:
    """Report to the master without waiting for the response."""

    request: Failure | Finish | Leave


@dataclass(frozen=True)
class Ask:
    """Request the next world, replacing an earlier request; None: cancel the request."""

    join: Join | None


@dataclass(frozen=True)
class Exit:
    """End the agent."""

    code: int
    reason: str
    message: str
    local_rank: int = -1


@dataclass(frozen=True)
class Save:
    """Write the last checkpoint; `Saved` follows."""


@dataclass(frozen=True)
class Keep:
    """Take in what a worker says of its checkpoints."""

    message: Copied | Hampered


@dataclass(frozen=True)
class SendProgress:
    """Send the periodic report at once."""


@dataclass(frozen=True)
class WriteStacks:
    """Write where all workers are, and tell the master."""

    hang: Hang


Action = Spawn | Signal | Tell | Report | Ask | Save | Exit | Keep | SendProgress | WriteStacks


@dataclass(frozen=True)
class Step:
    """The actions to perform and the resulting group; `why` is the log line, if any; `warns` its level."""

    group: Group
    actions: tuple[Action, ...]
    why: str = ""
    warns: bool = False
