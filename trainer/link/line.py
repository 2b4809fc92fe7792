"""A worker's line to its agent: the page with what it does, and the channel. A worker alone has neither."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from elasticjob.trainer.link import pulse, worlds
from elasticjob.trainer.link.channel import Enter, FromWorker
from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.link.worlds import Abortable

ALONE: Final = Enter(round=1, rank=0, size=1, address="", port=0, batch_slots=1)


class Line:
    """Speaks with the agent. Without one it is silent, and its only world has this worker alone."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.page = pulse.from_environment(environment)
        self._link = worlds.from_environment(environment)

    @property
    def is_alone(self) -> bool:
        """Whether there is no agent: this worker has one world, with itself."""
        return self._link is None

    def say(
        self,
        phase: Phase,
        *,
        step: int | None = None,
        busy: float | None = None,
        reduced: float | None = None,
        records: int = 0,
    ) -> None:
        """Tell the agent what this worker does."""
        if self.page is not None:
            self.page.say(phase, step=step, busy=busy, reduced=reduced, records=records)

    def send(self, message: FromWorker) -> None:
        """Send a message to the agent."""
        if self._link is not None:
            self._link.say(message)

    def inside(self, inside: bool = True) -> AbstractContextManager[None]:
        """Tell the agent's questions from now on that this thread may be in a collective, or is in none."""
        return self._link.inside(inside) if self._link else nullcontext()

    def interrupted(self, round_: int) -> bool:
        """Whether the agent asks to end the world of `round_` at the next step boundary."""
        return self._link is not None and self._link.interrupted(round_)

    def first_world(self) -> tuple[Enter, socket.socket | None]:
        """Return the first world and the listening socket for its store."""
        return self._link.first_world() if self._link else (ALONE, None)

    def next_world(self, ended: int, error: str | None) -> tuple[Enter, socket.socket | None]:
        """Return the world after that of round `ended`, which broke if there is an `error`.

        Raises Stopped if there is none for this worker.
        """
        if self._link is None:
            raise RuntimeError("a worker without an agent has no next world")
        return self._link.next_world(ended, error)

    def guard(self, round_: int, group: Abortable) -> None:
        """Abort `group` when members of `round_` are lost."""
        if self._link is not None:
            self._link.guard(round_, group)

    def release(self) -> None:
        """Stop guarding the group."""
        if self._link is not None:
            self._link.release()
