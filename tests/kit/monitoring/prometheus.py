"""A real Prometheus server of the tests, on loopback or another address, gone with them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from lab.programs import monitoring

Series = Mapping[str, Any]
"""Its labels under `metric`, and its `value` or `values`."""


@dataclass(frozen=True)
class Prometheus:
    """A server that runs."""

    url: str
    session: aiohttp.ClientSession

    async def query(self, expr: str) -> list[Series]:
        """Return the series of an expression now."""
        found: list[Series] = (await self._get("query", query=expr))["result"]
        return found

    async def values(self, label: str, selector: str) -> list[str]:
        """Return the values of a label in the series of a selector."""
        found: list[str] = await self._get(f"label/{label}/values", **{"match[]": selector})
        return found

    async def _get(self, path: str, **asked: Any) -> Any:
        async with self.session.get(f"{self.url}/api/v1/{path}", params=asked) as reply:
            told = await reply.json()
        assert told["status"] == "success", (asked, told)
        return told["data"]


@asynccontextmanager
async def prometheus(
    folder: Path, *scrapes: Mapping[str, object], **options: Any
) -> AsyncIterator[Prometheus]:
    """Run a server with the entries of `scrape_configs`, and options of `lab.programs.monitoring`."""
    server = monitoring.prometheus(folder, scrapes, **options)
    async with server, aiohttp.ClientSession() as session:
        yield Prometheus(server.url, session)
