"""Messages between a worker process and its agent: one JSON line each, over an inherited socket pair.

A worker that never sends `Hello` is any script. One that does keeps its state between worlds:

    worker -> agent:  Hello, then Ready (waits for its first world), Advance (progress),
                      Boundary or Broken (the world of `round` is over, waits for the next),
                      Outside (an abort came between two steps: Broken comes with the next one),
                      Behind (the others are further in the script: start this worker anew)
    any worker -> agent:  Bound (its model is divided over the workers of its node),
                          Copied (its state is in shared memory),
                          Hampered (it cannot read or write checkpoints)
    agent -> worker:  Enter (a place in the next world), Interrupt (stop at a step boundary),
                      Abort (collectives of `round` hang or fail: abort them now), Stop (end)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from elasticjob.api.rpc.nodes import Progress

FD: Final = "ELASTICJOB_CHANNEL_FD"
ADDRESS: Final = "ELASTICJOB_ADDRESS"  # where a worker opens the store of a round, if it becomes rank 0
ROUND: Final = "ELASTICJOB_ROUND"  # of the world that a worker was started into
UNIT: Final = "ELASTICJOB_UNIT"  # the file by which workers that were started together find each other
LIMIT: Final = 1 << 16  # bytes of one line


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="say"):
    """One message."""


class Hello(Line, frozen=True, tag="hello"):
    """The worker uses elasticjob.trainer.torch: do not restart it when the world changes."""


class Bound(Line, frozen=True, tag="bound"):
    """The model is divided over the workers of this node: without one of them the others are of no use."""


class Ready(Line, frozen=True, tag="ready"):
    """The worker has a model and can enter a world; `port` is where it listens for the store of its round."""

    port: int


class Advance(Line, frozen=True, tag="advance"):
    """Progress in the world of `round`; the first in a round is sent at once, then a few each second.

    `seconds` is how long the last step took; `ended` says that it was the last one of the training.
    """

    round: int
    progress: Progress
    seconds: float = 0.0
    ended: bool = False


class Boundary(Line, frozen=True, tag="boundary"):
    """All workers agreed to end the world of `round` after the same step."""

    round: int
    port: int


class Broken(Line, frozen=True, tag="broken"):
    """A collective of `round` failed; the worker's state is that of the last whole step."""

    round: int
    port: int
    error: str = ""


class Outside(Line, frozen=True, tag="outside"):
    """The abort of `round` reached a worker that is in no collective: it evaluates, saves or reads records.

    `Broken` follows when it enters the next step, which may take as long as the script likes.
    """

    round: int


class Copied(Line, frozen=True, tag="copied"):
    """The worker's state after `step` is in shared memory, as `part` of `parts`.

    It is in the block of that name. With `persist` the agent writes it to the checkpoints in `where`, of
    which it keeps the newest `keep`; without, only when the job is stopped. It never does unless this worker
    `keeps`: others have the same. It has `size` bytes. With a `name` the worker has written the part there by
    itself, as a file of that name and CRC-32: memory had no room for a block. The run began `after` a step in
    that place, 0 being anew, -1 where the worker does not know. It is `alone` if no other node has this part
    by itself.
    """

    block: str
    step: int
    round: int
    part: int = 0
    parts: int = 1
    keeps: bool = True
    persist: bool = False
    where: bytes = b""  # a path may be no UTF-8
    keep: int = 2
    name: str = ""
    size: int = 0
    crc: int = 0
    after: int = -1
    alone: bool = True

    @property
    def travels(self) -> bool:
        """Whether the next node is to have a copy of the block: no other node has this part."""
        return self.parts > 1 and self.alone and not self.name


class Hampered(Line, frozen=True, tag="hampered"):
    """This worker cannot read or write checkpoints, for the job's status; empty: it is over.

    With a `step` that checkpoint is in `where` neither now nor later.
    """

    problem: str
    where: bytes = b""
    step: int = 0


class Behind(Line, frozen=True, tag="behind"):
    """The others have done more than one step without this worker, whose script is at another place now.

    It waits to be killed: the next process begins as a newcomer.
    """

    round: int
    reason: str


class Enter(Line, frozen=True, tag="enter"):
    """The world of `round` is complete; rank 0 opens its store on `address`:`port`."""

    round: int
    rank: int
    size: int
    address: str
    port: int
    batch_slots: int
    lost: tuple[str, ...] = ()  # nodes of the world before


class Interrupt(Line, frozen=True, tag="interrupt"):
    """Agree with the others to end the world of `round` at the next step boundary."""

    round: int


class Abort(Line, frozen=True, tag="abort"):
    """Members of `round` are gone."""

    round: int


class Stop(Line, frozen=True, tag="stop"):
    """Leave the job now."""

    reason: str = ""


FromWorker = Hello | Bound | Ready | Advance | Boundary | Broken | Outside | Behind | Copied | Hampered
FromAgent = Enter | Interrupt | Abort | Stop

_encoder = msgspec.json.Encoder()


def encode(message: FromWorker | FromAgent) -> bytes:
    """Return `message` as one line."""
    return _encoder.encode(message) + b"\n"


class Lines:
    """Splits a byte stream into lines; ValueError if one is longer than LIMIT."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, received: bytes) -> Iterator[bytes]:
        """Yield the lines that `received` completes."""
        *lines, self._rest = (self._rest + received).split(b"\n")
        if max(map(len, (*lines, self._rest))) > LIMIT:
            raise ValueError(f"a line on the channel is longer than {LIMIT} bytes")
        yield from lines


decode_from_worker = msgspec.json.Decoder(FromWorker).decode
decode_from_agent = msgspec.json.Decoder(FromAgent).decode
