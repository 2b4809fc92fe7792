"""The records of each step: a window of the epoch's permutation, for any number of workers.

The position in an epoch counts records, not steps, so training resumes at the same record after any change of
the world. The last window of an epoch is short; it is split as evenly as possible: without padding or
dropping.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elasticjob.trainer.torch.batch import bounds, micro_batches


@dataclass(frozen=True)
class Position:
    """The position of the job in its data: `offset` records of `epoch` are consumed."""

    epoch: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Piece:
    """One micro-batch: its index within the step, and the records it takes, as places in the permutation."""

    index: int
    places: range


@dataclass(frozen=True)
class Window:
    """The records of one step: `places` in the permutation of `epoch`, cut into `slots` micro-batches."""

    epoch: int
    places: range
    slots: int

    def of(self, rank: int, size: int) -> tuple[Piece, ...]:
        """Return the micro-batches of worker `rank`; empty ones (at the end of an epoch) are left out."""
        cut = bounds(len(self.places), self.slots)
        mine = (
            Piece(index, self.places[slice_of(cut[index])]) for index in micro_batches(self.slots, size, rank)
        )
        return tuple(piece for piece in mine if piece.places)


@dataclass(frozen=True)
class Sampler:
    """Splits `records` records into windows of `slots` micro-batches of `micro_batch` records."""

    records: int
    micro_batch: int
    slots: int

    def __post_init__(self) -> None:
        if min(self.records, self.micro_batch, self.slots) < 1:
            raise ValueError(
                f"{self.records} records, {self.slots} micro-batches of {self.micro_batch}: each must be >= 1"
            )

    def window(self, position: Position) -> Window:
        """Return the window of the step at `position`."""
        end = min(position.offset + self.slots * self.micro_batch, self.records)
        return Window(position.epoch, range(position.offset, end), self.slots)

    def after(self, position: Position) -> Position:
        """Return the position after the step at `position`."""
        end = self.window(position).places.stop
        return Position(position.epoch + 1) if end >= self.records else replace(position, offset=end)

    def steps_left(self, position: Position, epochs: int) -> int:
        """Return the number of steps from `position` to the end of the last of `epochs` epochs."""
        if position.epoch >= epochs:
            return 0
        batch = self.slots * self.micro_batch
        whole = -(-self.records // batch) * (epochs - position.epoch - 1)
        return whole - (position.offset - self.records) // batch


def slice_of(indices: range) -> slice:
    """Return a range of indices as a slice."""
    return slice(indices.start, indices.stop)
