"""One request at a time: answers, refusals, and servers that are in trouble."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web

from elasticjob.kube.client import writes
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.client.transport import Call
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    PayloadTooLarge,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Undecodable,
    Unreachable,
)
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import CONFIG_MAP, NODE, POD
from lab.build.objects import manifest, status
from tests.kit.kube.stub import Answer, Stub, answer, hang, page, stream, until

OK = answer(200, manifest("a", 5))


async def result(caller: Client, call: Any) -> Any:
    """The outcome of a call, with its pauses passed over."""
    assert isinstance(caller.clock, VirtualClock)
    task = asyncio.ensure_future(call)
    await until(task.done, caller.clock)
    return await task


@pytest.mark.parametrize(
    ("code", "body", "error"),
    [
        (404, status(404, "NotFound"), NotFound),
        (403, status(403, "Forbidden"), Forbidden),
        (409, status(409, "Conflict"), Conflict),
        (409, status(409, "AlreadyExists"), AlreadyExists),
        (410, status(410, "Expired"), Gone),
        (413, status(413, "RequestEntityTooLarge"), PayloadTooLarge),
        (422, status(422, "Invalid"), Invalid),
        (500, status(500, "InternalError", "etcdserver: request is too large"), PayloadTooLarge),
        (401, b"Unauthorized", Unauthorized),
        (404, b"404 page not found", NotFound),
        (400, b"<html>nginx</html>", Unreachable),
        (404, b"<html>nginx</html>", Unreachable),
        (403, b"<html>sign in</html>", Unreachable),
    ],
)
async def test_refusals_are_errors_of_their_own(
    stub: Stub, caller: Client, code: int, body: Any, error: type[KubeError]
) -> None:
    stub.then(answer(code, body))
    with pytest.raises(error):
        await caller.create(CONFIG_MAP, {"metadata": {"name": "a"}}, "ns")
    assert len(stub.seen) == 1


async def test_an_error_names_field_and_sentence(stub: Stub, caller: Client) -> None:
    body = status(422, "Invalid", "spec.x: must be 1", causes=[{"field": "spec.x", "message": "must be 1"}])
    stub.then(answer(422, body))
    with pytest.raises(Invalid, match=r"spec\.x: must be 1 \(422 Invalid\)") as caught:
        await caller.get(CONFIG_MAP, "a", "ns")
    assert caught.value.causes[0]["field"] == "spec.x"


SAID = "Sat, 21 Nov 2026 12:00:{:02} GMT"


@pytest.mark.parametrize(
    ("headers", "details", "pause"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({"Retry-After": SAID.format(9), "Date": SAID.format(2)}, {}, 7.0),
        ({"Retry-After": "Thu, 01 Jan 2026 00:00:07 +0000", "Date": "?"}, {}, 7.0),
        ({"Retry-After": SAID.format(2), "Date": SAID.format(9)}, {}, 0.0),
        ({}, {"retryAfterSeconds": 7}, 7.0),
        ({"Retry-After": "3"}, {"retryAfterSeconds": 7}, 3.0),
    ],
    ids=["seconds", "a date", "a date by our clock", "a date that is over", "in the body", "both"],
)
async def test_retry_after_has_many_forms(
    stub: Stub, caller: Client, headers: dict[str, str], details: dict[str, Any], pause: float
) -> None:
    stub.then(answer(429, status(429, "TooManyRequests", **details), headers), OK)
    await result(caller, caller.create(CONFIG_MAP, {"metadata": {"name": "a"}}, "ns"))
    assert caller.clock.monotonic() == pause


@pytest.mark.parametrize(
    ("answers", "never_sent"),
    [
        ((answer(503, b"<html/>"),), True),
        ((answer(504, b"<html/>"),), False),
        ((answer(200, b"<html/>"),), False),
        ((stream(b"{", end="cut"),), False),
    ],
    ids=["a proxy's word", "a proxy that waited", "no answer of a server's", "cut"],
)
async def test_an_unusable_response_says_whether_the_request_was_sent(
    stub: Stub, caller: Client, answers: tuple[Answer, ...], never_sent: bool
) -> None:
    stub.then(*answers * 5)
    with pytest.raises(Unreachable) as caught:
        await result(caller, caller.get(CONFIG_MAP, "a", "ns"))
    assert caught.value.never_sent is never_sent


async def test_nobody_is_where_no_connection_comes_about() -> None:
    async with Client(Config("http://127.0.0.1:1"), clock=VirtualClock()) as caller:
        with pytest.raises(Unreachable, match="GET /api/v1/namespaces/ns/configmaps/a") as caught:
            await result(caller, caller.get(CONFIG_MAP, "a", "ns"))
        assert caught.value.never_sent


async def test_who_is_away_is_believed_for_a_second(stub: Stub, caller: Client) -> None:
    """An API server that is starting says 5 s of kinds that it serves in a moment."""
    starting = status(503, "ServiceUnavailable", "paths are not installed yet", retryAfterSeconds=5)
    stub.then(answer(503, starting, {"Retry-After": "5"}), OK)
    await result(caller, caller.get(CONFIG_MAP, "a", "ns"))
    assert 1.1 <= caller.clock.monotonic() <= 1.2


@pytest.mark.parametrize(("header", "believed"), [("600", 600), ("86400", 600)])
async def test_who_is_told_to_wait_for_long_is_told_so(
    stub: Stub, caller: Client, header: str, believed: float
) -> None:
    stub.then(answer(429, status(429, "TooManyRequests"), {"Retry-After": header}), OK)
    with pytest.raises(TooManyRequests) as caught:
        await caller.get(CONFIG_MAP, "a", "ns")
    assert caught.value.retry_after == believed
    assert len(stub.seen) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        status(500, "InternalError", "etcdserver: request is too large"),
        status(429, "TooManyRequests", "trying to send message larger than max (2097221 vs. 2097152)"),
    ],
    ids=["as etcd", "as its client"],
)
async def test_a_write_that_is_too_large_is_not_repeated_whatever_its_code(
    stub: Stub, caller: Client, refusal: dict[str, Any]
) -> None:
    stub.then(answer(refusal["code"], refusal), OK)
    with pytest.raises(PayloadTooLarge):
        await caller.merge_patch(CONFIG_MAP, "a", {"data": {"x": "y"}}, "ns")
    assert len(stub.seen) == 1


async def head_of_a_refusal(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(status=503)
    await response.prepare(request)
    await asyncio.Event().wait()
    return response


@pytest.mark.parametrize("half", [head_of_a_refusal, hang()], ids=["no body", "no head"])
async def test_an_answer_that_never_comes_whole_is_not_waited_for_for_ever(stub: Stub, half: Answer) -> None:
    clock = VirtualClock()
    async with stub.client(clock) as caller:
        stub.then(half)

        async def ask() -> None:
            async with caller.stream(Call("GET", "/x"), patience=90):
                pass

        asking = asyncio.create_task(ask())
        await until(lambda: stub.seen and clock.next_due == 90)
        await clock.advance(90)
        with pytest.raises(Unreachable, match="GET /x: no answer within 90 s"):
            await asking


async def test_a_cut_connection_is_counted_and_paused_for_like_all_others(stub: Stub, caller: Client) -> None:
    cut = stream(end="cut")

    async def closed(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    stub.then(closed, cut, OK)
    asking = asyncio.ensure_future(caller.get(CONFIG_MAP, "a", "ns"))
    await until(lambda: caller.clock.next_due is not None)  # type: ignore[attr-defined]
    assert len(stub.seen) == 1
    await until(asking.done, caller.clock)  # type: ignore[arg-type]
    assert (await asking).metadata.name == "a"


async def test_a_get_survives_trouble_and_a_proxy(stub: Stub, caller: Client) -> None:
    trouble = [
        answer(503, status(503, "ServiceUnavailable")),
        answer(502, b"<html>Bad Gateway</html>"),
        stream(b'{"metadata"', end="cut"),
    ]
    stub.then(*trouble, OK)
    assert (await result(caller, caller.get(CONFIG_MAP, "a", "ns"))).metadata.name == "a"
    assert len(stub.seen) == 4


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (answer(503, status(503, "ServiceUnavailable")), ServerError),
        (answer(502, b"<html/>"), Unreachable),
        (stream(b"{", end="cut"), Unreachable),
    ],
)
async def test_a_create_is_not_repeated_where_it_may_have_happened(
    stub: Stub, caller: Client, trouble: Answer, error: type[KubeError]
) -> None:
    stub.then(trouble, OK)
    with pytest.raises(error):
        await result(caller, caller.create(CONFIG_MAP, {"metadata": {"name": "a"}}, "ns"))
    assert len(stub.seen) == 1


async def test_attempts_end_with_the_time_of_one(stub: Stub, caller: Client) -> None:
    stub.then(*[answer(429, status(429, "TooManyRequests"), {"Retry-After": "25"})] * 20)
    with pytest.raises(TooManyRequests):
        await result(caller, caller.get(CONFIG_MAP, "a", "ns"))
    assert len(stub.seen) == 3
    assert caller.clock.monotonic() == 50


async def test_attempts_come_to_an_end(stub: Stub, caller: Client) -> None:
    stub.then(*[answer(429, status(429, "TooManyRequests"))] * 20)
    with pytest.raises(TooManyRequests):
        await result(caller, caller.get(CONFIG_MAP, "a", "ns"))
    assert len(stub.seen) == 5


class Rotating:
    """Credentials of which only the second are accepted."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = list(tokens)

    async def header(self, refused: str | None = None) -> str | None:
        if refused == self.tokens[0] and len(self.tokens) > 1:
            self.tokens.pop(0)
        return self.tokens[0]


