"""Plain functions called in a few threads that hold up nobody: neither the event loop nor the process's end.

The interpreter waits for the threads of a ThreadPoolExecutor before it exits, so one function that never
returns would keep a process until it is killed. These threads end with the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

R = TypeVar("R")
Call = tuple["Future[Any]", Callable[[], Any]]


class Threads:
    """At most `limit` of them, made as they are needed. Functions wait in line for one that is free."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._free = threading.Semaphore(0)
        self._made = 0

    async def run(self, function: Callable[[], R], /) -> R:
        """What `function` returns or raises; RuntimeError for a StopIteration.

        Cancelled while it waits in line, it is not called at all.
        """
        future: Future[R] = Future()
        self._calls.put((future, function))
        if not self._free.acquire(blocking=False) and self._made < self._limit:
            self._made += 1
            name = f"{self._name}-{self._made}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Give up the calls in line, and have each thread end after its call; nothing may be run any more."""
        with suppress(Empty):
            while call := self._calls.get_nowait():
                call[0].cancel()
        for _ in range(self._made):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            _answer(*call)
            del call  # what was called with is not kept until the next call
            self._free.release()


def _answer(future: Future[Any], function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except StopIteration as error:  # a future takes none: whoever waits would do so for ever
        future.set_exception(_told(error))
    except BaseException as error:  # it is for whoever waits
        future.set_exception(error)
    else:
        future.set_result(result)


def _told(error: StopIteration) -> RuntimeError:
    told = RuntimeError("the function raised StopIteration: give `next` a default")
    told.__cause__ = error
    return told
