"""Free ports that no other process of this machine picks at the same time: each has a share of its own.

A port that is found free is bound seconds later, and not at all while its program is started again: until
then nothing else shows that it is taken.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import cycle

HOST = "127.0.0.1"
PORTS = range(10_000, 32_000)
"""Below those that the kernel gives to connections, which could take one before it is bound."""
SHARES = 64
"""As many processes have a share at the same time."""


def free_port() -> int:
    """Return a port of this process's share on which nothing listens, another one each time."""
    return next(_share(os.getpid()))


@cache
def _share(pid: int) -> Iterator[int]:
    """The free ports of this process, without end. Raises RuntimeError where all shares are taken."""
    for number in range(SHARES):
        held = socket.socket(socket.AF_UNIX)
        with suppress(OSError):
            held.bind(f"\0elasticjob-ports-{number}")  # only one process can have this name, until it ends
            return _free(held, PORTS[number::SHARES])
        held.close()
    raise RuntimeError(f"{SHARES} processes have picked ports already, and none of them has ended")


def _free(held: socket.socket, own: range) -> Iterator[int]:
    """Yield the ports that can be bound, in random order and then again; `held` stays open meanwhile."""
    with held:
        yield from filter(_can_bind, cycle(random.SystemRandom().sample(own, len(own))))


def _can_bind(port: int) -> bool:
    with suppress(OSError), socket.socket() as probe:
        probe.bind((HOST, port))
        return True
    return False
