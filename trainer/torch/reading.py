"""The records of the training loop, read ahead from a loader."""

from __future__ import annotations

from typing import Any

from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.link.line import Line
from elasticjob.trainer.loop import reading
from elasticjob.trainer.records.sampler import Position, Sampler
from elasticjob.trainer.torch.records.data import Loader, Place
from elasticjob.trainer.torch.state import State


class Reading(reading.Reading):
    """Reads ahead from `loader`, None before the loop.

    `together` workers compute each micro-batch together.
    """

    def __init__(self, state: State, line: Line, together: int) -> None:
        super().__init__(state)
        self.loader: Loader | None = None
        self._line, self._together = line, together
        self._reads: tuple[int, Position] | None = None  # round and position of the next batch that is read

    @property
    def begun(self) -> bool:
        """Whether the script is in its loop."""
        return self.loader is not None

    def begin(self, loader: Loader, epochs: int | None, steps: int | None) -> None:
        """Take the records from `loader`, until `epochs` are over, or `steps` steps are done."""
        self.loader, self.limit = loader, (epochs, steps)

    def sampler(self, place: Enter) -> Sampler:
        """Return how the records are cut into steps."""
        assert self.loader is not None
        return self.loader.sampler(place.batch_slots)

    def order(self) -> dict[str, Any]:
        """Return what the order of the records depends on, by name."""
        assert self.loader is not None
        return self.loader.facts()

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
