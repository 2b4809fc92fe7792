"""The service proxy: listens on clusterIP:port and joins each connection with one to a ready endpoint, in
turn.

Guarantees, on which liveness by open connections rests:
- The end of one direction (FIN) is passed on, and the other direction stays open.
- A reset of one side resets the other at once.
- A port without a ready endpoint refuses connections; one whose endpoints all refuse resets them.
Only TCP; IPv4 loopback. Ports are the machine's: a program that binds a port on all addresses (0.0.0.0) finds
it in use where another pod or a service listens on the same number. Bind the pod's own address, or let the
service's `port` differ from its `targetPort`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Protocol

from elasticjob.devcluster.controllers.endpoints import (
    ENDPOINT_SLICE,
    SERVICE_NAME,
    EndpointSlice,
    backends,
    services_of,
    slices,
)
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.recorder import reference
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.http.sockets import refuse
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import POD, SERVICE, EventType, ObjectReference, Pod, Service

Address = tuple[str, int]
RETRY_BIND = timedelta(seconds=2)

log = logging.getLogger(__name__)


def listeners(service: Service, behind: Iterable[EndpointSlice]) -> dict[Address, list[Address]]:
    """Where to listen for the service, and the ready endpoints behind each address; pure."""
    ip = service.spec.cluster_ip
    if not ip or ip == "None":
        return {}
    found: dict[Address, list[Address]] = {}
    for port in service.spec.ports:
        if port.protocol == "TCP" and (targets := _targets(port.name, behind)):
            found[(ip, port.port)] = targets
    return found


def _targets(name: str, behind: Iterable[EndpointSlice]) -> list[Address]:
    return sorted(
        (endpoint.addresses[0], port.port)
        for slice_ in behind
        for port in slice_.ports
        for endpoint in slice_.endpoints
        if port.name == name and port.port and endpoint.conditions.ready is not False
    )


class Side(asyncio.Protocol):
    """One of two joined connections: bytes that arrive here are sent there."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self.ended = False

    def join(self, other: Side) -> None:
        self.other, other.other = other, self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if (there := self._there()) is not None:
            there.write(data)

    def eof_received(self) -> bool:
        self.ended = True
        if (there := self._there()) is not None and self.other is not None:
            there.write_eof()
            if self.other.ended:
                there.close()
                return False
        return True

    def pause_writing(self) -> None:
        if (there := self._there()) is not None:
            there.pause_reading()

    def resume_writing(self) -> None:
        if (there := self._there()) is not None:
            there.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is None:
            return
        if exc is not None:
            self.other.reset()
        elif self.other.transport is not None:
            self.other.transport.close()

    def reset(self) -> None:
        """Close at once, with RST."""
        if self.transport is None:
            return
        connection: socket.socket | None = self.transport.get_extra_info("socket")
        if connection is not None and connection.fileno() >= 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _there(self) -> asyncio.Transport | None:
        there = self.other.transport if self.other is not None else None
        return None if there is None or there.is_closing() else there


