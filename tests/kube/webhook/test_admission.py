"""Admission: pure answers, then the whole way over TLS with the authority that the API server is told of."""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import aiohttp
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import SystemClock, VirtualClock
from elasticjob.kube.errors import api_error
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Key, Kind
from elasticjob.kube.objects.owner import Owner
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.objects.views import (
    CLUSTER_ROLE,
    CONFIG_MAP,
    MUTATING_WEBHOOKS,
    SECRET,
    VALIDATING_WEBHOOKS,
    ConfigMap,
)
from elasticjob.kube.webhook.handlers import waits
from elasticjob.kube.webhook.registration import holds
from elasticjob.kube.webhook.review import (
    Answer,
    JsonPatchOperation,
    Reader,
    Request,
    Review,
    Webhook,
    mutate,
    validate,
)
from elasticjob.kube.webhook.room import Full, InFlight
from elasticjob.kube.webhook.server import Policy, ServiceRef, Terms, WebhookServer
from lab import waiting
from lab.build.objects import manifest
from lab.running import beside
from lab.virtual.server import Server
from tests.kit.kube.stub import until
from tests.kit.kube.tls import shown, trusting

Manifest = dict[str, Any]


class Cluster:
    """A reader that knows one ConfigMap."""

    async def find(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Any:
        return kind.convert(manifest("known")) if name == "known" else None


def request(operation: str = "CREATE", new: Manifest | None = None, old: Manifest | None = None) -> Request:
    raw = {
        "uid": "u1",
        "operation": operation,
        "name": "a",
        "namespace": "ns",
        "userInfo": {"username": "ada"},
        "object": new,
        "oldObject": old,
    }
    return msgspec.json.decode(msgspec.json.encode(raw), type=Request)


def small(review: Review[ConfigMap]) -> Sequence[Problem]:
    if review.new is None or len(review.new.data) <= 1:
        return ()
    return [Problem("data", f"{len(review.new.data)} entries are more than 1; remove some")]


async def refers(review: Review[ConfigMap], reader: Reader) -> Sequence[Problem]:
    name = review.new.data.get("ref", "known") if review.new else "known"
    if await reader.find(CONFIG_MAP, name, review.namespace):
        return ()
    return [Problem("data.ref", f"there is no ConfigMap {name!r} in {review.namespace!r}")]


def labelled(review: Review[ConfigMap]) -> Sequence[JsonPatchOperation]:
    return [{"op": "add", "path": "/metadata/labels", "value": {"by": review.user}}]


def broken(review: Review[ConfigMap]) -> Any:
    raise ZeroDivisionError(review.name)


async def asked(webhook: Webhook[Any], sent: Request) -> Answer:
    return await validate(webhook, sent, Cluster())


TWO = manifest("a") | {"data": {"x": "1", "y": "2"}}


async def test_what_is_fine_is_allowed() -> None:
    assert (await asked(Webhook(CONFIG_MAP, validate=small), request(new=manifest("a")))).allowed
    assert (await asked(Webhook(CONFIG_MAP), request(new=TWO))).allowed
    assert (await asked(Webhook(CONFIG_MAP, validate=small), request("DELETE", old=TWO))).allowed


async def test_a_refusal_names_the_field_and_what_would_be_right() -> None:
    found = (await asked(Webhook(CONFIG_MAP, validate=small), request(new=TWO))).manifest("u1")["response"]
    assert (found["uid"], found["allowed"]) == ("u1", False)
    assert found["status"]["message"] == "data: 2 entries are more than 1; remove some"
    assert found["status"]["code"] == 422
    assert found["status"]["details"]["causes"][0]["field"] == "data"


async def test_a_refusal_names_some_of_very_many_problems() -> None:
    def many(review: Review[ConfigMap]) -> Sequence[Problem]:
        return [Problem(f"data.{number}", f"{'x' * 9_000}") for number in range(30_000)]

    found = (await asked(Webhook(CONFIG_MAP, validate=many), request(new=TWO))).manifest("u1")["response"]
    said = found["status"]["message"].split("; ")
    assert [len(said), len(found["status"]["details"]["causes"])] == [33, 32]
    assert said[0] == f"data.0: {'x' * 1023}…"
    assert said[-1] == "and 29968 more"


async def test_a_handler_may_ask_the_cluster() -> None:
    webhook = Webhook(CONFIG_MAP, validate=refers)
    assert (await asked(webhook, request(new=manifest("a")))).allowed
    refused = await asked(webhook, request(new=manifest("a") | {"data": {"ref": "other"}}))
    assert [str(problem) for problem in refused.problems] == [
        "data.ref: there is no ConfigMap 'other' in 'ns'"
    ]


async def test_what_does_not_fit_the_model_is_refused_with_its_path() -> None:
    found = await asked(
        Webhook(CONFIG_MAP, validate=small), request(new=manifest("a") | {"data": {"x": [1]}})
    )
    assert (found.allowed, found.code) == (False, 422)
    assert "$.data" in str(found.problems[0].message)


async def test_an_old_object_of_an_older_model_does_not_block_updates() -> None:
    sent = request("UPDATE", new=manifest("a"), old=manifest("a") | {"data": [5]})
    assert (await asked(Webhook(CONFIG_MAP, validate=small), sent)).allowed


async def test_a_handler_that_raises_denies_with_a_sentence() -> None:
    sent = request(new=manifest("a"))
    for found in (
        await asked(Webhook(CONFIG_MAP, validate=broken), sent),
        await mutate(Webhook(CONFIG_MAP, mutate=broken), sent),
    ):
        assert (found.allowed, found.code) == (False, 500)
        message = found.problems[0].message
        assert message.startswith(
            "checking ConfigMap ns/a failed inside of the webhook (ZeroDivisionError: a)"
        )


async def test_mutation_is_a_json_patch() -> None:
    found = await mutate(Webhook(CONFIG_MAP, mutate=labelled), request(new=manifest("a")))
    response = found.manifest("u1")["response"]
    assert response["patchType"] == "JSONPatch"
    assert msgspec.json.decode(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/metadata/labels", "value": {"by": "ada"}}
    ]


async def test_mutation_leaves_what_it_cannot_read_to_validation() -> None:
    assert await mutate(Webhook(CONFIG_MAP, mutate=labelled), request(new={"metadata": 5})) == Answer(True)


async def test_warnings_come_with_the_answer_short_and_on_one_line() -> None:
    def old(review: Review[ConfigMap]) -> list[str]:
        return ["data.x is deprecated:\n  use data.y", "w" * 300, *["more"] * 2000]

    both = Webhook(CONFIG_MAP, validate=small, warn=old)
    allowed = (await asked(both, request(new=manifest("a")))).manifest("u1")["response"]
    assert allowed["allowed"]
    assert allowed["warnings"][0] == "data.x is deprecated: use data.y"
    assert allowed["warnings"][1] == "w" * 255 + "…"
    assert sum(map(len, allowed["warnings"])) <= 4096
    refused = (await asked(both, request(new=TWO))).manifest("u1")["response"]
    assert (refused["allowed"], refused["warnings"][0]) == (False, "data.x is deprecated: use data.y")


def test_terms_are_what_an_api_server_takes() -> None:
    with pytest.raises(ValueError, match="timeout is 31: the API server takes 1 to 30 seconds"):
        Terms(timeout=31)


@pytest.mark.parametrize(
    ("found", "wanted", "answer"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({}, {"a": {"b": 1}}, False),
        (None, {}, True),
        ({"a": 1}, {}, False),
        (None, [], True),
        ([{"name": "a", "more": 1}, {"name": "b"}], [{"name": "b"}, {"name": "a"}], True),
        ([{"name": "a"}, {"name": "b"}], [{"name": "a"}], False),
        (["CREATE", "UPDATE"], ["UPDATE", "CREATE"], False),
    ],
)
def test_what_the_api_server_holds_is_compared_with_what_is_wanted(
    found: Any, wanted: Any, answer: bool
) -> None:
    assert holds(found, wanted) is answer


@pytest.mark.parametrize(("query", "seconds"), [("10s", 10.0), ("", 30.0), ("1m0s", 30.0), ("0.5s", 30.0)])
def test_how_long_the_api_server_waits(query: str, seconds: float) -> None:
    assert waits(query) == seconds


def test_no_more_than_fits_is_under_way() -> None:
    room = InFlight(2, 100)
    with room.hold(60), pytest.raises(Full), room.hold(60):
        pass
    with room.hold(1), room.hold(1), pytest.raises(Full), room.hold(1):
        pass
    with room.hold(100):
        pass


WEBHOOKS = [Webhook(CONFIG_MAP, mutate=labelled, validate=small)]
PLACES = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)


