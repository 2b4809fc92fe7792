"""The records of the training loop: the present position in them, and how many steps are left."""

from __future__ import annotations

from typing import Any

from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.link.line import Line
from elasticjob.trainer.records.sampler import ENDLESS, Position, Sampler
from elasticjob.trainer.torch.records.data import Loader, Place
from elasticjob.trainer.torch.state import State


def is_more(now: int | None, before: int | None) -> bool:
    """Whether a limit, None being without, was raised."""
    return before is not None and (now is None or now > before)


class Reading:
    """Reads ahead from `loader`, None before the loop.

    `together` workers compute each micro-batch together.
    """

    def __init__(self, state: State, line: Line, together: int) -> None:
        self.loader: Loader | None = None
        self._state, self._line, self._together = state, line, together
        self.limit: tuple[int | None, int | None] = (0, None)  # epochs, steps
        self._reads: tuple[int, Position] | None = None  # round and position of the next batch that is read

    def begin(self, loader: Loader, epochs: int | None, steps: int | None) -> None:
        """Take the records from `loader`, until `epochs` are over, or `steps` steps are done."""
        self.loader, self.limit = loader, (epochs, steps)

    def sampler(self, place: Enter) -> Sampler:
        """Return how the records are cut into steps."""
        assert self.loader is not None
        return self.loader.sampler(place.batch_slots)

    def left(self, place: Enter) -> int:
        """Return the number of steps that are left."""
        (epochs, steps), done, ended = self.limit, self._state.done, self._state.ended
        if ended and not any(is_more(*each) for each in zip(self.limit, ended, strict=True)):
            return 0
        of_steps = ENDLESS if steps is None else max(0, steps - done.step)
        of_epochs = ENDLESS if epochs is None else self.sampler(place).steps_left(done.position, epochs)
        return min(of_steps, of_epochs)

    def ahead(self, place: Enter) -> None:
        """Let the loader read from the present position on, if it does not already."""
        assert self.loader is not None
        position = self._state.done.position
        if self._reads != (place.round, position):
            with self._line.inside(False):
                self.loader.start(position, Place(place.rank, place.size, place.batch_slots, self._together))

    def next(self) -> Any:
        """Return the next micro-batch; it may take as long as reading takes."""
        assert self.loader is not None
        return self.loader.next()

    def advance(self, place: Enter) -> None:
        """The loader has been read up to the present position."""
        self._reads = (place.round, self._state.done.position)

    def forget(self, loader: Loader) -> None:
        """Begin to read anew before the next step: something else has read from `loader`."""
        if loader is self.loader:
            self._reads = None
