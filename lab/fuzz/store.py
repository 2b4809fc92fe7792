"""Random frames to a server of the store: from strangers, and from processes that have the job's token."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from elasticjob.trainer.parameters import Move
from elasticjob.trainer.store import SGD, Adagrad, Adam, Table, Zeros
from elasticjob.trainer.store.applied_updates import Done, Key
from elasticjob.trainer.store.server import Server
from elasticjob.trainer.store.wire import (
    LARGEST,
    PROOF,
    Answer,
    Connection,
    Fetch,
    Gradients,
    Hello,
    Pull,
    Push,
    Request,
    Rows,
    connect,
)
from lab.fuzz.play import Found, faults
from lab.fuzz.requests import damaged, mutated

NAME: Final = "store"
TOKEN: Final = "secret"
PATIENCE: Final = 20.0
CHECK_EVERY: Final = 25
MOST_MEMORY: Final = 256 << 20
"""Bytes by which this process may grow."""

STEADY: Final = Table("steady", 4, SGD(1.0), Zeros())
TABLES: Final = (STEADY, Table("users", 8, Adam()), Table("items", 2, Adagrad()))
_ANSWERS: Final[msgspec.msgpack.Decoder[Answer]] = msgspec.msgpack.Decoder(Answer)


def play(numbers: range, seed: str = "1") -> Found:
    """Send the frames of these numbers, a connection each; every fault names the number of its frames."""
    found, began, before = Found(NAME, len(numbers)), time.monotonic(), _memory()
    with faults(found.wrong), Server("127.0.0.1", 0, token=TOKEN) as server:
        server.take_over(Move(1, 0, (), (server.address,), 0, 0))
        server.use(1, (server.address,))
        steady = connect(server.address, TOKEN, PATIENCE)
        for number in numbers:
            chance = random.Random(f"{seed}/{NAME}/{number}")
            try:
                found.answers.update(_exchanged(server.address, chance))
            except (OSError, msgspec.MsgspecError) as error:
                found.wrong.append(f"connection {number}: {type(error).__name__}: {error}")
            if number % CHECK_EVERY == 0:
                server.use(1, (server.address,))  # a Fetch stops updates until then
                found.wrong += [f"after connection {number}: {each}" for each in _checked(steady)]
        steady.close()
    if (grown := _memory() - before) > MOST_MEMORY:
        found.wrong.append(f"{grown:,} bytes of memory more than before")
    found.seconds = time.monotonic() - began
    return found


def _checked(steady: Connection) -> Iterator[str]:
    """Find out whether a well-behaved client is served."""
    row = np.array([7], np.int64).tobytes()
    for request, wanted in ((Hello((STEADY,)), "Taken"), (Pull(1, STEADY.name, row), "Rows")):
        steady.send(request)
        answer = steady.answer()
        if type(answer).__name__ != wanted:
            yield f"{type(answer).__name__} is the answer to {request}"
        if isinstance(answer, Rows) and not np.isfinite(np.frombuffer(answer.values, np.float32)).all():
            yield "a row has values that are no numbers"


def _exchanged(address: str, chance: random.Random) -> list[str]:
    """Send frames; return the kinds of their answers until the server closes. Raises OSError if it hangs."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as sock:
        with suppress(OSError):  # the server has closed: its answers say why, if there are any
            if chance.random() < 0.1:
                sock.sendall(chance.randbytes(chance.choice((0, 1, PROOF, 2 * PROOF, 5_000))))
            else:
                Connection(sock).prove(TOKEN, asks=True)
                sock.sendall(b"".join(_frame(chance) for _ in range(chance.choice((1, 1, 2, 3)))))
            sock.shutdown(socket.SHUT_WR)
        return list(_answers(sock))


def _answers(sock: socket.socket) -> Iterator[str]:
    received = bytearray()
    with suppress(ConnectionError):
        while piece := sock.recv(1 << 16):
            received += piece
    if (received and len(received) == 2 * PROOF) or len(received) == PROOF:
        yield "turned away"
        return
    while len(received) >= 4:
        size = int.from_bytes(received[:4])
        yield type(_ANSWERS.decode(received[4 : 4 + size])).__name__
        del received[: 4 + size]
    yield "closed"


def _frame(chance: random.Random) -> bytes:
    value: Any = msgspec.to_builtins(chance.choice(_good(chance)), builtin_types=(bytes,))
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        value = mutated(value, chance)
    try:
        body = msgspec.msgpack.encode(value)
    except (OverflowError, ValueError):  # MessagePack has no such numbers, and no lone surrogates
        body = chance.randbytes(50)
    if chance.random() < 0.1:
        body = damaged(body, chance)
    size = len(body)
    if chance.random() < 0.1:
        size = chance.choice((0, 1, size + 1, LARGEST, LARGEST + 1, (1 << 32) - 1))
    return size.to_bytes(4) + body


def _good(chance: random.Random) -> list[Request]:
    table = chance.choice(TABLES)
    ids = np.array(sorted(chance.sample(range(500), chance.randrange(1, 9))), np.int64)
    values = np.array([[chance.gauss(0, 1)] * table.dim for _ in ids], np.float32)
    shard = chance.randrange(20)
    key = Key("ratings", shard, 10 * shard, 10 * shard + chance.choice((5, 10)))
    gradients = Gradients(table.name, ids.tobytes(), values.tobytes())
    done = (Done("ratings", (chance.randrange(20),)),)
    return [
        Hello(TABLES),
        Pull(1, table.name, ids.tobytes()),
        Pull(chance.choice((0, 1, 2)), table.name, ids.tobytes()[: chance.randrange(8, 9 * len(ids))]),
        Push(1, key, (gradients,), chance.choice(((), done))),
        Push(1, key, (gradients, gradients), copy=True),
        Fetch(1, tuple(chance.sample(range(64), 3))),
    ]


def _memory() -> int:
    """Return the resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
