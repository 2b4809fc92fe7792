"""The node check, from the agent's side: run the payload alone, then with whom the master says.

The payload's processes stay for all turns, since starting one means to import torch. One that fails or takes
too long is killed with the others, and started again for the next turn.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from elasticjob.api.rpc.check import Check, Next, Part, Peer
from elasticjob.api.rpc.message import Message, decode_as
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.agent.group import Terms
from elasticjob.trainer.agent.processes.beside import lines_of, spawn
from elasticjob.trainer.link.master import MasterClient

log = logging.getLogger("elasticjob.agent")

PAYLOAD: Final = (sys.executable, "-P", str(Path(__file__).parents[2] / "torch" / "payload.py"))
LIMIT: Final = 300.0  # seconds for one turn
FAILED: Final = 201  # exit code: this machine is broken, run this pod on another one
LONGEST: Final = 2048  # characters of an error


class Task(Message, frozen=True, kw_only=True):
    """One turn of one process of the payload; without `alone`, the group is of several nodes."""

    rank: int
    size: int
    local: int
    address: str
    port: int
    alone: bool
    limit: float


class Result(Message, frozen=True, kw_only=True):
    """The result of one process, or the worst of several."""

    seconds: float = 0.0
    error: str = ""
    device: str = ""


async def check(master: MasterClient, terms: Terms, bench: Bench) -> Next:
    """Take part in the check until this node has passed or is excluded."""
    turn, result, again = 0, Result(), True
    while True:
        with reserve(terms.address) as port:
            if again:
                log.info("node check: the payload runs alone")
                turn, result = 0, await bench.run(alone(bench.slots, terms.address, port))
            asked = question(terms, bench.slots, port, turn, result)
            found = await master.call(asked)
            if found.part in (Part.PASSED, Part.EXCLUDED):
                return found
            again = found.part is Part.ALONE
            if not again:
                others = ", ".join(peer.node for peer in found.peers if peer.node != terms.node)
                log.info("node check: the payload runs with %s", others)
                turn, result = found.turn, await bench.run(together(found.peers, terms.node))


class Bench:
    """The payload's processes on this node."""

    def __init__(
        self, command: Sequence[str], slots: int, environment: Mapping[str, str], limit: float = LIMIT
    ) -> None:
        self.slots = slots
        self._command, self._environment, self._limit = tuple(command), dict(environment), limit
        self._processes: list[tuple[subprocess.Popen[bytes], asyncio.StreamReader]] = []

    async def run(self, tasks: Sequence[Task]) -> Result:
        """Return the worst result of one turn; what goes wrong is an error in it."""
        result = await self._try(tasks)
        if result.error:
            self.close()
        return result

    def close(self) -> None:
        """Kill the processes."""
        for process, _ in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdin:
                process.stdin.close()
        self._processes = []

    async def _try(self, tasks: Sequence[Task]) -> Result:
        try:
            async with asyncio.timeout(self._limit):
                return worst(await self._results(tasks))
        except TimeoutError:
            return Result(error=f"no result within {self._limit:.0f} s")
        except (OSError, EOFError, *UNREADABLE) as error:
            return Result(error=f"the payload gave no result: {error}"[:LONGEST])

    async def _results(self, tasks: Sequence[Task]) -> list[Result]:
        while len(self._processes) < len(tasks):
            process = spawn(self._command, self._environment)
            self._processes.append((process, await lines_of(process)))
        for (process, _), task in zip(self._processes, tasks, strict=True):
            if process.stdin:
                limited = msgspec.structs.replace(task, limit=self._limit)
                process.stdin.write(msgspec.json.encode(limited) + b"\n")
        return await asyncio.gather(*(read(reader) for _, reader in self._processes))


async def read(reader: asyncio.StreamReader) -> Result:
    """Return the next result of a process; EOFError if it has ended."""
    line = await reader.readline()
    if not line:
        raise EOFError("it ended")
    return decode_as(line, Result)


def worst(results: Sequence[Result]) -> Result:
    """Return the first error, else the longest time."""
    failed = next((result for result in results if result.error), None)
    return failed or max(results, key=lambda result: result.seconds)


def alone(slots: int, address: str, port: int) -> tuple[Task, ...]:
    """Return the tasks of a turn of this node alone."""
    return tuple(
        Task(rank=slot, size=slots, local=slot, address=address, port=port, alone=True, limit=LIMIT)
        for slot in range(slots)
    )


def together(peers: Sequence[Peer], me: str) -> tuple[Task, ...]:
    """Return this node's tasks of a turn with others."""
    before = 0
    for peer in peers:
        if peer.node == me:
            break
        before += peer.slots
    size, first = sum(peer.slots for peer in peers), peers[0]
    mine = next(peer.slots for peer in peers if peer.node == me)
    return tuple(
        Task(
            rank=before + slot,
            size=size,
            local=slot,
            address=first.address,
            port=first.port,
            alone=False,
            limit=LIMIT,
        )
        for slot in range(mine)
    )


def question(terms: Terms, slots: int, port: int, turn: int, result: Result) -> Check:
    """Return the report of a turn."""
    return Check(
        node=terms.node,
        role=terms.role,
        index=terms.index,
        incarnation=terms.incarnation,
        address=terms.address,
        port=port,
        slots=slots,
        device=result.device[:LONGEST],
        turn=turn,
        seconds=result.seconds,
        error=result.error[:LONGEST],
    )


@contextmanager
def reserve(address: str) -> Iterator[int]:
    """Reserve a port for the store of a turn: bound, not listening; torch's store may share it."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, 0))
        yield bound.getsockname()[1]
