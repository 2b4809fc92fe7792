"""The documented examples of lightkube, kr8s and kubernetes_asyncio, on a dev cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import kr8s
import lightkube
import pytest
import pytest_asyncio
from httpx_ws import WebSocketUpgradeError
from kr8s.asyncio import objects
from kubernetes_asyncio import client as k8s
from kubernetes_asyncio import config, utils, watch
from kubernetes_asyncio.dynamic import DynamicClient
from kubernetes_asyncio.leaderelection.electionconfig import Config
from kubernetes_asyncio.leaderelection.leaderelection import LeaderElection
from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock
from kubernetes_asyncio.stream import WsApiClient
from lightkube import codecs
from lightkube.config.kubeconfig import KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources import apiextensions_v1, apps_v1, core_v1
from lightkube.types import CascadeType, PatchType

from elasticjob.devcluster import DevCluster
from lab.waiting import PATIENCE, until
from tests.kit.devcluster import documented
from tests.kit.devcluster.documented import CRONTABS, GROUP, PLURAL, config_map, crontab, pod

pytestmark = pytest.mark.asyncio(loop_scope="module")
MANIFESTS = [config_map, documented.deployment, documented.unscheduled_pod, crontab]
every_kind = pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: each.__name__)
SCALED = ("Deployment", "CronTab")
JSON, MERGE = "application/json-patch+json", "application/merge-patch+json"


def named(library: str, manifest: Any) -> dict[str, Any]:
    """An object that no other test of the module makes."""
    body: dict[str, Any] = manifest(f"{library}-{manifest.__name__}".replace("_", "-"))
    return body


LightkubeTab = create_namespaced_resource(GROUP, "v1", "CronTab", PLURAL)
LIGHTKUBE = {
    each.__name__: each for each in (core_v1.ConfigMap, core_v1.Pod, apps_v1.Deployment, LightkubeTab)
}


@pytest_asyncio.fixture(loop_scope="module")
async def light(shared: DevCluster) -> AsyncIterator[Any]:
    """lightkube's asynchronous client."""
    async with lightkube.AsyncClient(KubeConfig.from_file(shared.kubeconfig), field_manager="me") as made:
        yield made


@every_kind
async def test_lightkube(light: Any, manifest: Any) -> None:
    body = named("light", manifest)
    kind: Any = LIGHTKUBE[body["kind"]]
    name = body["metadata"]["name"]
    made = await light.create(kind.from_dict(body))
    assert (await light.replace(made)).metadata.resourceVersion == made.metadata.resourceVersion
    await light.patch(kind, name, {"metadata": {"labels": {"life": name}}}, patch_type=PatchType.MERGE)
    assert [each.metadata.name async for each in light.list(kind, labels={"life": name})] == [name]
    operations = [{"op": "add", "path": "/metadata/labels/more", "value": "x"}]
    patched = await light.patch(kind, name, operations, patch_type=PatchType.JSON)
    assert patched.metadata.labels == {"life": name, "more": "x"}
    applied = kind.from_dict(body | {"metadata": body["metadata"] | {"labels": {"life": "other"}}})
    assert (await light.apply(applied, force=True)).metadata.labels["life"] == "other"
    if body["kind"] in SCALED:
        await light.patch(kind.Scale, name, {"spec": {"replicas": 3}})
        assert (await light.get(kind.Scale, name)).spec.replicas == 3
    await light.delete(kind, name, grace_period=0, cascade=CascadeType.FOREGROUND)
    with pytest.raises(lightkube.ApiError, match="not found"):
        await light.get(kind, name)


async def test_lightkubes_synchronous_client(shared: DevCluster) -> None:
    def create_and_delete() -> None:
        with lightkube.Client(KubeConfig.from_file(shared.kubeconfig), field_manager="me") as client:
            metadata = ObjectMeta(name="sync", namespace="default")
            client.create(core_v1.ConfigMap(metadata=metadata, data={"key": "value"}))
            assert client.get(core_v1.ConfigMap, name="sync").data == {"key": "value"}
            client.delete(core_v1.ConfigMap, "sync")

    await asyncio.to_thread(create_and_delete)


async def test_lightkube_waits_watches_and_loads_yaml(light: Any) -> None:
    text = codecs.dump_all_yaml([LightkubeTab.from_dict(crontab("yaml"))])
    (made,) = [await light.create(each) for each in codecs.load_all_yaml(text)]
    await light.replace(LightkubeTab.Status.from_dict(made.to_dict() | {"status": {"replicas": 2}}))
    assert (await light.get(LightkubeTab, "yaml")).status == {"replicas": 2}
    await light.deletecollection(LightkubeTab)
    assert [each async for each in light.list(LightkubeTab)] == []
    name = CRONTABS["metadata"]["name"]
    await light.wait(apiextensions_v1.CustomResourceDefinition, name, for_conditions=["Established"])
    await light.create(core_v1.Pod.from_dict(pod("light", "echo hello; sleep 600")))
    ready = await light.wait(core_v1.Pod, "light", for_conditions=["Ready"])
    assert ready.status.phase == "Running"
    async with aclosing(light.watch(core_v1.Pod, fields={"metadata.name": "light"})) as events:
        async for event, _ in events:
            if event == "ADDED":
                await light.delete(core_v1.Pod, "light", grace_period=0)
            if event == "DELETED":
                break


