"""A recorded watch is said again as a server would say it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.clients.replay import Recording, Server, event, load
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.objects.views import POD
from tests.kit.waiting import PATIENCE

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