@asynccontextmanager
async def serving(
    cluster: Server, webhooks: Sequence[Webhook[Any]] = WEBHOOKS, **options: Any
) -> AsyncIterator[WebhookServer]:
    client = cast(Client, cluster)
    server = WebhookServer("127.0.0.1", 0, webhooks, client=client, name="webhooks", **options)
    async with beside(server.run()):
        yield server
    assert server.ready() == "the webhook server has stopped"


def registered(cluster: Server, kind: Kind[Any] = VALIDATING_WEBHOOKS) -> Manifest:
    """The one webhook of a configuration."""
    entry: Manifest = cluster.lookup(kind, "webhooks")["webhooks"][0]
    return entry


def spoil(cluster: Server, kind: Kind[Any], webhooks: Sequence[Manifest] = ()) -> None:
    """Have others write a registration."""
    cluster.change(kind, cluster.lookup(kind, "webhooks"), webhooks=list(webhooks))


def forbid(*_: object) -> Exception:
    return api_error(403, "Forbidden", "no")


def bundle(entry: Manifest) -> bytes:
    return base64.b64decode(entry["clientConfig"]["caBundle"])


async def review(entry: Manifest, new: Manifest, **query: str) -> Manifest:
    """What an API server does that was told `entry`."""
    trusted = ssl.create_default_context(cadata=bundle(entry).decode())
    body = {"request": {"uid": "u9", "operation": "CREATE", "name": "a", "namespace": "ns", "object": new}}
    url = entry["clientConfig"]["url"]
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=body, ssl=trusted, params=query) as response,
    ):
        found: Manifest = (await response.json())["response"]
        return found


