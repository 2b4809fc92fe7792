"""The documented examples of kubernetes_asyncio, on a dev cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kubernetes_asyncio import client as k8s
from kubernetes_asyncio import config, utils, watch
from kubernetes_asyncio.dynamic import DynamicClient
from kubernetes_asyncio.leaderelection.electionconfig import Config
from kubernetes_asyncio.leaderelection.leaderelection import LeaderElection
from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock
from kubernetes_asyncio.stream import WsApiClient

from elasticjob.devcluster import DevCluster
from tests.kit.devcluster.documented import (
    GROUP,
    PLURAL,
    config_map,
    crontab,
    deployment,
    pod,
    unscheduled_pod,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
KINDS = [
    (k8s.CoreV1Api, "config_map", config_map),
    (k8s.CoreV1Api, "pod", unscheduled_pod),
    (k8s.AppsV1Api, "deployment", deployment),
]
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
JSON, STRATEGIC = "application/json-patch+json", "application/strategic-merge-patch+json"


@pytest_asyncio.fixture(loop_scope="module")
async def api(shared: DevCluster) -> AsyncIterator[k8s.ApiClient]:
    """A client made from a kubeconfig, as in its README."""
    settings = k8s.Configuration()
    await config.load_kube_config(str(shared.kubeconfig), client_configuration=settings)
    async with k8s.ApiClient(settings) as made:
        yield made


@pytest.mark.parametrize(("group", "noun", "manifest"), KINDS, ids=[noun for _, noun, _ in KINDS])
async def test_life_of_an_object(api: k8s.ApiClient, group: Any, noun: str, manifest: Any) -> None:
    name = f"life-{noun}".replace("_", "-")

    async def call(verb: str, *arguments: Any, **options: Any) -> Any:
        return await getattr(group(api), f"{verb}_namespaced_{noun}")(*arguments, **options)

    made = await call("create", "default", manifest(name))
    same = await call("replace", name, "default", made)
    assert same.metadata.resource_version == made.metadata.resource_version
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"life": name}}]
    for media, body in (
        (JSON, operations),
        (MERGE, {"metadata": {"labels": {"merged": "yes"}}}),
        (STRATEGIC, {"metadata": {"labels": {"strategic": "yes"}}}),
    ):
        await call("patch", name, "default", body, _content_type=media)
    applied = manifest(name)
    applied["metadata"]["labels"] = {"life": name, "merged": "applied"}
    await call("patch", name, "default", applied, _content_type=APPLY, field_manager="me", force=True)
    (found,) = (await call("list", "default", label_selector=f"life={name}")).items
    assert found.metadata.labels == {"life": name, "merged": "applied", "strategic": "yes"}
    await call("delete", name, "default", grace_period_seconds=0, propagation_policy="Foreground")
    with pytest.raises(k8s.ApiException, match="not found"):
        await call("read", name, "default")


async def test_scale(api: k8s.ApiClient) -> None:
    apps: Any = k8s.AppsV1Api(api)
    await apps.create_namespaced_deployment("default", deployment("scaled"))
    await apps.patch_namespaced_deployment_scale("scaled", "default", {"spec": {"replicas": 3}})
    scale = await apps.read_namespaced_deployment_scale("scaled", "default")
    scale.spec.replicas += 1
    await apps.replace_namespaced_deployment_scale("scaled", "default", scale)
    assert (await apps.read_namespaced_deployment("scaled", "default")).spec.replicas == 4


async def test_custom_resource(api: k8s.ApiClient) -> None:
    customs: Any = k8s.CustomObjectsApi(api)
    where = (GROUP, "v1", "default", PLURAL)
    await customs.create_namespaced_custom_object(*where, crontab("custom"))
    status = [{"op": "add", "path": "/status", "value": {"replicas": 2}}]
    await customs.patch_namespaced_custom_object_status(*where, "custom", status, _content_type=JSON)
    scale = {"spec": {"replicas": 3}}
    await customs.patch_namespaced_custom_object_scale(*where, "custom", scale, _content_type=MERGE)
    found = await customs.get_namespaced_custom_object(*where, "custom")
    assert (found["spec"]["replicas"], found["status"]["replicas"]) == (3, 2)
    same = await customs.replace_namespaced_custom_object(*where, "custom", found)
    assert same["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
    assert len((await customs.list_namespaced_custom_object(*where))["items"]) == 1
    await customs.delete_namespaced_custom_object(*where, "custom")


async def test_watch_and_logs(api: k8s.ApiClient) -> None:
    core: Any = k8s.CoreV1Api(api)
    await core.create_namespaced_pod("default", pod("watched", "echo one; echo two"))
    async with watch.Watch().stream(
        core.list_namespaced_pod, "default", field_selector="metadata.name=watched", timeout_seconds=60
    ) as stream:
        async for event in stream:
            if event["object"].status.phase == "Succeeded":
                break
    assert await core.read_namespaced_pod_log("watched", "default") == "one\ntwo\n"
    async with watch.Watch().stream(core.read_namespaced_pod_log, "watched", "default", follow=True) as lines:
        assert [line async for line in lines] == ["one\n", "two\n"]


async def test_create_from_dicts_and_the_dynamic_client(api: k8s.ApiClient, tmp_path: Path) -> None:
    await utils.create_from_dict(api, config_map("dict"))
    dynamic = await DynamicClient(api, cache_file=str(tmp_path / "discovery"))
    maps = await dynamic.resources.get(api_version="v1", kind="ConfigMap")
    assert (await maps.get(name="dict", namespace="default")).data.key == "value"
    applied = await maps.server_side_apply(
        body=config_map("dict") | {"data": {"key": "other"}}, field_manager="me", force_conflicts=True
    )
    assert applied.data.key == "other"
    tabs = await dynamic.resources.get(api_version=f"{GROUP}/v1", kind="CronTab")
    await tabs.create(body=crontab("dynamic"), namespace="default")
    async with watch.Watch() as watcher:
        watching = tabs.watch(namespace="default", name="dynamic", timeout=60, watcher=watcher)
        async with aclosing(watching) as events:
            event = await anext(events)
        assert event["object"].spec.replicas == 1


async def test_leader_election(api: k8s.ApiClient) -> None:
    leading, stopped = asyncio.Event(), asyncio.Event()

    async def lead() -> None:
        leading.set()

    async def stop() -> None:
        stopped.set()

    lock = LeaseLock("leader", "default", "me", api)
    election = asyncio.create_task(LeaderElection(Config(lock, 17, 15, 1, lead, stop)).run())
    async with asyncio.timeout(120):
        await leading.wait()
    election.cancel()
    await asyncio.gather(election, return_exceptions=True)
    leases = k8s.CoordinationV1Api(api)
    held = await leases.read_namespaced_lease("leader", "default")
    assert held.spec.holder_identity == "me"
    assert held.spec.lease_duration_seconds == 17
    same = await leases.replace_namespaced_lease("leader", "default", held)
    assert same.metadata.resource_version == held.metadata.resource_version
    assert not stopped.is_set()


async def test_exec_is_refused(api: k8s.ApiClient) -> None:
    core: Any = k8s.CoreV1Api(api)
    await core.create_namespaced_pod("default", pod("exec", "sleep 100"))
    async with WsApiClient(api.configuration) as sockets:
        with pytest.raises(Exception, match="501"):
            await k8s.CoreV1Api(sockets).connect_get_namespaced_pod_exec(
                "exec", "default", command="true", stdout=True
            )
    await core.delete_namespaced_pod("exec", "default", grace_period_seconds=0)
