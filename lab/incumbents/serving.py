"""Small servers of a stage, which the API server calls."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from elasticjob.kube.http.serving import Runner
from lab.clusters.plane.pki import Pair


@asynccontextmanager
async def serving(app: web.Application, pair: Pair) -> AsyncIterator[int]:
    """Serve with a certificate on loopback while the block lasts; the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    runner = Runner(app)
    await runner.setup()
    try:
        yield await runner.listen("127.0.0.1", 0, tls=context)
    finally:
        await runner.cleanup()
