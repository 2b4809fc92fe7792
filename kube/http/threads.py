"""Plain functions called in daemon threads, so that one that never returns does not keep the process.

The interpreter waits for the threads of a ThreadPoolExecutor before it exits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

R = TypeVar("R")


class Threads:
    """At most `limit` functions run at once; others wait in line."""

    def __init__(self, limit: int, name: str) -> None:
        self._free = asyncio.Semaphore(limit)
        self._name = name

    async def run(self, function: Callable[[], R], /) -> R:
        """The result of `function`, or its error; RuntimeError for a StopIteration.

        Cancelled in line, it is not called; cancelled later, it holds its place until it returns.
        """
        await self._free.acquire()
        loop, future = asyncio.get_running_loop(), Future[R]()
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                future.set_result(function())
            except StopIteration as error:  # no asyncio future takes one
                told = RuntimeError("the function raised StopIteration: give `next` a default")
                told.__cause__ = error
                future.set_exception(told)
            except BaseException as error:
                future.set_exception(error)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._free.release)

        threading.Thread(target=work, name=self._name, daemon=True).start()
        return await asyncio.wrap_future(future)
