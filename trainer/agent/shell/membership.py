"""This node as a member of the job: its check, its heartbeats, its requests for worlds, its last reports."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from elasticjob.api.rpc.check import Part
from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Order, Succession, Watch
from elasticjob.api.rpc.rendezvous import Join
from elasticjob.trainer.agent.group import Dismissal, Event, Group, MasterOrders, NewWorld
from elasticjob.trainer.agent.settings import Settings, count_devices
from elasticjob.trainer.agent.shell.check import FAILED, PAYLOAD, Bench, check
from elasticjob.trainer.agent.shell.tasks import Tasks
from elasticjob.trainer.link.master import (
    MasterClient,
    MasterError,
    Refused,
    Rejected,
    Stale,
    Stopping,
    Unreachable,
)
from elasticjob.trainer.link.sockets import bound

log = logging.getLogger("elasticjob.agent")

AGAIN: Final = 75  # exit code: restart this pod


class Membership:
    """Makes requests to the master for this node, and emits the responses as events.

    `present` returns the present group; `inherit` receives what the master would leave to its successor.
    """

    def __init__(
        self,
        settings: Settings,
        master: MasterClient,
        tasks: Tasks,
        emit: Callable[[Event], None],
        present: Callable[[], Group],
        inherit: Callable[[Succession], None],
    ) -> None:
        self._settings = settings
        self._master = master
        self._tasks = tasks
        self._emit = emit
        self._present = present
        self._inherit = inherit
        self._joining: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._reserved: socket.socket | None = None

    async def vet(self, environment: Mapping[str, str]) -> bool:
        """Have this node checked; return whether it has passed."""
        bench = Bench(self._settings.payload or PAYLOAD, payloads(self._settings), environment)
        try:
            verdict = await check(self._master, self._present().terms, bench)
        except Stopping:
            return False  # the next orders say STOP
        except Refused as error:
            self._emit(Dismissal(0, "Refused", str(error)))
            return False
        except MasterError as error:
            self._emit(Dismissal(AGAIN, type(error).__name__, str(error)))
            return False
        finally:
            bench.close()
        if verdict.part is Part.EXCLUDED:
            self._emit(Dismissal(FAILED, "NodeCheckFailed", f"node check: {verdict.reason}"))
            return False
        if verdict.reason:
            log.warning("node check: %s", verdict.reason)
        return True

    async def watch(self) -> None:
        """Keep a Watch pending at the master, and emit its orders."""
        seen, found = 0, False
        while True:
            try:
                orders = await self._master.call(self._heartbeat(seen))
            except Stale as error:
                self._emit(Dismissal(AGAIN, "Replaced", str(error)))
                return
            except MasterError as error:
                self._emit(Dismissal(AGAIN, type(error).__name__, str(error)))
                return
            if not found:  # the workers may import for long before they join
                found = True
                log.info("found the master at %s", self._master.address)
            if orders.succession is not None:
                self._inherit(orders.succession)
                orders = msgspec.structs.replace(orders, succession=None)
            if orders != self._present().orders:
                self._emit(MasterOrders(orders))
            if orders.order is Order.STOP:
                return
            seen = orders.version

    def ask(self, join: Join | None, *, files: int) -> None:
        """Replace the pending Join; `files` is the port at which this node's copies are read."""
        if self._joining is not None:
            self._joining.cancel()
            self._joining = None
        if join is not None:
            port = join.port or self._reserve_port()
            asked = msgspec.structs.replace(join, port=port, files=files)
            self._joining = self._tasks.start(self._join(asked))

    def tell(self, request: Request[Any]) -> None:
        """Send a request; a refusal is ignored, since the request may be out of date by now."""
        task = self._tasks.start(self._send(request))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def finish(self, patience: float) -> None:
        """Wait, at most so many seconds, for the last requests to the master."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=patience)

    def close(self) -> None:
        """Release the reserved port, if there is one."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def _heartbeat(self, seen: int) -> Watch:
        place, group = self._settings.place, self._present()
        return Watch(
            node=place.node,
            role=place.role,
            index=place.index,
            incarnation=group.terms.incarnation,
            pod=place.pod,
            seen=seen,
            round=group.round if group.training else 0,
        )

    async def _join(self, join: Join) -> None:
        try:
            world = await self._master.call(join)
        except Stale as error:
            self._emit(Dismissal(AGAIN, "Replaced", str(error)))
        except Refused as error:
            self._emit(Dismissal(0, "Refused", str(error)))
        except Stopping:
            pass  # the next orders say STOP
        except (Rejected, Unreachable) as error:
            self._emit(Dismissal(AGAIN, type(error).__name__, str(error)))
        else:
            self._emit(NewWorld(world))

    async def _send(self, request: Request[Any]) -> None:
        try:
            await self._master.call(request)
        except Rejected as error:
            log.warning("the master refused %s: %s", type(request).__name__, error)
        except Unreachable as error:
            log.warning("%s", error)

    def _reserve_port(self) -> int:
        """Reserve a port for a script's store until the next call: bound but not listening.

        Torch's store, which sets SO_REUSEADDR, can share the port, and the kernel assigns it to no other
        process.
        """
        self.close()
        self._reserved = bound(self._settings.place.address)
        port: int = self._reserved.getsockname()[1]
        return port


def payloads(settings: Settings) -> int:
    """Return how many processes of the payload this node runs: one for each device that it uses."""
    return max(1, min(settings.workers, count_devices()))
