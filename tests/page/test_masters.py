"""How masters are asked: through the API server, and what is said where that fails."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from elasticjob.kube.clock import SystemClock
from elasticjob.kube.errors import Unreachable
from elasticjob.kube.objects.views import POD, Pod
from elasticjob.page.masters import Masters, Way
from elasticjob.page.status import LARGEST
from lab.build.objects import status as refused
from lab.build.objects import view
from tests.kit.kube.stub import Answer, Stub, answer, stream

SENTENCE = "round 1 trains with 2 nodes, 2 workers"
TOLD = {"sentence": SENTENCE, "job": "digits", "of a newer master": [1]}


def master(address: str = "") -> Pod:
    return view(POD, "digits-master-0", "ml", status={"phase": "Running", "podIP": address})


async def asked(way: Way, *answers: Answer, address: str = "") -> tuple[str, list[str]]:
    """Return the sentence of the master or of the error, and the paths of the requests."""
    async with Stub() as stub, stub.client(SystemClock()) as client, aiohttp.ClientSession() as session:
        stub.then(*answers)
        try:
            said = (await Masters(client, session, way).status(master(address))).sentence
        except Unreachable as error:
            said = str(error)
        return said, [seen.path for seen in stub.seen]


async def test_a_master_is_asked_through_the_api_server() -> None:
    said, paths = await asked(Way.AUTO, answer(200, TOLD))
    assert said == SENTENCE
    assert paths == ["/api/v1/namespaces/ml/pods/digits-master-0:50001/proxy/status"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (answer(403, refused(403, "Forbidden")), "you may not read masters (get pods/proxy)"),
        (answer(503, refused(503, "ServiceUnavailable")), "cannot be reached through the API server"),
        (answer(404, refused(404, "NotFound")), "cannot be reached through the API server"),
        (answer(200, b"<html>"), "cannot be read"),
        (answer(200, {"sentence": 5}), "cannot be read"),
        (answer(200, b" " * (LARGEST + 9)), "more than 4 MiB"),
        (stream(b"{", end="cut"), "proxy/status"),
    ],
)
@pytest.mark.parametrize("way", [Way.AUTO, Way.PROXY])
async def test_why_a_master_cannot_be_asked_is_said(way: Way, given: Answer, sentence: str) -> None:
    said, paths = await asked(way, given, address="10.1.2.3")
    assert sentence in said
    assert len(paths) == 1  # a master of another machine is not asked around the API server


async def test_a_pod_is_asked_itself_only_on_this_machine_where_there_is_no_proxy() -> None:
    said, paths = await asked(Way.AUTO, answer(501, refused(501, "NotImplemented")), address="127.9.8.7")
    assert "http://127.9.8.7:50001/status cannot be reached" in said
    assert len(paths) == 1


@pytest.mark.parametrize(
    ("way", "sentence"),
    [(Way.DIRECT, "digits-master-0 has no address yet"), (Way.NONE, "masters are not asked")],
)
async def test_the_api_server_is_left_alone_by_other_ways(way: Way, sentence: str) -> None:
    said, paths = await asked(way)
    assert sentence in said
    assert paths == []


async def test_redirects_of_a_master_are_not_followed() -> None:
    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/secret\r\nContent-Length: 0\r\n\r\n"
        )
        await writer.drain()
        writer.close()

    async with Stub() as stub, stub.client(SystemClock()) as client, aiohttp.ClientSession() as session:
        liar = await asyncio.start_server(lead, "127.231.7.9", 50001)
        async with liar:
            with pytest.raises(Unreachable, match="answers 302"):
                await Masters(client, session, Way.DIRECT).status(master("127.231.7.9"))
