"""The workqueue, in virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.controller.queue import LOW, Queue
from elasticjob.kube.metrics import Metrics, QueueMeter
from lab.waiting import PATIENCE


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def queue(clock: VirtualClock) -> Queue[str]:
    return Queue(clock, chance=lambda: 0.0)


async def taken(queue: Queue[str]) -> str | None:
    """The next key if there is one now."""
    getting = asyncio.ensure_future(queue.get())
    for _ in range(3):
        await asyncio.sleep(0)
    if not getting.done():
        getting.cancel()
        return None
    found = getting.result()
    return found.key if found else None


async def drained(queue: Queue[str]) -> list[str]:
    """All keys that are ready, in order; all are done."""
    keys = []
    while (key := await taken(queue)) is not None:
        keys.append(key)
    for key in keys:
        queue.done(key)
    return keys


def add(key: str, priority: int = 0, after: float = 0.0) -> dict[str, Any]:
    return {"key": key, "priority": priority, "after": after}


ADDED: dict[str, tuple[list[dict[str, Any]], list[tuple[float, str]]]] = {
    "many adds are one run": ([add("a")] * 5, [(0, "a"), (0, "")]),
    "order is priority, then arrival": (
        [add("c", LOW), add("d", LOW), add("a"), add("b")],
        [(0, "abcd")],
    ),
    "a raised key queues behind its new peers": ([add("a", LOW), add("b"), add("a"), add("c")], [(0, "bac")]),
    "adding again never lowers a priority": ([add("a", 1), add("a", LOW), add("b")], [(0, "ab")]),
    "a delayed key waits": ([add("a", after=10)], [(9.9, ""), (0.2, "a")]),
    "delayed keys become ready in the order of their times": (
        [add("c", after=3), add("a", after=1), add("b", after=2)],
        [(5, "abc")],
    ),
    "a plain add consumes the delayed one": ([add("a", after=10), add("a")], [(0, "a"), (100, "")]),
    "the earlier of two times counts": (
        [add("a", after=10), add("a", after=2), add("a", after=30)],
        [(2, "a"), (60, "")],
    ),
}
"""Keys that are added, and those that are ready after so many more seconds."""


@pytest.mark.parametrize(("added", "ready"), ADDED.values(), ids=ADDED)
async def test_keys_are_handed_out(
    queue: Queue[str], clock: VirtualClock, added: list[dict[str, Any]], ready: list[tuple[float, str]]
) -> None:
    for each in added:
        queue.add(**each)
    for seconds, keys in ready:
        await clock.advance(seconds)
        assert "".join(await drained(queue)) == keys


async def test_a_key_in_work_is_not_handed_out_and_runs_once_more_afterwards(queue: Queue[str]) -> None:
    queue.add("a")
    assert await taken(queue) == "a"
    queue.add("a")
    queue.add("a")
    assert await taken(queue) is None
    queue.done("a")
    assert await taken(queue) == "a"
    queue.done("a")
    assert await taken(queue) is None


async def test_a_key_in_work_does_not_block_the_others(queue: Queue[str]) -> None:
    queue.add("a", priority=5)
    assert await taken(queue) == "a"
    queue.add("a", priority=5)
    queue.add("b")
    assert await taken(queue) == "b"


async def test_a_delay_that_ends_during_the_run_leads_to_another_run(
    queue: Queue[str], clock: VirtualClock
) -> None:
    queue.add("a")
    assert await taken(queue) == "a"
    queue.add("a", after=1)
    await clock.advance(2)
    assert await taken(queue) is None
    queue.done("a")
    assert await taken(queue) == "a"


async def test_causes_are_counted_each_by_itself_and_forgotten_together(queue: Queue[str]) -> None:
    pauses = [queue.add_after_failure("a", cause="away", at_most=0.02) for _ in range(9)]
    pauses += [queue.add_after_failure("a"), queue.add_after_failure("a", cause="away", at_most=0.02)]
    pauses.append(queue.add_after_failure("a"))
    assert pauses[-4:] == [0.02, 0.005, 0.02, 0.01]
    queue.forget("a")
    assert queue.add_after_failure("a", cause="away") == queue.add_after_failure("a") == 0.005


async def test_the_priority_is_handed_out_with_the_key(queue: Queue[str]) -> None:
    queue.add("a", priority=LOW)
    found = await queue.get()
    assert found is not None
    assert found.priority == LOW


async def test_close_wakes_all_who_wait_and_takes_nothing_more(
    queue: Queue[str], clock: VirtualClock
) -> None:
    getters = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.add("later", after=1)
    queue.close()
    assert await asyncio.gather(*getters) == [None, None, None]
    queue.add("a")
    await clock.advance(2)
    assert await queue.get() is None


async def test_a_cancelled_getter_passes_its_wake_up_on(queue: Queue[str]) -> None:
    first, second = asyncio.ensure_future(queue.get()), asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    found = await asyncio.wait_for(second, PATIENCE)
    assert found is not None
    assert found.key == "a"


async def test_metrics_count_ready_keys_retries_and_times(clock: VirtualClock) -> None:
    metrics = Metrics(CollectorRegistry())
    queue: Queue[str] = Queue(clock, chance=lambda: 0.0, meter=QueueMeter(metrics, "c"))
    queue.add("a")
    queue.add("a", priority=3)
    queue.add("b", after=5)
    queue.add_after_failure("c")

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"name": "c", "controller": "c"} | labels)

    assert value("workqueue_adds_total") == 1
    assert value("workqueue_retries_total") == 1
    assert value("workqueue_depth", priority="3") == 1
    assert value("workqueue_depth", priority="0") == 0
    await clock.advance(2)
    assert await taken(queue) == "a"
    assert value("workqueue_queue_duration_seconds_sum") == 2
    await clock.advance(1)
    assert queue.unfinished() == [1.0]
    queue.done("a")
    assert value("workqueue_work_duration_seconds_sum") == 1


KEYS = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS, st.integers(-1, 1), st.sampled_from([0.0, 0.0, 1.0, 2.5])),
        st.tuples(st.just("take")),
        st.tuples(st.just("done")),
        st.tuples(st.just("advance"), st.sampled_from([0.5, 1.0, 3.0])),
    ),
    max_size=60,
)


@given(STEPS)
def test_no_key_is_lost_and_none_is_in_two_hands(steps: list[tuple[Any, ...]]) -> None:
    async def scenario() -> None:
        clock = VirtualClock()
        queue: Queue[str] = Queue(clock, chance=lambda: 0.0)
        working: deque[str] = deque()
        owed: dict[str, float] = {}
        for step in steps:
            match step:
                case ("add", key, priority, after):
                    queue.add(key, priority=priority, after=after)
                    owed[key] = min(owed.get(key, 1e9), clock.monotonic() + after)
                case ("take",):
                    if key := await taken(queue):
                        assert key not in working
                        assert owed.pop(key) <= clock.monotonic()
                        working.append(key)
                case ("done",) if working:
                    queue.done(working.popleft())
                case ("advance", seconds):
                    await clock.advance(seconds)
        while working:
            queue.done(working.popleft())
        await clock.advance(10)
        assert sorted(await drained(queue)) == sorted(owed)
        assert len(queue) == 0

    asyncio.run(scenario())


async def test_pauses_that_changes_consume_leave_nothing_behind(queue: Queue[str]) -> None:
    for _ in range(5000):
        queue.add("a", after=3600)
        queue.add("a")
        assert await drained(queue) == ["a"]
    assert len(queue._waiting) < 100
