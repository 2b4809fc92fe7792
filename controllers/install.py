"""Applying the CRDs, for an operator that runs as a plain process; in a cluster, manifests do it."""

from __future__ import annotations

from typing import Final

from elasticjob.api.v1alpha1.crds import manifests
from elasticjob.kube.client import Client
from elasticjob.kube.conditions import is_true
from elasticjob.kube.errors import Unreachable
from elasticjob.kube.objects import CRD

MANAGER: Final = "elasticjob-install"
LOOKS: Final = 100
PAUSE_SECONDS: Final = 0.1


async def install(client: Client) -> None:
    """Apply all CRDs and return once they are served. Raises Unreachable where that takes more than 10 s."""
    written = manifests()
    for manifest in written:
        await client.apply(CRD, manifest, manager=MANAGER)
    for manifest in written:
        await _established(client, manifest["metadata"]["name"])


async def _established(client: Client, name: str) -> None:
    for _ in range(LOOKS):
        found = await client.get(CRD, name)
        if is_true(found.status.conditions, "Established"):
            return
        await client.clock.sleep(PAUSE_SECONDS)
    raise Unreachable(
        f"CRD {name} is not established after {LOOKS * PAUSE_SECONDS:.0f} s: look at its conditions"
    )
