"""Replays a recorded watch as fast as the client reads it, to measure the client alone.

A recording contains the responses of a real API server: discovery, the list of pods, and the changes that
followed, one line each. They are sent over loopback, without TLS, in the server's own framing (one HTTP chunk
per event):

    GET /api/v1/pods                             the list
    GET /api/v1/pods?watch=…&sendInitialEvents   its objects as ADDED, the bookmark after them, the changes
    GET /api/v1/pods?watch=…&resourceVersion=…   the changes
    anything else                                the recorded response, 404 if there is none

After the last change the stream stays open.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import msgspec

PODS: Final = "/api/v1/pods"
PIECE: Final = 1 << 18
"""Bytes handed to the socket at once."""


STREAM: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


class Recording(msgspec.Struct, frozen=True):
    """Recorded responses: bodies by path, and the lines of a watch: what there is, then its changes."""

    answers: dict[str, bytes]
    initial: list[bytes]
    changes: list[bytes]

    def save(self, path: Path) -> None:
        """Write the recording down."""
        path.write_bytes(msgspec.msgpack.encode(self))


def load(path: Path) -> Recording:
    """Read a recording."""
    return msgspec.msgpack.decode(path.read_bytes(), type=Recording)


@dataclass(frozen=True)
class Asked:
    """One request: its path and query."""

    method: str
    path: str
    query: Mapping[str, str]

    @property
    def watches(self) -> bool:
        """Whether it asks for a stream of changes."""
        return self.query.get("watch", "").lower() in ("true", "1")

    @property
    def wants_all(self) -> bool:
        """Whether the watch starts with the existing objects."""
        return self.query.get("sendInitialEvents") == "true" or not self.query.get("resourceVersion")


def asked(head: bytes) -> Asked:
    """Parse the head of a request. Raises ValueError if it is not HTTP."""
    method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
    parts = urlsplit(target)
    query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    return Asked(method, parts.path.rstrip("/"), query)


def chunk(line: bytes) -> bytes:
    """Return a line as one HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(line), line)


class Server:
    """Sends a recording to every client."""

    def __init__(self, recording: Recording, times: int) -> None:
        self._answers = recording.answers
        self._initial = b"".join(map(chunk, recording.initial))
        self._changes = b"".join(map(chunk, recording.changes)) * times

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it is closed."""
        try:
            while True:
                await self._answer(asked(await reader.readuntil(b"\r\n\r\n")), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(
        self, wanted: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if not wanted.watches:
            body = self._answers.get(wanted.path)
            await _send(writer, b"404 Not Found" if body is None else b"200 OK", body or b"{}")
            return
        writer.write(STREAM)
        if wanted.path == PODS:
            await _pour(writer, self._initial if wanted.wants_all else b"")
            await _pour(writer, self._changes)
        await reader.read()  # until the client goes


async def _send(writer: asyncio.StreamWriter, status: bytes, body: bytes) -> None:
    head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (
        status,
        len(body),
    )
    writer.write(head)
    await _pour(writer, body)


async def _pour(writer: asyncio.StreamWriter, body: bytes) -> None:
    view = memoryview(body)
    for start in range(0, len(view), PIECE):
        writer.write(view[start : start + PIECE])
        await writer.drain()


async def main(path: Path, times: int) -> None:
    """Serve until killed; the first line on stdout is the port."""
    server = Server(load(path), times)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=1 << 20)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
