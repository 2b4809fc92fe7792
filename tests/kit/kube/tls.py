"""Certificates as a client is shown them."""

from __future__ import annotations

import asyncio
import ssl


def trusting() -> ssl.SSLContext:
    """A context for which every server is right."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def shown(port: int, context: ssl.SSLContext | None = None, host: str | None = None) -> bytes:
    """The certificate that a new connection to a port of this machine is shown, after its handshake."""
    tls = context or trusting()
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=host)
    der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return der
