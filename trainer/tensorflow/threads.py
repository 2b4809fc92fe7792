"""Threads that may be inside of TensorFlow when nobody waits for them any more.

Python that ends while a thread of its own comes back from TensorFlow aborts the process ("exception not
rethrown"), so whoever has begun such threads joins them before.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

log = logging.getLogger("elasticjob.tensorflow")

Found = TypeVar("Found")
LOOK: Final = 1.0
"""Seconds between two looks whether servers are there, and for each."""
GREETING: Final = 3.0
"""Seconds until a busy server has greeted."""
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The preface of an HTTP/2 client, as gRPC sends it, with empty settings; the server answers with its own."""
FAREWELL: Final = 20.0
"""Seconds that threads may take to end: TensorFlow takes ten to close a session with a lost server."""


class LeftBehind(ConnectionError):
    """A server cannot be reached, and somebody waits for it within a session."""


class Threads:
    """The threads of a worker or server that call TensorFlow."""

    def __init__(self) -> None:
        self._begun: list[threading.Thread] = []
        self._lock = threading.Lock()

    def start(self, do: Callable[[], object], name: str) -> threading.Thread:
        """Do it in a thread."""
        thread = threading.Thread(target=do, name=f"elasticjob-{name}", daemon=True)
        with self._lock:
            thread.start()
            self._begun = [thread, *(each for each in self._begun if each.is_alive())]
        return thread

    def close(self, session: Any) -> None:
        """Close a session, in a thread: it hangs if one of its servers was lost."""
        self.start(session.close, "close")

    def join(self, seconds: float = FAREWELL) -> None:
        """Return when all have ended, or the time is over."""
        deadline = time.monotonic() + seconds
        begun = self._begun
        for thread in begun:
            thread.join(max(0.0, deadline - time.monotonic()))
        if left := [each.name for each in begun if each.is_alive()]:
            log.warning("threads that wait for servers are left behind: %s", ", ".join(left))

    def while_there(self, addresses: Iterable[str], work: Callable[[], Found]) -> Found:
        """Return what `work` returns. Raises ConnectionError if a server cannot be reached.

        It is LeftBehind if work had begun: a session that is made waits for a server that was lost, as long
        as an operation may take. Nobody may enter that session again: a second one who waits for it has the
        lock of the graph, and a third one, who wants it too, has Python's own.
        """
        addresses, box = tuple(addresses), list[Found | Exception]()
        for address in addresses:
            _look(address)

        def do() -> None:
            try:
                box.append(work())
            except Exception as error:
                box.append(error)

        thread = self.start(do, "session")
        thread.join(LOOK)
        while thread.is_alive():
            try:
                for address in addresses:
                    _look(address)
            except ConnectionError as error:
                raise LeftBehind(str(error)) from None
            thread.join(LOOK)
        if isinstance(box[0], Exception):
            raise box[0]
        return box[0]


def _look(address: str) -> None:
    """Have a server greet: a machine takes connections for a process that is stopped."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=LOOK) as connection:
            connection.settimeout(GREETING)
            connection.sendall(PREFACE)
            if not connection.recv(1):
                raise ConnectionResetError("it closed the connection")
    except OSError as error:
        raise ConnectionError(f"the server at {address} cannot be reached: {error}") from None
