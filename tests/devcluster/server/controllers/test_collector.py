"""Garbage collection by owner references."""

from __future__ import annotations

from typing import Any

from tests.kit.devcluster.api import CONFIG_MAPS, THINGS, Api, config_map, thing


def reference(owner: dict[str, Any], *, blocks: bool = False) -> dict[str, Any]:
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": False,
        "blockOwnerDeletion": blocks,
    }


async def make(
    api: Api, name: str, *owners: dict[str, Any], finalizers: tuple[str, ...] = ()
) -> dict[str, Any]:
    body = config_map(name)
    body["metadata"] |= {"ownerReferences": list(owners), "finalizers": list(finalizers)}
    reply = await api.post(CONFIG_MAPS, body)
    assert reply.code == 201, reply.body
    found: dict[str, Any] = reply.body
    return found


async def gone(api: Api, name: str, since: str) -> None:
    await api.until(CONFIG_MAPS, "DELETED", fieldSelector=f"metadata.name={name}", resourceVersion=since)


def version(item: dict[str, Any]) -> str:
    return str(item["metadata"]["resourceVersion"])


async def test_dependents_of_a_deleted_owner_go_down_to_the_last(api: Api) -> None:
    top = await make(api, "top")
    middle = await make(api, "middle", reference(top))
    leaf = await make(api, "leaf", reference(middle))
    await api.delete(f"{CONFIG_MAPS}/top")
    await gone(api, "leaf", version(leaf))
    assert await api.names(CONFIG_MAPS) == []


async def test_one_living_owner_is_enough(api: Api) -> None:
    first, second = await make(api, "first"), await make(api, "second")
    shared = await make(api, "shared", reference(first), reference(second))
    await api.delete(f"{CONFIG_MAPS}/first")
    left = await api.until(
        CONFIG_MAPS, "MODIFIED", fieldSelector="metadata.name=shared", resourceVersion=version(shared)
    )
    assert [each["name"] for each in left["metadata"]["ownerReferences"]] == ["second"]


async def test_an_owner_that_never_was_or_was_recreated_is_no_owner(things: Api) -> None:
    owner = (await things.post(THINGS, thing(replicas=1))).body
    ghost = reference(owner) | {"uid": "another-life"}
    made = await make(things, "orphaned", ghost)
    await gone(things, "orphaned", version(made))


async def test_an_owner_of_an_unknown_kind_keeps_its_dependents(api: Api) -> None:
    unknown = {"apiVersion": "nope.io/v1", "kind": "Nope", "name": "x", "uid": "y"}
    first = await make(api, "kept", unknown)
    owner = await make(api, "owner")
    await make(api, "probe", reference(owner))
    await api.delete(f"{CONFIG_MAPS}/owner")
    await gone(api, "probe", version(first))
    assert await api.names(CONFIG_MAPS) == ["kept"]


async def test_orphans_lose_the_reference_and_live(api: Api) -> None:
    owner = await make(api, "owner")
    child = await make(api, "child", reference(owner))
    await api.delete(f"{CONFIG_MAPS}/owner", propagationPolicy="Orphan")
    await gone(api, "owner", version(child))
    assert "ownerReferences" not in (await api.get(f"{CONFIG_MAPS}/child")).body["metadata"]


async def test_the_foreground_waits_for_those_that_block(api: Api) -> None:
    owner = await make(api, "owner")
    child = await make(api, "child", reference(owner, blocks=True), finalizers=("x/y",))
    marked = await api.delete(f"{CONFIG_MAPS}/owner", {"propagationPolicy": "Foreground"})
    assert marked.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    dying = await api.until(
        CONFIG_MAPS, "MODIFIED", fieldSelector="metadata.name=child", resourceVersion=version(child)
    )
    assert dying["metadata"]["deletionTimestamp"]
    assert (await api.get(f"{CONFIG_MAPS}/owner")).code == 200
    await api.patch(f"{CONFIG_MAPS}/child", {"metadata": {"finalizers": None}})
    await gone(api, "owner", version(child))
    assert await api.names(CONFIG_MAPS) == []
