"""A real Prometheus server of the tests, on loopback or another address, gone with them."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from elasticjob.cli.laptop.ports import free_port
from tests.kit.brain.postgres import lacking
from tests.kit.waiting import until


@asynccontextmanager
async def prometheus(
    folder: Path, scrape: Mapping[str, object], address: str = "127.0.0.1"
) -> AsyncIterator[str]:
    """Run a server with its files in `folder` and one entry of `scrape_configs`; yields its URL."""
    program = shutil.which("prometheus") or lacking("prometheus")
    settings = {"global": {"scrape_interval": "200ms"}, "scrape_configs": [scrape]}
    (folder / "prometheus.yml").write_text(json.dumps(settings))  # YAML holds JSON
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}:{port}",
            stdout=log,
            stderr=log,
        )
    url = f"http://{address}:{port}"

    async def is_ready() -> bool:
        assert process.returncode is None, (folder / "prometheus.log").read_text()
        try:
            async with session.get(f"{url}/-/ready") as reply:
                return reply.status == 200
        except aiohttp.ClientError:
            return False

    try:
        async with aiohttp.ClientSession() as session:
            await until(is_ready, "Prometheus is ready")
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
