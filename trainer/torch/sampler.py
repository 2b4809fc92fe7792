"""The records of each step: a window of the epoch's permutation, for any number of workers.

The position in an epoch counts records, not steps, so training resumes at the same record after any change of
the world. The last window of an epoch is short; it is cut into as few micro-batches as hold it, of the same
size as far as possible: without padding or dropping, and without a micro-batch of one record where there are
more (BatchNorm refuses it).
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
    """The records of one step: `places` in the permutation of `epoch`, cut into `count` micro-batches.

    `slots` of them are shared out, of which the last ones are empty at the end of an epoch.
    """

    epoch: int
    places: range
    slots: int
    count: int

    def of(self, rank: int, size: int) -> tuple[Piece, ...]:
        """Return the micro-batches of worker `rank`; empty ones are left out."""
        cut = bounds(len(self.places), self.count)
        mine = (index for index in micro_batches(self.slots, size, rank) if index < self.count)
        return tuple(Piece(index, self.places[slice_of(cut[index])]) for index in mine)


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
        count = -((position.offset - end) // self.micro_batch)
        return Window(position.epoch, range(position.offset, end), self.slots, count)

    def check(self, position: Position) -> None:
        """Raise ValueError if a checkpoint's position is beyond the data: the data set has become smaller."""
        if position.offset >= self.records:
            raise ValueError(
                f"the checkpoint has taken {position.offset} records of epoch {position.epoch}, and the data "
                f"set has {self.records}: train with the data of the checkpoint, or without the checkpoint"
            )

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
