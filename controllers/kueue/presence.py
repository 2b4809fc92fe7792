"""Whether the cluster goes on to have Workloads: they go with their definition, which Kueue's chart has."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.controllers.parts.discovery import verbs
from elasticjob.kube.client.client import Client

LAG: Final = timedelta(seconds=2)
"""How long discovery may lag behind the deletion of a definition and of its objects."""


async def stays(client: Client) -> bool:
    """Return whether Workloads can be made, now and a moment later: not while their definition is deleted."""
    if not await _can_be_made(client):
        return False
    await client.clock.sleep(LAG.total_seconds())
    return await _can_be_made(client)


async def _can_be_made(client: Client) -> bool:
    return "create" in (await verbs(client, WORKLOAD.api_version)).get(WORKLOAD.plural, ())
