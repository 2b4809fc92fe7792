"""Our rendezvous for plain torchrun: `torchrun --rdzv-backend=elasticjob --rdzv-endpoint=HOST:PORT …`.

torch finds `connect` by the entry point `torchrun.handlers` (`trainer/torchrun.py`). Its agent calls from a
thread and polls; the handler holds a long poll in a thread of its own, so a lost node is known at once, not
only after torch's keep-alive.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

# documented there, though torch's stubs do not say so
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

from elasticjob.api.rpc import environment as names
from elasticjob.api.rpc.nodes import Order, Orders, Watch
from elasticjob.api.rpc.rendezvous import Join, Leave, Recovery, World
from elasticjob.trainer.agent.processes.identity import token_of
from elasticjob.trainer.agent.settings import place_from
from elasticjob.trainer.link.master import MasterClient, MasterError, Rejected
from elasticjob.trainer.link.worlds import listen

BACKEND = "elasticjob"
Answer = TypeVar("Answer")


class Handler(RendezvousHandler):
    """The connection of one torch agent to the master; its node is one member, for any number of workers."""

    def __init__(self, master: MasterClient, *, run_id: str, node: str, index: int, address: str) -> None:
        self._master = master
        self._run_id = run_id
        self._node = node
        self._index = index
        self._address = address
        self._incarnation = uuid.uuid4().hex
        self._world: World | None = None
        self._orders: Orders | None = None
        self._store: TCPStore | None = None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="elasticjob-rendezvous").start()
        self._wait(master.__aenter__())
        self._watching = asyncio.run_coroutine_threadsafe(self._watch(), self._loop)

    @property
    def use_agent_store(self) -> bool:
        """The workers share the store of this round, below a prefix of their own."""
        return True

    def get_backend(self) -> str:
        """Return the name of this backend."""
        return BACKEND

    def get_run_id(self) -> str:
        """Return the name of the job."""
        return self._run_id

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next world; RendezvousClosedError if the job ends, RendezvousConnectionError else."""
        listener = listen(self._address)
        try:
            world = self._wait(self._master.call(self._join(listener.getsockname()[1])))
        except Rejected as error:
            listener.close()
            raise RendezvousClosedError(str(error)) from error
        except MasterError as error:
            listener.close()
            raise RendezvousConnectionError(str(error)) from error
        self._world = world
        return self._enter(world, listener)

    def is_closed(self) -> bool:
        """Whether the job has ended."""
        return self._orders is not None and self._orders.order is Order.STOP

    def set_closed(self) -> None:
        """No-op: only the master ends a job."""

    def num_nodes_waiting(self) -> int:
        """Return 1 if the present world ends (torch restarts its workers then), else 0."""
        orders, world = self._orders, self._world
        ends = orders is not None and world is not None and orders.order is Order.REGROUP
        return int(ends and orders is not None and world is not None and orders.round >= world.round)

    def shutdown(self) -> bool:
        """Leave the job, and close the connection."""
        self._watching.cancel()
        if self._world is not None:
            leave = Leave(
                node=self._node,
                incarnation=self._incarnation,
                round=self._world.round,
                planned=True,
                reason="torchrun has ended",
            )
            with suppress(MasterError):  # the job may have ended meanwhile
                self._wait(self._master.call(leave, patience=5.0))
        self._wait(self._master.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        return True

    def _join(self, port: int) -> Join:
        return Join(
            node=self._node,
            role="worker",
            index=self._index,
            incarnation=self._incarnation,
            slots=1,
            address=self._address,
            port=port,
            recovery=Recovery.RESTART,
            after=self._world.round if self._world else 0,
            brief=True,
        )

    def _enter(self, world: World, listener: socket.socket) -> RendezvousInfo:
        """Open the store of the round, or connect to it."""
        rank = world.node_rank(self._node)
        first = world.members[0]
        fd = listener.detach() if rank == 0 else None
        listener.close()
        self._store = None  # closes the store of the last round
        self._store = TCPStore(
            first.address, first.port, is_master=rank == 0, wait_for_workers=False, master_listen_fd=fd
        )
        return RendezvousInfo(
            store=PrefixStore(f"round-{world.round}", self._store),
            rank=rank,
            world_size=world.count,
            bootstrap_store_info=RendezvousStoreInfo(first.address, first.port),
        )

    async def _watch(self) -> None:
        """Keep a Watch pending, and store the master's orders."""
        seen = 0
        while True:
            self._orders = await self._master.call(
                Watch(
                    node=self._node,
                    role="worker",
                    index=self._index,
                    incarnation=self._incarnation,
                    seen=seen,
                    round=self._world.round if self._world else 0,
                )
            )
            seen = self._orders.version

    def _wait(self, question: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result()


def connect(params: RendezvousParameters) -> RendezvousHandler:
    """Return the handler for torchrun; the endpoint is the master's address, the token is in the environment.

    Outside a pod the token comes from the --rdzv-id, as for `elasticjob run`.
    """
    place = place_from(os.environ, address=params.local_addr or "", master=params.endpoint)
    if not place.master:
        raise ValueError(f"no master: give --rdzv-endpoint=HOST:PORT, or set {names.MASTER}")
    node = os.environ.get(names.NODE) or f"{params.run_id}-{socket.gethostname()}-{os.getpid()}".lower()
    return Handler(
        MasterClient(place.master, token=place.token or token_of(params.run_id)),
        run_id=params.run_id,
        node=node,
        index=place.index,
        address=place.address,
    )