@pytest.mark.parametrize("tokens", [("old", "new"), ("old",)])
async def test_refused_credentials_are_read_again_once(stub: Stub, tokens: tuple[str, ...]) -> None:
    async with stub.client(credentials=Rotating(*tokens)) as caller:
        stub.then(*[answer(401, status(401, "Unauthorized"))] * len(tokens), OK)
        with pytest.raises(Unauthorized):
            await caller.get(CONFIG_MAP, "a", "ns")
        assert [seen.headers["Authorization"] for seen in stub.seen] == list(tokens)


async def test_newer_credentials_are_used(stub: Stub) -> None:
    async with stub.client(credentials=Rotating("old", "new")) as caller:
        stub.then(answer(401, b"no"), OK)
        assert (await caller.get(CONFIG_MAP, "a", "ns")).metadata.name == "a"


async def test_what_is_sent(stub: Stub, caller: Client) -> None:
    stub.then(*[OK] * 8)
    await caller.create(CONFIG_MAP, {"metadata": {"name": "a", "namespace": "ns"}})
    await caller.apply(
        POD, {"metadata": {"name": "p", "namespace": "ns"}}, manager="me", subresource="status"
    )
    await caller.merge_patch(POD, "p", {"metadata": {"labels": None}}, "ns")
    await caller.json_patch(NODE, "n", [{"op": "remove", "path": "/spec"}])
    await caller.replace(CONFIG_MAP, {"metadata": {"name": "a", "namespace": "ns"}})
    await caller.delete(POD, "p", "ns", uid="u", grace=0, propagation="Foreground")
    await caller.post(POD, "p", "binding", {"target": {"name": "n"}}, "ns")
    sent = [(seen.method, seen.path, seen.headers.get("Content-Type")) for seen in stub.seen]
    assert sent == [
        ("POST", "/api/v1/namespaces/ns/configmaps", "application/json"),
        ("PATCH", "/api/v1/namespaces/ns/pods/p/status", "application/apply-patch+yaml"),
        ("PATCH", "/api/v1/namespaces/ns/pods/p", "application/merge-patch+json"),
        ("PATCH", "/api/v1/nodes/n", "application/json-patch+json"),
        ("PUT", "/api/v1/namespaces/ns/configmaps/a", "application/json"),
        ("DELETE", "/api/v1/namespaces/ns/pods/p", "application/json"),
        ("POST", "/api/v1/namespaces/ns/pods/p/binding", "application/json"),
    ]
    assert stub.seen[1].query == {"fieldManager": "me", "force": "true"}
    assert msgspec.json.decode(stub.seen[0].body)["kind"] == "ConfigMap"
    assert msgspec.json.decode(stub.seen[5].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Foreground",
        "preconditions": {"uid": "u"},
        "gracePeriodSeconds": 0,
    }


