"""Namespaces that are ready for pods."""

from __future__ import annotations

from elasticjob.kube.client import Client
from elasticjob.kube.objects import NAMESPACE, SERVICE_ACCOUNT
from tests.kit.waiting import until


async def new_namespace(client: Client, name: str, *, accounts: bool = True) -> str:
    """Make it; where `accounts` are somebody's work, wait for the one that pods are refused without."""
    await client.create(NAMESPACE, {"metadata": {"name": name}})
    if accounts:
        await until(
            lambda: client.find(SERVICE_ACCOUNT, "default", name), f"namespace {name} has a service account"
        )
    return name
