"""Admission: pure answers, then the whole way over TLS with the authority that the API server is told of."""

from __future__ import annotations

import asyncio
import base64
import io
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from elasticjob.kube.admission import LOOK_AGAIN, AdmissionServer, ServiceRef
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.kinds import Key, Kind
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects import CONFIG_MAP, ConfigMap
from elasticjob.kube.problem import Problem
from elasticjob.kube.review import (
    Answer,
    JsonPatchOperation,
    Reader,
    Request,
    Review,
    Webhook,
    mutated,
    validated,
)
from tests.kube.build import manifest, status
from tests.kube.stub import Answer as Respond
from tests.kube.stub import Stub, answer, until

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
    return await validated(webhook, sent, Cluster())


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
        await mutated(Webhook(CONFIG_MAP, mutate=broken), sent),
    ):
        assert (found.allowed, found.code) == (False, 500)
        said = found.problems[0].message
        assert said.startswith("checking ConfigMap ns/a failed inside of the webhook (ZeroDivisionError: a)")


async def test_mutation_is_a_json_patch() -> None:
    found = await mutated(Webhook(CONFIG_MAP, mutate=labelled), request(new=manifest("a")))
    response = found.manifest("u1")["response"]
    assert response["patchType"] == "JSONPatch"
    assert msgspec.json.decode(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/metadata/labels", "value": {"by": "ada"}}
    ]


async def test_mutation_leaves_what_it_cannot_read_to_validation() -> None:
    assert await mutated(Webhook(CONFIG_MAP, mutate=labelled), request(new={"metadata": 5})) == Answer(True)


APPLIED = answer(200, {"apiVersion": "v1", "kind": "X", "metadata": {"name": "webhooks"}})
WEBHOOKS = [Webhook(CONFIG_MAP, mutate=labelled, validate=small)]


@asynccontextmanager
async def serving(stub: Stub, clock: VirtualClock, **options: Any) -> AsyncIterator[AdmissionServer]:
    async with stub.client(clock) as client:
        server = AdmissionServer("127.0.0.1", 0, WEBHOOKS, client=client, name="webhooks", **options)
        task = asyncio.create_task(server.run())
        try:
            yield server
        finally:
            task.cancel()
            await asyncio.wait({task})


def told(stub: Stub, nth: int) -> Manifest:
    """The one webhook of the nth configuration that was applied."""
    entry: Manifest = msgspec.json.decode(stub.seen[nth].body)["webhooks"][0]
    return entry


async def review(entry: Manifest, new: Manifest) -> Manifest:
    """What an API server does that was told `entry`."""
    trusted = ssl.create_default_context(cadata=base64.b64decode(entry["clientConfig"]["caBundle"]).decode())
    body = {"request": {"uid": "u9", "operation": "CREATE", "name": "a", "namespace": "ns", "object": new}}
    url = entry["clientConfig"]["url"]
    async with aiohttp.ClientSession() as session, session.post(url, json=body, ssl=trusted) as response:
        found: Manifest = (await response.json())["response"]
        return found


async def test_the_api_server_is_told_where_and_whom_to_trust() -> None:
    metrics = Metrics(CollectorRegistry())
    async with Stub() as stub, serving(stub, VirtualClock(datetime.now(UTC)), metrics=metrics) as server:
        assert server.ready() == "the API server has not been told about the webhooks"
        stub.then(APPLIED, APPLIED)
        await server.wait_started()
        assert server.ready() is None
        mutating, validating = told(stub, 0), told(stub, 1)
        assert mutating["rules"][0]["resources"] == ["configmaps"]
        assert (mutating["name"], mutating["failurePolicy"]) == ("mutate.configmaps.core", "Fail")
        refused = await review(validating, TWO)
        assert (refused["allowed"], refused["status"]["message"]) == (
            False,
            "data: 2 entries are more than 1; remove some",
        )
        assert (await review(mutating, TWO))["patchType"] == "JSONPatch"
        served = metrics.registry.get_sample_value(
            "controller_runtime_webhook_requests_total", {"webhook": "/validate/configmaps/v1", "code": "422"}
        )
        assert served == 1


async def test_a_cluster_that_is_not_there_yet_is_waited_for() -> None:
    clock = VirtualClock()
    async with Stub() as stub:
        stub.then(answer(403, status(403, "Forbidden")), APPLIED, APPLIED)
        async with serving(stub, clock) as server:
            await until(lambda: server.ready() is None, clock)
            assert len(stub.seen) == 3


async def test_a_registration_that_somebody_spoiled_is_repaired() -> None:
    clock = VirtualClock()
    async with Stub() as stub:
        stub.then(*[APPLIED] * 4)
        async with serving(stub, clock) as server:
            await server.wait_started()
            await until(lambda: clock.next_due == LOOK_AGAIN)
            await clock.advance(LOOK_AGAIN)
            await until(lambda: len(stub.seen) == 4)
            assert told(stub, 0) == told(stub, 2)


async def test_a_certificate_is_renewed_on_the_live_socket_under_the_same_authority() -> None:
    clock = VirtualClock()
    async with Stub() as stub:
        stub.then(*[APPLIED] * 6)
        async with serving(stub, clock) as server:
            await server.wait_started()
            before = await _serial(server)
            clock.jump(timedelta(days=25).total_seconds())
            await until(lambda: len(stub.seen) == 6, clock)
            assert await _serial(server) != before
            assert told(stub, 1) == told(stub, 5)


async def _serial(server: AdmissionServer) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, port = server.url.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return base64.b64encode(der).decode()


async def test_in_a_cluster_the_service_is_named_and_the_authority_is_shared() -> None:
    async with Stub() as stub:
        stub.then(
            answer(404, status(404, "NotFound")),
            answer(201, {"metadata": {"name": "ca"}}),
            APPLIED,
            APPLIED,
        )
        options = {"service": ServiceRef("sys", "hooks"), "secret": Key("sys", "ca")}
        async with serving(stub, VirtualClock(), **options) as server:
            await server.wait_started()
            kept = msgspec.json.decode(stub.seen[1].body)["data"]
            config = told(stub, 3)["clientConfig"]
            assert config["service"] == {
                "namespace": "sys",
                "name": "hooks",
                "port": 443,
                "path": "/validate/configmaps/v1",
            }
            assert config["caBundle"] == kept["tls.crt"]


@pytest.mark.parametrize(("body", "code"), [(b"nonsense", 400), (b"x" * (9 << 20), 413)])
async def test_odd_requests_are_refused(body: bytes, code: int) -> None:
    async with Stub() as stub:
        stub.then(APPLIED, APPLIED)
        async with serving(stub, VirtualClock()) as server:
            await server.wait_started()
            url, data = server.url + "/validate/configmaps/v1", io.BytesIO(body)
            async with (
                aiohttp.ClientSession() as session,
                session.post(url, data=data, ssl=False) as response,
            ):
                assert response.status == code


async def test_the_first_to_be_told_can_call_at_once() -> None:
    asked = []

    def call_back(then: Respond) -> Respond:
        async def respond(http: web.Request) -> web.StreamResponse:
            entry = msgspec.json.decode(await http.read())["webhooks"][0]
            asked.append(await review(entry, manifest("a")))
            return await then(http)

        return respond

    async with Stub() as stub, serving(stub, clock := VirtualClock(datetime.now(UTC))) as server:
        stub.then(call_back(APPLIED), call_back(APPLIED))
        await until(lambda: server.ready() is None, clock)
        assert len(asked) == 2