async def test_no_cookie_of_a_balancer_is_sent_back(stub: Stub) -> None:
    sticky = answer(200, manifest("a", 5), {"Set-Cookie": "server=1; Path=/"})
    async with Client(Config(stub.url.replace("127.0.0.1", "localhost"))) as caller:
        stub.then(sticky, OK)
        for _ in range(2):
            await caller.get(CONFIG_MAP, "a", "ns")
        assert ["Cookie" in seen.headers for seen in stub.seen] == [False, False]


async def test_what_is_not_there_is_none_to_find_fine_to_delete_and_has_no_log(
    stub: Stub, caller: Client
) -> None:
    stub.then(*[answer(404, status(404, "NotFound"))] * 3)
    assert await caller.find(POD, "p", "ns") is None
    await caller.delete(POD, "p", "ns")
    with pytest.raises(NotFound):
        await anext(caller.logs("p", "ns"))


async def test_a_list_is_read_page_by_page_and_starts_over_when_it_expires(
    stub: Stub, caller: Client
) -> None:
    stub.then(
        page(manifest("a"), rv=5, token="t"),
        answer(410, status(410, "Expired")),
        page(manifest("b"), {"metadata": {"name": "odd"}, "data": 5}, rv=6, token="u"),
        page(manifest("c"), rv=6),
    )
    found = await caller.list(CONFIG_MAP, labels="x=y")
    assert [each.metadata.name for each in found] == ["b", "c"]
    assert [seen.query.get("continue") for seen in stub.seen] == [None, "t", None, "u"]
    assert stub.seen[0].path == "/api/v1/configmaps"


