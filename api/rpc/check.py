"""Node check: before it trains, a node runs a payload alone, then together with other nodes.

The agent runs the payload alone first. With the result it asks what comes next, and repeats that until the
answer is a result.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from elasticjob.api.numbers import Count, Index, Measured, Name, Wait
from elasticjob.api.rpc.message import Message, Request
from elasticjob.api.rpc.rendezvous import Port, Slots

Text = Annotated[str, msgspec.Meta(max_length=2048)]


class Part(StrEnum):
    """What a node does next."""

    ALONE = "alone"  # run the payload alone (again: a new master does not know the result)
    TOGETHER = "together"  # run it with `peers`
    PASSED = "passed"  # train
    EXCLUDED = "excluded"  # this machine is not to train: exit


class Peer(Message, frozen=True, kw_only=True):
    """One node of a group, in rank order; `address` and `port` are where the first opens the store."""

    node: str
    address: str
    port: int
    slots: int


class Next(Message, frozen=True, kw_only=True):
    """What this node does in turn `turn`; `reason` says why it is excluded, or that it is slow."""

    part: Part
    turn: int = 0
    peers: tuple[Peer, ...] = ()
    reason: str = ""


class Check(Request[Next], frozen=True, kw_only=True):
    """The result of the payload in turn `turn` (0: alone), and the question what comes next (long poll).

    `error` is why the payload failed, empty if it did not. Sent again, it gets the same answer.
    """

    PATH: ClassVar[str] = "check/next"
    node: Name
    role: Name
    index: Index
    incarnation: Name
    address: Name
    port: Port  # free for the store of the next turn
    slots: Slots  # processes of the payload
    device: Text = ""  # the device type, such as the name of the GPU
    turn: Count = 0
    seconds: Measured = 0.0
    error: Text = ""
    wait: Wait = 20.0
