"""Operators and other work in this process, until the end of a block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from elasticjob.kube.operator.operator import Operator

T = TypeVar("T")


@asynccontextmanager
async def running(operator: Operator) -> AsyncIterator[Operator]:
    """Run an operator; the block begins when all of it has started. An error of its start is raised."""
    task, started = asyncio.create_task(operator.run()), asyncio.create_task(operator.wait_started())
    try:
        await asyncio.wait((started, task), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            yield operator
    finally:
        started.cancel()
        operator.stop()
        await task


@asynccontextmanager
async def beside(*works: Coroutine[Any, Any, T]) -> AsyncIterator[list[asyncio.Task[T]]]:
    """Do work beside the block, at whose end what still runs is cancelled, and an error of it is raised."""
    tasks = [asyncio.create_task(each) for each in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
