"""Thousands of agents at one master over real connections: `python -m benchmarks.services.agents`.

The master runs in a process of its own, as in a job. An agent is its messages and nothing else: it connects,
watches, joins, and keeps a Watch and a Join waiting on two connections as `trainer/link/master.py` does,
without the cost of an agent. The loads `rendezvous`, `beats` and `calls` print one JSON line for each size.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from typer import Argument, Option

from benchmarks.commands import chosen, play
from benchmarks.figures import quantile
from benchmarks.services.master import TOKEN
from elasticjob.api.rpc.message import PREFIX, Request, answer_type
from elasticjob.api.rpc.nodes import Order, Report, Usage, Watch
from elasticjob.api.rpc.rendezvous import Join, Recovery
from elasticjob.api.rpc.shards import Consumer, Dataset, Lease, Open, Outcome, Result
from lab.processes import Dialogue, Process

AGENTS: Final = (1_000, 4_000, 10_000)
CLIENTS: Final = (1, 8, 32)
KINDS: Final = ("watch", "report", "join", "shards")
SPARE: Final = 500
"""File descriptors of a process that are no connections of agents."""
SETTLE: Final = 3.0
"""Seconds until agents that only watch do so evenly."""
Sizes = Annotated[list[int] | None, Argument(min=1, help="numbers of agents or clients")]
Seconds = Annotated[float, Option(min=0.1)]
Quick = Annotated[bool, Option(help="the least number alone: whether it works")]
AT_ONCE: Final = 1_000
"""Connections that are opened at a time: the queue of a listening socket holds some thousands."""


@dataclass(frozen=True)
class Line:
    """A connection to the master that is kept, for one request at a time."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def post(self, whole: bytes) -> tuple[int, bytes]:
        """Send a request; return the status and the body of the response."""
        self.writer.write(whole)
        head = await self.reader.readuntil(b"\r\n\r\n")
        mark = head.find(b"Content-Length: ")
        length = int(head[mark + 16 : head.find(b"\r", mark)]) if mark > 0 else 0
        return int(head[9:12]), await self.reader.readexactly(length)

    async def call(self, request: Request[Any]) -> Any:
        """Return the response, None for 204."""
        status, body = await self.post(packed(request))
        if status == 204:
            return None
        if status != 200:
            raise RuntimeError(f"{type(request).__name__}: HTTP {status} {body[:300].decode()}")
        return msgspec.json.decode(body, type=answer_type(type(request)))