class Listener:
    """One address of a service. `targets` may change while it listens."""

    def __init__(self, targets: list[Address]) -> None:
        self.targets = targets
        self._turn = 0
        self._sides: set[Side] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False

    async def open(self, address: Address) -> None:
        """Listen. Raises OSError if the address is in use."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, *address, reuse_address=True, backlog=1024)

    def close(self) -> None:
        """Refuse new connections; those that are open stay."""
        refuse(self._server.sockets)
        asyncio.get_running_loop().call_soon(self._server.close)

    def cut(self) -> None:
        """Reset all connections."""
        self.close()
        self._is_cut = True
        for task in self._tasks:
            task.cancel()
        for side in self._sides:
            side.reset()

    def _accept(self) -> asyncio.Protocol:
        return _Accepted(self)

    def accept(self, front: Side) -> None:
        """A client has connected."""
        if self._is_cut:
            front.reset()
            return
        self._sides.add(front)
        task = asyncio.create_task(self._join(front))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, front: Side) -> None:
        back = await self._connect()
        if back is None or front.transport is None or front.transport.is_closing():
            front.reset()
            if back is not None:
                back.reset()
            return
        front.join(back)
        front.transport.resume_reading()

    async def _connect(self) -> Side | None:
        """A connection to the next endpoint that accepts one."""
        for _ in range(len(self.targets)):
            self._turn += 1
            target = self.targets[self._turn % len(self.targets)]
            try:
                _, side = await asyncio.get_running_loop().create_connection(Side, *target)
            except OSError:
                continue
            return side
        return None

    def remove(self, front: Side) -> None:
        self._sides.discard(front)


class _Accepted(Side):
    """The client's side: it reads nothing until an endpoint is connected."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        # not here: until Python 3.11.4 the transport begins to read after this call, paused or not
        asyncio.get_running_loop().call_soon(self.transport.pause_reading)
        self._listener.accept(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._listener.remove(self)


class Recorder(Protocol):
    """Where events go."""

    def event(self, regarding: ObjectReference, type_: EventType, reason: str, note: str) -> None: ...


class Proxy:
    """Listens for every service that has a clusterIP and a ready endpoint."""

    def __init__(
        self,
        services: Cache[Service],
        pods: Cache[Pod],
        slices: Cache[EndpointSlice],
        recorder: Recorder,
    ) -> None:
        self._services, self._pods, self._slices, self._recorder = services, pods, slices, recorder
        self._listeners: dict[Key, dict[Address, Listener]] = {}

    def controller(self) -> Controller:
        watches = ((POD, lambda pod: services_of(pod, self._services)), (ENDPOINT_SLICE, _service_of))
        return Controller("proxy", self.reconcile, for_=SERVICE, watches=watches)

    async def run(self) -> None:
        """Until cancelled; then resets all connections."""
        try:
            await asyncio.Event().wait()
        finally:
            for listeners in self._listeners.values():
                for listener in listeners.values():
                    listener.cut()

    async def reconcile(self, key: Key) -> Result:
        """One service has its listeners, and no others."""
        service = self._services.get(key)
        plan = {} if service is None else listeners(service, self._behind(service))
        open_ = self._listeners.setdefault(key, {})
        for address in [address for address in open_ if address not in plan]:
            open_.pop(address).close()
        problems = [await self._listen(open_, address, targets) for address, targets in plan.items()]
        if not open_:
            del self._listeners[key]
        if service is not None and (found := [problem for problem in problems if problem]):
            self._recorder.event(reference(SERVICE, service), "Warning", "FailedToListen", found[0])
            return Result.again(RETRY_BIND)
        return Result.done()

    def _behind(self, service: Service) -> Iterable[EndpointSlice]:
        """The slices of a service; of one with a selector, as its pods say that they are now.

        A real server refuses slices with loopback addresses, so they may not be there to be read.
        """
        namespace, name = service.metadata.namespace, service.metadata.name
        if not service.spec.selector:
            return self._slices.list(namespace, {SERVICE_NAME: name})
        found = backends(service, self._pods.list(namespace, service.spec.selector))
        return (ENDPOINT_SLICE.convert(manifest) for manifest in slices(service, found))

    async def _listen(self, open_: dict[Address, Listener], address: Address, targets: list[Address]) -> str:
        """ "" or the reason why the address cannot be listened on."""
        if address in open_:
            open_[address].targets = targets
            return ""
        listener = Listener(targets)
        try:
            await listener.open(address)
        except OSError as error:
            return (
                f"cannot listen on {address[0]}:{address[1]}: {error.strerror}; is another cluster using it?"
            )
        open_[address] = listener
        return ""


def _service_of(found: EndpointSlice) -> list[Key]:
    name: Mapping[str, str] = found.metadata.labels
    return [Key(found.metadata.namespace, name[SERVICE_NAME])] if SERVICE_NAME in name else []
