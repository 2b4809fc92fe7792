"""A real Prometheus server of the tests, on loopback or another address, gone with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from elasticjob.cli.laptop.ports import free_port
from lab.programs.postgres import lacking
from tests.kit.monitoring.programs import serving

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
    folder: Path,
    *scrapes: Mapping[str, object],
    address: str = "127.0.0.1",
    interval: str = "200ms",
    rules: Sequence[Path] = (),
    alertmanager: str = "",
) -> AsyncIterator[Prometheus]:
    """Run a server with its files in `folder` and the entries of `scrape_configs`.

    Every `interval` it scrapes and evaluates the files of `rules`; alerts go to host:port of an Alertmanager.
    """
    program = shutil.which("prometheus") or lacking("prometheus")
    settings: dict[str, object] = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "scrape_configs": scrapes,
        "rule_files": [str(path) for path in rules],
    }
    if alertmanager:
        settings["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    (folder / "prometheus.yml").write_text(json.dumps(settings))  # YAML holds JSON
    url = f"http://{address}:{free_port()}"
    command = (
        program,
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--rules.alert.resend-delay=1s",
    )
    async with serving(command, f"{url}/-/ready", folder / "prometheus.log") as session:
        yield Prometheus(url, session)
