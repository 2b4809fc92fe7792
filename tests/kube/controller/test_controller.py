"""Controllers on caches that are fed by hand, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.protocol import Advanced, Event, Listed, Removed, Restarted, Synced, Upserted
from elasticjob.kube.cache.store import Change
from elasticjob.kube.cache.wire import Item
from elasticjob.kube.client import writes
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.controller.controller import Controller, Result, Runner
from elasticjob.kube.controller.gate import KEPT, PATIENCE
from elasticjob.kube.controller.predicates import generation_changed
from elasticjob.kube.errors import Conflict, PayloadTooLarge, Terminal, Unreachable, api_error
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Key, Kind
from elasticjob.kube.objects.views import CONFIG_MAP, NODE, SECRET, SERVICE
from lab.build.objects import as_item, item, key, manifest, owned

A, B = key("a"), key("b")
KINDS: tuple[Kind[Any], ...] = (CONFIG_MAP, SECRET, NODE, SERVICE)


@dataclass
class Bench:
    """A controller of ConfigMaps that own Secrets, with everything around it."""

    clock: VirtualClock
    maps: Cache[Any]
    secrets: Cache[Any]
    nodes: Cache[Any]
    services: Cache[Any]
    runner: Runner
    metrics: Metrics
    task: asyncio.Task[None]
    runs: list[Key] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)

    async def feed(self, cache: Cache[Any], *events: Event) -> None:
        for event in events:
            cache.tell(cache.take(event))
            cache.advanced()
        await self.clock.settle()

    async def changed(self, *items: Item) -> None:
        await self.feed(self.maps, *map(Upserted, items))

    def total(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {"controller": "c"} | labels)

    def results(self) -> dict[str, float]:
        names = ("success", "requeue_after", "requeue", "error")
        found = {name: self.total("controller_runtime_reconcile_total", result=name) for name in names}
        return {name: value for name, value in found.items() if value}


Act = Callable[[Key], Awaitable[Result | None]]


@asynccontextmanager
async def bench(act: Act | None = None, **options: Any) -> AsyncIterator[Bench]:
    clock, metrics = VirtualClock(), Metrics(CollectorRegistry())
    caches: dict[str, Cache[Any]] = {
        kind.resource: Cache(kind) for kind in (CONFIG_MAP, SECRET, NODE, SERVICE)
    }

    async def reconcile(key: Key) -> Result:
        found.runs.append(key)
        return (await act(key) if act else None) or Result.done()

    def warn(kind: Kind[Any], item: Item, reason: str, note: str) -> None:
        found.warnings.append((str(item.key), reason))

    def keys_of(node: Any) -> Sequence[Key]:
        return [Key("ns", name) for name in node.metadata.labels]

    options = {"owns": (SECRET,), "watches": ((NODE, keys_of),)} | options
    controller = Controller("c", reconcile, for_=CONFIG_MAP, **options)
    runner = Runner(controller, caches, clock=clock, metrics=metrics, warn=warn)
    task = asyncio.create_task(runner.run())
    maps, secrets, nodes, services = (caches[kind.resource] for kind in KINDS)
    found = Bench(clock, maps, secrets, nodes, services, runner, metrics, task)
    await clock.settle()
    try:
        yield found
    finally:
        runner.drain()
        await clock.advance(0)
        task.cancel()
        await asyncio.wait({task})


def failing(*outcomes: Exception | Result) -> Act:
    """Each run ends with the next outcome, then all is done."""
    rest = list(outcomes)

    async def act(_: Key) -> Result | None:
        outcome = rest.pop(0) if rest else Result.done()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return act


async def test_a_change_of_the_object_of_an_owned_one_and_of_a_watched_one_all_lead_to_a_run() -> None:
    async with bench() as it:
        await it.changed(item("a"))
        await it.feed(it.secrets, Upserted(as_item(owned("s", "b"))))
        await it.feed(it.nodes, Upserted(as_item(manifest("n", namespace="", labels={"c": ""}))))
        assert it.runs == [A, B, key("c")]


async def test_a_watched_kind_that_comes_or_goes_leads_to_a_run_of_each_key() -> None:
    async with bench() as it:
        await it.changed(item("a"), item("b"))
        for served in (True, False, False, True):
            it.nodes.served = served
            await it.clock.settle()
        assert it.runs == [A, B] * 3


async def test_a_watch_may_leave_out_changes() -> None:
    async with bench(watches=((NODE, lambda _: [A], generation_changed),)) as it:
        for version, generation, runs in ((1, 1, 1), (2, 1, 1), (3, 2, 2)):
            changed = manifest("n", version, namespace="", generation=generation)
            await it.feed(it.nodes, Upserted(as_item(changed)))
            assert it.runs == [A] * runs


async def test_a_flock_of_changes_of_owned_objects_makes_one_run_when_it_has_settled() -> None:
    async with bench(settle=timedelta(seconds=1)) as it:
        await it.feed(it.secrets, Upserted(as_item(owned("s", "a", 1))))
        await it.clock.advance(0.9)
        await it.feed(it.secrets, Upserted(as_item(owned("t", "a", 2))))
        assert it.runs == []
        await it.clock.advance(0.1)
        assert it.runs == [A]
        await it.clock.advance(5)
        assert it.runs == [A]


async def test_keys_may_settle_for_different_times() -> None:
    async with bench(settle=lambda at: timedelta(seconds=1 if at == A else 2)) as it:
        for version, name in enumerate("ab", 1):
            await it.feed(it.secrets, Upserted(as_item(owned(f"s-{name}", name, version))))
        await it.clock.advance(1)
        assert it.runs == [A]
        await it.clock.advance(1)
        assert it.runs == [A, B]


async def test_objects_that_are_new_run_before_those_that_go_on() -> None:
    """Also before one that was new, and asked to go on at once."""

    async def act(at: Key) -> Result:
        if it.runs.count(at) > 1:
            return Result.done()
        await it.changed(item("b"))
        return Result.again(timedelta(0))

    async with bench(act, concurrency=1, new_first=True) as it:
        await it.feed(it.secrets, Upserted(as_item(owned("s", "c", 1))))
        await it.changed(item("a"))
        await it.clock.advance(1)
        assert it.runs[-3:].count(B) == 1
        assert it.runs.index(B) < len(it.runs) - 1 - it.runs[::-1].index(A)


async def test_a_change_of_the_object_itself_does_not_wait_for_the_flock() -> None:
    async with bench(settle=timedelta(seconds=1)) as it:
        await it.feed(it.secrets, Upserted(as_item(owned("s", "a", 1))))
        await it.changed(item("a"))
        assert it.runs == [A]
        await it.clock.advance(5)
        assert it.runs == [A]


async def test_a_moved_owner_or_label_concerns_the_old_and_the_new() -> None:
    async with bench() as it:
        await it.feed(
            it.secrets, Upserted(as_item(owned("s", "a", 1))), Upserted(as_item(owned("s", "b", 2)))
        )
        assert set(it.runs) == {A, B}
        it.runs.clear()
        await it.feed(it.secrets, Removed(as_item(owned("s", "b", 3))))
        assert it.runs == [B]


async def test_owners_of_another_kind_of_the_same_name_are_not_ours() -> None:
    async with bench() as it:
        await it.feed(it.secrets, Upserted(as_item(owned("s", "a", kind="StatefulSet"))))
        assert it.runs == []


async def test_a_delete_missed_by_the_watch_reaches_the_owner() -> None:
    async with bench() as it:
        secret = as_item(owned("s", "a"))
        await it.feed(it.secrets, Restarted(), Listed((secret,)), Synced("5"))
        it.runs.clear()
        await it.feed(it.secrets, Restarted(), Synced("9"))
        assert it.runs == [A]


async def test_one_run_of_a_key_at_a_time_and_one_more_after_the_last_change() -> None:
    gate, active, most = asyncio.Event(), 0, 0

    async def act(_: Key) -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await gate.wait()
        active -= 1

    async with bench(act) as it:
        for version in range(1, 6):
            await it.changed(item("a", version))
        assert it.runs == [A]
        gate.set()
        await it.clock.settle()
        assert (it.runs, most) == ([A, A], 1)


async def test_different_keys_run_side_by_side_up_to_the_limit() -> None:
    gate = asyncio.Event()

    async def act(_: Key) -> None:
        await gate.wait()

    async with bench(act, concurrency=3) as it:
        await it.changed(*[item(f"k{number}") for number in range(10)])
        assert len(it.runs) == 3
        assert it.total("controller_runtime_active_workers") == 3
        gate.set()
        await it.clock.settle()
        assert len(it.runs) == 10


async def test_a_fresh_change_overtakes_the_first_list() -> None:
    gate = asyncio.Event()

    async def act(_: Key) -> None:
        await gate.wait()

    async with bench(act, concurrency=1) as it:
        backlog = tuple(item(f"k{number}") for number in range(50))
        await it.feed(it.maps, Restarted(), Listed(backlog), Synced("5"))
        await it.changed(item("fresh", 6))
        gate.set()
        await it.clock.settle(200)
        assert it.runs.index(key("fresh")) == 1


async def test_again_runs_again_and_a_change_consumes_it() -> None:
    async with bench(failing(Result.again(timedelta(seconds=10)), Result.again(timedelta(seconds=10)))) as it:
        await it.changed(item("a"))
        await it.clock.advance(9)
        assert len(it.runs) == 1
        await it.clock.advance(1)
        assert len(it.runs) == 2
        await it.changed(item("a", 2))
        await it.clock.advance(60)
        assert len(it.runs) == 3
        assert it.results() == {"requeue_after": 2, "success": 1}


async def test_a_failure_is_repeated_after_pauses_that_double(caplog: pytest.LogCaptureFixture) -> None:
    errors = [RuntimeError("bug"), Unreachable("away"), RuntimeError("bug")]
    async with bench(failing(*errors)) as it:
        await it.changed(item("a"))
        assert len(it.runs) == 1
        counts = []
        for pause in (0.005, 0.01, 0.02):
            await it.clock.advance(pause)
            counts.append(len(it.runs))
        assert counts == [2, 3, 4]
        assert it.results() == {"error": 3, "success": 1}
        assert it.total("controller_runtime_reconcile_panics_total") == 2
        assert len([record for record in caplog.records if record.exc_info]) == 2


async def test_success_resets_the_pause() -> None:
    boom = RuntimeError("bug")
    async with bench(failing(boom, boom, Result.done(), boom)) as it:
        await it.changed(item("a"))
        await it.clock.advance(1)
        await it.changed(item("a", 2))
        await it.clock.advance(0.005)
        assert len(it.runs) == 5


@pytest.mark.parametrize("error", [Terminal("no such framework"), PayloadTooLarge(413, "", "too large")])
async def test_giving_up_is_counted_told_and_not_repeated(error: Exception) -> None:
    async with bench(failing(error)) as it:
        await it.changed(item("a"))
        await it.clock.advance(5000)
        assert it.runs == [A]
        assert it.total("controller_runtime_terminal_reconcile_errors_total") == 1
        assert it.warnings == [("ns/a", type(error).__name__)]
        await it.changed(item("a", 2))
        assert it.runs == [A, A]


def missing(name: str, kind: str) -> Exception:
    return api_error(404, "NotFound", "gone", {"name": name, "kind": kind})


@pytest.mark.parametrize(
    ("error", "within", "results", "logged"),
    [
        (Conflict(409, "Conflict", "newer"), 0.005, {"requeue": 1, "success": 1}, ["INFO"]),
        (missing("a", "configmaps"), 100, {"success": 1}, []),
        (missing("other", "secrets"), 1, {"error": 1, "success": 1}, ["ERROR"]),
    ],
    ids=["a lost race", "the object deleted meanwhile", "something else that is missing"],
)
async def test_what_an_error_of_the_server_comes_to(
    error: Exception,
    within: float,
    results: dict[str, float],
    logged: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "elasticjob.kube.controller.controller")
    async with bench(failing(error)) as it:
        await it.changed(item("a"))
        await it.clock.advance(within)
        assert it.results() == results
        assert [record.levelname for record in caplog.records] == logged


async def test_an_undecodable_object_is_told_and_the_others_run() -> None:
    async def act(found: Key) -> None:
        it.maps.get(found)

    async with bench(act) as it:
        await it.changed(as_item(manifest("bad") | {"data": [5]}), item("b"))
        await it.clock.advance(100)
        assert it.runs == [A._replace(name="bad"), B]
        assert it.warnings == [("ns/bad", "Undecodable")]
        assert it.results() == {"error": 1, "success": 1}


async def test_a_run_that_takes_too_long_is_ended_and_repeated() -> None:
    async def act(_: Key) -> None:
        if len(it.runs) == 1:
            await asyncio.Event().wait()

    async with bench(act, timeout=timedelta(seconds=30)) as it:
        await it.changed(item("a"))
        await it.clock.advance(31)
        assert len(it.runs) == 2
        assert it.total("controller_runtime_reconcile_timeouts_total") == 1


async def test_a_cancelled_worker_ends_and_counts_nothing() -> None:
    async def act(_: Key) -> None:
        await asyncio.Event().wait()

    async with bench(act) as it:
        await it.changed(item("a"))
        it.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await it.task
        assert it.results() == {}


async def test_a_cancelled_future_that_a_run_awaits_costs_no_worker() -> None:
    async def act(_: Key) -> None:
        if len(it.runs) == 1:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

    async with bench(act, concurrency=1) as it:
        await it.changed(item("a"))
        await it.clock.advance(1)
        assert it.results() == {"error": 1, "success": 1}
        assert it.total("controller_runtime_reconcile_panics_total") == 1


BUSY = api_error(429, "TooManyRequests", "later", retry_after=20.0)


@pytest.mark.parametrize(
    ("error", "failures", "pause"),
    [(Unreachable("away"), 30, 2), (BUSY, 1, 20), (BUSY, 30, 30), (RuntimeError("bug"), 30, 1000)],
)
async def test_keys_wait_less_for_the_server_than_for_themselves(
    error: Exception, failures: int, pause: float
) -> None:
    async with bench(failing(*[error] * failures)) as it:
        await it.changed(item("a"))
        while len(it.runs) < failures:
            await it.clock.advance(it.clock.next_due or 0)
        assert it.clock.next_due == pause


async def test_drain_lets_runs_in_flight_finish_and_starts_no_more() -> None:
    gate, finished = asyncio.Event(), list[Key]()

    async def act(found: Key) -> None:
        await gate.wait()
        finished.append(found)

    async with bench(act, concurrency=1) as it:
        await it.changed(item("a"), item("b"))
        it.runner.drain()
        gate.set()
        await it.clock.settle()
        assert finished == [A]


async def test_changes_that_do_not_matter_are_passed_over() -> None:
    async with bench(when=generation_changed) as it:
        await it.changed(item("a", 1, generation=1), item("a", 2, generation=1))
        await it.changed(item("a", 3, generation=2))
        await it.changed(item("a", 4, generation=2, deletionTimestamp="2026-01-01T00:00:00Z"))
        await it.feed(it.maps, Removed(item("a", 5)))
        assert len(it.runs) <= 4
        it.runs.clear()
        await it.changed(item("a", 6, generation=1), item("a", 7, generation=1, labels={"x": "y"}))
        assert len(it.runs) == 1


def made(kind: Kind[Any], version: int) -> writes.Written:
    return writes.Written(kind, key("s"), version, {})


def writing(*notes: writes.Written) -> Act:
    """The first run writes this, and no later one anything."""
    left = list(notes)

    async def act(_: Key) -> None:
        while left:
            writes.note(left.pop(0))

    return act


async def test_a_key_waits_until_the_cache_has_seen_its_writes_and_others_go_on() -> None:
    async with bench(writing(made(SECRET, 50))) as it:
        await it.changed(item("a", 1))
        await it.changed(item("a", 2), item("b", 3))
        assert it.runs == [A, B]
        await it.feed(it.secrets, Upserted(as_item(owned("s", "a", 50))))
        assert it.runs == [A, B, A]


CHILD = as_item(owned("s", "a", 5))
ANOTHER = as_item(owned("s", "a", 9) | {"metadata": {**manifest("s", 9)["metadata"], "uid": "another"}})
GONE = writes.Written(SECRET, CHILD.key, gone=CHILD.meta.uid)
AT_50 = Upserted(as_item(owned("s", "a", 50)))
UNTIL_6 = Removed(as_item(owned("s", "a", 6)))
Shown = Sequence[Event]
GATES: dict[str, tuple[list[writes.Written], Shown, list[tuple[Shown, int]]]] = {
    "a bookmark": ([made(SECRET, 50)], [Advanced("49")], [([], 1), ([Advanced("60")], 2)]),
    "a deletion": ([made(SECRET, 50)], [Advanced("49")], [([], 1), ([Removed(item("x", 61))], 2)]),
    "a relist": ([made(SECRET, 50)], [Advanced("49")], [([], 1), ([Restarted(), Synced("62")], 2)]),
    "a storage that went back in time": (
        [made(SECRET, 50)],
        [Advanced("49")],
        [([], 1), ([Restarted(), Synced("7")], 2)],
    ),
    "a relist that began before the write does not open it": (
        [made(SECRET, 50)],
        [Restarted(), Synced("40"), Restarted()],
        [([Synced("49")], 1), ([AT_50], 2)],
    ),
    "the cache lets go of what the run deleted": ([GONE], [Upserted(CHILD)], [([], 1), ([UNTIL_6], 2)]),
    "the cache shows what the run made and deleted": (
        [made(SECRET, 5), GONE],
        [],
        [([Upserted(CHILD)], 1), ([UNTIL_6], 2)],
    ),
    "a deletion that the cache has shown already": ([GONE], [Upserted(ANOTHER)], [([], 2)]),
    "a cache of a kind that makes no runs, which may be read": (
        [made(SERVICE, 50)],
        [],
        [([], 1), ([Upserted(as_item(manifest("s", 50)))], 2)],
    ),
}
"""What opens the gate of a key: what its first run wrote, what that kind's cache knew, and what it shows
then, with the number of runs after it."""


@pytest.mark.parametrize(("written", "known", "then"), GATES.values(), ids=GATES)
async def test_a_key_waits_until_the_cache_has_shown_what_it_wrote(
    written: list[writes.Written], known: Shown, then: list[tuple[Shown, int]]
) -> None:
    async with bench(writing(*written)) as it:
        cache = it.services if written[0].kind is SERVICE else it.secrets
        for event in known:
            cache.take(event)
        await it.changed(item("a", 1))
        await it.changed(item("a", 2))
        for events, runs in then:
            await it.feed(cache, *events)
            assert len(it.runs) == runs


async def test_gates_of_keys_that_never_come_again_are_let_go() -> None:
    async def act(found: Key) -> None:
        writes.note(writes.Written(SECRET, found, 50, {}))

    async with bench(act) as it:
        for number in range(2 * KEPT):
            await it.changed(item(f"k{number}"))
            await it.clock.advance(PATIENCE / 8)
        assert len(it.runner._gates) < KEPT + 2


async def test_the_gate_does_not_wait_forever() -> None:
    async with bench(writing(made(SECRET, 50))) as it:
        await it.changed(item("a", 1))
        await it.changed(item("a", 2))
        await it.clock.advance(PATIENCE - 0.1)
        assert len(it.runs) == 1
        await it.clock.advance(0.2)
        assert len(it.runs) == 2
        assert it.total("elasticjob_kube_gate_timeouts_total") == 1


async def test_writes_that_no_cache_can_show_are_not_waited_for() -> None:
    async with bench(writing(made(SECRET, 50))) as it:
        it.secrets.namespace = "other"
        await it.changed(item("a", 1))
        await it.changed(item("a", 2))
        assert len(it.runs) == 2


async def test_metrics_begin_at_zero() -> None:
    async with bench() as it:
        assert it.total("controller_runtime_reconcile_total", result="error") == 0
        assert it.total("controller_runtime_max_concurrent_reconciles") == 4
        assert (
            it.metrics.registry.get_sample_value(
                "workqueue_unfinished_work_seconds", {"name": "c", "controller": "c"}
            )
            == 0
        )


async def test_what_predicates_and_maps_raise_costs_one_object(caplog: pytest.LogCaptureFixture) -> None:
    def picky(change: Change) -> bool:
        assert change.new is None or change.new.meta.name != "odd"
        return True

    def keys_of(node: Any) -> Sequence[Key]:
        return [Key("ns", name) for name in node.metadata.labels if 1 / len(name.strip("x"))]

    async with bench(when=picky, watches=((NODE, keys_of, picky),)) as it:
        await it.changed(item("odd"), item("b"))
        for name, label in (("odd", "d"), ("n-x", "x"), ("n-c", "c")):
            await it.feed(it.nodes, Upserted(as_item(manifest(name, namespace="", labels={label: ""}))))
        assert it.runs == [key("odd"), B, key("d"), key("c")]
        assert it.total("controller_runtime_reconcile_panics_total") == 3
        assert not it.task.done()
    assert [record.getMessage() for record in caplog.records] == ["a change could not be looked at"] * 3


async def test_an_object_whose_runs_always_raise_is_told_and_waited_for() -> None:
    async def act(of: Key) -> None:
        if of == A:
            raise OverflowError("date value out of range")

    async with bench(act) as it:
        await it.changed(item("a"), item("b"))
        await it.clock.advance(60)
        assert it.warnings
        assert set(it.warnings) == {("ns/a", "ReconcileFailed")}
        assert it.runs.count(A) < 20  # the pauses double
        assert it.runs.count(B) == 1
        assert not it.task.done()
