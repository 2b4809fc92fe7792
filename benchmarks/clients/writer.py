"""Writes to an API server from a process of its own, and prints the results as one line of JSON.

    python -m benchmarks.clients.writer KUBECONFIG flood  COLLECTION COUNT          until killed
    python -m benchmarks.clients.writer KUBECONFIG pace   COLLECTION COUNT RATE SECONDS
    python -m benchmarks.clients.writer KUBECONFIG record COLLECTION COUNT FILE     a watch of it, into a file

COLLECTION is the path of pods or ConfigMaps, whose names end in numbers below COUNT. `flood` writes as fast
as the server accepts, `pace` at a rate per second, `record` twice to each.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from benchmarks.clients.load import IN_FLIGHT, MERGE, Plain, plain
from benchmarks.clients.peers.server import CHANGED, DONE, WATCH
from benchmarks.clients.replay import PODS, Recording

SEED = 1
RUN = secrets.token_hex(4)
"""Makes every write a change: a write of the present value causes no event."""


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Answer(msgspec.Struct):
    metadata: _Meta


async def flood(server: Plain, collection: str, count: str) -> None:
    """Change objects in turn, as fast as the server takes it."""
    turns = itertools.count()

    async def work() -> None:
        while True:
            turn = next(turns)
            await _touch(server, collection, turn % int(count), turn)

    async with asyncio.TaskGroup() as workers:
        for _ in range(IN_FLIGHT):
            workers.create_task(work())


async def pace(
    server: Plain, collection: str, count: str, rate: str, seconds: str
) -> list[tuple[str, str, float]]:
    """Change objects by chance at a steady rate; returns which had which version, and when that was known."""
    chance, found = random.Random(SEED), list[tuple[str, str, float]]()

    async def write(turn: int) -> None:
        number = chance.randrange(int(count))
        version = await _touch(server, collection, number, turn)
        found.append((_name(collection, number), version, time.monotonic()))

    loop, gap = asyncio.get_running_loop(), 1 / float(rate)
    began = loop.time()
    async with asyncio.TaskGroup() as writes:
        for turn in range(round(float(rate) * float(seconds))):
            await asyncio.sleep(began + turn * gap - loop.time())
            writes.create_task(write(turn))
    return found


async def record(server: Plain, collection: str, count: str, file: str) -> int:
    """Change each pod twice, and write down what a watch says of it."""
    answers, lines = await _answers(server), server.lines(f"{PODS}?{WATCH}")
    initial, changes, wanted = list[bytes](), list[bytes](), 2 * int(count)
    async for line in lines:
        initial.append(line)
        if DONE in line:
            break

    async def watch() -> None:
        async for line in lines:
            changes.extend([line] if line.startswith(CHANGED) else [])
            if len(changes) == wanted:
                return

    async with asyncio.TaskGroup() as both:
        both.create_task(watch())
        for turn in range(wanted):
            if turn % IN_FLIGHT == 0:
                await asyncio.sleep(0)
            await _touch(server, collection, turn % int(count), turn)
    Recording(answers, initial, changes).save(Path(file))
    return len(changes)


async def _answers(server: Plain) -> dict[str, bytes]:
    """Return the responses that clients need before they watch pods: discovery, and a few lists."""
    paths = [PODS, "/version", "/api", "/apis", "/api/v1", "/api/v1/namespaces"]
    paths += ["/apis/apiextensions.k8s.io/v1/customresourcedefinitions"]
    groups = json.loads(await server.send("GET", "/apis"))["groups"]
    paths += [f"/apis/{version['groupVersion']}" for group in groups for version in group["versions"]]
    return {path: await server.send("GET", path) for path in paths}


async def _touch(server: Plain, collection: str, number: int, turn: int) -> str:
    """Change an object; returns its new version."""
    body = {"metadata": {"annotations": {"round": f"{RUN} {turn}"}}}
    answer = await server.send("PATCH", f"{collection}/{_name(collection, number)}", body, MERGE)
    return msgspec.json.decode(answer, type=_Answer).metadata.resource_version


def _name(collection: str, number: int) -> str:
    return f"{'pod' if collection.endswith('pods') else 'map'}-{number:05}"


WAYS: dict[str, Callable[..., Awaitable[object]]] = {"flood": flood, "pace": pace, "record": record}


async def main(kubeconfig: str, way: str, *args: str) -> None:
    """Write as asked and print the result."""
    async with plain(Path(kubeconfig), "bench-writer") as server:
        print(json.dumps(await WAYS[way](server, *args)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
