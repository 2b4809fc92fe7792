"""Rendezvous: how nodes form a world.

A *node* is a pod that trains, named by its place (`<job>-<role>-<index>`); an *incarnation* is one life of
that node (the agent's random id): a newer one replaces an older one, which is refused from then on. A *world*
is the set of nodes that one *round* agreed on; the round's number fences every later message.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

import msgspec

from elasticjob.api.numbers import Count, Finite, Index, Name, Wait
from elasticjob.api.rpc.message import Empty, Message, Request

Slots = Annotated[int, msgspec.Meta(ge=1, le=4096)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class Member(Message, frozen=True, kw_only=True):
    """One node of a world, in rank order.

    `slots` is its number of workers; `address` and `port` are where its first worker opens the store of the
    round if it is rank 0 (the agent reserved the port); `since` is the round in which it entered the lineage
    of the model: a member whose `since` is older than the round has taken part in the world before. At the
    port `files` its agent serves what is in the node's memory.
    """

    node: str
    incarnation: str
    slots: int
    address: str
    port: int
    since: int
    files: Port = 0


class World(Message, frozen=True, kw_only=True):
    """The result of a completed round: members in rank order, the oldest of the surviving lineage first.

    The global rank of a worker is the sum of the slots of the members before its node + its local rank.
    `batch_slots` is N of the fixed global batch: the configured maximum of workers (>= the sum of slots).

    To an agent that takes it, a large world is not sent whole: then `nodes` and `workers` say how large it
    is, `members` are the first ones and the node that asked, and `rank` and `first` are the ranks of the last
    of those, among nodes and workers; `next` is the node after the one that asked.
    """

    round: int
    members: tuple[Member, ...]
    batch_slots: int
    nodes: int = 0
    workers: int = 0
    rank: int = 0
    first: int = 0
    next: Member | None = None

    @property
    def size(self) -> int:
        """Number of workers."""
        return self.workers or sum(member.slots for member in self.members)

    @property
    def count(self) -> int:
        """Number of nodes."""
        return self.nodes or len(self.members)

    def node_rank(self, node: str) -> int:
        """Rank of `node` among the nodes; LookupError if it is not a known member."""
        return self._ranks(node)[0]

    def first_rank(self, node: str) -> int:
        """Global rank of the first worker of `node`; LookupError if it is not a known member."""
        return self._ranks(node)[1]

    def _ranks(self, node: str) -> tuple[int, int]:
        if self.nodes and self.members[-1].node == node:
            return self.rank, self.first
        first = 0
        for rank, member in enumerate(self.members):
            if member.node == node:
                return rank, first
            first += member.slots
        raise LookupError(f"{node} is not in the world of round {self.round}")


class Recovery(StrEnum):
    """How the workers of a node handle a change of the world."""

    IN_PROCESS = "in-process"  # the script uses elasticjob.trainer.torch: workers keep their state
    RESTART = "restart"  # any script: workers are restarted


class Join(Request[World], frozen=True, kw_only=True):
    """Wait for a completed world newer than `after` that contains this node (long poll).

    The master responds 503 `stopping` when the job ends, 409 `stale` to a replaced incarnation, 409 `refused`
    to a node that finished or leaves, and 204 after `wait` seconds, upon which the same Join is sent again.
    Closing the connection of a poll takes the join back. `slots` may differ from an earlier join (a worker
    was lost or is back).

    A member of the running world may join without an order: that world then ends at its next step boundary
    or, if `broken` says that collectives of round `after` failed on this node, at once. It keeps its place in
    the lineage; a node that lost its model state sends Leave(planned=False) first.

    `brief` allows the response to leave out members of a large world (see `World`).
    """

    PATH: ClassVar[str] = "rendezvous/join"
    node: Name
    role: Name
    index: Index
    incarnation: Name
    slots: Slots
    address: Name
    port: Port
    recovery: Recovery
    after: Count = 0
    wait: Wait = 20.0
    broken: bool = False
    brief: bool = False
    files: Port = 0


class Leave(Request[Empty], frozen=True, kw_only=True):
    """Leave the world after the current step (`planned`), or at once because a worker died (`planned=False`).

    Planned: the node shuts down (SIGTERM, scale-down); the other members are interrupted at a step boundary
    and form a world without it; it never joins again. Not planned: a worker of this node died in round
    `round`; the survivors re-form at once and the node joins again, as a newcomer, when its replacement
    worker is ready. Repeating it changes nothing.

    With `grace`, the workers of a planned leave are scripts that were asked to end, and may save together
    with the others for so many seconds: the world ends when this node is gone, at the latest after them.
    """

    PATH: ClassVar[str] = "rendezvous/leave"
    node: Name
    incarnation: Name
    round: Count
    planned: bool
    reason: str = ""
    grace: Finite = 0.0