Kr8sTab = objects.new_class("CronTab", version=f"{GROUP}/v1", namespaced=True, scalable=True)
KR8S: dict[str, Any] = {
    each.kind: each for each in (objects.ConfigMap, objects.Pod, objects.Deployment, Kr8sTab)
}


@pytest_asyncio.fixture(loop_scope="module")
async def kr(shared: DevCluster) -> AsyncIterator[Any]:
    """kr8s's asynchronous client."""
    made = await kr8s.asyncio.api(kubeconfig=str(shared.kubeconfig), namespace="default")
    yield made
    if made._session is not None:
        await made._session.aclose()  # kr8s itself never closes its connections


@every_kind
async def test_kr8s(kr: Any, manifest: Any) -> None:
    body = named("kr", manifest)
    kind, name = KR8S[body["kind"]], body["metadata"]["name"]
    made = await kind(body, api=kr)
    await made.create()
    assert await made.exists()
    await made.label(life=name)
    await made.annotate({"note": "x"})
    assert (await kind.get(name, api=kr)).annotations["note"] == "x"
    assert [each.name async for each in kind.list(api=kr, label_selector={"life": name})] == [name]
    assert [each.name async for each in kr.get(kind.plural, label_selector={"life": name})] == [name]
    await made.patch({"metadata": {"labels": {"more": "y"}}})
    await made.patch([{"op": "remove", "path": "/metadata/labels/life"}], type="json")
    assert made.labels == {"more": "y"}
    if body["kind"] in SCALED:
        await made.patch({"spec": {"replicas": 3}}, subresource="scale")
        await made.refresh()
        assert made.replicas == 3
    await made.delete(grace_period=0)
    await made.wait("delete", timeout=PATIENCE)
    with pytest.raises(kr8s.NotFoundError):
        await made.refresh()


async def test_kr8s_waits_logs_and_is_refused_exec(kr: Any) -> None:
    made = await objects.Pod(pod("kr", "echo one; echo two; sleep 600"), api=kr)
    await made.create()
    await made.wait("condition=Ready", timeout=PATIENCE)
    with pytest.raises(WebSocketUpgradeError, match="501"):
        await made.exec(["true"])

    async def is_logged() -> bool:
        return [line async for line in made.logs(tail_lines=1)] == ["two"]

    await until(is_logged, "the last line is logged")  # a pod is ready before it says anything
    await made.delete(grace_period=0)
    await made.wait("delete", timeout=PATIENCE)


async def test_kr8s_watches_and_adopts(kr: Any) -> None:
    owner, owned = [await objects.ConfigMap(config_map(name), api=kr) for name in ("owner", "owned")]
    await owner.create()
    await owned.create()
    await owner.adopt(owned)
    assert owned.metadata.ownerReferences[0].uid == owner.metadata.uid
    seen = []
    async with aclosing(kr.watch("configmaps", field_selector={"metadata.name": "owner"})) as events:
        async for event, found in events:
            seen.append(event)
            if event == "ADDED":
                await found.patch({"data": {"key": "other"}})
            if event == "MODIFIED":
                await found.delete()
            if event == "DELETED":
                break
    assert seen == ["ADDED", "MODIFIED", "DELETED"]
    await owned.wait("delete", timeout=PATIENCE)


async def test_kr8s_describes_the_cluster_and_taints_a_node(kr: Any) -> None:
    assert (await kr.version())["major"] == "1"
    assert await kr.whoami()
    assert {"Pod", "CronTab", "Lease"} <= {each["kind"] for each in await kr.api_resources()}
    assert f"{GROUP}/v1" in {version async for version in kr.api_versions()}
    node = await objects.Node.get("node", api=kr)
    await node.cordon()
    assert node.unschedulable
    await node.uncordon()
    await node.taint(key="foo", value="bar", effect="NoSchedule")
    assert "foo" in {taint.key for taint in node.taints}
    await node.taint(key="foo", value="bar", effect="NoSchedule-")


@pytest_asyncio.fixture(loop_scope="module")
async def api(shared: DevCluster) -> AsyncIterator[k8s.ApiClient]:
    """kubernetes_asyncio's client, made from a kubeconfig as in its README."""
    settings = k8s.Configuration()
    await config.load_kube_config(str(shared.kubeconfig), client_configuration=settings)
    async with k8s.ApiClient(settings) as made:
        yield made


NOUNS = {"ConfigMap": "config_map", "Pod": "pod", "Deployment": "deployment"}


