"""Rows 3 to 7, 10, 11, 21, 23, 29 of the trap table: what befalls lists and watches. The cache ends right."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from elasticjob.kube.backoff import WATCH
from elasticjob.kube.cache.informer import CONFIRMING, IDLE
from elasticjob.kube.client import client as clients
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.client.transport import Call
from elasticjob.kube.controller.controller import Controller, Result
from elasticjob.kube.errors import ApiError, TooManyRequests, is_too_large_resource_version
from elasticjob.kube.objects.kinds import Key, Kind
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.views import CONFIG_MAP, EVENT, SECRET
from elasticjob.kube.testing import Answer, CutAfter, Fault, FaultProxy, Refuse, Stall, asking, failure, html
from lab.clusters.served import Served
from lab.running import running
from lab.waiting import PATIENCE
from tests.kit.kube.stub import until
from tests.kit.traps.operators import PAUSE, WATCHES, away, following, make, operator_of, versions

GONE = failure(410, "Expired", "too old resource version")
GONE_EVENT = Answer(200, body=b'{"type":"ERROR","object":%s}\n' % GONE.body)
NO_STREAMING = failure(422, "Invalid", "sendInitialEvents is forbidden")
PAGES = asking("list", "configmaps")


def refuse_streaming(proxy: FaultProxy) -> None:
    """The lists of this test are read page by page."""
    proxy.add(lambda asked: "sendInitialEvents" in asked.query, NO_STREAMING)


async def test_03_a_watch_cut_in_mid_line_resumes_without_a_list(
    client: Client, through: Client, proxy: FaultProxy, namespace: str
) -> None:
    proxy.add(WATCHES, Refuse(), nth={2})
    proxy.add(WATCHES, CutAfter(2500), nth={3})
    async with following(through, namespace) as it:
        await it.cache.wait_synced()
        proxy.partition()
        proxy.cut_connections()
        made = [await make(client, namespace, name, {"x": "y" * 1000}) for name in "abc"]
        proxy.heal(deliver=True)
        await until(lambda: it.names == {"a", "b", "c"})
        assert proxy.counts["CutAfter"] == 1
        assert versions(proxy)[-1] == made[0].metadata.resource_version
        assert it.cache.lists == 1


@pytest.mark.parametrize("silence", ["stalled", "partitioned"])
async def test_04_a_half_open_watch_is_noticed_and_resumed(
    client: Client, through: Client, proxy: FaultProxy, namespace: str, silence: str
) -> None:
    if silence == "stalled":
        proxy.add(WATCHES, Stall(0), nth={2})
    async with following(through, namespace) as it:
        await it.cache.wait_synced()
        if silence == "stalled":
            proxy.cut_connections()
            await until(lambda: proxy.counts["Stall"])
        else:
            proxy.partition()
        await make(client, namespace, "a")
        if silence == "partitioned":
            await until(lambda: proxy.held)
            proxy.heal()
        await until(lambda: it.is_silent)
        assert it.names == set()
        await it.clock.advance(IDLE)
        await until(lambda: it.names == {"a"})
        assert it.cache.lists == 1


@pytest.mark.parametrize("gone", [GONE, GONE_EVENT], ids=["status", "event"])
async def test_05_a_version_too_old_leads_to_a_list_that_tells_what_was_missed(
    client: Client, through: Client, proxy: FaultProxy, namespace: str, gone: Fault
) -> None:
    proxy.add(WATCHES, gone, nth={2})
    for name in "ab":
        await make(client, namespace, name)
    async with following(through, namespace) as it:
        await it.cache.wait_synced()
        proxy.partition()
        proxy.cut_connections()
        await client.delete(CONFIG_MAP, "a", namespace)
        await make(client, namespace, "c")
        proxy.heal(deliver=True)
        await until(lambda: it.names == {"b", "c"})
        assert it.gone == ["a"]
        assert it.cache.lists == 2


async def test_05_a_page_too_old_starts_the_list_over(
    client: Client, through: Client, proxy: FaultProxy, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "PAGE", 2)
    refuse_streaming(proxy)
    proxy.add(lambda asked: "continue" in asked.query, GONE, nth={1})
    for name in "abc":
        await make(client, namespace, name)
    async with following(through, namespace) as it:
        await until(lambda: it.names == {"a", "b", "c"})
        assert ["continue" in one.asked.query for one in proxy.asked(PAGES)] == [False, True, False, True]
        assert it.cache.lists == 1


@pytest.mark.parametrize("refusal", [GONE, GONE_EVENT, NO_STREAMING, html(200), Refuse()])
async def test_05_requests_never_outpace_the_backoff(refusal: Fault) -> None:
    async with FaultProxy(Config("http://127.0.0.1:1")) as proxy, Client(proxy.config) as client:
        proxy.add(asking(), refusal)
        async with following(client, "ns", backoff=WATCH) as it:
            for _ in range(5):
                await until(lambda: it.clock.next_due is not None and it.clock.next_due <= PAUSE)
                await it.clock.advance(it.clock.next_due or 0)
            await until(lambda: it.clock.next_due is not None and it.clock.next_due > 20)
            assert it.clock.monotonic() == pytest.approx(0.8 + 1.6 + 3.2 + 6.4 + 12.8)
            streams = [one for one in proxy.handled if "sendInitialEvents" in one.asked.query]
            assert len(proxy.handled) - len(streams) <= 6 * 5  # one page, with the attempts of one request
            assert len(streams) <= 6


async def test_06_a_version_from_the_future_leads_to_a_new_list(
    client: Client, through: Client, proxy: FaultProxy, namespace: str
) -> None:
    """As if the storage had been restored: the cache knows a version that the server has yet to reach."""
    far = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(10**12)}}}
    proxy.add(WATCHES, Answer(200, body=msgspec.json.encode(far) + b"\n"), nth={2})
    async with following(through, namespace) as it:
        await it.cache.wait_synced()
        await make(client, namespace, "a")
        proxy.cut_connections()
        await until(lambda: it.cache.version == 10**12)
        while it.cache.lists < 2:  # either the watch is refused, or it is silent until it is doubted
            # the question takes a real server 3 s of its own time: its patience for that is not moved over
            await until(lambda: it.cache.lists == 2 or it.is_silent, it.clock, longest=CONFIRMING - 1)
            if it.cache.lists < 2:
                await it.clock.advance(IDLE)
        assert it.names == {"a"}
        assert it.cache.version < 10**12
        assert it.cache.lists == 2


async def test_06_a_question_about_the_future_is_answered_once(
    through: Client, proxy: FaultProxy, namespace: str
) -> None:
    with pytest.raises(ApiError) as refused:
        await through.raw(
            "GET", f"/api/v1/namespaces/{namespace}/configmaps", resourceVersion=str(10**12), limit="1"
        )
    assert is_too_large_resource_version(refused.value)
    assert len(proxy.handled) == 1


async def test_07_a_restart_of_the_server_is_routine(
    served: Served, client: Client, through: Client, proxy: FaultProxy, namespace: str
) -> None:
    await make(client, namespace, "a")
    async with following(through, namespace, backoff=WATCH) as it:
        await it.cache.wait_synced()
        async with away(served):
            asked = len(proxy.handled)
            await until(lambda: len(proxy.handled) > asked + 5, it.clock, longest=PAUSE)
        async with Client(served.config()) as fresh:
            await make(fresh, namespace, "b")
            await until_watched(fresh, namespace)
        began = it.clock.monotonic()
        await until(lambda: it.names == {"a", "b"}, it.clock, longest=PAUSE)
        assert it.clock.monotonic() - began <= 5
        assert it.gone == []


async def until_watched(client: Client, namespace: str) -> None:
    """Return once watches are taken: a server that has just begun puts them off, a second each time."""
    call = Call("GET", CONFIG_MAP.path(namespace), {"watch": "true"})
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                async with client.stream(call, patience=PATIENCE):
                    return
            except TooManyRequests:
                await asyncio.sleep(0)


async def test_10_a_delete_missed_while_away_reaches_the_owner_who_makes_the_child_again(
    client: Client, through: Client, proxy: FaultProxy, namespace: str
) -> None:
    async def reconcile(key: Key) -> Result:
        owner = owners.get(key)
        if owner and owner.data.get("wants") and not children.owned_by(owner.metadata.uid):
            metadata = {"name": f"{key.name}-child", "ownerReferences": [owner_reference(owner, CONFIG_MAP)]}
            await client.create(SECRET, {"metadata": metadata}, key.namespace)
        return Result.done()

    proxy.add(asking("watch", "secrets"), GONE, nth={2})
    controller = Controller("traps", reconcile, for_=CONFIG_MAP, owns=(SECRET,))
    operator = operator_of(through, namespace, controller)
    owners, children = operator.cache(CONFIG_MAP), operator.cache(SECRET)
    await make(client, namespace, "o", {"wants": "a child"})
    async with running(operator):
        await until(lambda: len(children) == 1)
        first = children.list()[0]
        proxy.partition()
        proxy.cut_connections()
        await client.delete(SECRET, "o-child", namespace)
        proxy.heal(deliver=True)
        await until(lambda: first.metadata.uid not in [each.metadata.uid for each in children.list()])
        await until(lambda: len(children) == 1)
    assert len(await client.list(SECRET, namespace)) == 1


class Numbered(msgspec.Struct, frozen=True):
    """A ConfigMap of which `data.n` has to be a number."""

    class Data(msgspec.Struct, frozen=True):
        n: int = 0

    metadata: Any
    data: Data = Data()


async def test_11_one_undecodable_object_fails_alone_and_is_named(client: Client, namespace: str) -> None:
    kind: Kind[Numbered] = Kind("", "v1", "ConfigMap", "configmaps", Numbered)
    seen: dict[str, int] = {}

    async def reconcile(key: Key) -> Result:
        if found := numbered.get(key):
            seen[key.name] = found.data.n
        return Result.done()

    for name, number in (("a", "1"), ("bad", "one"), ("c", "3")):
        await make(client, namespace, name, {"n": number})
    operator = operator_of(client, namespace, Controller("traps", reconcile, for_=kind))
    numbered = operator.cache(kind)
    async with running(operator):
        await make(client, namespace, "d", {"n": "4"})
        await until(lambda: {"a", "c", "d"} <= seen.keys())
    assert seen["d"] == 4
    assert "bad" not in seen
    events = await client.list(EVENT, namespace, fields="involvedObject.name=bad")
    assert [(each.type, each.reason) for each in events] == [("Warning", "Undecodable")]
    assert "data.n" in events[0].message


LOGIN = [html(502), html(200, "Sign in"), Answer(200, body=b"{}"), html(404, "Not Found")]


@pytest.mark.parametrize("page", LOGIN, ids=["502", "200", "200-json", "404"])
@pytest.mark.parametrize("streaming", [True, False], ids=["watch", "list"])
async def test_29_the_page_of_a_proxy_is_neither_an_object_nor_an_empty_list(
    client: Client, through: Client, proxy: FaultProxy, namespace: str, page: Fault, streaming: bool
) -> None:
    for name in "ab":
        await make(client, namespace, name)
    async with following(through, namespace) as it:
        await it.cache.wait_synced()
        proxy.add(WATCHES, GONE, nth={1})
        if not streaming:
            refuse_streaming(proxy)
        rule = proxy.add(lambda asked: "sendInitialEvents" in asked.query or PAGES(asked), page, nth={1, 2})
        proxy.cut_connections()
        await until(lambda: it.cache.lists == 2, it.clock, longest=PAUSE)
        assert proxy.matches(rule) > 2
        assert (it.names, it.gone) == ({"a", "b"}, [])


@pytest.mark.parametrize("page", [html(502), html(200, "Sign in")], ids=["502", "200"])
async def test_29_the_page_of_a_proxy_on_a_watch_keeps_the_version(
    client: Client, through: Client, proxy: FaultProxy, namespace: str, page: Fault
) -> None:
    proxy.add(WATCHES, page, nth=range(2, 5))
    async with following(through, namespace) as it:
        await it.cache.wait_synced()
        proxy.cut_connections()
        await make(client, namespace, "a")
        await until(lambda: it.names == {"a"})
        assert len(set(versions(proxy)[1:5])) == 1
        assert it.cache.lists == 1