async def test_writes_inside_of_a_reconcile_are_noted_and_others_are_not(stub: Stub, caller: Client) -> None:
    stub.then(*[OK] * 3, answer(200, status(200, "")))
    await caller.merge_patch(CONFIG_MAP, "a", {}, "ns")
    with writes.enter(writes.Run("c", Key("ns", "a"), "id")) as run:
        await caller.merge_patch(CONFIG_MAP, "a", {}, "ns")
        await caller.create(CONFIG_MAP, {"metadata": {"name": "a"}}, "ns", dry_run=True)
        await caller.delete(CONFIG_MAP, "a", "ns")
    assert [(each.kind, each.key, each.version) for each in run.writes] == [(CONFIG_MAP, Key("ns", "a"), 5)]


async def test_a_large_body_goes_out_whole(stub: Stub, caller: Client) -> None:
    stub.then(OK)
    await caller.create(CONFIG_MAP, {"metadata": {"name": "a"}, "data": {"x": "y" * 3_000_000}}, "ns")
    assert len(msgspec.json.decode(stub.seen[0].body)["data"]["x"]) == 3_000_000


async def test_logs_come_as_they_are_written(stub: Stub, caller: Client) -> None:
    stub.then(stream(b"one\n", b"two\n", end="close"))
    found = [chunk async for chunk in caller.logs("p", "ns", container="main", follow=True, tail=5)]
    assert b"".join(found) == b"one\ntwo\n"
    assert stub.seen[0].query == {"container": "main", "follow": "true", "tailLines": "5"}


async def test_a_log_that_is_not_followed_does_not_stay_silent_for_ever(stub: Stub, caller: Client) -> None:
    stub.then(stream(b"one\n"))
    log = caller.logs("p", "ns")
    assert await anext(log) == b"one\n"
    with pytest.raises(Unreachable, match="nothing came for 60 s"):
        await result(caller, anext(log))
    assert caller.clock.monotonic() == 60


async def test_a_future_version_is_not_asked_for_again(stub: Stub, caller: Client) -> None:
    body = status(504, "Timeout", "Too large resource version: 9, current: 1")
    stub.then(answer(504, body))
    with pytest.raises(ApiError):
        await caller.raw("GET", "/api/v1/secrets", resourceVersion="9")


async def test_a_closed_client_says_so() -> None:
    caller = Client(Config("http://127.0.0.1:1"))
    with pytest.raises(RuntimeError, match="async with"):
        await caller.get(CONFIG_MAP, "a", "ns")


SIGN_IN = b"<html>sign in</html>"


@pytest.mark.parametrize("body", [SIGN_IN, b"{}", b'{"error": "sign in"}', b"[]"])
async def test_a_success_that_is_no_answer_of_kubernetes_is_unreachable(
    stub: Stub, caller: Client, body: bytes
) -> None:
    asked = [
        caller.list(CONFIG_MAP, "ns"),
        caller.get(CONFIG_MAP, "a", "ns"),
        caller.create(CONFIG_MAP, {"metadata": {"name": "a"}}, "ns"),
    ]
    if body == SIGN_IN:
        asked += [
            caller.delete(CONFIG_MAP, "a", "ns"),
            caller.post(CONFIG_MAP, "a", "eviction", {}, "ns"),
        ]
    stub.then(*[answer(200, body)] * len(asked))
    with writes.enter(writes.Run("c", Key("ns", "a"), "id")):
        for each in asked:
            with pytest.raises(Unreachable, match=r"/api/v1/namespaces/ns/configmaps.* not a Kubernetes"):
                await each


async def test_an_object_that_does_not_fit_its_model_is_undecodable(stub: Stub, caller: Client) -> None:
    stub.then(answer(200, {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": [5]}))
    with pytest.raises(Undecodable, match=r"ConfigMap a .*data"):
        await caller.get(CONFIG_MAP, "a", "ns")


async def test_a_deletion_is_noted_by_the_uid_that_is_gone(stub: Stub, caller: Client) -> None:
    gone = status(200, "", uid="u-a", name="a") | {"status": "Success"}
    stub.then(answer(200, gone), answer(404, status(404, "NotFound")))
    with writes.enter(writes.Run("c", Key("ns", "a"), "id")) as run:
        await caller.delete(CONFIG_MAP, "a", "ns")
        await caller.delete(CONFIG_MAP, "b", "ns", uid="u-b")
    assert [(each.key.name, each.gone) for each in run.writes] == [("a", "u-a"), ("b", "u-b")]
