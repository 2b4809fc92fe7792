"""JAX's coordination of the processes of one world, made and left as often as worlds change.

The only module that uses what JAX keeps private; `missing()` says what of it is not there in the JAX that is
installed, and a test pins it. Facts of jaxlib 0.10, all met:

- The client ends its whole process by SIGABRT on any error of the service: a lost connection, a cancelled
  poll, a deadline. So it speaks with it through a `Relay`, and all deadlines are years away.
- A client that is dropped without `shutdown` polls on. `shutdown` waits for the service, so it runs in a
  thread of its own; when the service is gone, the client is left alone there, for ever.
- A service that is stopped cancels the polls of its clients. So it is stopped when it has none any more.
"""

from __future__ import annotations

import socket
import threading
import time
from types import SimpleNamespace
from typing import Any, Final

import jax
import psutil
from jax.extend import backend

from elasticjob.trainer.jax.relay import Relay
from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.link.sockets import place_of

NEVER: Final = 10**8  # seconds: three years
PARTING: Final = 1.0  # seconds that the service has to answer who leaves
LAST: Final = 3.0  # seconds that a process with a service waits at its end for the others to leave
LOOK: Final = 0.005  # seconds

USED: Final = {
    "get_distributed_runtime_service": "recoverable",
    "get_distributed_runtime_client": "heartbeat_timeout",
}
"""Private functions of jaxlib, each with an argument that it must have."""


class Lost(RuntimeError):
    """Peers of this world are gone."""


def private() -> Any:
    """Return jaxlib's and JAX's private parts, empty if they are not where they were."""
    try:
        from jax._src import distributed
        from jax._src.lib import _jax
    except ImportError:
        return SimpleNamespace()
    state = distributed.global_state
    functions = {name: getattr(_jax, name, None) for name in USED}
    return SimpleNamespace(**functions, state=state)


def missing() -> str:
    """Return what this JAX lacks for new worlds in living processes, empty if it lacks nothing."""
    found = private()
    for name, argument in USED.items():
        if argument not in (getattr(getattr(found, name, None), "__doc__", None) or ""):
            return f"jaxlib {jax.lib.__version__} has no {name}({argument}=…)"
    lacks = [each for each in ("client", "process_id", "num_processes") if not hasattr(found.state, each)]
    return f"jax {jax.__version__} has no distributed.global_state.{lacks[0]}" if lacks else ""


class Coordination:
    """This process among those of a world: it has its client, and at rank 0 the service."""

    def __init__(self, place: Enter) -> None:
        self.place = place
        self._aborted = threading.Event()
        self._relay: Relay | None = None
        self._client: Any = None
        self._connected = False

    @property
    def ports(self) -> frozenset[int]:
        """The ports of its own connections."""
        return frozenset({self.place.port}) | (self._relay.own if self._relay else frozenset())

    def abort(self) -> None:
        """Wait for nobody any more."""
        self._aborted.set()

    def check(self) -> None:
        """Raise Lost after an abort."""
        if self._aborted.is_set():
            raise Lost(f"round {self.place.round} was given up")

    def open(self, listener: socket.socket | None, services: Services) -> None:
        """Meet the others; JAX's devices are those of all from then on. Lost if that was aborted."""
        if listener is not None:
            listener.close()  # gRPC binds the port itself
        place, jaxlib = self.place, private()
        if place.rank == 0:
            services.start(place)
        self._relay = Relay((place.address, place.port))
        self._client = jaxlib.get_distributed_runtime_client(
            f"127.0.0.1:{self._relay.port}",
            place.rank,
            init_timeout=NEVER,
            shutdown_timeout=NEVER,
            heartbeat_timeout=NEVER,
            use_compression=True,
        )
        self._meet()
        state = jaxlib.state
        state.client, state.process_id, state.num_processes = self._client, place.rank, place.size
        state.coordinator_address = f"{place.address}:{place.port}"

    def _meet(self) -> None:
        """Wait until all are connected."""
        failed: list[Exception] = []

        def connect() -> None:
            try:
                self._client.connect()
                self._client.wait_at_barrier("elasticjob", NEVER * 1000)
            except Exception as error:
                failed.append(error)

        connecting = threading.Thread(target=connect, name="elasticjob-connect", daemon=True)
        connecting.start()
        while connecting.is_alive():
            self.check()
            connecting.join(LOOK)
        if failed:
            raise Lost(f"round {self.place.round} did not come together: {failed[0]}")
        self._connected = True

    def leave(self) -> None:
        """Leave the service; without an answer the client is left to itself."""
        if self._client is None or self._relay is None:
            return
        private().state.client = None
        client, self._client = self._client, None
        relay = self._relay
        parting = threading.Thread(
            target=client.shutdown if self._connected else keep,
            args=() if self._connected else (client,),
            name="elasticjob-parting",
            daemon=True,
        )
        parting.start()
        until = time.monotonic() + (PARTING if self._connected else 0.0)
        while parting.is_alive() and not relay.is_cut and time.monotonic() < until:
            parting.join(LOOK)
        relay.cut()  # what the script keeps of this world keeps the client, and its connection
        relay.close()


def keep(client: Any) -> None:
    """Hold a client for ever: it may not be taken apart while it connects."""
    while client is not None:
        time.sleep(NEVER)


class Services:
    """The services that this process runs, that of the present world and those which still have clients.

    Each is held by a thread of its own: it takes seconds to stop, and the end of the process does not wait.
    """

    def __init__(self) -> None:
        self._running: dict[int, threading.Event] = {}

    def start(self, place: Enter) -> None:
        """Start the service of a world; Lost if its port was taken meanwhile."""
        host = place_of(place.address) or "[::]"
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        try:
            service = private().get_distributed_runtime_service(
                f"{host}:{place.port}",
                place.size,
                heartbeat_timeout=NEVER,
                shutdown_timeout=1,
                recoverable=True,
            )
        except RuntimeError as error:
            raise Lost(f"the coordination service cannot listen on {host}:{place.port}: {error}") from error
        self._running[place.port] = stop = threading.Event()
        threading.Thread(target=serve, args=(service, stop), name="elasticjob-service", daemon=True).start()

    def stop_unused(self) -> bool:
        """Stop those that have no clients any more; return whether there is none left."""
        if not self._running:
            return True
        used = ports_in_use()
        for port in [*self._running]:
            if port not in used:
                self._running.pop(port).set()
        return not self._running

    def close(self) -> None:
        """Wait, not for long, until all have left."""
        until = time.monotonic() + LAST
        while self._running.keys() & ports_in_use() and time.monotonic() < until:
            time.sleep(LOOK)


def serve(service: Any, stop: threading.Event) -> None:
    """Hold a service until it is to stop."""
    stop.wait()
    service.shutdown()


def ports_in_use() -> frozenset[int]:
    """Return the ports of this process at which clients are connected."""
    found = psutil.Process().net_connections("tcp")
    return frozenset(each.laddr.port for each in found if each.status == psutil.CONN_ESTABLISHED)


def forget_devices() -> None:
    """Forget all devices and what was compiled for them; the next use of JAX finds those of the new world."""
    backend.clear_backends()
    jax.clear_caches()
