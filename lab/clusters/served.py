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
from elasticjob.kube.client.credentials import Config, Static
from lab.clusters.cluster import Cluster
from lab.clusters.plane.audit import Audited
from lab.clusters.plane.controlplane import ControlPlane

ADMIN = "admin"
MASTERS = ("system:masters",)
WRITES = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


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
    group, namespace, resource, name, subresource = parsed(request.path)
    verb = WRITES[request.method]
    if verb == "create" and not name and code != HTTPStatus.FORBIDDEN:  # refused before it was read
        name = _named(body)
    if verb == "delete" and not name:
        verb = "deletecollection"
    return Audited(
        began,
        datetime.now(UTC),
        user,
        request.headers.get("User-Agent", ""),
        request.remote or "",
        verb,
        group,
        resource,
        subresource,
        namespace,
        name,
        code,
        request.path_qs,
    )


def parsed(path: str) -> tuple[str, str, str, str, str]:
    """Group, namespace, resource, name and subresource of a path; "" for absent parts."""
    parts = path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        rest = rest[2:] if len(rest) > 2 and rest[2] not in ("status", "finalize") else rest
    resource, name, subresource = (*rest, "", "")[:3]
    return group, namespace, resource, name, subresource


def _named(body: bytes) -> str:
    try:
        name: str = json.loads(body)["metadata"].get("name", "")
    except (ValueError, KeyError, TypeError):
        return ""
    return name
