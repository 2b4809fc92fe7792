"""A real Alertmanager of the tests, and the webhook receiver that it notifies."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web
from aiohttp.test_utils import TestServer

from elasticjob.cli.laptop.ports import free_port
from tests.kit.brain.postgres import lacking
from tests.kit.monitoring.programs import serving


@dataclass(frozen=True)
class Notification:
    """An alert as a receiver is told of it: `status` is firing or resolved."""

    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass
class Receiver:
    """Who is notified."""

    address: str = ""
    told: list[Notification] = field(default_factory=list)

    def of(self, name: str, status: str = "firing", **labels: str) -> list[Notification]:
        """Return what was told of an alert with these labels, too."""
        wanted = {"alertname": name, **labels}.items()
        return [each for each in self.told if each.status == status and wanted <= each.labels.items()]

    async def take(self, request: web.Request) -> web.Response:
        """Record a notification."""
        for each in (await request.json())["alerts"]:
            found = Notification(each["status"], each["labels"], each["annotations"])
            if found not in self.told:
                self.told.append(found)
        return web.Response()


@asynccontextmanager
async def alertmanager(folder: Path) -> AsyncIterator[Receiver]:
    """Run an Alertmanager whose only route leads to the receiver; `address` of that is where it listens."""
    program = shutil.which("prometheus-alertmanager") or lacking("prometheus-alertmanager")
    receiver, app = Receiver(f"127.0.0.1:{free_port()}"), web.Application()
    app.router.add_post("/", receiver.take)
    async with TestServer(app) as server:
        route = {
            "receiver": "tests",
            "group_by": ["alertname", "namespace", "job"],
            "group_wait": "0s",
            "group_interval": "200ms",
            "repeat_interval": "1h",
        }
        hook = {"url": str(server.make_url("/")), "send_resolved": True}
        settings = {"route": route, "receivers": [{"name": "tests", "webhook_configs": [hook]}]}
        (folder / "alertmanager.yml").write_text(json.dumps(settings))  # YAML holds JSON
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
