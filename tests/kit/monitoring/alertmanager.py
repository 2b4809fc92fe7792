"""A real Alertmanager of the tests, and the webhook receiver that it notifies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from lab.programs import monitoring

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
    receiver, app = Receiver(), web.Application()
    app.router.add_post("/", receiver.take)
    async with TestServer(app) as server:
        program = monitoring.alertmanager(folder, _quick(routes, str(server.make_url("/"))))
        receiver.address = program.url.removeprefix("http://")
        async with program:
            yield receiver


def _quick(routes: Path, url: str) -> Mapping[str, object]:
    found: Mapping[str, Any] = yaml.safe_load(routes.read_text())
    hook = {"url": url, "send_resolved": True}
    receivers = [{"name": each["name"], "webhook_configs": [hook]} for each in found["receivers"]]
    return {**found, "route": {**found["route"], **QUICK}, "receivers": receivers}
