"""DIJobs for tests: a small one that only waits, and di-server, called as DI-engine calls it."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import msgspec
from pydantic import JsonValue

from elasticjob.api.diengine.dijob import DIJOB, DIJob
from elasticjob.controllers.diserver.main import compose
from elasticjob.controllers.diserver.settings import Settings
from elasticjob.kube.client.client import Client
from lab.build.manifests import DIJOB as MANIFEST
from lab.build.manifests import changed
from lab.running import running


def dijob(**changes: Any) -> DIJob:
    """Return a job with changes, paths with / between the fields."""
    return DIJOB.convert(changed(MANIFEST, changes))


class Told(NamedTuple):
    """A response of di-server."""

    status: int
    success: bool
    message: str
    data: Any

    @property
    def collectors(self) -> list[str]:
        """The URLs of collectors."""
        return list(self.data["collectors"])

    @property
    def learners(self) -> list[str]:
        """The URLs of learners."""
        return list(self.data["learners"])


class Caller:
    """Calls di-server as DI-engine's client does: JSON without a Content-Type, also with GET."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, namespace: str, job: str = "cartpole"
    ) -> None:
        self._session, self.url, self.namespace = session, url, namespace
        self.coordinator = f"{job}-coordinator"

    async def call(
        self, method: str, path: str, body: bytes | None = None, prefix: str = "/v1alpha1", **headers: str
    ) -> Told:
        """Call, and return the envelope, whose members are always there."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.request(
            method,
            f"{self.url}{prefix}{path}",
            data=io.BytesIO(body or b""),
            headers=sent,
            skip_auto_headers=["Content-Type"],
        ) as answer:
            assert answer.content_type == "application/json", await answer.text()
            found = await answer.json()
        assert found.keys() == {"success", "code", "message", "data"}
        assert found["code"] == (0 if found["success"] else 1)
        assert "'" not in found["message"]
        return Told(answer.status, found["success"], found["message"], found["data"])

    async def ask(self, method: str, path: str = "/replicas", body: Any = None, **headers: str) -> Told:
        """Ask for this job, with what is given beside namespace and coordinator."""
        whole = {"namespace": self.namespace, "coordinator": self.coordinator, **(body or {})}
        return await self.call(method, path, encoded(whole), **headers)

    async def add(self, collectors: int = 0, learners: int = 0, *, gpus: int = 0, **headers: str) -> Told:
        """POST replicas."""
        wanted = {"collectors": {"replicas": collectors}, "learners": {"replicas": learners, "gpus": gpus}}
        return await self.ask("POST", body=wanted, **headers)

    async def remove(self, collectors: int = 0, learners: int = 0) -> Told:
        """DELETE replicas."""
        wanted = {"collectors": {"replicas": collectors}, "learners": {"replicas": learners}}
        return await self.ask("DELETE", body=wanted)

    async def failed(self, collectors: list[str] | None = None, learners: list[str] | None = None) -> Told:
        """POST failed replicas."""
        return await self.ask(
            "POST", "/replicas/failed", {"collectors": collectors or [], "learners": learners or []}
        )

    async def get(self, **query: str) -> Told:
        """GET the replicas of this job's coordinator, or by another query."""
        chosen = query or {"namespace": self.namespace, "coordinator": self.coordinator}
        words = "&".join(f"{name}={value}" for name, value in chosen.items())
        return await self.call("GET", f"/replicas?{words}", b"{}")


@asynccontextmanager
async def di_server(
    client: Client, namespace: str = "", random_suffix: Callable[[], str] | None = None, **settings: JsonValue
) -> AsyncIterator[str]:
    """Run di-server in this process; yields its URL."""

    told = Settings.model_validate({"port": 0, "namespace": namespace, **settings})
    operator, server = compose(client, told, signals=False, random_suffix=random_suffix)
    async with running(operator):
        await server.wait_started()
        yield server.url


def encoded(body: Any) -> bytes:
    """Return a body as JSON."""

    return msgspec.json.encode(body)
