"""Messages of the store over TCP: frames of 4 bytes of length and MessagePack; both sides prove the token.

One request, one answer, in order; a client may send some before it reads the answers.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from typing import Annotated, Final, TypeVar

import msgspec

from elasticjob.api.numbers import Count
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.checkpoint.storage import PART
from elasticjob.trainer.checkpoint.storage import Part as File
from elasticjob.trainer.store.applied_updates import AppliedUpdates, Done, Key
from elasticjob.trainer.store.tables import PARTITIONS, Part, Table

LARGEST: Final = 1 << 30
"""Bytes of a frame."""
ROOM: Final = LARGEST // 2
"""Bytes of the rows in one."""
PROOF: Final = 32
"""Bytes of a challenge, and of its answer (HMAC-SHA256 with the job's token)."""

MOST_TABLES: Final = 1024

Message = TypeVar("Message")
Tables = Annotated[tuple[Table, ...], msgspec.Meta(max_length=MOST_TABLES)]
Name = Annotated[str, msgspec.Meta(max_length=253)]
Partition = Annotated[int, msgspec.Meta(ge=0, lt=PARTITIONS)]


class Hello(msgspec.Struct, tag=True, frozen=True):
    """The tables that the sender uses: they are made, or have to be as they were made."""

    tables: Tables


class Pull(msgspec.Struct, tag=True, frozen=True):
    """Ask for rows; `ids` are int64."""

    version: Count
    table: Name
    ids: bytes


class Gradients(msgspec.Struct, frozen=True):
    """Gradients of rows: `ids` int64, none twice, and float32 [rows, dim]."""

    table: Name
    ids: bytes
    values: bytes


class Push(msgspec.Struct, tag=True, frozen=True):
    """An update of rows of one batch; `copy`: from their owner, who has made it. `done` shards come along."""

    version: Count
    key: Key
    gradients: Annotated[tuple[Gradients, ...], msgspec.Meta(max_length=MOST_TABLES)]
    done: Annotated[tuple[Done, ...], msgspec.Meta(max_length=64)] = ()
    copy: bool = False


class Fetch(msgspec.Struct, tag=True, frozen=True):
    """Ask for whole partitions, for the next `version`: no update is made here until it is in use."""

    since: Count
    partitions: Annotated[tuple[Partition, ...], msgspec.Meta(max_length=PARTITIONS)]


class Written(msgspec.Struct, tag=True, frozen=True):
    """The sender has written parts of a checkpoint: is it committed, now that they are there?"""

    number: Count
    parts: dict[Partition, File]

    def __post_init__(self) -> None:
        for partition, file in self.parts.items():
            if (
                not file.name.startswith(f"part-{partition:05d}-of-")
                or not PART.fullmatch(file.name)
                or file.size < 1
            ):
                raise ValueError(f"{file} is no part of partition {partition}")


Request = Hello | Pull | Push | Fetch | Written


class Rows(msgspec.Struct, tag=True, frozen=True):
    """The answer to Pull: float32 [rows, dim]."""

    values: bytes


class Taken(msgspec.Struct, tag=True, frozen=True):
    """The request was carried out."""


class Partitions(msgspec.Struct, tag=True, frozen=True):
    """Whole partitions: their rows, and the records that each has counted."""

    parts: tuple[Part, ...]
    counted: dict[int, AppliedUpdates]


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The request was refused: `later`, as the servers change, or for good."""

    why: str
    later: bool = False


Answer = Rows | Taken | Partitions | Refused
_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_answers: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)


REACHED: Final = 1.5
"""Seconds in which a server's kernel accepts a connection. The address of a deleted pod refuses none."""
VANISHED: Final = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 5, "TCP_USER_TIMEOUT": 6000}
"""Socket options: a peer that acknowledges no probe and no data for six seconds counts as gone."""


class WireError(OSError):
    """The bytes received are no message of the store, or not from a process of this job."""


class Connection:
    """One side of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def prove(self, token: str, *, asks: bool) -> None:
        """Prove to the other side that this one has the token, and have it do so. Raises WireError."""
        mine = secrets.token_bytes(PROOF)
        self._sock.sendall(mine)
        theirs = self._exactly(PROOF)
        sides = (b"asks", b"answers") if asks else (b"answers", b"asks")
        self._sock.sendall(_proof(token, sides[0], theirs + mine))
        if not hmac.compare_digest(self._exactly(PROOF), _proof(token, sides[1], mine + theirs)):
            raise WireError("the other side has another job's token, or none")

    def send(self, message: Request | Answer) -> None:
        body = msgspec.msgpack.encode(message)
        if len(body) > LARGEST:
            raise WireError(f"a message of {len(body)} bytes is too large: at most {LARGEST}")
        self._sock.sendall(len(body).to_bytes(4) + body)

    def request(self) -> Request:
        """Return the next request. Raises ConnectionError at the end, WireError for anything else."""
        return self._decoded(_requests)

    def answer(self) -> Answer:
        """Return the next answer."""
        return self._decoded(_answers)

    def close(self) -> None:
        self._sock.close()

    def _decoded(self, decoder: msgspec.msgpack.Decoder[Message]) -> Message:
        size = int.from_bytes(self._exactly(4))
        if size > LARGEST:
            raise WireError(f"a message of {size} bytes is too large: at most {LARGEST}")
        try:
            return decoder.decode(self._exactly(size))
        except UNREADABLE as error:
            raise WireError(f"no message of the store: {error}") from error

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            if not (more := self._sock.recv(min(size - len(found), 1 << 20))):
                raise ConnectionError("the other side has closed the connection")
            found += more
        return bytes(found)


def connect(address: str, token: str, timeout: float) -> Connection:
    """Return a connection to a server that answers within `timeout` seconds. Raises OSError."""
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host.strip("[]"), int(port)), timeout=min(timeout, REACHED))
    try:
        sock.settimeout(timeout)
        _notice_that_it_vanished(sock)
        connection = Connection(sock)
        connection.prove(token, asks=True)
    except BaseException:
        sock.close()
        raise
    return connection


def _notice_that_it_vanished(sock: socket.socket) -> None:
    """Have the kernel end a connection to a pod or machine that is gone, which says nothing any more.

    While a server computes, its kernel answers. An update that was sent to one that takes nothing for so long
    is sent again.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in VANISHED.items():
        if hasattr(socket, option):  # not on every system
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _proof(token: str, side: bytes, challenges: bytes) -> bytes:
    return hmac.digest(token.encode(), side + challenges, "sha256")
