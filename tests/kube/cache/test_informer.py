"""Lists and watches over HTTP, when the server misbehaves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from elasticjob.kube.backoff import (
    BEGIN_WHEN_REFUSED,
    RESUME_WHEN_AWAY,
    SHORTEST_BEFORE_LIST,
    WATCH,
    Backoff,
    longest_before_list,
)
from elasticjob.kube.cache import informer as informers
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import BEGINNING, CONFIRMING, IDLE, IDLE_INITIAL, Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.errors import Forbidden, KubeError
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.views import CONFIG_MAP, ConfigMap
from lab.build.objects import bookmark, event, manifest, status
from lab.waiting import PATIENCE
from tests.kit.kube.stub import Answer, Stub, answer, hang, page, stream, until
from tests.kit.traps.operators import AT_ONCE, PAUSE, Steady

REFUSED = answer(422, status(422, "Invalid", "sendInitialEvents is forbidden"))
A, B, C = (manifest(name, rv) for name, rv in (("a", 1), ("b", 2), ("c", 3)))
AWAY = answer(502, b"<html/>")
BUSY = answer(503, status(503, "ServiceUnavailable", "paths are not installed yet"))
STARTING = answer(429, status(429, "TooManyRequests", "storage is (re)initializing"))
REFUSING = answer(403, status(403, "Forbidden", "not you"))
TORN = (stream(event("ADDED", B), end="cut"), stream(end="cut"), answer(200, b"<html/>"))
BEGUN, SHOWN = stream(bookmark(5, initial_done=True), end="close"), stream(event("ADDED", A))
ALL = stream(event("ADDED", A), bookmark(9, initial_done=True))
GONE = answer(410, status(410, "Expired", "too old resource version"))


@dataclass
class Following:
    stub: Stub
    cache: Cache[ConfigMap]
    clock: VirtualClock
    changes: list[Change]
    informer: Informer[ConfigMap]
    task: asyncio.Task[None]

    @property
    def names(self) -> set[str]:
        return {found.metadata.name for found in self.cache.list()}

    @property
    def watched_from(self) -> list[str]:
        return [seen.query["resourceVersion"] for seen in self.stub.seen if "resourceVersion" in seen.query]


@asynccontextmanager
async def following(
    *script: Answer, backoff: Backoff = AT_ONCE, labels: str = "", optional: bool = False, **more: Any
) -> AsyncIterator[Following]:
    clock = VirtualClock()
    async with Stub() as stub, stub.client(clock) as client:
        stub.then(*script)
        cache = Cache(CONFIG_MAP, "ns", labels, optional=optional)
        informer = Informer(client, cache, backoff=backoff, chance=Steady(), **more)
        task = asyncio.create_task(informer.run())
        found = Following(stub, cache, clock, [], informer, task)
        found.cache.subscribe(found.changes.append)
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.wait({task})


async def test_initial_events_come_as_a_stream() -> None:
    script = stream(event("ADDED", A), event("ADDED", B), bookmark(7, initial_done=True), event("ADDED", C))
    async with following(script, labels="x=y") as it:
        await until(lambda: it.names == {"a", "b", "c"})
        query = it.stub.seen[0].query
        assert it.stub.seen[0].path == "/api/v1/namespaces/ns/configmaps"
        assert (query["sendInitialEvents"], query["resourceVersionMatch"]) == ("true", "NotOlderThan")
        assert (query["allowWatchBookmarks"], query["labelSelector"]) == ("true", "x=y")
        assert 300 <= int(query["timeoutSeconds"]) <= 600
        assert [change.initial for change in it.changes] == [True, True, False]


async def test_where_streaming_is_refused_pages_are_read() -> None:
    async with following(
        REFUSED, page(A, rv=5, token="next"), page(B, rv=5), stream(event("ADDED", C))
    ) as it:
        await until(lambda: it.names == {"a", "b", "c"})
        assert it.stub.seen[2].query["continue"] == "next"
        assert it.watched_from == ["5"]


ABSENT = answer(404, status(404, "NotFound", "the server could not find the requested resource"))
DENIED = answer(403, status(403, "Forbidden", "configmaps is forbidden"))


@pytest.mark.parametrize("says", [ABSENT, DENIED])
async def test_a_kind_that_the_server_need_not_have_is_empty_until_it_comes(says: Answer) -> None:
    async with following(
        says, says, stream(event("ADDED", A), bookmark(7, initial_done=True)), optional=True
    ) as it:
        await until(lambda: it.cache.synced, it.clock)
        assert (it.names, it.cache.served) == (set(), False)
        await until(lambda: it.names == {"a"}, it.clock)
        assert it.cache.served


async def test_a_kind_that_was_there_is_gone_once_the_server_has_said_so_several_times() -> None:
    there, more = stream(event("ADDED", A), bookmark(7, initial_done=True)), stream(event("ADDED", B))
    async with following(there, *[ABSENT] * 3, more, *[ABSENT] * 9, optional=True) as it:
        served: list[bool] = []
        it.cache.on_served(lambda: served.append(it.cache.served))
        await until(lambda: it.names == set() and len(it.changes) > 2, it.clock)
        assert [change.new is None for change in it.changes] == [False, False, True, True]
        assert served == [True, False, True, False]  # also where it was away for a moment


async def test_an_orderly_end_resumes_at_the_bookmark() -> None:
    async with following(stream(bookmark(1, initial_done=True), bookmark(40), end="close"), stream()) as it:
        await until(lambda: it.watched_from == ["40"])
        assert it.cache.version == 40


async def test_a_small_cache_that_loses_its_version_again_and_again_is_never_blind_for_long() -> None:
    began = stream(event("ADDED", A), bookmark(5, initial_done=True), end="close")
    async with following(began, *[GONE] * 50, backoff=WATCH) as it:
        await it.cache.wait_synced()
        await until(lambda: len(it.stub.seen) >= 12, it.clock, longest=PAUSE)
        lists = 10
        assert SHORTEST_BEFORE_LIST * (lists - 1) < it.clock.monotonic() < 0.8 + SHORTEST_BEFORE_LIST * lists


@pytest.mark.parametrize(("size", "longest"), [(0, 1.0), (1 << 20, 1.0), (24 << 20, 6.0), (120 << 20, 30.0)])
def test_the_longest_pause_before_a_list_goes_by_what_it_costs(size: int, longest: float) -> None:
    assert longest_before_list(size) == longest
    assert WATCH.delay(20, at_most=longest) == longest


async def test_a_server_that_ignores_streaming_is_asked_for_pages() -> None:
    async with following(SHOWN, page(A, rv=5), stream()) as it:
        await until(lambda: it.cache.synced, it.clock)
        assert it.names == {"a"}


@pytest.mark.parametrize("words", [[], [bookmark(6)]], ids=["without a word", "after a word"])
async def test_a_watch_that_is_closed_at_once_again_and_again_is_no_hot_loop(words: list[bytes]) -> None:
    closed = [stream(*words, end="close") for _ in range(50)]
    async with following(BEGUN, *closed, backoff=WATCH) as it:
        await it.cache.wait_synced()
        await until(lambda: len(it.stub.seen) >= 6, it.clock, longest=PAUSE)
        assert it.clock.monotonic() >= 0.8 + 4 * RESUME_WHEN_AWAY


def held(opened: asyncio.Event, end: asyncio.Event) -> Answer:
    """A watch that says nothing, and is cut at `end`."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        opened.set()
        await end.wait()
        assert request.transport is not None
        request.transport.abort()
        return response

    return respond


