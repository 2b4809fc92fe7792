"""The benchmarks of clients: a recorded watch is said again as a server would, and what is computed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.clients.framework import lateness
from benchmarks.clients.replay import Recording, Server, event, load
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.objects.views import POD
from lab.programs.programs import ProgramFailed
from lab.waiting import PATIENCE

LISTED = (
    b'{"kind":"PodList","metadata":{"resourceVersion":"7"},'
    b'"items":[{"metadata":{"name":"a","namespace":"n",%s}}]}'
)
META = b'"uid":"u","resourceVersion":"%d"'
POD_A = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n",%s}}'
CHANGES = [event("MODIFIED", POD_A % (META % n)) for n in (8, 9)]
RECORDING = Recording({"/version": b"{}"}, LISTED % (META % 5), CHANGES)


async def test_a_client_hears_all_of_what_was_kept(tmp_path: Path) -> None:
    RECORDING.save(tmp_path / "recording")
    server = Server(load(tmp_path / "recording"), times=2)
    versions: list[int] = []
    heard = asyncio.Event()
    cache = Cache(POD)

    def told(change: Change) -> None:
        assert change.new is not None
        versions.append(change.new.meta.version)
        if len(versions) == 5:
            heard.set()

    cache.subscribe(told)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        async with Client(Config(f"http://127.0.0.1:{port}")) as client:
            watching = asyncio.create_task(Informer(client, cache).run())
            await asyncio.wait_for(heard.wait(), PATIENCE)
            watching.cancel()
            await asyncio.wait({watching})
    assert versions == [5, 8, 9, 8, 9]


@pytest.mark.parametrize(
    ("started", "late"),
    [
        ([("a", "5", 9.5)], [-0.5]),
        ([("a", "4", 10.1), ("b", "5", 10.2), ("a", "5", 10.3)], [0.3]),
        ([("a", "9", 10.4), ("a", "5", 10.7)], [0.4]),
    ],
    ids=["before the answer", "another version, another object", "a newer version counts"],
)
def test_lateness_is_from_the_answer_to_the_first_handling(
    started: list[tuple[str, str, float]], late: list[float]
) -> None:
    assert lateness([("a", "5", 10.0)], started) == pytest.approx(late)


def test_a_change_that_was_never_handled_is_no_figure() -> None:
    with pytest.raises(ProgramFailed, match="version 5 of a was never handled"):
        lateness([("a", "5", 10.0)], [("a", "4", 10.1)])
