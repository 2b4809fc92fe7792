"""The callers of di-server: a token is looked at before anything is asked of the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from elasticjob.api.diengine import pods
from elasticjob.api.diengine.access import token_of
from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.diengine.pods import Server
from elasticjob.controllers.diserver.apply import Waiting
from elasticjob.controllers.diserver.asked import Amounts, Ask, Query, Refusal
from elasticjob.controllers.diserver.decide import Call, Question
from elasticjob.controllers.diserver.seen import Replicas
from elasticjob.controllers.diserver.server import Server as HttpServer
from elasticjob.controllers.diserver.service import Caches, Options, Service
from elasticjob.kube.errors import KubeError, Undecodable, Unreachable, api_error
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD
from lab.build import manifests
from lab.build.caches import cache
from lab.build.dijobs import dijob
from lab.virtual.diserver import COORDINATOR
from lab.virtual.diserver import service as service_of

KEY = b"secret"
JOB = dijob()
TOKEN, WRONG = token_of(KEY, "u"), token_of(KEY, "another")


class Counting:
    """A client that counts what is asked of the API server; it has the job and its coordinator."""

    def __init__(self) -> None:
        self.asked = list[str]()

    async def find(self, kind: Any, name: str, namespace: str) -> Any:
        self.asked.append(name)
        return JOB if kind is DIJOB else CALLER if name == CALLER.metadata.name else None


CALLER = POD.convert(COORDINATOR)


def service(client: Counting, key: Path | None, jobs: list[Manifest], pods_: list[Manifest]) -> Service:
    caches = Caches(cache(DIJOB, *jobs), cache(POD, *pods_), cache(AGGREGATORCONFIG))
    return service_of(client, caches, key, waits=False)


JOBS, PODS = [manifests.DIJOB], [COORDINATOR]
OLDER = pods.coordinator(JOB, Server())
"""The coordinator of an installation that had no tokens."""
ELSEWHERE = {**OLDER, "metadata": {**OLDER["metadata"], "namespace": "evil"}}


@pytest.mark.parametrize(
    ("jobs", "pods_", "name", "token", "expected", "asked"),
    [
        (JOBS, PODS, "cartpole-coordinator", TOKEN, None, []),
        (JOBS, PODS, "cartpole-coordinator", WRONG, 403, []),
        (JOBS, PODS, "cartpole-coordinator", "\udcff\ud800", 403, []),
        (JOBS, PODS, "cartpole-coordinator", "", 401, []),
        (JOBS, [*PODS, ELSEWHERE], "cartpole-coordinator", "", 401, []),
        (JOBS, [OLDER], "cartpole-coordinator", "", None, []),
        (JOBS, [OLDER], "nobody", "", 401, []),
        (JOBS, PODS, "nobody", "", 401, []),
        (JOBS, PODS, "nobody", WRONG, Waiting, []),
        (JOBS, PODS, "nobody", TOKEN, 404, ["nobody"]),
        (JOBS, [], "cartpole-coordinator", TOKEN, None, ["cartpole-coordinator"]),  # its first call
        ([], [], "cartpole-coordinator", TOKEN, Waiting, []),
        ([], PODS, "cartpole-coordinator", WRONG, 403, []),
        ([], PODS, "cartpole-coordinator", TOKEN, None, ["cartpole"]),
    ],
)
async def test_a_token_costs_no_request_of_the_api_server(
    tmp_path: Path,
    jobs: list[Manifest],
    pods_: list[Manifest],
    name: str,
    token: str,
    expected: int | type[Exception] | None,
    asked: list[str],
) -> None:
    (tmp_path / "key").write_bytes(KEY)
    client = Counting()
    found = service(client, tmp_path / "key", jobs, pods_)
    if expected is None:
        assert (await found.caller("lab", name, token)).uid == "u"
    elif isinstance(expected, int):
        with pytest.raises(Refusal) as refused:
            await found.caller("lab", name, token)
        assert refused.value.status == expected
    else:
        with pytest.raises(expected):
            await found.caller("lab", name, token)
    assert client.asked == asked


async def test_a_list_of_all_is_nobody_s_and_without_tokens_everybody_s(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    client = Counting()
    for query in (Query(), Query("lab")):
        with pytest.raises(Refusal, match="tokens are bound to one job"):
            await service(client, tmp_path / "key", JOBS, PODS).read(query, TOKEN)
        found = await service(client, None, JOBS, PODS).read(query, "")
        assert isinstance(found, list)
        assert len(found) == 1
    assert client.asked == []


async def test_a_di_server_of_one_namespace_asks_nothing_about_others() -> None:
    client = Counting()
    found = replace(service(client, None, [], []), options=Options(namespace="lab"))
    with pytest.raises(Refusal, match="serves the namespace lab only"):
        await found.caller("other", "cartpole-coordinator", "")
    assert client.asked == []


class Falling(Counting):
    """A client whose every request fails in one way."""

    def __init__(self, error: KubeError) -> None:
        super().__init__()
        self._error = error

    async def find(self, kind: Any, name: str, namespace: str) -> Any:
        raise self._error

    async def list(self, kind: Any, namespace: str = "", *, labels: str = "") -> Any:
        raise self._error


@asynccontextmanager
async def served(found: Service) -> AsyncIterator[str]:
    server = HttpServer(found, CollectorRegistry())
    running = asyncio.create_task(server.run())
    await server.wait_started()
    try:
        yield server.url
    finally:
        server.drain()
        await running


BODY = b'{"namespace": "lab", "coordinator": "cartpole-coordinator"%s}'
GPUS = BODY % b', "learners": {"replicas": 1, "gpus": 2}'


@pytest.mark.parametrize(
    "error",
    [
        api_error(403, "Forbidden", "pods is forbidden: 'x'"),
        api_error(401, "Unauthorized", "who are you"),
        api_error(500, "InternalError", "etcd"),
        api_error(404, "NotFound", "the server could not find the requested resource"),
        api_error(409, "Conflict", "again"),
        Unreachable("connection refused"),
        Undecodable("DIJob lab/a does not fit its model"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_no_error_of_the_api_server_is_one_of_ours(error: KubeError) -> None:
    """DI-engine's client dies of every 4xx and 5xx."""
    async with (
        served(service(Falling(error), None, JOBS, PODS)) as url,
        aiohttp.ClientSession(url) as session,
        session.post("/v1alpha1/replicas", data=GPUS) as answer,
    ):
        told = await answer.json()
        assert (answer.status, told["success"], told["code"]) == (200, False, 1)
        assert "ask again" in told["message"]


