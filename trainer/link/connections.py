"""The open TCP connections of this process, which may be shut down under the feet of who waits on them."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True)
class Connection:
    """One open TCP connection of this process: a descriptor and the identity of its socket."""

    fd: int
    inode: int

    def shut(self) -> None:
        """Shut down both directions; the descriptor stays open for its owner to close."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.fd)) as duplicate:
            if os.fstat(duplicate.fileno()).st_ino == self.inode:
                duplicate.shutdown(socket.SHUT_RDWR)


def connections() -> frozenset[Connection]:
    """Return the TCP connections of this process, without listening sockets."""
    found = (connection(int(name)) for name in os.listdir("/proc/self/fd"))
    return frozenset(each for each in found if each is not None)


def connection(fd: int) -> Connection | None:
    """Return the connection of `fd`, None if it is not a connected TCP socket."""
    try:
        status = os.fstat(fd)
        if not stat.S_ISSOCK(status.st_mode):
            return None
        with socket.socket(fileno=os.dup(fd)) as duplicate:
            if duplicate.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            duplicate.getpeername()
    except OSError:  # closed meanwhile, or not connected
        return None
    return Connection(fd, status.st_ino)


def ports_of(link: Connection) -> frozenset[int]:
    """Return the ports of both ends; none if it is closed meanwhile."""
    with suppress(OSError), socket.socket(fileno=os.dup(link.fd)) as duplicate:
        if os.fstat(duplicate.fileno()).st_ino == link.inode:
            return frozenset({duplicate.getsockname()[1], duplicate.getpeername()[1]})
    return frozenset()
