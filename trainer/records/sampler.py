"""The records of each step: a window of the epoch's order, for any number of workers.

The position in an epoch counts records, not steps, so training resumes at the same record after any change of
the world. The last window of an epoch is short; it is cut into as few micro-batches as hold it, of the same
size as far as possible: without padding or dropping, and without a micro-batch of one record where there are
more (BatchNorm refuses it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elasticjob.api.numbers import MANY
from elasticjob.trainer.records.batch import bounds, micro_batches

ENDLESS = 2**62  # records of an epoch that has no end


@dataclass(frozen=True)
class Position:
    """The position of the job in its data: `offset` records of `epoch` are consumed."""

    epoch: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Piece:
    """One micro-batch: its index within the step, and its records, as places in the epoch's order.

    `count` is how many of them count: all, or none where a worker has nothing to do at the end of an epoch.
    """

    index: int
    places: range
    count: int


@dataclass(frozen=True)
class Window:
    """The records of one step: `places` in the order of `epoch`, cut into `count` micro-batches.

    `slots` of them are shared out, of which the last ones are empty at the end of an epoch.
    """

    epoch: int
    places: range
    slots: int
    count: int

    def of(self, rank: int, size: int, together: int = 1) -> tuple[Piece, ...]:
        """Return the micro-batches of worker `rank`.

        A worker without one gets the step's first with a count of 0, because every worker has to take part
        in the reduction. Groups of `together` workers, that compute each micro-batch together, have equally
        many: the shorter ones get more of those.
        """
        cut = bounds(len(self.places), self.count)
        mine = self._indices(rank, size)
        first = rank - rank % together
        wanted = max(1, *(len(self._indices(each, size)) for each in range(first, first + together)))
        return (
            *(Piece(index, self.places[slice_of(cut[index])], len(cut[index])) for index in mine),
            *(Piece(self.slots, self.places[slice_of(cut[0])], 0) for _ in range(wanted - len(mine))),
        )

    def _indices(self, rank: int, size: int) -> range:
        """Return which micro-batches a worker has of those that are not empty."""
        share = micro_batches(self.slots, size, rank)
        return range(share.start, max(share.start, min(share.stop, self.count)))


@dataclass(frozen=True)
class Sampler:
    """Splits `records` records into windows of `batch` records in `slots` micro-batches.

    `largest` bounds the records of a micro-batch: then there may be more than `slots`.
    """

    records: int
    batch: int
    slots: int
    largest: int | None = None

    def __post_init__(self) -> None:
        if min(self.records, self.batch, self.slots, self.largest or 1) < 1:
            raise ValueError(
                f"{self.records} records, a global batch of {self.batch} in {self.slots} micro-batches of at "
                f"most {self.largest or self.batch}: each must be >= 1"
            )

    @property
    def pieces(self) -> int:
        """The number of micro-batches of a whole window."""
        least = -(-self.batch // self.largest) if self.largest else 1
        return max(self.slots, least)

    def window(self, position: Position) -> Window:
        """Return the window of the step at `position`."""
        end = min(position.offset + self.batch, self.records)
        size = end - position.offset
        usual = -(-self.batch // self.pieces)  # records of the largest micro-batch
        count = min(self.pieces, size) if size == self.batch else -(-size // usual)
        return Window(position.epoch, range(position.offset, end), self.pieces, count)

    def check(self, position: Position) -> None:
        """Raise ValueError if a checkpoint's position is beyond the data: the data set has become smaller."""
        if position.offset >= self.records:
            raise ValueError(
                f"the checkpoint has taken {position.offset} records of epoch {position.epoch}, and the data "
                f"set has {self.records}: train with the data of the checkpoint, or without the checkpoint"
            )

    def following(self, window: Window) -> Position:
        """Return the position after the step of `window`."""
        end = window.places.stop
        return Position(window.epoch + 1) if end >= self.records else Position(window.epoch, end)

    def steps_left(self, position: Position, epochs: int) -> int:
        """Return the number of steps from `position` to the end of the last of `epochs` epochs."""
        if position.epoch >= epochs:
            return 0
        whole = -(-self.records // self.batch) * (epochs - position.epoch - 1)
        return whole - (position.offset - self.records) // self.batch

    def pieces_from(
        self, position: Position, rank: int, size: int, together: int = 1
    ) -> Iterator[tuple[Position, Piece]]:
        """Yield all micro-batches of worker `rank` from `position` on, without end."""
        while True:
            window = self.window(position)
            for piece in window.of(rank, size, together):
                yield position, piece
            position = self.following(window)


def in_total(done: int, left: int) -> int:
    """Return the number of steps of a job, 0 if no end is in sight: what no message can carry."""
    return done + left if done + left <= MANY else 0


def slice_of(indices: range) -> slice:
    """Return a range of indices as a slice."""
    return slice(indices.start, indices.stop)
