"""Sockets: client connections that notice a vanished peer, and servers that stop accepting."""

from __future__ import annotations

import asyncio
import socket
from asyncio.trsock import TransportSocket
from collections.abc import Collection
from typing import Any

KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""A peer that vanished without a word is noticed by the kernel after 30 s, on a silent watch too."""


def kept_alive(address: tuple[Any, ...]) -> socket.socket:
    """A socket for an address of `socket.getaddrinfo` that notices a vanished peer."""
    family, type_, protocol = address[:3]
    made = socket.socket(family, type_, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        if hasattr(socket, option) and family in (socket.AF_INET, socket.AF_INET6):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def refuse(listening: Collection[socket.socket | TransportSocket]) -> None:
    """Accept no more at these sockets; the server may be closed one pass of the event loop later.

    What was accepted in this pass becomes a connection of its server in the next one: asyncio would forget
    it, still open, if the server were closed before.
    """
    loop = asyncio.get_running_loop()
    for each in listening:
        if each.fileno() >= 0:
            loop.remove_reader(each)
