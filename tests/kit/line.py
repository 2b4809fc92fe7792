"""A TCP proxy between a client and a server that a test can cut: all its connections are reset at once."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from elasticjob.kube.http.sockets import refuse


class Line:
    """Forwards bytes of TCP connections from a port of its own to `port` on this machine."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Where it listens."""
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        refuse(self._server.sockets)
        await asyncio.sleep(0)
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> int:
        """Reset all connections, both ways; return how many there were."""
        count = len(self._open) // 2
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()
        return count

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            there, thither = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # connection refused: passed on as a reset
            writer.transport.abort()
            return
        self._open |= {writer, thither}
        try:
            await asyncio.gather(_copy(reader, thither), _copy(there, writer))
        finally:
            self._open -= {writer, thither}
            for end in (writer, thither):
                end.transport.abort()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy until one side is closed or reset."""
    try:
        while piece := await source.read(65536):
            sink.write(piece)
            await sink.drain()
    except ConnectionError:
        pass
    finally:
        sink.close()
