"""A store of parameters on several servers: vectors in partitions, over TCP, each update counted once.

A partition belongs to server `part % servers`. An update names the version of the cluster and its number, so
that a server refuses what is out of date and counts a repeated one once. Updates are appended to a file
before they are acknowledged: a killed server's successor reads them.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from elasticjob.trainer.parameters import Move

PARTS, SIZE = 16, 8
HEADER = 4


class Update(msgspec.Struct, tag=True):
    version: int
    part: int
    worker: str
    number: int
    delta: bytes


class Read(msgspec.Struct, tag=True):
    part: int


class Part(msgspec.Struct):
    """A partition: its values, and the number of the last update of each worker."""

    values: bytes = bytes(8 * SIZE)
    last: dict[str, int] = {}

    def add(self, update: Update) -> None:
        if update.number > self.last.get(update.worker, 0):
            self.values = (np.frombuffer(self.values) + np.frombuffer(update.delta)).tobytes()
            self.last[update.worker] = update.number


class Answer(msgspec.Struct):
    part: Part | None = None
    refused: str = ""


def send(sock: socket.socket, message: msgspec.Struct) -> None:
    body = msgspec.msgpack.encode(message)
    sock.sendall(len(body).to_bytes(HEADER) + body)


def receive(sock: socket.socket) -> bytes:
    return _exactly(sock, int.from_bytes(_exactly(sock, HEADER)))


def ask(address: str, message: msgspec.Struct) -> Answer:
    """Return a server's answer. Raises OSError if it is away."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=2.0) as sock:
        send(sock, message)
        return msgspec.msgpack.decode(receive(sock), type=Answer)


@dataclass
class Store:
    """The partitions of one server, and their files in `folder`, which all servers share."""

    folder: Path
    version: int = 0
    parts: dict[int, Part] = field(default_factory=dict)
    taken: dict[int, Part] = field(default_factory=dict)
    ready: int = 0  # the version for which they are taken
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_over(self, move: Move) -> None:
        """Get the partitions of this server: from who has them, or from the files of who was lost."""
        self.taken, self.ready = {}, move.version
        for part in range(move.me, PARTS, len(move.after)):
            self.taken[part] = self._found(part, move)
            (self.folder / f"{part}-{move.version}").write_bytes(msgspec.msgpack.encode(self.taken[part]))

    def use(self, version: int, servers: tuple[str, ...]) -> None:
        with self.lock:
            self.version, self.parts = version, self.taken if self.ready == version else {}

    def handle(self, message: Update | Read) -> Answer:
        with self.lock:
            part = self.parts.get(message.part)
            if isinstance(message, Read):
                return Answer(part=part) if part else Answer(refused=f"{message.part} is elsewhere")
            if message.version != self.version or part is None:
                return Answer(refused=f"version {message.version} is over: this is {self.version}")
            with (self.folder / f"{message.part}-{self.version}.log").open("ab") as log:
                body = msgspec.msgpack.encode(message)
                log.write(len(body).to_bytes(HEADER) + body)
            part.add(message)
            return Answer(part=part)

    def _found(self, part: int, move: Move) -> Part:
        if not move.before:
            return Part()
        try:
            answer = ask(move.before[part % len(move.before)], Read(part=part))
        except OSError:
            answer = Answer()
        return answer.part or saved(self.folder, part, move.since)


def saved(folder: Path, part: int, version: int) -> Part:
    """Return a partition from its files; what a kill left half-written was not acknowledged."""
    found = msgspec.msgpack.decode((folder / f"{part}-{version}").read_bytes(), type=Part)
    log = folder / f"{part}-{version}.log"
    for body in _records(log.read_bytes() if log.exists() else b""):
        found.add(msgspec.msgpack.decode(body, type=Update))
    return found


def total(folder: Path) -> Sequence[float]:
    """Return the sums over all partitions of the newest version."""
    version = max(int(path.name.partition("-")[2]) for path in folder.glob("*-*") if not path.suffix)
    return list(sum(np.frombuffer(saved(folder, part, version).values) for part in range(PARTS)))


def serving(store: Store, host: str, port: int) -> socketserver.ThreadingTCPServer:
    """Return a TCP server of a store; it is bound, and does not run yet."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            message = msgspec.msgpack.decode(receive(self.request), type=Update | Read)
            send(self.request, store.handle(message))

    server = socketserver.ThreadingTCPServer((host, port), Handler)
    server.daemon_threads = True
    return server


def _exactly(sock: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (more := sock.recv(size - len(found))):
            raise ConnectionError("the other side has gone")
        found += more
    return found


def _records(data: bytes) -> Iterator[bytes]:
    while len(data) > HEADER and len(data) >= HEADER + (size := int.from_bytes(data[:HEADER])):
        yield data[HEADER : HEADER + size]
        data = data[HEADER + size :]
