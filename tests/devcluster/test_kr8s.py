"""The documented examples of kr8s, on a dev cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import kr8s
import pytest
import pytest_asyncio
from httpx_ws import WebSocketUpgradeError
from kr8s.asyncio.objects import ConfigMap, Deployment, Node, Pod, Service, new_class

from elasticjob.devcluster import DevCluster
from tests.kit.devcluster.documented import GROUP, config_map, crontab, deployment, pod, unscheduled_pod
from tests.kit.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
CronTab = new_class("CronTab", version=f"{GROUP}/v1", namespaced=True, scalable=True)
LONG = 120
"""Seconds, for a busy machine."""
KINDS = [
    (ConfigMap, config_map),
    (Deployment, deployment),
    (Pod, unscheduled_pod),
    (CronTab, crontab),
]


@pytest_asyncio.fixture(loop_scope="module")
async def api(shared: DevCluster) -> AsyncIterator[Any]:
    """kr8s's asynchronous client."""
    made = await kr8s.asyncio.api(kubeconfig=str(shared.kubeconfig), namespace="default")
    yield made
    if made._session is not None:
        await made._session.aclose()  # kr8s itself never closes its connections


@pytest.mark.parametrize(("kind", "manifest"), KINDS, ids=[kind.__name__ for kind, _ in KINDS])
async def test_life_of_an_object(api: Any, kind: Any, manifest: Any) -> None:
    name = f"life-{kind.__name__.lower()}"
    made = await kind(manifest(name), api=api)
    await made.create()
    assert await made.exists()
    await made.label(life=name)
    await made.annotate({"note": "x"})
    assert (await kind.get(name, api=api)).annotations["note"] == "x"
    assert [each.name async for each in kind.list(api=api, label_selector={"life": name})] == [name]
    assert [each.name async for each in api.get(kind.plural, label_selector={"life": name})] == [name]
    await made.patch({"metadata": {"labels": {"more": "y"}}})
    await made.patch([{"op": "remove", "path": "/metadata/labels/life"}], type="json")
    assert made.labels == {"more": "y"}
    await made.delete(grace_period=0)
    await made.wait("delete", timeout=LONG)
    assert not await made.exists()
    with pytest.raises(kr8s.NotFoundError):
        await made.refresh()


@pytest.mark.parametrize(("kind", "manifest"), [(Deployment, deployment), (CronTab, crontab)])
async def test_scale(api: Any, kind: Any, manifest: Any) -> None:
    made = await kind(manifest("scaled"), api=api)
    await made.create()
    await made.patch({"spec": {"replicas": 3}}, subresource="scale")
    await made.refresh()
    assert made.replicas == 3


async def test_wait_and_logs(api: Any) -> None:
    made = await Pod(pod("waited", "echo one; echo two; sleep 600"), api=api)
    await made.create()
    await made.wait("condition=Ready", timeout=LONG)
    assert await made.ready()

    async def is_logged() -> bool:
        return [line async for line in made.logs(tail_lines=1)] == ["two"]

    await until(is_logged, "the last line is logged")  # a pod is ready before it says anything
    await made.delete(grace_period=0)
    await made.wait("delete", timeout=LONG)
    done = await Pod(pod("done", "exit 0"), api=api)
    await done.create()
    await done.wait("jsonpath='{.status.phase}'=Succeeded", timeout=LONG)


async def test_watch(api: Any) -> None:
    made = await ConfigMap(config_map("watched"), api=api)
    await made.create()
    seen = []
    async with aclosing(api.watch("configmaps", field_selector={"metadata.name": "watched"})) as events:
        async for event, found in events:
            seen.append(event)
            if event == "ADDED":
                await found.patch({"data": {"key": "other"}})
            if event == "MODIFIED":
                await found.delete()
            if event == "DELETED":
                break
    assert seen == ["ADDED", "MODIFIED", "DELETED"]


async def test_owner_is_set(api: Any) -> None:
    owner, owned = [await ConfigMap(config_map(name), api=api) for name in ("owner", "owned")]
    await owner.create()
    await owned.create()
    await owner.adopt(owned)
    assert owned.metadata.ownerReferences[0].uid == owner.metadata.uid
    await owner.delete(propagation_policy="Foreground")
    await owned.wait("delete", timeout=LONG)


async def test_node_is_cordoned_and_tainted(api: Any) -> None:
    node = await Node.get("node", api=api)
    await node.cordon()
    assert node.unschedulable
    await node.uncordon()
    await node.taint(key="foo", value="bar", effect="NoSchedule")
    assert "foo" in {taint.key for taint in node.taints}
    await node.taint(key="foo", value="bar", effect="NoSchedule-")


async def test_cluster_is_described(api: Any) -> None:
    assert (await api.version())["major"] == "1"
    assert await api.whoami()
    assert {"Pod", "CronTab", "Lease"} <= {each["kind"] for each in await api.api_resources()}
    assert f"{GROUP}/v1" in {version async for version in api.api_versions()}
    service = await Service.get("kubernetes", namespace="default", api=api)
    assert service.spec.ports[0].name == "https"


async def test_exec_is_refused(api: Any) -> None:
    made = await Pod(pod("exec", "sleep 600"), api=api)
    await made.create()
    await made.wait("condition=Ready", timeout=LONG)
    with pytest.raises(WebSocketUpgradeError, match="501"):
        await made.exec(["true"])
    await made.delete(grace_period=0)
