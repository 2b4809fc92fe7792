"""The line to the master: it outlives resets and restarts, and says clearly when there is no answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from elasticjob.api.rpc.message import PROBLEM, Problem
from elasticjob.api.rpc.nodes import Order, Orders, Watch
from elasticjob.trainer.link.master import (
    MasterClient,
    Refused,
    Rejected,
    Stale,
    Stopping,
    Unreachable,
    pauses,
)

WATCH = Watch(node="a", role="worker", index=0, incarnation="1", wait=0.0)
ORDERS = Orders(version=7, order=Order.TRAIN, round=3)
Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[tuple[MasterClient, list[web.BaseRequest]]]:
    """Run a server that gives these answers one after another, and a client that asks it."""
    asked: list[web.BaseRequest] = []

    async def serve(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request)
        return await answers[len(asked) - 1](request)

    runner = web.ServerRunner(web.Server(serve))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        address = f"127.0.0.1:{runner.addresses[0][1]}"
        async with MasterClient(address, token="secret", patience=60.0, jitter=lambda: 1.0) as client:
            yield client, asked
    finally:
        await runner.cleanup()


def reply(**given: Any) -> Answer:
    """Return what answers with such a response."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(**given)

    return answer


def problem(code: str, status: int = 409) -> Answer:
    """Refuse with `code`."""
    body = msgspec.json.encode(Problem(title="No", status=status, detail="because", code=code))
    return reply(status=status, body=body, content_type=PROBLEM)


orders = reply(body=msgspec.json.encode(ORDERS), content_type="application/json")
nothing = reply(status=204)  # the end of a long poll without news
bad_gateway = reply(status=502, text="<html>")  # of what is between us and a master that is not there
html = reply(text="<html>", content_type="text/html")
other_json = reply(text='{"pages": []}', content_type="application/json")


async def hangs_up(request: web.BaseRequest) -> web.StreamResponse:
    """Cut the line in the middle of a question."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_answer_has_the_type_that_the_question_names() -> None:
    async with serving(orders) as (master, asked):
        assert await master.call(WATCH) == ORDERS
        assert asked[0].path == "/v1/nodes/watch"
        assert asked[0].headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("fault", [hangs_up, bad_gateway, nothing])
async def test_question_is_repeated_until_there_is_an_answer(fault: Answer) -> None:
    async with serving(fault, fault, orders) as (master, asked):
        assert await master.call(WATCH) == ORDERS
        assert len(asked) == 3


@pytest.mark.parametrize(
    ("code", "error"),
    [("stale", Stale), ("refused", Refused), ("stopping", Stopping), ("unauthenticated", Rejected)],
)
async def test_refusal_is_final(code: str, error: type[Rejected]) -> None:
    async with serving(problem(code)) as (master, asked):
        with pytest.raises(error, match="No: because") as caught:
            await master.call(WATCH)
        assert caught.value.problem.code == code
        assert len(asked) == 1


async def test_master_of_another_job_is_passed_by_in_the_search_for_an_heir() -> None:
    async with serving(problem("unauthenticated", 401)) as (stranger, _), serving(orders) as (heir, _):
        gone = f"127.0.0.1:{unused_port()}"
        async with MasterClient(gone, token="secret", patience=60.0) as master:
            master.look_for((stranger.address, heir.address))
            assert await master.call(WATCH) == ORDERS
            assert master.address == heir.address


async def test_silence_is_an_error_that_says_where_and_what_to_check() -> None:
    address = f"127.0.0.1:{unused_port()}"
    async with MasterClient(address, patience=0.05) as master:
        with pytest.raises(
            Unreachable,
            match=f"master at {address} did not answer Watch .*\\(Connection refused\\); is its pod running",
        ):
            await master.call(WATCH)


@pytest.mark.parametrize("answer", [html, other_json])
async def test_page_of_another_server_is_no_answer(answer: Answer) -> None:
    async with serving(*[answer] * 99) as (master, _):
        with pytest.raises(Unreachable, match=f"the master at {master.address} did not answer"):
            await master.call(WATCH, patience=0.1)


@pytest.mark.parametrize("greeting", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x15\x03\x01\x00\x02\x02\x46", b"*1\r\n"])
async def test_server_of_another_protocol_is_no_master(greeting: bytes) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with MasterClient(address) as master:
            with pytest.raises(Unreachable, match=f"the master at {address} did not answer Watch"):
                await master.call(WATCH, patience=0.1)


def test_pauses_grow_to_a_second() -> None:
    assert list(islice(pauses(lambda: 0.0), 8)) == pytest.approx(
        [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    )
    assert next(pauses(lambda: 1.0)) == pytest.approx(0.01)


async def test_a_call_draws_no_random_number_of_the_scripts_own() -> None:
    async with serving(orders) as (client, _), MasterClient(client.address) as mine:
        before = random.getstate()
        assert await mine.call(WATCH) == ORDERS
        assert random.getstate() == before
