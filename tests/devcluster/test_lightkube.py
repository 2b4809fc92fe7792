"""The documented examples of lightkube, on a dev cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import lightkube
import pytest
import pytest_asyncio
from lightkube import codecs
from lightkube.config.kubeconfig import KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import CascadeType, PatchType

from elasticjob.devcluster import DevCluster
from tests.kit.devcluster.documented import (
    CRONTABS,
    GROUP,
    PLURAL,
    config_map,
    crontab,
    deployment,
    pod,
    unscheduled_pod,
)
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
CronTab = create_namespaced_resource(GROUP, "v1", "CronTab", PLURAL)
KINDS = [
    (ConfigMap, config_map),
    (Deployment, deployment),
    (Pod, unscheduled_pod),
    (CronTab, crontab),
]


@pytest_asyncio.fixture(loop_scope="module")
async def client(shared: DevCluster) -> AsyncIterator[Any]:
    """lightkube's asynchronous client, used as in its README."""
    async with lightkube.AsyncClient(KubeConfig.from_file(shared.kubeconfig), field_manager="me") as made:
        yield made


async def test_synchronous_client(shared: DevCluster) -> None:
    await asyncio.to_thread(_create_and_delete, shared.kubeconfig)


def _create_and_delete(kubeconfig: Path) -> None:
    with lightkube.Client(KubeConfig.from_file(kubeconfig), field_manager="me") as client:
        client.create(ConfigMap(metadata=ObjectMeta(name="sync", namespace="default"), data={"key": "value"}))
        assert client.get(ConfigMap, name="sync").data == {"key": "value"}
        client.delete(ConfigMap, "sync")


@pytest.mark.parametrize(("kind", "manifest"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
async def test_life_of_an_object(client: Any, kind: Any, manifest: Any) -> None:
    name = f"life-{kind.__name__.lower()}"
    made = await client.create(kind.from_dict(manifest(name)))
    assert (await client.get(kind, name)).metadata.uid == made.metadata.uid
    assert (await client.replace(made)).metadata.resourceVersion == made.metadata.resourceVersion
    labels = {"metadata": {"labels": {"life": name}}}
    await client.patch(kind, name, labels, patch_type=PatchType.MERGE)
    assert [each.metadata.name async for each in client.list(kind, labels={"life": name})] == [name]
    operations = [{"op": "add", "path": "/metadata/labels/more", "value": "x"}]
    patched = await client.patch(kind, name, operations, patch_type=PatchType.JSON)
    assert patched.metadata.labels == {"life": name, "more": "x"}
    applied = manifest(name) | {
        "metadata": {"name": name, "namespace": "default", "labels": {"life": "other"}}
    }
    assert (await client.apply(kind.from_dict(applied), force=True)).metadata.labels["life"] == "other"
    await client.delete(kind, name, grace_period=0, cascade=CascadeType.FOREGROUND)
    with pytest.raises(lightkube.ApiError, match="not found"):
        await client.get(kind, name)


@pytest.mark.parametrize(("kind", "manifest"), [(Deployment, deployment), (CronTab, crontab)])
async def test_scale(client: Any, kind: Any, manifest: Any) -> None:
    await client.create(kind.from_dict(manifest("scaled")))
    metadata = ObjectMeta(name="scaled", namespace="default")
    await client.replace(kind.Scale.from_dict({"metadata": metadata.to_dict(), "spec": {"replicas": 3}}))
    assert (await client.get(kind.Scale, "scaled")).spec.replicas == 3
    await client.patch(kind.Scale, "scaled", {"spec": {"replicas": 1}})
    assert (await client.get(kind, "scaled")).to_dict()["spec"]["replicas"] == 1


async def test_status_of_a_custom_resource(client: Any) -> None:
    made = await client.create(CronTab(metadata=ObjectMeta(name="status", namespace="default"), spec={}))
    status = CronTab.Status.from_dict(made.to_dict() | {"status": {"replicas": 2}})
    await client.replace(status)
    assert (await client.get(CronTab, "status")).status == {"replicas": 2}


async def test_wait_and_logs(client: Any) -> None:
    await client.create(Pod.from_dict(pod("waited", "echo hello; sleep 600")))
    ready = await client.wait(Pod, "waited", for_conditions=["Ready"])
    assert ready.status.phase == "Running"

    async def is_logged() -> bool:
        return [line async for line in client.log("waited", tail_lines=1)] == ["hello\n"]

    await until(is_logged, "the line is logged")  # a pod is ready before it says anything
    await client.delete(Pod, "waited", grace_period=0)
    name = CRONTABS["metadata"]["name"]
    await client.wait(CustomResourceDefinition, name, for_conditions=["Established"])


async def test_watch(client: Any) -> None:
    await client.create(Pod.from_dict(pod("watched", "true")))
    async with aclosing(client.watch(Pod, fields={"metadata.name": "watched"})) as events:
        async for event, found in events:
            if found.status.phase == "Succeeded" and event != "DELETED":
                await client.delete(Pod, "watched")
            if event == "DELETED":
                break


async def test_yaml_is_loaded_and_created(client: Any) -> None:
    text = codecs.dump_all_yaml([ConfigMap.from_dict(config_map("yaml")), CronTab.from_dict(crontab("yaml"))])
    for each in codecs.load_all_yaml(text):
        await client.create(each)
    assert (await client.get(CronTab, "yaml")).spec["cronSpec"] == "* * * * */5"
    await client.deletecollection(CronTab)
    assert [each async for each in client.list(CronTab)] == []
