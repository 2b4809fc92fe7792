"""How a job outlives a master that one of its own nodes holds: the others carry its snapshot.

Each new order to a node carries it, with the nodes that may hold the next master in a fixed order: that of
ranks, the oldest first. The first of them that lives makes the next master from the snapshot, in which the
node of the last one is lost; training goes on in the survivors' workers.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from elasticjob.api.rpc.nodes import Heir, Succession
from elasticjob.master.durable.store import restore, snapshot
from elasticjob.master.handlers import nodes
from elasticjob.master.rendezvous import rules
from elasticjob.master.state.job import Job, Spec

HEIRS = 16
"""Nodes that carry the snapshot."""


def succession(job: Job, host: str) -> Succession | None:
    """Return what the nodes need to go on without node `host`, None before there is a world to save."""
    members = job.world.members if job.world else ()
    heirs = tuple(
        Heir(node=member.node, address=member.address)
        for member in members
        if member.node != host and job.nodes[member.node].alive
    )[:HEIRS]
    return Succession(host=host, heirs=heirs, snapshot=snapshot(job).decode()) if heirs else None


def part_of(left: Succession, node: str) -> Succession:
    """Return what `node` carries: only an heir needs the snapshot."""
    is_heir = any(heir.node == node for heir in left.heirs)
    return left if is_heir else msgspec.structs.replace(left, snapshot="")


def inherit(left: Succession, spec: Spec, now: datetime) -> Job:
    """Return the job without the node that held its last master. Raises SnapshotError."""
    job = restore(left.snapshot.encode(), spec, now)
    host = job.nodes.get(left.host)
    if host is None:
        return job
    return rules.settle(nodes.gone(job, host, f"{left.host} is gone, and the master with it", now), now)
