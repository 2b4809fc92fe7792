"""Client sockets that are tracked, so that closing the client closes each of them.

A connection under TLS that is closed amid a request first waits for the peer's farewell, however long that
takes; an event loop that ends before leaves the socket behind.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio.trsock import TransportSocket
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any
from weakref import WeakSet

Make = Callable[[tuple[Any, ...]], socket.socket]
"""Makes a socket for an address as `socket.getaddrinfo` gives it."""

KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""A peer that vanished without a word is noticed by the kernel after 30 s, on a silent watch too."""
ROUNDS = 1000
"""Of the event loop, in which it lets go of sockets that were shut down; a handful will do."""
A_FEW = 50
"""Rounds in which all are told who wait for more, under TLS too."""


def kept_alive(address: tuple[Any, ...]) -> socket.socket:
    """A socket that notices a peer that has vanished."""
    family, type_, protocol = address[:3]
    made = socket.socket(family, type_, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        if hasattr(socket, option) and family in (socket.AF_INET, socket.AF_INET6):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


class Sockets:
    """The sockets of one user, on one event loop."""

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def factory(self, make: Make) -> Make:
        """The same as `make`, and what it makes is known here."""

        def known(address: tuple[Any, ...]) -> socket.socket:
            made = make(address)
            self._made.add(made)
            return made

        return known

    async def close(self, rounds: int = ROUNDS) -> None:
        """Close all that are open, whatever their peers do. A socket with unread data needs all the
        rounds of the event loop."""
        await let_go(self._made, rounds)


def refuse(listening: Collection[socket.socket | TransportSocket]) -> None:
    """Accept no more at these sockets; the server may be closed one pass of the event loop later.

    What was accepted in this pass becomes a connection of its server in the next one: asyncio would forget
    it, still open, if the server were closed before.
    """
    loop = asyncio.get_running_loop()
    for each in listening:
        if each.fileno() >= 0:
            loop.remove_reader(each)


async def let_go(sockets: Collection[socket.socket | TransportSocket], rounds: int = ROUNDS) -> None:
    """Shut sockets down, and return when the event loop has closed them and notified their readers."""
    for each in sockets:
        with suppress(OSError):  # not connected, or closed already
            each.shutdown(socket.SHUT_RDWR)
    for _ in range(rounds):
        if all(each.fileno() < 0 for each in sockets):
            break
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # under TLS the reader is told a pass later
