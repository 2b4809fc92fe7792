"""Rows 8, 12, 21, 26 to 30 of the trap table: what befalls single requests. They end as they should, once."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from elasticjob.kube.backoff import RESUME_WHEN_AWAY, WATCH
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config, TokenFile
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.errors import Conflict, NotFound, PayloadTooLarge, Unreachable
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import CONFIG_MAP, CRD, SERVICE_ACCOUNT
from elasticjob.kube.testing import Answer, Fault, FaultProxy, asking, failure, html
from lab.clusters.served import Served
from lab.running import running
from tests.kit.crd.posting import crd_of, established
from tests.kit.kube.stub import until
from tests.kit.traps.operators import PAUSE, WATCHES, following, make, operator_of, results, versions

BLOB: Kind[Manifest] = Kind("traps.example.org", "v1", "Thing", "things", dict)
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION = crd_of(
    {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}},
    BLOB.group,
    subresources={"status": {}},
)


@pytest.fixture
async def blobs(client: Client, namespace: str) -> AsyncIterator[str]:
    """A kind whose spec and status may be anything; gives the namespace."""
    await established(client, DEFINITION, BLOB)
    yield namespace
    await client.delete(CRD, BLOB.resource)


def blob(name: str, **halves: Any) -> Manifest:
    return {"metadata": {"name": name}, **halves}


# 8


async def test_08_storms_of_failures_keep_the_version_and_are_paused_for(
    client: Client, through: Client, proxy: FaultProxy, namespace: str
) -> None:
    storm: list[Fault] = [failure(503, "ServiceUnavailable"), failure(500, "InternalError"), html(504)]
    storm.append(failure(429, "TooManyRequests", Retry_After="11"))
    for number, fault in enumerate(storm, start=2):
        proxy.add(WATCHES, fault, nth={number})
    async with following(through, namespace, backoff=WATCH) as it:
        await it.cache.wait_synced()
        proxy.cut_connections()
        await make(client, namespace, "a")
        await until(lambda: it.names == {"a"}, it.clock, longest=PAUSE)
        assert len(set(versions(proxy)[1:])) == 1
        assert it.cache.lists == 1
        cut, trouble, asked = 0.8, 3 * RESUME_WHEN_AWAY, 11
        assert it.clock.monotonic() == pytest.approx(cut + trouble + asked)


# 12


async def test_12_controllers_that_apply_their_finalizers_at_once_lose_none(
    client: Client, namespace: str
) -> None:
    made = await make(client, namespace, "a")
    same = {"name": "a", "namespace": namespace, "uid": made.metadata.uid}
    ours = [f"traps.example.org/{number}" for number in range(3)]

    async def apply(mark: str, finalizers: list[str]) -> None:
        metadata = {"metadata": same | {"finalizers": finalizers}}
        await client.apply(CONFIG_MAP, metadata, manager=mark)

    await asyncio.gather(*[apply(each, [each]) for each in ours])
    found = await client.get(CONFIG_MAP, "a", namespace)
    assert sorted(found.metadata.finalizers) == ours
    await client.delete(CONFIG_MAP, "a", namespace)
    await asyncio.gather(*[apply(each, []) for each in ours])
    assert await client.find(CONFIG_MAP, "a", namespace) is None


# 21

LARGE = "x" * 1_400_000


async def test_21_what_the_server_can_store_passes_list_and_watch(
    client: Client, through: Client, proxy: FaultProxy, blobs: str
) -> None:
    proxy.add(lambda asked: "sendInitialEvents" in asked.query, failure(422, "Invalid"), nth={1})
    await client.create(BLOB, blob("listed", spec={"x": LARGE}), blobs)
    async with following(through, blobs, kind=BLOB) as it:
        await it.cache.wait_synced()
        await client.create(BLOB, blob("watched", spec={"x": LARGE}), blobs)
        await until(lambda: it.names == {"listed", "watched"})
        assert [len(found["spec"]["x"]) for found in it.cache.list()] == [len(LARGE)] * 2
    async with following(through, blobs, kind=BLOB) as it:
        await it.cache.wait_synced()
        assert it.names == {"listed", "watched"}


@pytest.mark.parametrize("size", [1_700_000, 2_500_000, 4_000_000])
async def test_21_a_write_that_is_refused_for_its_size_is_not_repeated(
    client: Client, through: Client, proxy: FaultProxy, blobs: str, size: int
) -> None:
    async def reconcile(key: Key) -> Result:
        runs.append(key)
        await through.merge_patch(BLOB, key.name, {"spec": {"x": "x" * size}}, key.namespace)
        return Result.done()

    runs: list[Key] = []
    await client.create(BLOB, blob("a"), blobs)
    with pytest.raises(PayloadTooLarge):
        await through.merge_patch(BLOB, "a", {"spec": {"x": "x" * size}}, blobs)
    operator = operator_of(client, blobs, Controller("traps", reconcile, for_=BLOB))
    async with running(operator):
        await until(lambda: results(operator))
        await client.create(BLOB, blob("b"), blobs)
        await until(lambda: results(operator) == {"error": 2})
    assert [key.name for key in runs] == ["a", "b"]
    assert len(proxy.asked(asking("patch"))) == 3


# 26


async def test_26_a_kind_that_comes_later_is_found(
    client: Client, through: Client, namespace: str, proxy: FaultProxy
) -> None:
    async with following(through, namespace, kind=BLOB, backoff=WATCH) as it:
        await until(lambda: len(proxy.handled) > 2, it.clock, longest=PAUSE)
        assert not it.cache.synced
        await established(client, DEFINITION, BLOB)
        await until(lambda: it.cache.synced, it.clock, longest=PAUSE)
        await client.create(BLOB, blob("a"), namespace)
        await until(lambda: it.names == {"a"}, it.clock, longest=PAUSE)
    await client.delete(CRD, BLOB.resource)


async def test_26_a_path_that_is_not_served_is_not_found(client: Client, namespace: str) -> None:
    with pytest.raises(NotFound):
        await client.list(BLOB, namespace)
    with pytest.raises(NotFound):
        await client.create(BLOB, blob("a"), namespace)


# 27


async def test_27_what_was_deleted_meanwhile_does_not_rise_from_the_dead(
    client: Client, namespace: str
) -> None:
    made = await make(client, namespace, "a")
    await client.delete(CONFIG_MAP, "a", namespace)
    applied = {"metadata": {"name": "a", "namespace": namespace}, "data": {"x": "y"}}
    with pytest.raises(Conflict):
        await client.apply(CONFIG_MAP, applied, manager="traps", uid=made.metadata.uid)
    assert await client.find(CONFIG_MAP, "a", namespace) is None
    await make(client, namespace, "a")
    with pytest.raises(Conflict):
        await client.apply(CONFIG_MAP, applied, manager="traps", uid=made.metadata.uid)
    assert (await client.get(CONFIG_MAP, "a", namespace)).data == {}


# 28


async def test_28_status_and_spec_do_not_bleed_into_each_other(client: Client, blobs: str) -> None:
    both = {"spec": {"of": "main"}, "status": {"of": "main"}}
    other = {"spec": {"of": "status"}, "status": {"of": "status"}}
    named = {"metadata": {"name": "a", "namespace": blobs}}
    made = await client.apply(BLOB, named | both, manager="spec")
    assert "status" not in made
    for subresource, halves in (("status", other), ("", both)):
        await client.merge_patch(BLOB, "a", halves, blobs, subresource=subresource)
        await client.apply(BLOB, named | halves, manager="traps", subresource=subresource)
        found = await client.get(BLOB, "a", blobs)
        await client.replace(BLOB, found | halves, subresource=subresource)
        found = await client.get(BLOB, "a", blobs)
        assert (found["spec"], found["status"]) == ({"of": "main"}, {"of": "status"})


# 29

PAGES = [html(502), html(404, "Not Found"), html(403), html(200), Answer(200, body=b'{"sign": "in"}')]


@pytest.mark.parametrize("page", PAGES, ids=["502", "404", "403", "200", "200-json"])
async def test_29_the_page_of_a_proxy_is_a_transport_error(
    proxy: FaultProxy, namespace: str, page: Fault
) -> None:
    clock = VirtualClock()
    proxy.add(asking(), page)

    async def outcome(call: Any) -> Any:
        asking_ = asyncio.create_task(call)
        await until(asking_.done, clock)
        return asking_.exception()

    async with Client(proxy.config, clock=clock) as through:
        for call in (
            lambda: through.get(CONFIG_MAP, "a", namespace),
            lambda: through.find(CONFIG_MAP, "a", namespace),
            lambda: through.list(CONFIG_MAP, namespace),
            lambda: through.delete(CONFIG_MAP, "a", namespace),
            lambda: make(through, namespace, "a"),
        ):
            assert isinstance(await outcome(call()), Unreachable)


# 30


async def token_of(client: Client, namespace: str) -> str:
    """A token that the server takes."""
    await client.create(SERVICE_ACCOUNT, {"metadata": {"name": "me"}}, namespace)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await client.post(SERVICE_ACCOUNT, "me", "token", asked, namespace)
    token: str = answer["status"]["token"]
    return token


async def test_30_one_refusal_leads_to_one_look_at_the_token_file_and_one_retry(
    served: Served, client: Client, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("stale")
    plain = Config(served.url, ssl.create_default_context(cadata=served.ca_pem), TokenFile(file))
    async with FaultProxy(plain) as proxy:
        config = Config(proxy.url, credentials=TokenFile(file, VirtualClock()))
        async with Client(config) as mine:
            first = await mine.config.credentials.header()
            file.write_text(await token_of(client, namespace))
            assert b"gitVersion" in await mine.raw("GET", "/version")
            assert await mine.config.credentials.header() != first
            assert [handled.asked.path for handled in proxy.handled] == ["/version"] * 2
            await mine.raw("GET", "/version")
            assert len(proxy.handled) == 3
