"""Tellings of nodes that watch: to stop, and the succession of a master that runs on one of them."""

from __future__ import annotations

from typing import Any

import msgspec

from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Order, Orders, Succession, Watch
from elasticjob.master.durable.succession import part_of, succession
from elasticjob.master.state.job import Job


class StopOrders:
    """The nodes that were told to stop, and the succession, made once for each version of the job."""

    def __init__(self, node: str) -> None:
        """`node` names the node that the master runs on, if it is one of the job."""
        self._node = node
        self._stopped: set[str] = set()
        self._carried: tuple[int, Succession | None] = (0, None)

    def note(self, job: Job, request: Request[Any], reply: Any) -> Any:
        """Return the reply with what its node carries; remember who was told to stop."""
        if isinstance(request, Watch) and isinstance(reply, Orders) and reply.order is Order.STOP:
            self._stopped.add(request.node)
        if not (self._node and isinstance(request, Watch) and isinstance(reply, Orders)):
            return reply
        left = self._succession(job) if reply.version > request.seen else None
        return msgspec.structs.replace(reply, succession=left and part_of(left, request.node))

    def without_order(self, job: Job) -> list[str]:
        """Return the connected nodes that were not told to stop."""
        return [n.name for n in job.nodes.values() if n.beat and not n.failed and n.name not in self._stopped]

    def _succession(self, job: Job) -> Succession | None:
        """Return what the nodes carry: made once for all nodes that hear of a version."""
        if self._carried[0] != job.version:
            self._carried = job.version, succession(job, self._node)
        return self._carried[1]
