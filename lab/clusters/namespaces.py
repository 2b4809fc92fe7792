"""Namespaces that are ready for pods."""

from __future__ import annotations

from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT
from lab.waiting import until

ROOT_CA = "kube-root-ca.crt"
"""The ConfigMap that every namespace is given: late, it would be news to whoever watches ConfigMaps."""


async def new_namespace(client: Client, name: str, *, accounts: bool = True) -> str:
    """Make it; where `accounts` are somebody's work, wait for the one that pods are refused without.

    And for the cluster's authority, which is another's work: nothing more comes into the namespace by itself.
    """
    await client.create(NAMESPACE, {"metadata": {"name": name}})
    if accounts:
        await until(
            lambda: client.find(SERVICE_ACCOUNT, "default", name), f"namespace {name} has a service account"
        )
        await until(lambda: client.find(CONFIG_MAP, ROOT_CA, name), f"namespace {name} has its {ROOT_CA}")
    return name
