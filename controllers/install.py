"""Applying the CRDs, for an operator that runs outside a cluster; inside, the manifests contain them."""

from __future__ import annotations

from typing import Final

from elasticjob.kube.client.client import Client

MANAGER: Final = "elasticjob-install"


async def install(client: Client) -> None:
    """Apply all CRDs and return once they are served. Raises Unreachable where that takes over a minute."""
    # Imported here because an operator that does not install its CRDs never needs their generator.
    from elasticjob.api.crds import manifests
    from elasticjob.kube.crd import installing

    await installing.install(client, manifests(), MANAGER)
