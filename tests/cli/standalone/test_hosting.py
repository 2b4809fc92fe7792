"""Which node of a run holds the master, how the others find it, and what a stranger learns from it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

import aiohttp
import pytest

from elasticjob.api.rpc.nodes import Watch
from elasticjob.cli.standalone import hosting
from elasticjob.cli.standalone.hosted import HostedJob
from elasticjob.cli.standalone.hosting import own_address, where_to_listen
from elasticjob.cli.standalone.torchrun import Conf
from elasticjob.trainer.agent.processes.identity import name_of, token_of
from elasticjob.trainer.agent.script import Script
from elasticjob.trainer.agent.settings import Settings, place_from
from elasticjob.trainer.link.master import MasterClient, Rejected
from elasticjob.trainer.link.sockets import ANYWHERE

ELSEWHERE = "192.0.2.1"
"""An address for documentation, which no machine has."""
HERE = socket.gethostname()


@pytest.mark.parametrize(
    ("host", "is_host", "listens"),
    [
        ("127.0.0.1", None, "127.0.0.1"),
        ("localhost", None, "127.0.0.1"),
        (ELSEWHERE, None, None),
        ("absent.invalid", None, None),
        (HERE, None, ANYWHERE),
        (HERE, False, None),
        ("127.0.0.1", False, None),
        (ELSEWHERE, True, ANYWHERE),
        ("127.0.0.1", True, "127.0.0.1"),
    ],
)
def test_node_whose_address_the_endpoint_is_holds_the_master(
    host: str, is_host: bool | None, listens: str | None
) -> None:
    found = where_to_listen(HostedJob(1, 2, host, 29400, conf=Conf(is_host=is_host)))
    assert found == listens or (host == "localhost" and found == "::1")


def test_other_nodes_reach_the_endpoints_machine_by_the_endpoints_name() -> None:
    assert own_address("127.0.0.1", 1) == "127.0.0.1"
    assert own_address("absent.invalid", 1) == "127.0.0.1"
    assert own_address(HERE, 1) in (HERE, *hosting.addresses(HERE))


async def run(monkeypatch: pytest.MonkeyPatch, job: HostedJob, joined: Callable[[Settings], object]) -> int:
    """Host or join; `joined` takes the agent's place."""

    async def join(settings: Settings, seat: object) -> int:
        result = joined(settings)
        return 3 if result is None else await result  # type: ignore[misc]  # a coroutine

    monkeypatch.setattr(hosting, "join", join)
    return await hosting.host_or_join(Settings(place=place_from({}), script=Script("train.py")), job)


async def test_node_that_finds_the_endpoint_taken_joins_the_master_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masters: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        job = HostedJob(1, 2, "127.0.0.1", port, "job")
        assert await run(monkeypatch, job, lambda settings: masters.append(settings.place.master)) == 3
    assert masters == [f"127.0.0.1:{port}"]


async def test_status_tells_a_stranger_neither_the_id_nor_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    async def visit(settings: Settings) -> int:
        place = settings.place
        async with aiohttp.ClientSession() as stranger:
            pages = [
                await (await stranger.get(f"http://{place.master}{page}")).text()
                for page in ("/status", "/metrics", "/")
            ]
        assert name_of("s3cret") in pages[0]
        assert not [page for page in pages if "s3cret" in page or place.token in page]
        watch = Watch(node="a", role="worker", index=0, incarnation="1", wait=0.0)
        for token in ("s3cret", name_of("s3cret"), "elasticjob", ""):
            async with MasterClient(place.master, token=token) as client:
                with pytest.raises(Rejected):
                    await client.call(watch)
        async with MasterClient(place.master, token=token_of("s3cret")) as client:
            await client.call(watch)
        return 5

    assert await run(monkeypatch, HostedJob(1, 1, "127.0.0.1", 0, "s3cret"), visit) == 5


@pytest.mark.parametrize(
    ("host", "name", "warns"), [("127.0.0.1", "", False), (HERE, "", True), (HERE, "s3cret", False)]
)
async def test_job_without_a_secret_is_warned_of_where_others_reach_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, host: str, name: str, warns: bool
) -> None:
    assert await run(monkeypatch, HostedJob(1, 1, host, 0, name), lambda _: None) == 3
    assert ("the job has no secret" in caplog.text) is warns


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("round 12: 3 workers on a, b", False),
        ("round 1: 1 worker on a", False),
        ("found the master at 127.0.0.1:29400", False),
        ("round 12 ends: a lost a worker", True),
        ("round 1 lost b", True),
    ],
)
async def test_the_node_that_holds_the_master_does_not_say_the_same_twice(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, line: str, told: bool
) -> None:
    agent = logging.getLogger("elasticjob.agent")

    def tells(settings: Settings) -> None:
        agent.warning("%s", line)

    for host in ("", "127.0.0.1"):
        await run(monkeypatch, HostedJob(1, 2, host, 0, "job"), tells)
        assert (line in caplog.messages) is told
    tells(Settings(place=place_from({}), script=Script("train.py")))
    assert caplog.messages[-1] == line, "the master is gone, and another one is elsewhere"