async def test_calls_that_the_cluster_fails_are_counted() -> None:
    async with (
        served(service(Falling(Unreachable("connection refused")), None, JOBS, PODS)) as url,
        aiohttp.ClientSession(url) as session,
    ):
        for data in (GPUS, b"no JSON"):
            async with session.post("/v1alpha1/replicas", data=data):
                pass
        async with session.get("/metrics") as answer:
            text = await answer.text()
    assert 'elasticjob_di_server_failed_calls_total{reason="cluster"} 1.0' in text
    assert 'elasticjob_di_server_failed_calls_total{reason="di-server"} 0.0' in text


async def test_a_key_that_cannot_be_read_is_waited_for(tmp_path: Path) -> None:
    async with (
        served(service(Counting(), tmp_path / "none", JOBS, PODS)) as url,
        aiohttp.ClientSession(url) as session,
        session.post(f"/t/{TOKEN}/v1alpha1/replicas", data=GPUS) as answer,
    ):
        assert (answer.status, (await answer.json())["success"]) == (200, False)


HEAD = b"POST /v1alpha1/replicas HTTP/1.1\r\nHost: a\r\n"
RAW = [
    (HEAD + b"Content-Length: 5\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x00\xff", 400),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n", 400),
    (HEAD + b"Content-Length: 0\r\nIdempotency-Key: \xff\xfe\r\n\r\n", 400),
    (HEAD + b"Content-Length: 0\r\nAuthorization: Bearer \xff\xfe\r\n\r\n", 400),
    (b"GET /v1alpha1/replicas?namespace=lab&name=%00%ff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /v1alpha1/replicas?namespace=lab&coordinator=..%2f.. HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /t/%ed%a0%80%00/v1alpha1/replicas HTTP/1.1\r\nHost: a\r\n\r\n", 403),
    (b"GET /t/" + b"x" * 300 + b"/v1alpha1/replicas/%22%00 HTTP/1.1\r\nHost: a\r\n\r\n", 404),
    (b"GET /" + b"%2e" * 300 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 404),
    (b"BREW /v1alpha1/replicas HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"LOCK /v1alpha1/replicas HTTP/1.1\r\nHost: a\r\n\r\n", 501),
]


@pytest.mark.parametrize(("raw", "status"), RAW)
async def test_bytes_that_are_no_request_are_a_4xx(tmp_path: Path, raw: bytes, status: int) -> None:
    (tmp_path / "key").write_bytes(KEY)
    async with served(service(Counting(), tmp_path / "key", JOBS, PODS)) as url:
        reader, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        with suppress(ConnectionError):
            writer.write(raw)
            await writer.drain()
        first = await reader.readline()
        writer.close()
    assert first.split()[1:2] == [str(status).encode()]


async def test_calls_of_a_job_for_more_come_one_after_another() -> None:
    """Else two of them would both find room under the limit."""
    found = service(Counting(), None, JOBS, PODS)
    caller = await found.caller("lab", "cartpole-coordinator", "")
    under_way = most = 0

    async def look(*_: object) -> Replicas:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return caller.pods.replicas()

    for fresh, at_once in ((True, 1), (False, 3)):
        most = 0
        question = Question(Ask("lab", "a", Amounts(), Amounts()), lambda *_: Refusal(400, ""), fresh)
        with patch.object(Service, "_carry_out", look):
            await asyncio.gather(*(found.carry_out(caller, question, Call(str(n), "")) for n in range(3)))
        assert most == at_once
