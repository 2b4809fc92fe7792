"""Conversion as users meet it: one custom kind in two versions, on the server of the suite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from elasticjob.kube.admission import AdmissionServer, Policy
from elasticjob.kube.cache import Cache
from elasticjob.kube.client import Client
from elasticjob.kube.conversion import Conversion, Spoke
from elasticjob.kube.errors import ApiError, KubeError
from elasticjob.kube.informer import Informer
from elasticjob.kube.kinds import Kind, Manifest
from elasticjob.kube.objects import CRD
from tests.kube.stub import until

GROUP = "conversion.test"
V1 = Kind[Manifest](GROUP, "v1", "Box", "boxes", dict)
V2 = Kind[Manifest](GROUP, "v2", "Box", "boxes", dict)
QUICK = Policy(settle=timedelta(seconds=1), look=timedelta(seconds=0.1))
WITHIN = 120.0


def upgrade(old: Manifest) -> Manifest:
    """`size: 3x4` as width and height; a size that is not of that form cannot be said in v2."""
    spec = dict(old.get("spec") or {})
    if size := spec.pop("size", ""):
        width, height = size.split("x")
        spec |= {"width": int(width), "height": int(height)}
    return old | {"spec": spec}


def downgrade(new: Manifest) -> Manifest:
    spec = dict(new.get("spec") or {})
    if "width" in spec and "height" in spec:
        spec["size"] = f"{spec.pop('width')}x{spec.pop('height')}"
    return new | {"spec": spec}


BOXES = Conversion(V2, (Spoke(V1, to_hub=upgrade, from_hub=downgrade),))


def version(name: str, spec: dict[str, Any], *, storage: bool) -> Manifest:
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": spec | {"color": {"type": "string"}}},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }


def definition(storage: str = "v1") -> Manifest:
    number = {"type": "integer"}
    return {
        "metadata": {"name": f"boxes.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"kind": "Box", "plural": "boxes", "singular": "box", "listKind": "BoxList"},
            "scope": "Namespaced",
            "versions": [
                version("v1", {"size": {"type": "string"}}, storage=storage == "v1"),
                version("v2", {"width": number, "height": number}, storage=storage == "v2"),
            ],
        },
    }


@asynccontextmanager
async def converting(client: Client, conversion: Conversion[Any] = BOXES) -> AsyncIterator[AdmissionServer]:
    """The kind is installed, and converted by us."""
    await client.apply(CRD, definition(), manager="test")
    server = AdmissionServer(
        "127.0.0.1", 0, (), client=client, name="boxes", conversions=[conversion], policy=QUICK
    )
    task = asyncio.create_task(server.run())
    try:
        await server.wait_started()
        await heeded(client)
        yield server
    finally:
        await emptied(client)
        task.cancel()
        await asyncio.wait({task})


async def emptied(client: Client) -> None:
    """Nothing is left that was stored in v1 where that is not what is stored any more: once nobody converts
    it, a real server can neither list it nor forget its definition.
    """
    with suppress(KubeError):  # the definition is not served: there are none
        for each in await client.list(V1):
            await client.delete(V1, each["metadata"]["name"], each["metadata"]["namespace"])


async def heeded(client: Client) -> None:
    """Return once the server converts in both directions: it takes a moment to heed a definition."""
    async with asyncio.timeout(WITHIN):
        while not (await converts(client, V1, V2) and await converts(client, V2, V1)):  # noqa: ASYNC110
            await asyncio.sleep(0)


async def converts(client: Client, source: Kind[Manifest], target: Kind[Manifest]) -> bool:
    """Whether what is created in one version is seen in the other."""
    try:
        await client.create(source, box(source, "probe"), "default")
        found = await client.get(target, "probe", "default")
    except KubeError:
        return False
    finally:
        await deleted(client, "probe")
    return bool(found["spec"] == SPECS[target.version])


async def deleted(client: Client, name: str) -> None:
    for kind in (V1, V2):
        try:
            await client.delete(kind, name, "default")
        except KubeError:
            continue


SPECS: dict[str, Manifest] = {"v1": {"size": "3x4"}, "v2": {"width": 3, "height": 4}}


def box(kind: Kind[Manifest], name: str, spec: Manifest | None = None) -> Manifest:
    return {"metadata": {"name": name}, "spec": SPECS[kind.version] if spec is None else spec}


def specs(found: list[Manifest]) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each["spec"] for each in found}


async def test_what_is_written_in_one_version_is_read_in_the_other(client: Client, namespace: str) -> None:
    async with converting(client):
        for kind, name in ((V1, "old"), (V2, "new")):
            made = await client.create(kind, box(kind, name), namespace)
            assert (made["apiVersion"], made["spec"]) == (kind.api_version, SPECS[kind.version])
        for kind in (V1, V2):
            one = await client.get(kind, "old", namespace)
            assert (one["apiVersion"], one["spec"]) == (kind.api_version, SPECS[kind.version])
            listed = await client.list(kind, namespace)
            assert specs(listed) == {"old": SPECS[kind.version], "new": SPECS[kind.version]}
            assert {each["apiVersion"] for each in listed} == {kind.api_version}


async def test_every_kind_of_patch_is_in_the_version_of_its_request(client: Client, namespace: str) -> None:
    async with converting(client):
        await client.create(V1, box(V1, "a"), namespace)
        merged = await client.merge_patch(V2, "a", {"spec": {"width": 5}}, namespace)
        assert merged["spec"] == {"width": 5, "height": 4}
        patch = [{"op": "replace", "path": "/spec/height", "value": 6}]
        assert (await client.json_patch(V2, "a", patch, namespace))["spec"] == {"width": 5, "height": 6}
        found = await client.get(V1, "a", namespace)
        assert found["spec"] == {"size": "5x6"}
        found["spec"] = {"size": "7x8"}
        assert (await client.replace(V1, found, namespace))["spec"] == {"size": "7x8"}
        status = {"metadata": {"name": "a"}, "status": {"seen": True}}
        await client.merge_patch(V2, "a", status, namespace, subresource="status")
        assert (await client.get(V2, "a", namespace))["spec"] == {"width": 7, "height": 8}
        assert (await client.get(V1, "a", namespace))["status"] == {"seen": True}


async def test_server_side_apply_in_both_versions(client: Client, namespace: str) -> None:
    async with converting(client):
        made = await client.apply(V2, box(V2, "a"), manager="new", namespace=namespace)
        assert made["spec"] == {"width": 3, "height": 4}
        red = await client.apply(V1, box(V1, "a", {"color": "red"}), manager="painter", namespace=namespace)
        assert red["spec"] == {"size": "3x4", "color": "red"}
        grown = await client.apply(
            V2, box(V2, "a", {"width": 9, "height": 4}), manager="new", namespace=namespace
        )
        assert grown["spec"] == {"width": 9, "height": 4, "color": "red"}
        again = await client.apply(V1, box(V1, "a", {"color": "red"}), manager="painter", namespace=namespace)
        assert again["metadata"]["resourceVersion"] == grown["metadata"]["resourceVersion"]


async def test_both_versions_are_watched(client: Client, namespace: str) -> None:
    async with converting(client):
        await client.create(V1, box(V1, "before"), namespace)
        caches = {kind.version: Cache(kind, namespace) for kind in (V1, V2)}
        async with following(client, *caches.values()):
            await client.create(V2, box(V2, "after"), namespace)
            for name, cache in caches.items():
                await until(partial(both_boxes, name, cache), within=WITHIN)
            await client.merge_patch(V1, "after", {"spec": {"size": "1x2"}}, namespace)
            await until(
                lambda: specs(caches["v2"].list())["after"] == {"width": 1, "height": 2}, within=WITHIN
            )
            await client.delete(V2, "before", namespace)
            await until(lambda: set(specs(caches["v1"].list())) == {"after"}, within=WITHIN)


def both_boxes(version: str, cache: Cache[Manifest]) -> bool:
    return specs(cache.list()) == {"before": SPECS[version], "after": SPECS[version]}


@asynccontextmanager
async def following(client: Client, *caches: Cache[Any]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(Informer(client, cache).run()) for cache in caches]
    try:
        for cache in caches:
            await cache.wait_synced()
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_the_stored_version_may_change(client: Client, namespace: str) -> None:
    async with converting(client):
        await client.create(V1, box(V1, "a"), namespace)
        await client.apply(CRD, definition(storage="v2"), manager="test")
        await client.create(V1, box(V1, "b"), namespace)
        for kind in (V1, V2):
            await until_stored(client, kind, namespace)
        await client.merge_patch(V1, "a", {"spec": {"color": "red"}}, namespace)
        assert (await client.get(V2, "a", namespace))["spec"] == {"width": 3, "height": 4, "color": "red"}
        found = await client.get(CRD.untyped(), f"boxes.{GROUP}")
        assert found["status"]["storedVersions"] == ["v1", "v2"]
        assert found["spec"]["conversion"]["strategy"] == "Webhook"


async def until_stored(client: Client, kind: Kind[Manifest], namespace: str) -> None:
    """A server that heeds a changed definition answers 404 or stale for a moment."""
    wanted = {"a": SPECS[kind.version], "b": SPECS[kind.version]}
    async with asyncio.timeout(WITHIN):
        while True:
            try:
                if specs(await client.list(kind, namespace)) == wanted:
                    return
            except ApiError:
                pass
            await asyncio.sleep(0)


async def test_what_cannot_be_converted_is_named_and_the_rest_can_be_read(
    client: Client, namespace: str
) -> None:
    async with converting(client):
        await client.create(V1, box(V1, "good"), namespace)
        await client.create(V1, box(V1, "bad", {"size": "large"}), namespace)
        with pytest.raises(ApiError, match=rf"Box {namespace}/bad from {GROUP}/v1 to {GROUP}/v2"):
            await client.get(V2, "bad", namespace)
        with pytest.raises(ApiError, match=rf"Box {namespace}/bad"):
            await client.list(V2, namespace)
        assert (await client.get(V2, "good", namespace))["spec"] == {"width": 3, "height": 4}
        assert specs(await client.list(V1, namespace)).keys() == {"good", "bad"}


async def test_metadata_that_a_conversion_changes_is_refused(client: Client, namespace: str) -> None:
    def renamed(old: Manifest) -> Manifest:
        other = "stolen" if old["metadata"]["name"] == "a" else old["metadata"]["name"]
        return upgrade(old) | {"metadata": old["metadata"] | {"name": other}}

    async with converting(client, Conversion(V2, (Spoke(V1, to_hub=renamed, from_hub=downgrade),))):
        await client.create(V1, box(V1, "a"), namespace)
        with pytest.raises(ApiError, match=r"metadata\.name was changed"):
            await client.get(V2, "a", namespace)