async def test_a_load_balancer_that_cuts_watches_costs_a_second_each_time() -> None:
    watches = [(asyncio.Event(), asyncio.Event()) for _ in range(20)]
    async with following(BEGUN, *[held(*each) for each in watches], backoff=WATCH) as it:
        await it.cache.wait_synced()
        await until(watches[0][0].is_set, it.clock, longest=PAUSE)
        for (_, end), (opened, _) in pairwise(watches):
            await until(lambda: (it.clock.next_due or 0) > PAUSE)
            await it.clock.advance(IDLE - PAUSE - 1)
            end.set()
            began = it.clock.monotonic()
            await until(opened.is_set, it.clock, longest=PAUSE)
            assert it.clock.monotonic() - began == pytest.approx(0.8)
        assert it.cache.lists == 1


CUT, THREE = 0.8, 0.8 + 1.6 + 3.2
PAUSES: dict[str, tuple[tuple[Answer, ...], bool, float, int]] = {
    "away or in trouble, for however long": (
        (BEGUN, *[AWAY] * 12, *[BUSY] * 12, *[STARTING] * 12, SHOWN),
        False,
        CUT + 36 * RESUME_WHEN_AWAY,
        1,
    ),
    # nobody who is not there has listed anything; one who lists and fails in the middle has
    "away at the start": ((*[AWAY] * 12, *TORN, ALL), False, CUT + 11 * RESUME_WHEN_AWAY + THREE, 1),
    "it refuses to begin": ((*[BUSY] * 6, ALL), False, THREE + 3 * BEGIN_WHEN_REFUSED, 1),
    # but one that is away is asked as often as others do: that costs nobody anything
    "one of many asks a server in trouble less often each time": (
        (BEGUN, *[BUSY] * 3, AWAY, *[GONE] * 3, ALL),
        True,
        CUT + THREE + RESUME_WHEN_AWAY + THREE,
        2,
    ),
    # and what was away before does not count: the first refusal is the first
    "a right that is missing is asked for less often each time": (
        (BEGUN, *[AWAY] * 6, *[REFUSING] * 4, SHOWN),
        False,
        CUT + 6 * RESUME_WHEN_AWAY + THREE + 6.4,
        1,
    ),
}
"""Answers of a server, whether many watch, how long it takes until the cache is right, and the lists."""


