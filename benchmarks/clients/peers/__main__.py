"""One measurement of one peer, in a process of its own.

    python -m benchmarks.clients.peers MEASURE PEER KUBECONFIG ARGS…

It prints "ready" for measurements that the caller starts, and the figures as one line of JSON at the end.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psutil

from benchmarks.clients.peers import Peer, connect, server
from benchmarks.figures import peak

TICK = 0.001
SETTLE = 1.0
"""Seconds between the first sign of life and the measured time."""


@dataclass
class Stalls:
    """Measures how long the event loop blocks a task that wants to run every millisecond."""

    longest: float = 0.0

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Watch while the block lasts."""
        ticking = asyncio.create_task(self._tick())
        await asyncio.sleep(5 * TICK)
        self.longest = 0.0
        try:
            yield
        finally:
            await asyncio.sleep(5 * TICK)  # or a stall that lasts to the end is not seen
            ticking.cancel()

    async def _tick(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last - TICK), now


@dataclass
class Counter:
    """Counts reported objects, with the times of the first and the last."""

    wanted: int = 0
    count: int = 0
    began: tuple[float, float] = (0.0, 0.0)
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def saw(self, name: str, version: str) -> None:
        """Count one."""
        if self.count == 0:
            self.began = _clocks()
        self.count += 1
        if self.count == self.wanted:
            self.reached.set()


def _clocks() -> tuple[float, float]:
    return time.monotonic(), time.process_time()


async def fill(peer: Peer, count: str) -> dict[str, float]:
    """Measure how the peer takes all pods into memory."""
    gc.collect()
    process, stalls = psutil.Process(), Stalls()
    before = process.memory_info().rss
    async with stalls.watched():
        began = _clocks()
        kept = await peer.fill(int(count))
        ended = _clocks()
    resident = process.memory_info().rss
    found = {
        "seconds": ended[0] - began[0],
        "cpu_seconds": ended[1] - began[1],
        "megabytes": (resident - before) / 1e6,
        "peak_megabytes": (peak() - before) / 1e6,
        "stall_ms": stalls.longest * 1e3,
    }
    del kept
    return found


async def listed(peer: server.Peer, way: str, how: str) -> float:
    """Measure how long the server takes to list all pods, in one or several responses."""
    began = time.monotonic()
    await (peer.pages(how) if way == "pages" else peer.whole(how))
    return time.monotonic() - began


async def replayed(peer: Peer, events: str) -> dict[str, float]:
    """Measure how fast the peer takes a stream of so many changes."""
    counter = Counter(int(events))
    async with _running(peer.follow(counter.saw)) as failed:
        await _first(counter.reached.wait(), failed)
        seconds, cpu = (now - then for now, then in zip(_clocks(), counter.began, strict=True))
    return {"per_second": counter.count / seconds, "cpu_us": cpu / counter.count * 1e6}


async def live(peer: Peer, seconds: str) -> dict[str, float]:
    """Measure how the peer keeps up with live changes by a writer."""
    counter = Counter(1)
    async with _running(peer.follow(counter.saw)) as failed:
        print('"ready"', flush=True)
        await _first(counter.reached.wait(), failed)
        return await _window(counter, float(seconds), failed)


async def reconciled(
    peer: Peer, namespace: str, workers: str, windows: str, seconds: str
) -> list[dict[str, float]]:
    """Measure how many reconciles with one write each the peer makes, several times over."""
    counter = Counter(1)
    work = peer.reconcile(namespace, int(workers), counter.saw, write=True)
    async with _running(work) as failed:
        await _first(counter.reached.wait(), failed)
        return [await _window(counter, float(seconds), failed, n == 0) for n in range(int(windows))]


async def started(peer: Peer, namespace: str, workers: str) -> list[tuple[str, str, float]]:
    """Report when the handling of each version of each object began, until a line comes on stdin."""
    found: list[tuple[str, str, float]] = []

    def saw(name: str, version: str) -> None:
        found.append((name, version, time.monotonic()))

    async with _running(peer.reconcile(namespace, int(workers), saw, write=False)) as failed:
        print('"ready"', flush=True)
        await _first(asyncio.to_thread(sys.stdin.readline), failed)
    return found


async def _window(
    counter: Counter, seconds: float, failed: asyncio.Task[Any], settle: bool = True
) -> dict[str, float]:
    if settle:
        await _first(asyncio.sleep(SETTLE), failed)
    count, began = counter.count, _clocks()
    await _first(asyncio.sleep(seconds), failed)
    took, cpu = (now - then for now, then in zip(_clocks(), began, strict=True))
    made = counter.count - count
    return {"per_second": made / took, "cpu_us": cpu / made * 1e6 if made else float("nan")}


@asynccontextmanager
async def _running(work: Any) -> AsyncIterator[asyncio.Task[Any]]:
    """Run what never ends by itself while the block lasts."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=1)


async def _first(awaited: Awaitable[Any], failed: asyncio.Task[Any]) -> None:
    """Wait for something; raises what ended the peer before."""
    waiting = asyncio.ensure_future(awaited)
    await asyncio.wait({waiting, failed}, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        failed.result()
        raise RuntimeError("the peer ended by itself")


MEASURES: dict[str, Callable[..., Awaitable[Any]]] = {
    measure.__name__: measure for measure in (fill, listed, replayed, live, reconciled, started)
}


async def main(measure: str, peer: str, kubeconfig: str, *args: str) -> None:
    """Measure once and print the figures."""
    logging.basicConfig(level=logging.WARNING)
    async with connect(peer, kubeconfig) as opened:
        print(json.dumps(await MEASURES[measure](opened, *args)), flush=True)
        sys.stdout.flush()
        psutil.Process().kill()  # skip the shutdown of slow peers: the figures are printed


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
