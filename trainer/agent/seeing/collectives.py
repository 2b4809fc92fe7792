"""In which collective each late worker waits: its answer to a question at one look is read at a later one.

A worker that is stopped, or whose training thread keeps the interpreter's lock, does not answer: then
nothing is known of it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from elasticjob.api.rpc.nodes import LABEL, Collective
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.link import recorder
from elasticjob.trainer.link.recorder import Digest

ENOUGH: Final = 1 << 20  # bytes of an answer


@dataclass
class Question:
    """A question that a worker has not answered yet."""

    line: socket.socket
    heard: bytes = b""


@dataclass
class Questions:
    """Asks workers, without waiting for any of them; `file_of` says where the worker of a slot answers."""

    file_of: Callable[[int], Path]
    asked: dict[int, Question] = field(default_factory=dict)

    def ask(self, slot: int) -> None:
        """Ask a worker, in the place of a question that it did not answer."""
        self.drop(slot)
        line = socket.socket(socket.AF_UNIX)
        line.setblocking(False)
        try:
            with recorder.short_name(self.file_of(slot)) as short:
                line.connect(short)
        except OSError:  # it has no recorder, or does not listen to us
            line.close()
            return
        self.asked[slot] = Question(line)

    def answers(self) -> dict[int, Digest]:
        """Return the answers that have come since."""
        found = {}
        for slot, question in [*self.asked.items()]:
            whole = False
            with suppress(BlockingIOError):
                while part := receive(question.line):
                    question.heard += part
                whole = True
            if whole or len(question.heard) > ENOUGH:
                self.drop(slot)
                with suppress(*UNREADABLE):
                    found[slot] = recorder.decode(question.heard)
        return found

    def drop(self, slot: int) -> None:
        """Forget a question."""
        if slot in self.asked:
            self.asked.pop(slot).line.close()


def receive(line: socket.socket) -> bytes:
    """Return the next bytes of an answer, none at its end; BlockingIOError if there are none yet."""
    try:
        return line.recv(65_536)
    except ConnectionError:
        return b""


def collective_of(digest: Digest, age: float, within: float) -> Collective | None:
    """Return the collective that a worker waits in, as it said `age` seconds ago; None if it waits in none.

    One that was begun before the last `within` seconds belongs to a world before, and was aborted.
    """
    inside = digest.open
    if inside is None or inside.since + age > within:
        return None
    return replace(inside, since=round(inside.since + age, 3))


def in_world(digest: Digest, size: int, node: str) -> Digest:
    """Return a digest whose groups have names in the whole world, which has `size` workers.

    Where the default group has fewer, it and its parts are those of one node.
    """
    if digest.size == size:
        return digest
    at = f"{node[-LABEL // 3 :]}: "
    inside, begun = digest.open, tuple((f"{at}{group}", many) for group, many in digest.begun)
    return replace(digest, open=inside and replace(inside, group=f"{at}{inside.group}"), begun=begun)
