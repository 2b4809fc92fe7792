"""The progress of a job, and the loop over the steps that are left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from elasticjob.trainer.records.sampler import Position


@dataclass(frozen=True)
class Done:
    """Progress of the job: optimizer steps and records in total, the position in the data, the last loss."""

    step: int = 0
    samples: int = 0
    epoch: int = 0
    offset: int = 0
    loss: float = float("nan")

    @property
    def position(self) -> Position:
        """The position of the next step's records."""
        return Position(self.epoch, self.offset)

    def then(self, position: Position, samples: int, loss: float) -> Done:
        """Return the progress after one more step."""
        return Done(self.step + 1, self.samples + samples, position.epoch, position.offset, loss)


class Step(Protocol):
    """A step, as far as the loop knows it."""

    number: int
    entered: bool


class Ends(Protocol):
    """Called between two steps, after a `break` of the script, and after the last step."""

    def at_step(self) -> None: ...

    def leave(self) -> None: ...

    def finish(self) -> None: ...


AnyStep = TypeVar("AnyStep", bound=Step)


def in_turn(begin: Callable[[], AnyStep | None], ends: Ends) -> Iterator[AnyStep]:
    """Yield steps as `begin` makes them, until it returns None. RuntimeError if the script skips one."""
    while (step := begin()) is not None:
        try:
            yield step
        except GeneratorExit:
            if not sys.is_finalizing():
                ends.leave()
            raise
        if not step.entered:
            raise RuntimeError(f"step {step.number} was not taken: write `with step:` in the loop")
        ends.at_step()
    ends.finish()
