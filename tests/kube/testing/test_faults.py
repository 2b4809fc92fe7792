"""The fault proxy: what it does to requests, and what it leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from elasticjob.kube.client import config as kubeconfigs
from elasticjob.kube.client.credentials import Config, Static
from elasticjob.kube.client.transport import once
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.testing import (
    Answer,
    ApiRequest,
    CutAfter,
    Delay,
    Fault,
    FaultProxy,
    Flaky,
    Late,
    Lose,
    Refuse,
    Stall,
    asking,
    failure,
    html,
)
from lab.build.objects import manifest
from tests.kit.kube.stub import Answer as Reply
from tests.kit.kube.stub import Stub, answer, stream, until

PODS = "/api/v1/namespaces/ns/pods"
OK = answer(200, manifest("a", 5))

ASKED = [
    ("GET", "/api/v1/pods", {}, ("list", "pods", "", "")),
    ("GET", PODS, {"watch": "true"}, ("watch", "pods", "ns", "")),
    ("GET", f"{PODS}/p", {}, ("get", "pods", "ns", "p")),
    ("GET", f"{PODS}/p/log", {}, ("get", "pods/log", "ns", "p")),
    ("PATCH", f"{PODS}/p/status", {}, ("patch", "pods/status", "ns", "p")),
    ("PUT", "/apis/apps/v1/namespaces/ns/deployments/d", {}, ("update", "deployments", "ns", "d")),
    ("POST", "/apis/apps/v1/namespaces/ns/deployments", {}, ("create", "deployments", "ns", "")),
    ("DELETE", PODS, {}, ("deletecollection", "pods", "ns", "")),
    ("GET", "/api/v1/namespaces", {}, ("list", "namespaces", "", "")),
    ("DELETE", "/api/v1/namespaces/ns", {}, ("delete", "namespaces", "", "ns")),
    ("PUT", "/api/v1/namespaces/ns/finalize", {}, ("update", "namespaces/finalize", "", "ns")),
    ("GET", "/apis/apps/v1", {}, ("", "", "", "")),
    ("GET", "/readyz", {}, ("", "", "", "")),
]


@pytest.mark.parametrize(("method", "path", "query", "means"), ASKED)
def test_a_request_says_what_it_asks(
    method: str, path: str, query: dict[str, str], means: tuple[str, ...]
) -> None:
    asked = ApiRequest(method, path, query)
    assert (asked.verb, asked.resource, asked.namespace, asked.name) == means


@pytest.mark.parametrize(
    ("when", "matches"),
    [
        (asking(), True),
        (asking("patch"), True),
        (asking("get patch", "pods"), True),
        (asking("write", name="p"), True),
        (asking(agent="opera"), True),
        (asking(path="/ns/"), True),
        (asking("get"), False),
        (asking("write", "secrets"), False),
        (asking(agent="kubectl"), False),
    ],
)
def test_a_rule_is_for_requests_of_a_kind(when: Any, matches: bool) -> None:
    assert when(ApiRequest("PATCH", f"{PODS}/p", {}, "operator/1")) is matches


def test_a_dry_run_is_no_write() -> None:
    assert not asking("write")(ApiRequest("POST", PODS, {"dryRun": "All"}))


@asynccontextmanager
async def proxied(
    *script: Reply, seed: int = 0, clock: VirtualClock | None = None
) -> AsyncIterator[tuple[Stub, FaultProxy, aiohttp.ClientSession]]:
    async with Stub() as stub:
        stub.then(*script)
        config = Config(stub.url, credentials=Static("Bearer admin"))
        async with (
            FaultProxy(config, seed=seed, clock=clock) as proxy,
            aiohttp.ClientSession(proxy.url, middlewares=(once,)) as session,
        ):
            yield stub, proxy, session


async def body_of(session: aiohttp.ClientSession, path: str = PODS) -> bytes:
    async with session.get(path) as response:
        return await response.read()


async def test_what_no_rule_is_for_passes_unchanged() -> None:
    async with proxied(answer(418, b"tea", {"X-Kind": "pot"})) as (stub, proxy, session):
        async with session.post(f"{PODS}?a=b%2Fc", data=b"{}", headers={"User-Agent": "me"}) as response:
            response_seen = (response.status, response.headers["X-Kind"], await response.read())
        assert response_seen == (418, "pot", b"tea")
        seen = stub.seen[0]
        assert (seen.method, seen.path, seen.query, seen.body) == ("POST", PODS, {"a": "b/c"}, b"{}")
        assert (seen.headers["User-Agent"], seen.headers["Authorization"]) == ("me", "Bearer admin")
        assert proxy.counts == {"passed": 1}


async def test_credentials_of_the_client_are_left_alone() -> None:
    async with proxied(OK) as (stub, _, session):
        async with session.get(PODS, headers={"Authorization": "Bearer mine"}):
            pass
        assert stub.seen[0].headers["Authorization"] == "Bearer mine"


async def test_a_cookie_for_one_client_is_not_sent_for_another() -> None:
    async with Stub() as stub:
        stub.then(answer(200, b"", {"Set-Cookie": "who=one; Path=/"}), OK)
        server = Config(stub.url.replace("127.0.0.1", "localhost"))
        async with FaultProxy(server) as proxy:
            for _ in range(2):
                async with aiohttp.ClientSession(proxy.url) as session:
                    await body_of(session)
        assert ["Cookie" in seen.headers for seen in stub.seen] == [False, False]


async def test_answers_are_streamed_as_they_come() -> None:
    async with proxied(stream(b"one\n", b"two\n")) as (_, _, session), session.get(PODS) as response:
        found = b""
        while found != b"one\ntwo\n":
            found += await response.content.readany()


@pytest.mark.parametrize("fault", [failure(429, "TooManyRequests", Retry_After="2"), html(502), Refuse()])
async def test_the_server_is_not_asked(fault: Fault) -> None:
    async with proxied() as (stub, proxy, session):
        proxy.add(asking("list"), fault)
        if isinstance(fault, Answer):
            async with session.get(PODS) as response:
                assert (response.status, await response.read()) == (fault.status, fault.body)
                assert response.headers.get("Retry-After") == fault.headers.get("Retry-After")
        else:
            with pytest.raises(aiohttp.ClientConnectionError):
                await body_of(session)
        assert stub.seen == []
        assert proxy.counts == {type(fault).__name__: 1}


async def test_a_lost_answer_comes_after_the_deed() -> None:
    async with proxied(OK) as (stub, proxy, session):
        proxy.add(asking("list"), Lose())
        with pytest.raises(aiohttp.ClientConnectionError):
            await body_of(session)
        assert len(stub.seen) == 1


@pytest.mark.parametrize("bytes_", [0, 3])
@pytest.mark.parametrize("reply", [stream(b"12345", b"678"), answer(200, b"12345678")])
async def test_an_answer_is_cut_after_so_many_bytes(bytes_: int, reply: Reply) -> None:
    async with proxied(reply) as (_, proxy, session):
        proxy.add(asking(), CutAfter(bytes_))
        async with session.get(PODS) as response:
            assert await response.content.readexactly(bytes_) == b"12345678"[:bytes_]
            with pytest.raises(aiohttp.ClientPayloadError):
                await response.read()


async def test_an_answer_that_is_shorter_passes() -> None:
    async with proxied(answer(200, b"1234")) as (_, proxy, session):
        proxy.add(asking(), CutAfter(100))
        assert await body_of(session) == b"1234"


async def test_a_stalled_answer_never_ends_and_ends_with_its_connection() -> None:
    async with proxied(answer(200, b"12345678")) as (_, proxy, session):
        proxy.add(asking(), Stall(3))
        async with session.get(PODS) as response:
            assert await response.content.readexactly(3) == b"123"
            rest = asyncio.create_task(response.content.read())
            await until(lambda: proxy.counts["Stall"])
            assert not rest.done()
            assert proxy.cut_connections() == 1
            with pytest.raises(aiohttp.ClientPayloadError):
                await rest


async def test_a_delayed_request_arrives_later() -> None:
    clock = VirtualClock()
    async with proxied(OK, clock=clock) as (stub, proxy, session):
        proxy.add(asking(), Delay(30))
        asking_ = asyncio.create_task(body_of(session))
        await until(lambda: clock.next_due == 30)
        assert stub.seen == []
        await clock.advance(30)
        assert b"ConfigMap" in await asking_


async def test_a_late_answer_comes_piece_by_piece_later() -> None:
    clock = VirtualClock()
    async with proxied(stream(b"one\n", b"two\n"), clock=clock) as (_, proxy, session):
        proxy.add(asking(), Late(3))
        async with session.get(PODS) as response:
            reading = asyncio.create_task(response.content.readline())
            await until(lambda: clock.next_due == 3)
            assert not reading.done()
            await clock.advance(3)
            assert await reading == b"one\n"


async def test_a_rule_counts_its_matches() -> None:
    async with proxied(*[OK] * 3) as (stub, proxy, session):
        rule = proxy.add(asking("list"), html(502), nth=range(2, 4))
        assert [await _status(session) for _ in range(4)] == [200, 502, 502, 200]
        proxy.remove(rule)
        proxy.add(asking("list"), html(500))
        proxy.enabled = False
        assert await _status(session) == 200
        assert len(stub.seen) == 3


async def _status(session: aiohttp.ClientSession) -> int:
    async with session.get(PODS) as response:
        return response.status


async def test_the_first_rule_that_matches_decides() -> None:
    async with proxied() as (_, proxy, session):
        proxy.add(asking("watch"), html(500))
        proxy.add(asking("list"), html(502))
        proxy.add(asking(), html(503))
        assert await _status(session) == 502
        proxy.clear()


async def test_chance_is_seeded() -> None:
    async def series(seed: int) -> list[int]:
        async with proxied(*[OK] * 20, seed=seed) as (_, proxy, session):
            proxy.add(asking(), Flaky(0.5, html(502), html(503)))
            return [await _status(session) for _ in range(20)]

    first = await series(1)
    assert set(first) == {200, 502, 503}
    assert await series(1) == first
    assert await series(2) != first


async def test_a_partition_lets_nothing_pass_and_what_was_under_way_is_lost() -> None:
    async with proxied(OK) as (stub, proxy, session):
        proxy.partition()
        caught = asyncio.create_task(body_of(session))
        await until(lambda: proxy.handled)
        proxy.heal()
        assert await body_of(session)
        assert len(stub.seen) == 1
        assert not caught.done()
        proxy.cut_connections()
        with pytest.raises(aiohttp.ClientConnectionError):
            await caught


async def test_a_partition_can_deliver_late_but_not_what_was_given_up() -> None:
    async with proxied(OK) as (stub, proxy, session):
        proxy.partition()
        waiting = asyncio.create_task(body_of(session, f"{PODS}/waiting"))
        given_up = asyncio.create_task(body_of(session, f"{PODS}/given-up"))
        await until(lambda: len(proxy.handled) == 2)
        given_up.cancel()
        await asyncio.wait({given_up})
        await until(lambda: proxy.connections == 1)
        proxy.heal(deliver=True)
        assert await waiting
        assert [seen.path for seen in stub.seen] == [f"{PODS}/waiting"]


async def test_a_partition_holds_streams_too() -> None:
    more = asyncio.Event()

    async def two(request: Any) -> Any:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        await more.wait()
        await response.write(b"two\n")
        return response

    async with proxied(two) as (_, proxy, session), session.get(PODS) as response:
        assert await response.content.readline() == b"one\n"
        proxy.partition()
        more.set()
        second = asyncio.create_task(response.content.readline())
        await until(lambda: proxy.held == 1)
        assert not second.done()
        proxy.heal(deliver=True)
        assert await second == b"two\n"


async def test_a_server_that_is_away_is_away_through_the_proxy_too() -> None:
    async with (
        FaultProxy(Config("http://127.0.0.1:1")) as proxy,
        aiohttp.ClientSession(proxy.url, middlewares=(once,)) as session,
    ):
        with pytest.raises(aiohttp.ClientConnectionError):
            await body_of(session)


async def test_a_kubeconfig_for_other_processes(tmp_path: Path) -> None:
    async with proxied() as (_, proxy, _):
        found = await kubeconfigs.load(proxy.write_kubeconfig(tmp_path / "config"))
        assert (found.server, found.namespace, await found.credentials.header()) == (
            proxy.url,
            "default",
            None,
        )
