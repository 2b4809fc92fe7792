"""A TCP proxy before servers of this machine: a stand-in for a Service, and a line that a test can cut."""

from __future__ import annotations

import asyncio
import itertools
from types import TracebackType
from typing import Self

from elasticjob.kube.http.sockets import refuse


class Switch:
    """`async with Switch() as switch`; new connections go in turn to `ports`, of servers on loopback."""

    def __init__(self, *ports: int) -> None:
        self.ports = list(ports)
        self.connections = 0
        self._turn = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    @property
    def port(self) -> int:
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    def cut(self) -> int:
        """Reset all connections, both ways; return how many ends there were."""
        for writer in self._writers:
            writer.transport.abort()
        return len(self._writers)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        refuse(self._server.sockets)
        await asyncio.sleep(0)
        self._server.close()
        for _ in range(4):  # turns of the loop, after which who was accepted just now is among the tasks
            await asyncio.sleep(0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:  # also those of tasks that had not begun
            writer.transport.abort()
        await asyncio.sleep(0)  # what was aborted is closed by the next turn of the loop
        await self._server.wait_closed()

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.create_task(self._join(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = self.ports[next(self._turn) % len(self.ports)]
        writers = [writer]
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(inner_writer)
            self._writers.add(inner_writer)
            both = _pass_on(reader, inner_writer), _pass_on(inner_reader, writer)
            await asyncio.gather(*both, return_exceptions=True)
        except OSError:  # as a Service whose last server has gone
            pass
        finally:
            for each in writers:
                each.transport.abort()
            self._writers.difference_update(writers)
            await asyncio.sleep(0)  # what was aborted is closed by the next turn of the loop


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    except (ConnectionError, OSError):
        writer.transport.abort()