async def test_the_api_server_is_told_where_and_whom_to_trust() -> None:
    metrics = Metrics(CollectorRegistry())
    cluster = Server()
    async with serving(cluster, metrics=metrics) as server:
        assert server.ready() == "the API server has not been told about the webhooks"
        await server.wait_started()
        assert server.ready() is None
        mutating, validating = (registered(cluster, plural) for plural in PLACES)
        assert mutating["rules"][0]["resources"] == ["configmaps"]
        assert (mutating["name"], mutating["failurePolicy"]) == ("mutate.configmaps.core", "Fail")
        refused = await review(validating, TWO)
        assert (refused["allowed"], refused["status"]["message"]) == (
            False,
            "data: 2 entries are more than 1; remove some",
        )
        assert (await review(mutating, TWO))["patchType"] == "JSONPatch"
        count = metrics.registry.get_sample_value(
            "controller_runtime_webhook_requests_total", {"webhook": "/validate/configmaps/v1", "code": "422"}
        )
        assert count == 1
        name = "elasticjob_kube_webhook_certificate_expiry_timestamp_seconds"
        expires = metrics.registry.get_sample_value(name, {"configuration": "webhooks"})
        left = datetime.fromtimestamp(expires or 0, UTC) - SystemClock().now()
        assert timedelta(days=6) < left < timedelta(days=8)


async def test_the_terms_are_told() -> None:
    terms = Terms(
        failure_policy="Ignore",
        timeout=3,
        namespaces={"matchLabels": {"checked": "yes"}},
        objects={"matchLabels": {"ours": "yes"}},
        conditions={"not-ours": "request.userInfo.username != 'us'"},
        reinvocation="IfNeeded",
    )
    webhook = Webhook(CONFIG_MAP, mutate=labelled, validate=small, terms=terms)
    cluster = Server()
    async with serving(cluster, [webhook]) as server:
        await server.wait_started()
        mutating, validating = (registered(cluster, plural) for plural in PLACES)
    assert (mutating["failurePolicy"], mutating["timeoutSeconds"]) == ("Ignore", 3)
    assert mutating["namespaceSelector"] == {"matchLabels": {"checked": "yes"}}
    assert mutating["objectSelector"] == {"matchLabels": {"ours": "yes"}}
    assert mutating["reinvocationPolicy"] == "IfNeeded"
    assert validating["matchConditions"] == [
        {"name": "not-ours", "expression": "request.userInfo.username != 'us'"}
    ]
    assert "reinvocationPolicy" not in validating


async def test_a_cluster_that_is_not_there_yet_is_waited_for() -> None:
    clock = VirtualClock()
    cluster = Server(clock)
    cluster.fault = forbid
    async with serving(cluster) as server:
        await until(lambda: "403" in str(server.ready()), clock)
        cluster.fault = lambda *_: None
        await until(lambda: server.ready() is None, clock)


async def test_an_api_server_that_goes_away_leaves_us_ready() -> None:
    clock = VirtualClock()
    cluster = Server(clock)
    async with serving(cluster) as server:
        await server.wait_started()
        cluster.fault = forbid
        spoil(cluster, PLACES[0])
        await until(lambda: clock.monotonic() > 3 * LOOK, clock)
        assert server.ready() is None
        cluster.fault = lambda *_: None
        await until(lambda: cluster.lookup(PLACES[0], "webhooks")["webhooks"], clock)


