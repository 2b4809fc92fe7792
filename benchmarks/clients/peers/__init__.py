"""The compared clients: each uses its public API as its documentation does.

A peer keeps only its connection between calls; `follow` and `reconcile` run until they are cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final, Protocol

from lab.clusters.binaries import catalog

Saw = Callable[[str, str], None]
"""Called with the name of an object and its resourceVersion."""

OWN: Final = "elasticjob"
SERVER: Final = "server"
NAMES: Final = (OWN, "kubernetes_asyncio", "kr8s", "lightkube", "kopf", "aiohttp", SERVER)
"""The last two are no frameworks: what a loop of a few lines does, and the API server's own limit."""


class Peer(Protocol):
    """One client at work on one cluster."""

    async def fill(self, count: int) -> Any:
        """Return all pods of the cluster, `count` of them, held in memory as one would to look them up."""

    async def follow(self, saw: Saw) -> None:
        """Report each change of a pod."""

    async def reconcile(self, namespace: str, workers: int, started: Saw, *, write: bool) -> None:
        """For each change of a ConfigMap tell that its handling starts; then `write` to it, once."""


def connect(name: str, kubeconfig: str) -> AbstractAsyncContextManager[Peer]:
    """Return the peer of that name, connected to the cluster of a kubeconfig."""
    opened: AbstractAsyncContextManager[Peer] = import_module(f"benchmarks.clients.peers.{name}").connect(
        kubeconfig
    )
    return opened


def version_of(name: str) -> str:
    """Return the installed version of a peer. Raises PackageNotFoundError if there is none."""
    return catalog().version if name == SERVER else version(name)


def touched(data: dict[str, str]) -> dict[str, str]:
    """Return the body of a reconcile's one write: an increasing count."""
    return {"count": str(int(data.get("count", "0")) + 1)}
