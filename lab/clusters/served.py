"""An API server for a test: devcluster's or a real one, behind one interface."""

from __future__ import annotations

import json
import secrets
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from aiohttp import web

from elasticjob.devcluster.node.container.identity import Server, kubeconfig, write_private
from elasticjob.devcluster.server import ApiServer
from elasticjob.devcluster.server.auth.attributes import attributes_of
from elasticjob.kube.client.credentials import Config, Static
from lab.clusters.cluster import Cluster
from lab.clusters.plane.audit import Audited
from lab.clusters.plane.controlplane import ControlPlane

ADMIN = "admin"
MASTERS = ("system:masters",)
WRITES = ("POST", "PUT", "PATCH", "DELETE")


class Served(Cluster, Protocol):
    """A server that runs. RBAC counts: a user has the rights that Roles give, or those of its groups."""

    @property
    def real(self) -> bool:
        """Whether it is the real kube-apiserver."""

    def config(self, user: str = ADMIN, groups: Sequence[str] = MASTERS) -> Config:
        """How a client is that user."""

    def writes(self) -> list[Audited]:
        """Every write that was answered since the test began, in the order of the answers."""


class RealServed:
    """The real control plane, from the moment this was made."""

    real = True

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.url, self.ca_pem, self.kubeconfig = plane.url, plane.ca_pem, plane.kubeconfig
        self._began = datetime.now(UTC)
        self._log_end = plane.audit_end()

    def config(self, user: str = ADMIN, groups: Sequence[str] = MASTERS) -> Config:
        return self.plane.config(user, groups)

    def writes(self) -> list[Audited]:
        return [found for found in self.plane.audit(self._log_end) if found.began >= self._began]


class DevServed:
    """devcluster's server, and the write requests it received."""

    real = False

    def __init__(self, server: ApiServer, seen: list[Audited], folder: Path) -> None:
        self.server = server
        self.url, self.ca_pem = server.url, server.ca_pem
        self._seen = seen
        self._tokens: dict[tuple[str, Sequence[str]], str] = {}
        server_ = Server(server.url, server.ca_pem)
        self.kubeconfig = write_private(
            folder / "kubeconfig", kubeconfig(server_, self._token(ADMIN, MASTERS))
        )

    def config(self, user: str = ADMIN, groups: Sequence[str] = MASTERS) -> Config:
        trusted = ssl.create_default_context(cadata=self.ca_pem)
        return Config(self.url, trusted, Static(f"Bearer {self._token(user, groups)}"))

    def writes(self) -> list[Audited]:
        return list(self._seen)

    def _token(self, user: str, groups: Sequence[str]) -> str:
        if (user, groups) not in self._tokens:
            self._tokens[user, groups] = token = secrets.token_urlsafe(16)
            self.server.add_token(token, user, groups)
        return self._tokens[user, groups]


@asynccontextmanager
async def devcluster_server(folder: Path) -> AsyncIterator[DevServed]:
    """devcluster's server alone: no node, no scheduler."""
    seen: list[Audited] = []

    async def observe(request: web.Request, user: str, began: datetime, code: int) -> None:
        if request.method in WRITES:
            seen.append(audited(request, await request.read(), user, began, code))

    async with ApiServer(rbac=True, observe=observe) as server:
        yield DevServed(server, seen, folder)


def audited(request: web.Request, body: bytes, user: str, began: datetime, code: int) -> Audited:
    """A request in the words of the real server's audit log."""
    about = attributes_of(request.method, request.path, request.query)
    creates = (
        about.verb == "create" and not about.name and code != HTTPStatus.FORBIDDEN
    )  # else it was not read
    return Audited(
        began,
        datetime.now(UTC),
        user,
        request.headers.get("User-Agent", ""),
        request.remote or "",
        about.verb,
        about.group,
        about.resource,
        about.subresource,
        about.namespace,
        _named(body) if creates else about.name,
        code,
        request.path_qs,
    )


def _named(body: bytes) -> str:
    try:
        name: str = json.loads(body)["metadata"].get("name", "")
    except (ValueError, KeyError, TypeError):
        return ""
    return name