LOOK = Policy().look.total_seconds()


async def test_what_is_as_it_should_be_is_not_written_again() -> None:
    clock = VirtualClock()
    cluster = Server(clock)
    async with serving(cluster) as server:
        await server.wait_started()
        before = cluster.writes
        await until(lambda: clock.monotonic() > 5 * LOOK, clock)
        assert cluster.writes == before


@pytest.mark.parametrize("kind", PLACES, ids=str)
async def test_a_registration_that_somebody_spoiled_is_repaired(kind: Kind[Any]) -> None:
    clock = VirtualClock()
    cluster = Server(clock)
    async with serving(cluster) as server:
        await server.wait_started()
        as_it_was = cluster.lookup(kind, "webhooks")["webhooks"]
        spoil(cluster, kind, [as_it_was[0] | {"clientConfig": {"url": "https://x"}}])
        await until(lambda: cluster.lookup(kind, "webhooks")["webhooks"] == as_it_was, clock)
        cluster.remove(kind, cluster.lookup(kind, "webhooks"))
        await until(lambda: "webhooks" in (cluster.found(kind, "webhooks") or ()), clock)
        assert cluster.lookup(kind, "webhooks")["webhooks"] == as_it_was


OWNER = Owner(CLUSTER_ROLE, "installation")


async def test_a_registration_goes_with_its_owner_and_does_not_come_back() -> None:
    clock = VirtualClock()
    reference = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "name": "installation",
        "uid": "u1",
    }
    cluster = Server(clock)
    cluster.put(CLUSTER_ROLE, {"metadata": {"name": "installation", "uid": "u1"}})
    async with serving(cluster, owner=OWNER) as server:
        await server.wait_started()
        for kind in PLACES:
            assert cluster.lookup(kind, "webhooks")["metadata"]["ownerReferences"] == [reference]
        cluster.remove(CLUSTER_ROLE, cluster.lookup(CLUSTER_ROLE, "installation"))  # as by an uninstallation
        cluster.collect()
        assert not any(map(cluster.every, PLACES))
        before = cluster.writes
        await until(lambda: clock.monotonic() > 3 * LOOK, clock)
        assert cluster.writes == before
        cluster.put(CLUSTER_ROLE, {"metadata": {"name": "installation", "uid": "u2"}})
        await until(lambda: all("webhooks" in (cluster.found(k, "webhooks") or ()) for k in PLACES), clock)
        (owner,) = cluster.lookup(PLACES[0], "webhooks")["metadata"]["ownerReferences"]
        assert owner["uid"] == "u2"


async def test_a_quarrel_over_the_registration_slows_down() -> None:
    """Two versions of a program may be of different minds, and a watch tells each of the other's writes."""
    clock = VirtualClock()
    cluster = Server(clock)
    async with serving(cluster) as server:
        await server.wait_started()
        repairs: list[float] = []
        for _ in range(8):
            spoil(cluster, PLACES[0])
            await until(lambda: cluster.lookup(PLACES[0], "webhooks")["webhooks"], clock)
            repairs.append(clock.monotonic())
        pauses = [after - before for before, after in itertools.pairwise(repairs)]
        assert pauses == sorted(pauses)
        assert pauses[0] < 3
        assert pauses[-1] >= 30


async def test_a_certificate_is_renewed_on_the_live_socket_under_the_same_authority() -> None:
    clock = VirtualClock()
    cluster = Server(clock)
    async with serving(cluster) as server:
        await server.wait_started()
        before, trusted = await shown(server.port), bundle(registered(cluster))
        clock.jump(timedelta(days=5).total_seconds())
        looked = clock.monotonic() + LOOK
        await until(lambda: clock.monotonic() > looked, clock)
        await waiting.until(lambda: _differs(server, before), "another certificate is shown")
        assert bundle(registered(cluster)) == trusted


async def _differs(server: WebhookServer, before: bytes) -> bool:
    return await shown(server.port) != before


