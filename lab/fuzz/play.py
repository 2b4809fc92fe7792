"""Sends random requests to a listener, and looks at its responses, log, state and file descriptors."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from lab.fuzz.listeners import Listener, Open
from lab.fuzz.requests import request
from lab.waiting import PATIENCE, until

AT_ONCE: Final = 32
"""Connections that are open at a time."""
FIRST, QUIET = 0.1, 0.02
"""Seconds that a first response is waited for (half a request gets none), and another one."""
CHECK_EVERY: Final = 200
STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3}) ")
HANDLER_FAILED: Final = b'"code":500'
"""In the response to a review that came with status 200."""
STOPPING: Final = b'"code":"stopping"'
"""The one response from 500 on that a client's request may bring: the job has its verdict."""


@dataclass
class Found:
    """What came of the requests to one listener."""

    listener: str
    requests: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    files: tuple[int, int] = (0, 0)
    seconds: float = 0.0

    def __str__(self) -> str:
        counts = ", ".join(f"{answer}: {count:,}" for answer, count in sorted(self.answers.items()))
        files = f", file descriptors {self.files[0]} -> {self.files[1]}" if any(self.files) else ""
        head = f"{self.listener}: {self.requests:,} requests in {self.seconds:.0f} s ({counts})"
        return f"{head}{files}, {len(self.wrong)} faults"


async def play(listener: Listener, numbers: range, seed: str = "1", first: float = FIRST) -> Found:
    """Send the requests of these numbers; every fault names the number that brings it about again."""
    found, began = Found(listener.name, len(numbers)), time.monotonic()
    left = iter(numbers)
    async with listener.open() as at:
        await _exchanged(at.port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")  # what a first request opens
        before = _files()
        with faults(found.wrong):
            async with asyncio.TaskGroup() as tasks:
                for _ in range(AT_ONCE):
                    tasks.create_task(_sender(listener, at, left, seed, first, found))
            found.files = before, await _files_at_rest(before)
    if found.files[1] > before:
        found.wrong.append(f"{found.files[1] - before} file descriptors more than before")
    found.seconds = time.monotonic() - began
    return found


async def _sender(
    listener: Listener, at: Open, left: Iterator[int], seed: str, first: float, found: Found
) -> None:
    for number in left:
        data = request(listener.calls, random.Random(f"{seed}/{listener.name}/{number}"))
        received = await _exchanged(at.port, data, first)
        statuses = [status.decode() for status in STATUS.findall(received)]
        found.answers.update(statuses)
        failed = any(status >= "500" and status != "501" for status in statuses) and STOPPING not in received
        if failed or HANDLER_FAILED in received:
            found.wrong.append(f"request {number}: {received[:200]!r} is the response to {data[:2000]!r}")
        if number % CHECK_EVERY == 0:
            found.wrong += [f"before request {number}: {sentence}" for sentence in at.check()]


async def _exchanged(port: int, data: bytes, first: float = PATIENCE) -> bytes:
    """Send, and return what comes until the connection ends, or nothing more comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received = b""
    try:
        writer.write(data)
        while not reader.at_eof():
            async with asyncio.timeout(QUIET if received else first):  # wait_for swallows ^C at times
                received += await reader.read(1 << 16)
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.transport.abort()
    return received


@contextmanager
def faults(wrong: list[str]) -> Iterator[None]:
    """Take a traceback in the log, and the end of a thread by an error, for faults."""

    class Faults(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info or record.levelno >= logging.ERROR:
                wrong.append(f"in the log: {logging.Formatter().format(record)[-2000:]}")

    def ended(given: threading.ExceptHookArgs) -> None:
        wrong.append(f"thread {given.thread and given.thread.name}: {given.exc_value!r}")

    handler, before = Faults(), threading.excepthook
    logging.getLogger().addHandler(handler)
    threading.excepthook = ended
    try:
        yield
    finally:
        threading.excepthook = before
        logging.getLogger().removeHandler(handler)


async def _files_at_rest(before: int) -> int:
    """Return the number of open files once all connections have closed, or when patience ends."""

    with suppress(AssertionError):
        await until(lambda: _files() <= before, "all connections have closed")
    return _files()


def _files() -> int:
    return len(os.listdir("/proc/self/fd"))
