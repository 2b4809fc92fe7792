"""Discovery: the resources and verbs of an API server."""

from __future__ import annotations

import msgspec

from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import NotFound


class _Resource(msgspec.Struct):
    name: str
    verbs: list[str] = []


class _Resources(msgspec.Struct):
    """The document of a group and version."""

    resources: list[_Resource] = []


async def verbs(client: Client, group_version: str) -> dict[str, list[str]]:
    """Return the verbs of each resource of a group and version by its plural; {} without that version."""
    try:
        answer = await client.raw("GET", f"/apis/{group_version}")
    except NotFound:
        return {}
    return {each.name: each.verbs for each in msgspec.json.decode(answer, type=_Resources).resources}
