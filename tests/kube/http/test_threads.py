"""Plain functions in threads: as many as there are threads, in turn, and none that nobody waits for."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from elasticjob.kube.http.threads import Threads
from lab.waiting import PATIENCE
from tests.kit.kube.stub import until


@pytest.fixture
def two() -> Threads:
    return Threads(2, "two")


async def test_what_a_function_returns_or_raises_is_handed_over(two: Threads) -> None:
    assert await two.run(lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        await two.run(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(two.run(lambda: next(iter([]))), PATIENCE)


async def test_no_more_run_than_there_are_threads_and_who_gave_up_is_not_run(two: Threads) -> None:
    go, began = threading.Event(), list[int]()

    def wait(number: int) -> int:
        began.append(number)
        go.wait(PATIENCE)
        return number

    tasks = [asyncio.create_task(two.run(partial(wait, number))) for number in range(4)]
    await until(lambda: len(began) == 2)
    tasks[2].cancel()
    await asyncio.wait({tasks[2]})
    assert sorted(began) == [0, 1]
    go.set()
    assert [await tasks[number] for number in (0, 1, 3)] == [0, 1, 3]
    assert sorted(began) == [0, 1, 3]