async def test_in_a_cluster_the_service_is_named_and_the_authority_is_shared() -> None:
    options: dict[str, Any] = {"service": ServiceRef("sys", "hooks"), "secret": Key("sys", "ca")}
    cluster = Server(VirtualClock())
    async with serving(cluster, **options) as one, serving(cluster, **options) as other:
        await one.wait_started()
        await other.wait_started()
        kept = cluster.lookup(SECRET, "ca", "sys")["data"]
        config = registered(cluster)["clientConfig"]
    assert config["service"] == {
        "namespace": "sys",
        "name": "hooks",
        "port": 443,
        "path": "/validate/configmaps/v1",
    }
    assert config["caBundle"] == kept["tls.crt"]


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"nonsense", 400), (b"x" * (9 << 20), 413), (b"{}", 400)],
    ids=["nonsense", "large", "empty"],
)
async def test_odd_requests_are_refused(body: bytes, code: int) -> None:
    async with serving(Server()) as server:
        await server.wait_started()
        url = server.url + "/validate/configmaps/v1"
        for data in (io.BytesIO(body), chunked(body)):
            async with aiohttp.ClientSession() as session:
                assert await posted(session, url, data) == code


async def test_a_server_behind_a_service_stops_without_an_unanswered_review() -> None:
    said: list[str] = []

    async def ask(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.post(url, data=b"{}", ssl=False) as response:
                        said.append(response.headers.get("Connection", ""))
                except aiohttp.ClientConnectorError:
                    return  # nobody listens any more: the Service has other pods

    async with serving(Server(), service=ServiceRef("sys", "hooks")) as server:
        await server.wait_started()
        asking = asyncio.create_task(ask(server.url + "/validate/configmaps/v1"))
        await waiting.until(lambda: _have(said), "reviews are answered")
    await asyncio.wait_for(asking, waiting.PATIENCE)  # raises what an unanswered one would
    assert (said[0], said[-1]) == ("", "close")


async def test_a_review_that_comes_late_by_a_connection_of_before_the_end_is_answered() -> None:
    """The API server has connected, and was not quick enough to send before the server stopped."""
    async with serving(Server(), service=ServiceRef("sys", "hooks")) as server:
        await server.wait_started()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting())
        late = asyncio.create_task(_when_nobody_listens(server.port, writer))
    await asyncio.wait_for(late, waiting.PATIENCE)
    assert (await asyncio.wait_for(reader.readline(), waiting.PATIENCE)).startswith(b"HTTP/1.1 400")
    writer.close()


async def _when_nobody_listens(port: int, writer: asyncio.StreamWriter) -> None:
    """Send a review once nobody can connect any more."""

    async def refused() -> bool:
        try:
            _, other = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return True
        except ConnectionResetError:  # it was in the queue of a listener that closed
            return False
        other.close()
        return False

    await waiting.until(refused, "the server listens no more")
    writer.write(
        b"POST /validate/configmaps/v1 HTTP/1.1\r\nHost: hooks\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )
    await writer.drain()


async def _have(said: list[str]) -> bool:
    return bool(said)


async def test_who_announces_a_review_and_does_not_send_it_keeps_nobody_out() -> None:
    clock = VirtualClock()
    async with serving(Server(clock)) as server, aiohttp.ClientSession() as session:
        await server.wait_started()
        url = server.url + "/validate/configmaps/v1"
        stalled = [asyncio.create_task(posted(session, f"{url}?timeout=5s", never())) for _ in range(8)]
        await waiting.until(lambda: _is(429, posted(session, url, b"{}")), "the room is full")
        await until(lambda: all(each.done() for each in stalled), clock, longest=5)
        assert {each.result() for each in stalled} == {408}
        assert await posted(session, url, b"{}") == 400


async def _is(code: int, answered: Awaitable[int]) -> bool:
    return await answered == code


async def never() -> AsyncIterator[bytes]:
    """The first byte of a body."""
    yield b"{"
    await asyncio.Event().wait()


async def posted(session: aiohttp.ClientSession, url: str, data: Any) -> int:
    """The status; that of an answer which came before all was sent, too."""
    async with session.post(url, data=data, ssl=False) as response:
        return response.status


async def chunked(body: bytes) -> AsyncIterator[bytes]:
    """Without a Content-Length."""
    for start in range(0, len(body), 1 << 20):
        yield body[start : start + (1 << 20)]


async def test_the_first_to_be_told_can_call_at_once() -> None:
    """A leaf is served before the API server learns of us."""
    asked, one = [], manifest("a")

    class Eager(Server):
        async def apply(self, kind: Kind[Any], manifest: Manifest, **how: Any) -> Any:
            asked.append(await review(manifest["webhooks"][0], one))
            return await super().apply(kind, manifest, **how)

    async with serving(Eager()) as server:
        await server.wait_started()
    assert [each["allowed"] for each in asked] == [True, True]
