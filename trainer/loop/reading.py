"""The records that are left of the training loop: where it is in them, and how far it goes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.loop.world import State
from elasticjob.trainer.records.sampler import ENDLESS, Sampler


def is_more(now: int | None, before: int | None) -> bool:
    """Whether a limit, None being without, was raised."""
    return before is not None and (now is None or now > before)


class Reading(ABC):
    """The records of a loop, with a `limit` of epochs and steps; None is without one."""

    def __init__(self, state: State[Any]) -> None:
        self._state = state
        self.limit: tuple[int | None, int | None] = (0, None)

    @property
    @abstractmethod
    def begun(self) -> bool:
        """Whether the script is in its loop, and the records are known."""

    @abstractmethod
    def sampler(self, place: Enter) -> Sampler:
        """Return how the records are cut into steps."""

    @abstractmethod
    def order(self) -> dict[str, Any]:
        """Return what the order of the records depends on, by name."""

    def left(self, place: Enter) -> int:
        """Return the number of steps that are left."""
        (epochs, steps), done, ended = self.limit, self._state.done, self._state.ended
        if ended and not any(is_more(*each) for each in zip(self.limit, ended, strict=True)):
            return 0
        of_steps = ENDLESS if steps is None else max(0, steps - done.step)
        of_epochs = ENDLESS if epochs is None else self.sampler(place).steps_left(done.position, epochs)
        return min(of_steps, of_epochs)