@pytest.mark.parametrize("manifest", MANIFESTS[:3], ids=lambda each: each.__name__)
async def test_kubernetes_asyncio(api: k8s.ApiClient, manifest: Any) -> None:
    body = named("api", manifest)
    group, noun = (k8s.AppsV1Api if body["kind"] in SCALED else k8s.CoreV1Api), NOUNS[body["kind"]]
    name = body["metadata"]["name"]

    async def call(verb: str, *arguments: Any, part: str = "", **options: Any) -> Any:
        return await getattr(group(api), f"{verb}_namespaced_{noun}{part}")(*arguments, **options)

    made = await call("create", "default", body)
    same = await call("replace", name, "default", made)
    assert same.metadata.resource_version == made.metadata.resource_version
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"life": name}}]
    strategic = "application/strategic-merge-patch+json"
    for media, change in (
        (JSON, operations),
        (MERGE, {"metadata": {"labels": {"merged": "yes"}}}),
        (strategic, {"metadata": {"labels": {"strategic": "yes"}}}),
    ):
        await call("patch", name, "default", change, _content_type=media)
    body["metadata"]["labels"] = {"life": name, "merged": "applied"}
    options: Any = {"_content_type": "application/apply-patch+yaml", "field_manager": "me", "force": True}
    await call("patch", name, "default", body, **options)
    (found,) = (await call("list", "default", label_selector=f"life={name}")).items
    assert found.metadata.labels == {"life": name, "merged": "applied", "strategic": "yes"}
    if body["kind"] in SCALED:
        scale = await call("read", name, "default", part="_scale")
        scale.spec.replicas += 1
        await call("replace", name, "default", scale, part="_scale")
        assert (await call("read", name, "default")).spec.replicas == body["spec"]["replicas"] + 1
    await call("delete", name, "default", grace_period_seconds=0, propagation_policy="Foreground")
    with pytest.raises(k8s.ApiException, match="not found"):
        await call("read", name, "default")


async def test_kubernetes_asyncio_watches_logs_and_is_refused_exec(api: k8s.ApiClient) -> None:
    core: Any = k8s.CoreV1Api(api)
    await core.create_namespaced_pod("default", pod("api", "echo one; echo two"))
    async with watch.Watch().stream(
        core.list_namespaced_pod, "default", field_selector="metadata.name=api"
    ) as stream:
        async for event in stream:
            if event["object"].status.phase == "Succeeded":
                break
    async with watch.Watch().stream(core.read_namespaced_pod_log, "api", "default", follow=True) as lines:
        assert [line async for line in lines] == ["one\n", "two\n"]
    async with WsApiClient(api.configuration) as sockets:
        with pytest.raises(Exception, match="501"):
            await k8s.CoreV1Api(sockets).connect_get_namespaced_pod_exec("api", "default", command="true")


async def test_kubernetes_asyncios_dynamic_client(api: k8s.ApiClient, tmp_path: Path) -> None:
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
        watching = tabs.watch(namespace="default", name="dynamic", watcher=watcher)
        async with aclosing(watching) as events:
            event = await anext(events)
        assert event["object"].spec.replicas == 1


async def test_kubernetes_asyncios_custom_objects(api: k8s.ApiClient) -> None:
    customs: Any = k8s.CustomObjectsApi(api)
    where = (GROUP, "v1", "default", PLURAL)
    await customs.create_namespaced_custom_object(*where, crontab("custom"))
    one = (*where, "custom")
    status = [{"op": "add", "path": "/status", "value": {"replicas": 2}}]
    await customs.patch_namespaced_custom_object_status(*one, status, _content_type=JSON)
    scale = {"spec": {"replicas": 3}}
    await customs.patch_namespaced_custom_object_scale(*one, scale, _content_type=MERGE)
    found = await customs.get_namespaced_custom_object(*one)
    assert (found["spec"]["replicas"], found["status"]["replicas"]) == (3, 2)
    same = await customs.replace_namespaced_custom_object(*one, found)
    assert same["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
    await customs.delete_namespaced_custom_object(*one)


async def test_kubernetes_asyncios_leader_election(api: k8s.ApiClient) -> None:
    leading, stopped = asyncio.Event(), asyncio.Event()

    async def lead() -> None:
        leading.set()

    async def stop() -> None:
        stopped.set()

    lock = LeaseLock("leader", "default", "me", api)
    election = asyncio.create_task(LeaderElection(Config(lock, 17, 15, 1, lead, stop)).run())
    async with asyncio.timeout(PATIENCE):
        await leading.wait()
    election.cancel()
    await asyncio.gather(election, return_exceptions=True)
    leases = k8s.CoordinationV1Api(api)
    held = await leases.read_namespaced_lease("leader", "default")
    assert (held.spec.holder_identity, held.spec.lease_duration_seconds) == ("me", 17)
    same = await leases.replace_namespaced_lease("leader", "default", held)
    assert same.metadata.resource_version == held.metadata.resource_version
    assert not stopped.is_set()
