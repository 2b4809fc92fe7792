"""Garbage collection where the kind of an owner is unknown; the rest is in tests/conformance."""

from __future__ import annotations

from typing import Any

from tests.kit.devcluster.api import CONFIG_MAPS, Api, config_map


async def make(api: Api, name: str, *owners: dict[str, Any]) -> dict[str, Any]:
    body = config_map(name)
    body["metadata"] |= {"ownerReferences": list(owners)}
    reply = await api.post(CONFIG_MAPS, body)
    assert reply.code == 201, reply.body
    found: dict[str, Any] = reply.body
    return found


async def test_an_owner_of_an_unknown_kind_keeps_its_dependents(api: Api) -> None:
    first = await make(api, "kept", {"apiVersion": "nope.io/v1", "kind": "Nope", "name": "x", "uid": "y"})
    owner = await make(api, "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    await make(api, "probe", reference)
    await api.delete(f"{CONFIG_MAPS}/owner")
    since = first["metadata"]["resourceVersion"]
    await api.until(CONFIG_MAPS, "DELETED", fieldSelector="metadata.name=probe", resourceVersion=since)
    assert await api.names(CONFIG_MAPS) == ["kept"]
