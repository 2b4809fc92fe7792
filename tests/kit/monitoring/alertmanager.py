"""A real Alertmanager of the tests, and the webhook receiver that it notifies."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from elasticjob.cli.laptop.ports import free_port
from lab.programs.postgres import lacking
from tests.kit.monitoring.programs import serving

QUICK: Final = {"group_wait": "0s", "group_interval": "200ms"}


@dataclass(frozen=True)
class Notification:
    """An alert as a receiver is told of it: `status` is firing or resolved, `began` when it began to fire."""

    receiver: str
    status: str
    began: datetime
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass
class Receiver:
    """Who is notified."""

    address: str = ""
    told: list[Notification] = field(default_factory=list)

    def of(self, name: str, labels: Mapping[str, str]) -> list[Notification]:
        """Return what was told of an alert with these labels, too."""
        wanted = {"alertname": name, **labels}.items()
        return [each for each in self.told if wanted <= each.labels.items()]

    async def take(self, request: web.Request) -> web.Response:
        """Record a notification."""
        told = await request.json()
        for each in told["alerts"]:
            began, about = datetime.fromisoformat(each["startsAt"]), (each["labels"], each["annotations"])
            self.told.append(Notification(told["receiver"], each["status"], began, *about))
        return web.Response()


@asynccontextmanager
async def alertmanager(folder: Path, routes: Path) -> AsyncIterator[Receiver]:
    """Run an Alertmanager with the routes of a file; all its receivers lead to one, and without a wait.

    `address` of the receiver is where the Alertmanager listens.
    """
    program = shutil.which("prometheus-alertmanager") or lacking("prometheus-alertmanager")
    receiver, app = Receiver(f"127.0.0.1:{free_port()}"), web.Application()
    app.router.add_post("/", receiver.take)
    async with TestServer(app) as server:
        settings = json.dumps(_quick(routes, str(server.make_url("/"))))
        (folder / "alertmanager.yml").write_text(settings)  # YAML holds JSON
        command = (
            program,
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address={receiver.address}",
            "--cluster.listen-address=",
        )
        ready = f"http://{receiver.address}/-/ready"
        async with serving(command, ready, folder / "alertmanager.log"):
            yield receiver


def _quick(routes: Path, url: str) -> Mapping[str, object]:
    found: Mapping[str, Any] = yaml.safe_load(routes.read_text())
    hook = {"url": url, "send_resolved": True}
    receivers = [{"name": each["name"], "webhook_configs": [hook]} for each in found["receivers"]]
    return {**found, "route": {**found["route"], **QUICK}, "receivers": receivers}
