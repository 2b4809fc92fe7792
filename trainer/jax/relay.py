"""A local port that stands for one on another node, and never says that the other one is gone.

JAX's client of the coordination service ends its process when the service disappears or closes a connection.
So the client speaks with a relay in its own process: what comes from the service is passed on, and when
nothing comes any more, for whatever reason, the client waits.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Final

AGAIN: Final = 0.02  # seconds between attempts to connect
CONNECT: Final = 5.0  # seconds of one attempt
PIECE: Final = 1 << 16  # bytes


class Relay:
    """Forwards bytes between its `port` and `target`. `is_cut`: the target has gone away."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.is_cut = False
        self._far: list[socket.socket] = []
        threading.Thread(target=self._accept, name="elasticjob-relay", daemon=True).start()

    @property
    def own(self) -> frozenset[int]:
        """The local ports of its connections, at both ends."""
        found = {self.port}
        for each in list(self._far):
            with suppress(OSError):
                found.add(each.getsockname()[1])
        return frozenset(found)

    def cut(self) -> None:
        """Pass nothing on any more; the client waits from now on."""
        self.is_cut = True
        for each in list(self._far):
            shut(each)

    def close(self) -> None:
        """Take no more connections; those that are there stay as they are."""
        shut(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(
                    target=self._connect, args=(near,), name="elasticjob-relay", daemon=True
                ).start()

    def _connect(self, near: socket.socket) -> None:
        """Connect to the target, once it is there, and forward the client's bytes until it closes."""
        reached = self._reach()
        if reached is None:
            hold(near)
            return
        far, greeting = reached
        self._far.append(far)
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):
            near.sendall(greeting)
        threading.Thread(target=self._back, args=(far, near), name="elasticjob-relay", daemon=True).start()
        passed_on(near, far)
        hold(near)  # the client has closed, or the target takes nothing more
        shut(far)
        near.close()

    def _reach(self) -> tuple[socket.socket, bytes] | None:
        """Return a connection and the first that came from it: a server of HTTP/2 speaks first.

        A program that had the port before, and closed it with this connection in its queue, sends nothing.
        """
        while not self.is_cut:
            try:
                far = socket.create_connection(self._target, timeout=CONNECT)
                if greeting := far.recv(PIECE):
                    far.settimeout(None)
                    return far, greeting
                far.close()
            except OSError:
                pass
            time.sleep(AGAIN)
        return None

    def _back(self, far: socket.socket, near: socket.socket) -> None:
        passed_on(far, near)
        self._far.remove(far)
        far.close()
        if near.fileno() >= 0:
            self.is_cut = True


def passed_on(one: socket.socket, other: socket.socket) -> None:
    """Forward the bytes of `one`, until either ends."""
    with suppress(OSError):
        while piece := one.recv(PIECE):
            other.sendall(piece)


def hold(near: socket.socket) -> None:
    """Read and discard the client's bytes, until it closes."""
    with suppress(OSError):
        while near.recv(PIECE):
            pass


def shut(each: socket.socket) -> None:
    """Shut down both directions."""
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
