"""Sockets at which other nodes reach this one."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import Final

ANYWHERE: Final = ""
"""All addresses of this machine."""


def bound(address: str) -> socket.socket:
    """Return a socket that is bound to a free port where this node is reached at `address`."""
    return _bound(place_of(address))


def place_of(address: str) -> str:
    """Return where to listen for `address`: there, or ANYWHERE for a name or an address behind NAT.

    A name may stand here for an address that only this machine has (Debian's 127.0.1.1).
    """
    with suppress(ValueError, OSError):
        ip_address(address)
        with _bound(address):
            return address
    return ANYWHERE


def _bound(host: str) -> socket.socket:
    everywhere = not host and socket.has_dualstack_ipv6()
    made = socket.socket(socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET)
    try:
        if everywhere:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, 0))
    except OSError:
        made.close()
        raise
    return made
