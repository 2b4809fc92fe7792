"""The process that takes copies of blocks: each offer, a line of stdin, is answered by what prevented it.

`python -m elasticjob.trainer.agent.checkpoints.taking FOLDER [behind]`, whose first line is the job's token.
The other node's kernel sends pages of shared memory as they are, and what comes is written to a block.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from elasticjob.trainer.agent.checkpoints.copies import BEHIND, Offer
from elasticjob.trainer.checkpoint import memory, sources
from elasticjob.trainer.checkpoint.memory import Writer
from elasticjob.trainer.checkpoint.part import START, Damaged, Save, size_of


def main() -> None:
    """Take what is offered, until nobody offers more."""
    folder, *behind = sys.argv[1:]
    if behind == [BEHIND]:
        with suppress(OSError, AttributeError):  # a system without such a class
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            Path("/proc/self/autogroup").write_text("19")  # else its session has as much time as others
    token = sys.stdin.buffer.readline().decode().strip()
    writers: dict[str, Writer] = {}  # with their memory mapped
    for line in sys.stdin.buffer:
        offer = decode(line)
        name = f"copy-{offer.slot}-{offer.mark}"
        writer = writers.setdefault(name, Writer(Path(folder), name))
        problem = ""
        try:
            take(writer, token, offer)
        except Exception as error:  # of whatever kind: the next one may be taken
            problem = repr(error)
        sys.stdout.buffer.write(msgspec.json.encode(problem) + b"\n")
        sys.stdout.flush()


def take(writer: Writer, token: str, offer: Offer) -> None:
    """Copy a block; its first bytes, which say that it is whole, last. OSError or Damaged if it cannot be."""
    path = memory.path_of(offer.mark, Save(offer.step, offer.round), offer.part)
    with (
        writer.block(offer.size) as block,
        sources.ranged(offer.server, token, path, 0, offer.size) as read,
    ):
        first = sources.taken(read, START, path)
        sources.fill(block[START : offer.size], read, path)
        if size_of(first) != offer.size:
            raise Damaged(f"it has {size_of(first)} bytes, and not {offer.size}")
        block[:START] = first


decode = msgspec.json.Decoder(Offer).decode

if __name__ == "__main__":
    main()