@pytest.mark.parametrize(("script", "many", "seconds", "lists"), PAUSES.values(), ids=PAUSES)
async def test_how_soon_a_server_that_is_well_again_is_found(
    script: tuple[Answer, ...], many: bool, seconds: float, lists: int
) -> None:
    async with following(*script, backoff=WATCH, one_of_many=many) as it:
        await until(lambda: it.names == {"a"}, it.clock, longest=PAUSE)
        assert len(it.stub.seen) == len(script)
        assert it.clock.monotonic() == pytest.approx(seconds)
        assert it.cache.lists == lists


async def test_a_refusal_is_told_by_log_and_metric_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    refused = answer(403, status(403, "Forbidden", "not you"))
    async with following(refused, stream(bookmark(5, initial_done=True)), metrics=metrics) as it:
        await it.cache.wait_synced()
    labels = {"kind": "ConfigMap", "cause": "refused"}
    assert metrics.registry.get_sample_value("elasticjob_kube_watch_reconnects_total", labels) == 1
    [told] = [each for each in caplog.records if each.message == "list or watch is refused"]
    assert told.__dict__["error"] == "watch configmaps in namespace ns: not you (403 Forbidden)"


async def test_an_error_that_is_raised_of_a_failure_ends_the_informer_and_answers_are_told() -> None:
    heard: list[str] = []

    def heed(error: KubeError | None) -> None:
        heard.append(type(error).__name__)
        if isinstance(error, Forbidden):
            raise error

    unknown, refused = answer(404, status(404, "NotFound", "no")), answer(403, status(403, "Forbidden", "no"))
    script = [unknown, BEGUN, refused]
    async with following(*script, heed=heed) as it:
        with pytest.raises(Forbidden):
            await asyncio.wait_for(it.task, PATIENCE)
    assert (heard[0], heard[1], heard[-1]) == ("NotFound", "NoneType", "Forbidden")


async def test_who_may_watch_and_not_list_goes_on_watching() -> None:
    heard: list[KubeError | None] = []
    began, refused = stream(bookmark(5, initial_done=True)), answer(403, status(403, "Forbidden", "no"))
    async with following(began, stream(), refused, SHOWN, heed=heard.append) as it:
        await it.cache.wait_synced()
        await until(lambda: it.names == {"a"}, it.clock, longest=IDLE)
        assert heard == []


