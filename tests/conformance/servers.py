"""The two sides: an embedded server, and a real control plane."""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from elasticjob.devcluster.server import ApiServer
from tests.conformance.hooks import serving
from tests.conformance.play import Server

_TOKEN = "probe"


@asynccontextmanager
async def embedded() -> AsyncIterator[Server]:
    """A devcluster API server of its own; no bookmark comes before an event that is asked for at once."""
    async with ApiServer(bookmark_interval=5, rbac=True) as api:
        api.add_token(_TOKEN, "admin", ["system:masters"])
        api.compact()
        context = ssl.create_default_context(cadata=api.ca_pem)
        admin = _session(api.url, context, {"Authorization": f"Bearer {_TOKEN}"})

        def token_of(user: str, groups: tuple[str, ...]) -> str:
            token, (_, _, namespace) = f"as {user} {groups}", user.rpartition(":")[0].rpartition(":")
            if user.startswith("system:serviceaccount:") and not groups:
                groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
            api.add_token(token, user, groups)
            return token

        async with _side(admin, _session(api.url, context)) as server:
            server.token_of = token_of
            yield server


@asynccontextmanager
async def real(kubeconfig: Path, run: str) -> AsyncIterator[Server]:
    """The server of a kubeconfig with client certificates; `run` keeps names of one run apart from
    another's.
    """
    url, admin, nobody = _credentials(kubeconfig)
    async with _side(_session(url, admin), _session(url, nobody), run) as server:
        yield server


def _credentials(kubeconfig: Path) -> tuple[str, ssl.SSLContext, ssl.SSLContext]:
    """Address of the server of a kubeconfig, a TLS context that is its user, and one that is nobody."""
    found = yaml.safe_load(kubeconfig.read_text())
    cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
    context, nobody = (
        ssl.create_default_context(cadata=_pem(cluster, "certificate-authority")) for _ in range(2)
    )
    with tempfile.TemporaryDirectory() as folder:
        chain, key = Path(folder, "chain.pem"), Path(folder, "key.pem")
        chain.write_text(_pem(user, "client-certificate"))
        key.touch(mode=0o600)
        key.write_text(_pem(user, "client-key"))
        context.load_cert_chain(chain, key)
    return str(cluster["server"]), context, nobody


def _pem(entry: dict[str, Any], name: str) -> str:
    if f"{name}-data" in entry:
        return base64.b64decode(entry[f"{name}-data"]).decode()
    return Path(entry[name]).read_text()


def _session(
    url: str, context: ssl.SSLContext, headers: Mapping[str, str] | None = None
) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    return aiohttp.ClientSession(url, headers=headers, connector=connector, read_bufsize=2**23)


@asynccontextmanager
async def _side(
    admin: aiohttp.ClientSession, nobody: aiohttp.ClientSession, run: str = ""
) -> AsyncIterator[Server]:
    async with serving(datetime.now(UTC)) as hooks, admin, nobody:
        yield Server(admin, nobody, hooks, run)
