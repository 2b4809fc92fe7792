"""Plain functions in threads: as many as there are threads, in turn, and none that nobody waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial

import pytest

from elasticjob.kube.threads import Threads
from tests.kube.stub import until

WITHIN = 60.0


@pytest.fixture
async def two() -> AsyncIterator[Threads]:
    threads = Threads(2, "two")
    yield threads
    threads.close()


async def test_what_a_function_returns_or_raises_is_handed_over(two: Threads) -> None:
    assert await two.run(lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        await two.run(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(two.run(lambda: next(iter([]))), WITHIN)


async def test_a_thread_that_is_free_is_used_again(two: Threads) -> None:
    names = {await two.run(lambda: threading.current_thread().name) for _ in range(20)}
    assert names <= {"two-1", "two-2"}


async def test_no_more_run_than_there_are_threads_and_who_gave_up_is_not_run(two: Threads) -> None:
    go, began = threading.Event(), list[int]()

    def wait(number: int) -> int:
        began.append(number)
        go.wait(WITHIN)
        return number

    tasks = [asyncio.create_task(two.run(partial(wait, number))) for number in range(4)]
    await until(lambda: len(began) == 2, within=WITHIN)
    tasks[2].cancel()
    await asyncio.wait({tasks[2]})
    assert sorted(began) == [0, 1]
    go.set()
    assert [await tasks[number] for number in (0, 1, 3)] == [0, 1, 3]
    assert sorted(began) == [0, 1, 3]


async def test_closed_the_threads_end_and_one_that_hangs_is_a_daemon() -> None:
    threads, go = Threads(2, "closing"), threading.Event()
    hangs = asyncio.create_task(threads.run(lambda: go.wait(WITHIN)))
    await asyncio.sleep(0)
    found = await threads.run(threading.current_thread)
    threads.close()
    await asyncio.to_thread(found.join, WITHIN)
    assert not found.is_alive()
    others = [each for each in threading.enumerate() if each.name.startswith("closing")]
    assert [each.daemon for each in others] == [True]
    go.set()
    assert await hangs


async def test_closed_what_waits_in_line_is_given_up() -> None:
    threads, began, go = Threads(1, "line"), threading.Event(), threading.Event()

    def busy() -> bool:
        began.set()
        return go.wait(WITHIN)

    first = asyncio.create_task(threads.run(busy))
    await until(began.is_set, within=WITHIN)
    second = asyncio.create_task(threads.run(pytest.fail))
    await asyncio.sleep(0)
    threads.close()
    await asyncio.wait({second}, timeout=WITHIN)
    assert second.cancelled()
    go.set()
    assert await first
