"""Whether the cluster goes on to have Workloads: they go with their definition, which Kueue's chart has."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import msgspec

from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import NotFound

LAG: Final = timedelta(seconds=2)
"""How long discovery may lag behind the deletion of a definition and of its objects."""


class _Resource(msgspec.Struct):
    name: str
    verbs: list[str] = []


class _Resources(msgspec.Struct):
    """The document of a group and version."""

    resources: list[_Resource] = []


async def stays(client: Client) -> bool:
    """Return whether Workloads can be made, now and a moment later: not while their definition is deleted."""
    if not await _can_be_made(client):
        return False
    await client.clock.sleep(LAG.total_seconds())
    return await _can_be_made(client)


async def _can_be_made(client: Client) -> bool:
    try:
        answer = await client.raw("GET", f"/apis/{WORKLOAD.api_version}")
    except NotFound:
        return False
    found = msgspec.json.decode(answer, type=_Resources).resources
    return any(each.name == WORKLOAD.plural and "create" in each.verbs for each in found)
