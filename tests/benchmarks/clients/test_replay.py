"""A recorded watch is said again as a server would say it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.clients.replay import Asked, Recording, Server, asked, chunk, event, initial_events, load
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.cache.wire import Bookmark, Changed, line_of
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import POD

LISTED = (
    b'{"kind":"PodList","metadata":{"resourceVersion":"7"},'
    b'"items":[{"metadata":{"name":"a","namespace":"n",%s}}]}'
)
META = b'"uid":"u","resourceVersion":"%d"'
RECORDING = Recording(
    {"/version": b"{}"},
    LISTED % (META % 5),
    [
        event(
            "MODIFIED",
            b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n",%s}}' % (META % n),
        )
        for n in (8, 9)
    ],
)


@pytest.mark.parametrize(
    ("line", "watches", "wants_all"),
    [
        ("GET /api/v1/pods HTTP/1.1", False, True),
        ("GET /api/v1/pods?limit=500&resourceVersion=0 HTTP/1.1", False, False),
        ("GET /api/v1/pods?watch=true&resourceVersion=7&allowWatchBookmarks=true HTTP/1.1", True, False),
        ("GET /api/v1/pods?watch=1&resourceVersion= HTTP/1.1", True, True),
        ("GET /api/v1/pods?watch=True HTTP/1.1", True, True),
        ("GET /api/v1/pods/?watch=true&sendInitialEvents=true&resourceVersion=0 HTTP/1.1", True, True),
    ],
)  # fmt: skip
def test_what_is_asked_for(line: str, watches: bool, wants_all: bool) -> None:
    found = asked(f"{line}\r\nHost: x\r\n\r\n".encode())
    assert (found.method, found.path, found.watches, found.wants_all) == (
        "GET",
        "/api/v1/pods",
        watches,
        wants_all,
    )


def test_what_is_no_http_is_refused() -> None:
    with pytest.raises(ValueError, match="unpack"):
        asked(b"\x16\x03\x01")


def test_a_line_is_one_chunk() -> None:
    assert chunk(b"0123456789abcdef\n") == b"11\r\n0123456789abcdef\n\r\n"


def test_a_list_begins_a_watch_as_added_objects_and_a_bookmark() -> None:
    added, end = map(line_of, initial_events(RECORDING.listed))
    assert isinstance(added, Changed)
    assert (added.type, added.item.key, added.item.meta.version) == ("ADDED", Key("n", "a"), 5)
    assert b'"kind":"Pod"' in added.item.raw
    assert end == Bookmark("7", initial_done=True)


def test_a_recording_is_kept(tmp_path: Path) -> None:
    RECORDING.save(tmp_path / "recording")
    assert load(tmp_path / "recording") == RECORDING


async def test_a_client_hears_all_of_it() -> None:
    versions: list[int] = []
    heard = asyncio.Event()
    server = Server(RECORDING, times=2)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        async with Client(Config(f"http://127.0.0.1:{port}")) as client:
            assert await client.raw("GET", "/version") == b"{}"
            cache = Cache(POD)

            def told(change: Change) -> None:
                found = change.new
                assert found is not None
                versions.append(found.meta.version)
                if len(versions) == 5:
                    heard.set()

            cache.subscribe(told)
            watching = asyncio.create_task(Informer(client, cache).run())
            await asyncio.wait_for(heard.wait(), 60)
            watching.cancel()
            await asyncio.wait({watching})
    assert versions == [5, 8, 9, 8, 9]


def test_a_question_is_a_value() -> None:
    assert asked(b"GET /version HTTP/1.1\r\n\r\n") == Asked("GET", "/version", {})