def packed(request: Request[Any]) -> bytes:
    """Return a whole HTTP request, with the headers that `trainer/link/master.py` sends."""
    body = msgspec.json.encode(request)
    head = (
        f"POST {PREFIX}{type(request).PATH} HTTP/1.1\r\nHost: 127.0.0.1:50001\r\n"
        f"Content-Type: application/json\r\nAccept: application/json\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Accept-Encoding: gzip, deflate\r\nUser-Agent: Python/3.11 aiohttp/3.14.5\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Lines:
    """Connections to one master, so many at a time."""

    def __init__(self, port: int) -> None:
        self._port, self._turns = port, asyncio.Semaphore(AT_ONCE)
        self._open: list[Line] = []

    async def open(self) -> Line:
        """Return a new connection."""
        async with self._turns:
            line = Line(*await asyncio.open_connection("127.0.0.1", self._port))
        self._open.append(line)
        return line

    def close(self) -> None:
        """Close all."""
        for line in self._open:
            line.writer.transport.abort()


class Agent:
    """What the master sees of an agent. With one line, it joins for two seconds at a time between Watches."""

    def __init__(self, index: int, lines: Lines, *, alone: bool) -> None:
        self.node, self._lines, self._alone = f"a-job-of-the-benchmark-worker-{index}", lines, alone
        self._who: dict[str, Any] = {
            "node": self.node,
            "role": "worker",
            "index": index,
            "incarnation": f"{index:032x}",
        }
        self.round = self.seen = 0

    async def enter(self) -> None:
        """Return once it has the world, and orders to train in it."""
        self.watching = await self._lines.open()
        trains = await self._watch()
        if self._alone:
            while not await self._join(self.watching, wait=2.0):
                await self._watch()
        else:
            ordered = asyncio.ensure_future(self._watch())
            await self._join(await self._lines.open())
            trains = await ordered
        while not trains:
            trains = await self._watch()

    async def _join(self, line: Line, wait: float = 20.0) -> bool:
        reach: dict[str, Any] = {"address": "10.0.0.1", "port": 1, "recovery": Recovery.IN_PROCESS}
        request = Join(**self._who, **reach, slots=8, wait=wait, brief=True)
        while (world := await line.call(request)) is None:
            if self._alone:
                return False
        self.round = world.round
        return True

    async def _watch(self) -> bool:
        orders = await self.watching.call(Watch(**self._who, seen=self.seen, round=self.round))
        self.seen = orders.version
        return bool(orders.order is Order.TRAIN and orders.round)

    async def watch(self) -> None:
        """Watch for ever."""
        while True:
            await self._watch()


async def rendezvous(agents: Sizes = None, quick: Quick = False) -> None:
    """How long agents take from the first connection to the last one that has its world and trains."""
    for size in agents or AGENTS[: 1 if quick else None]:
        own = time.process_time()
        async with crowd(size) as (master, _, took, alone):
            tell(
                load="rendezvous",
                agents=size,
                connections=size * (1 if alone else 2),
                seconds=round(took, 3),
                master_cpu_seconds=round(master.cpu_seconds, 3),
                agents_cpu_seconds=round(time.process_time() - own, 3),
                master_rss_mb=round(master.rss / 2**20),
            )


async def beats(agents: Sizes = None, seconds: Seconds = 3.0, quick: Quick = False) -> None:
    """How much of a core a master needs for agents in a world that only watch."""
    for size in agents or AGENTS[: 1 if quick else None]:
        async with crowd(size) as (master, watching, _, _):
            tasks = [asyncio.ensure_future(agent.watch()) for agent in watching]
            await asyncio.sleep(SETTLE)
            began, spent = time.perf_counter(), master.cpu_seconds
            await asyncio.sleep(seconds)
            took, cpu = time.perf_counter() - began, master.cpu_seconds - spent
            failed = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            tell(
                load="beats",
                agents=size,
                watches_per_second=round(size / 2.0),
                failed=len(failed),
                master_core_share=round(cpu / took, 3),
                microseconds_per_watch=round(cpu / took / (size / 2.0) * 1e6, 1),
            )


def tell(**figures: object) -> None:
    """Print the figures of a size."""
    print(json.dumps(figures), flush=True)


@asynccontextmanager
async def crowd(agents: int) -> AsyncIterator[tuple[Process, list[Agent], float, bool]]:
    """So many agents that form a world; their master, how long it took them, and whether each had one line.

    A process that may not open two connections for each has agents with one.
    """
    alone = 2 * agents > 0.75 * more_files() - SPARE
    async with AsyncExitStack() as stack:
        port, master = await stack.enter_async_context(serving(agents))
        lines = Lines(port)
        stack.callback(lines.close)
        watching = [Agent(index, lines, alone=alone) for index in range(agents)]
        began = time.perf_counter()
        await asyncio.gather(*(agent.enter() for agent in watching))
        yield master, watching, time.perf_counter() - began, alone


async def calls(
    clients: Sizes = None,
    kinds: Annotated[str, Option(help=f"some of {','.join(KINDS)}; all by default")] = "",
    seconds: Seconds = 3.0,
    quick: Quick = False,
) -> None:
    """Calls per second of clients that send the next request as soon as they have the answer."""
    for size, kind in product(clients or CLIENTS[: 1 if quick else None], chosen(kinds, KINDS)):
        spent = await durations(size, kind, seconds)
        tell(
            load="calls",
            kind=kind,
            clients=size,
            calls_per_second=round(len(spent) / seconds),
            p50_ms=round(1000 * quantile(spent, 0.5), 3),
            p99_ms=round(1000 * quantile(spent, 0.99), 3),
        )


async def durations(clients: int, kind: str, seconds: float, *, settle: float = 0.5) -> list[float]:
    """Return how long each call of so many clients takes, in the measured time."""
    spent: list[float] = []
    async with serving(clients) as (port, _):
        lines = Lines(port)
        opened = [await lines.open() for _ in range(clients)]
        async with asyncio.TaskGroup() as tasks:
            until = time.perf_counter() + seconds + settle
            for index, line in enumerate(opened):
                tasks.create_task(_call_on(line, index, kind, until - seconds, until, spent))
        lines.close()
    return spent


async def _call_on(line: Line, index: int, kind: str, begin: float, end: float, spent: list[float]) -> None:
    """Call until the end; note how long each call took that began within the measured time."""
    node, life = f"node-{index}", f"{index:032x}"
    who: dict[str, Any] = {"node": node, "incarnation": life}
    place: dict[str, Any] = {**who, "role": "worker", "index": index}
    await line.call(Watch(**place))
    if kind == "shards":
        ask = await _shards(line, node)
    else:
        reach: dict[str, Any] = {
            "slots": 1,
            "address": "10.0.0.1",
            "port": 1,
            "recovery": Recovery.IN_PROCESS,
        }
        if kind in ("join", "report"):
            await line.call(Join(**place, **reach))
        requests: dict[str, Request[Any]] = {
            "watch": Watch(**place),
            "report": Report(**who, round=1, usage=Usage(cpu=1.0, memory=2**30)),
            "join": Join(**place, **reach),
        }
        whole = packed(requests[kind])

        async def ask() -> None:
            status, _ = await line.post(whole)
            if status != 200:
                raise RuntimeError(f"{kind}: HTTP {status}")

    while (began := time.perf_counter()) < end:
        await ask()
        if began >= begin:
            spent.append(time.perf_counter() - began)


async def _shards(line: Line, node: str) -> Callable[[], Awaitable[object]]:
    """Return a call that alternates: a lease of one shard, its result."""
    who = Consumer(node=node, worker="0", life=1)
    await line.call(Open(consumer=who, dataset=Dataset(name="records", size=10**12)))
    held: list[Any] = []

    async def ask() -> None:
        if not held:
            held.extend((await line.call(Lease(consumer=who, dataset="records"))).shards)
            return
        shard = held.pop()
        done = (Outcome(number=shard.number, lease=shard.lease),)
        await line.call(Result(consumer=who, dataset="records", outcomes=done))

    return ask


@asynccontextmanager
async def serving(nodes: int) -> AsyncIterator[tuple[int, Process]]:
    """A master in a process of its own, for a job of so many nodes; its port."""
    command = [sys.executable, "-m", "benchmarks.services.master", str(nodes)]
    with tempfile.TemporaryDirectory() as folder:
        async with Dialogue("master", command, Path(folder)) as master:
            yield int(await asyncio.to_thread(master.line)), master


def more_files() -> int:
    """Raise the limit of file descriptors as far as this process may; return it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


if __name__ == "__main__":
    play(rendezvous, beats, calls)
