"""Addresses as text: host:port, with an IPv6 host in brackets."""

from __future__ import annotations


def host_port(host: str, port: int | str) -> str:
    """Return host:port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parts(address: str) -> tuple[str, int]:
    """Return host and port of what host_port returned."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