@pytest.mark.parametrize(
    ("costly", "apart"),
    [(True, [20, 30, 30, 30]), (False, [10 + 0.8 + RESUME_WHEN_AWAY] * 4)],
    ids=["large", "small"],
)
async def test_versions_that_are_lost_again_and_again_are_listed_with_patience(
    costly: bool, apart: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that compacts all the time: what lists cost keeps them apart, and no pause comes on top."""
    monkeypatch.setattr(informers, "longest_before_list", lambda size: 30.0 if costly else 1.0)
    watches = [(asyncio.Event(), asyncio.Event()) for _ in range(5)]
    listed = stream(event("ADDED", A), bookmark(5, initial_done=True), end="close")
    script = [each for one in watches for each in (listed, held(*one), GONE)]
    async with following(*script, backoff=Backoff(first=20 if costly else 0.8, limit=30)) as it:
        opens = []
        for opened, end in watches:
            await until(opened.is_set, it.clock, longest=PAUSE)
            opens.append(it.clock.monotonic())
            await until(lambda: (it.clock.next_due or 0) > PAUSE)
            await it.clock.advance(10)
            end.set()
        assert [later - before for before, later in pairwise(opens)] == pytest.approx(apart)


async def test_a_server_that_says_when_to_come_back_is_believed() -> None:
    busy = answer(429, status(429, "TooManyRequests"), {"Retry-After": "25"})
    async with following(BEGUN, busy, SHOWN, backoff=WATCH) as it:
        await it.cache.wait_synced()
        await until(lambda: len(it.stub.seen) == 2, it.clock, longest=PAUSE)
        await until(lambda: it.clock.next_due == 25)
        assert it.watched_from == ["5"]


async def test_staleness_counts_from_the_last_word_not_from_the_last_failure() -> None:
    async with following(BEGUN, *[AWAY] * 20, backoff=WATCH) as it:
        await it.cache.wait_synced()
        await until(lambda: len(it.stub.seen) >= 8, it.clock, longest=PAUSE)
        assert it.informer.last_heard == 0
        assert it.clock.monotonic() > 5


async def test_five_thousand_objects_are_told_in_breaths() -> None:
    many = [manifest(f"n{number}", number + 1) for number in range(1200)]
    async with following(REFUSED, page(*many, rv=5000), stream()) as it:
        await it.cache.wait_synced()
        assert len(it.changes) == len(it.cache) == 1200


async def test_a_flood_of_changes_lets_others_run() -> None:
    flood = b"".join(event("MODIFIED", manifest("a", rv)) for rv in range(2, 20_002))
    async with following(stream(event("ADDED", A), bookmark(1, initial_done=True), flood)) as it:
        turns, told_at = 0, list[int]()
        it.cache.subscribe(lambda change: told_at.append(turns))
        async with asyncio.timeout(PATIENCE):
            while it.cache.version < 20_001:
                turns += 1
                await asyncio.sleep(0)
        most = max(Counter(told_at).values())
        assert most * len(event("MODIFIED", manifest("a", 20_001))) < 1 << 20


async def test_what_is_cached_can_be_measured() -> None:
    metrics = Metrics()
    async with Stub() as stub, stub.client(VirtualClock()) as client:
        stub.then(stream(event("ADDED", A), event("ADDED", B), bookmark(2, initial_done=True)))
        cache = Cache(CONFIG_MAP, "ns")
        informer = asyncio.create_task(Informer(client, cache, metrics=metrics).run())
        await cache.wait_synced()
        found = {
            what: metrics.registry.get_sample_value(f"elasticjob_kube_cache_{what}", {"kind": "ConfigMap"})
            for what in ("objects", "bytes")
        }
        assert found == {"objects": 2, "bytes": cache.bytes}
        informer.cancel()
        await asyncio.wait({informer})


async def test_a_watch_whose_answer_never_begins_is_noticed_too() -> None:
    async with following(hang(), stream(bookmark(6, initial_done=True), end="close"), hang(), SHOWN) as it:
        await until(lambda: len(it.stub.seen) == 1 and it.clock.next_due == IDLE_INITIAL)
        await it.clock.advance(IDLE_INITIAL)
        await until(lambda: it.watched_from == ["6"] and it.clock.next_due == BEGINNING)
        await it.clock.advance(BEGINNING)
        await until(lambda: it.names == {"a"}, it.clock, longest=PAUSE)
        assert it.cache.lists == 1


async def test_the_question_after_silence_is_not_waited_for_for_long() -> None:
    async with following(
        stream(bookmark(6, initial_done=True), end="close"), stream(bookmark(6)), hang(), page(rv=6), stream()
    ) as it:
        await until(lambda: it.watched_from == ["6"] and it.clock.next_due == IDLE)
        await it.clock.advance(IDLE)
        await until(lambda: len(it.stub.seen) == 3 and it.clock.next_due == CONFIRMING)
        await it.clock.advance(CONFIRMING)
        await until(lambda: len(it.stub.seen) == 5)
        assert it.cache.lists == 1


async def test_once_in_step_a_quiet_watch_is_left_alone_between_bookmarks() -> None:
    async with following(stream(event("ADDED", A), bookmark(6, initial_done=True))) as it:
        await until(lambda: it.cache.synced and it.clock.next_due is not None)
        await it.clock.advance(IDLE - 1)
        assert len(it.stub.seen) == 1


@pytest.mark.parametrize(("many", "idle", "least", "most"), [(False, 30, 24, 28), (True, 90, 300, 600)])
async def test_silence_is_noticed_soon_where_not_thousands_watch(
    many: bool, idle: float, least: int, most: int
) -> None:
    script = [stream(bookmark(6, initial_done=True), end="close"), stream(), page(rv=6)]
    async with following(*script, one_of_many=many) as it:
        await until(lambda: it.watched_from == ["6"] and it.clock.next_due == idle)
        assert least <= int(it.stub.seen[1].query["timeoutSeconds"]) <= most  # a bookmark comes 2 s before
        await it.clock.advance(idle)
        await until(lambda: len(it.stub.seen) >= 3)


async def test_a_watch_that_began_with_all_objects_is_replaced_where_it_is_quiet() -> None:
    async with following(stream(event("ADDED", A), bookmark(6, initial_done=True)), stream()) as it:
        await until(lambda: it.cache.synced and it.clock.next_due == IDLE)
        await it.clock.advance(IDLE)
        await until(lambda: it.watched_from == ["6"])


async def test_the_question_after_silence_is_one_that_the_same_rights_allow() -> None:
    async with following(
        stream(bookmark(6, initial_done=True), end="close"), stream(bookmark(6)), page(rv=6), labels="x=y"
    ) as it:
        await until(lambda: it.watched_from == ["6"] and it.clock.next_due == IDLE)
        await it.clock.advance(IDLE)
        await until(lambda: len(it.stub.seen) >= 3)
        assert it.stub.seen[2].query["labelSelector"] == "x=y"
