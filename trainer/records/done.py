"""The progress of a job, and the loop over the steps that are left."""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Final, Protocol, TypeVar

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
    """Called between two steps, when the loop is left before its end, and after the last step.

    It is `ended` by a `break` of the script, and not by an exception.
    """

    def at_step(self) -> None: ...

    def leave(self, *, ended: bool) -> None: ...

    def finish(self) -> None: ...


LEFT: Final = ("POP_TOP", "POP_ITER")
"""The instructions by which `break` and `return` drop the iterator of a loop."""
AnyStep = TypeVar("AnyStep", bound=Step)


def in_turn(begin: Callable[[], AnyStep | None], ends: Ends) -> Iterator[AnyStep]:
    """Yield steps as `begin` makes them, until it returns None. RuntimeError if the script skips one."""
    while (step := begin()) is not None:
        try:
            yield step
        except GeneratorExit:
            if not sys.is_finalizing():
                ends.leave(ended=is_left_by_script(sys._getframe().f_back))
            raise
        if not step.entered:
            raise RuntimeError(f"step {step.number} was not taken: write `with step:` in the loop")
        ends.at_step()
    ends.finish()


def is_left_by_script(loop: FrameType | None) -> bool:
    """Whether a generator is closed since the script left its `loop` by `break` or `return`.

    That is the end that it wanted. An exception drops the iterator, too, and is not seen in a generator; it
    does so at the instruction that raised it. In doubt it is no end.
    """
    while loop is not None:
        instruction = dis.opname[loop.f_code.co_code[loop.f_lasti]]
        if instruction in LEFT or not loop.f_code.co_flags & inspect.CO_GENERATOR:
            return instruction in LEFT
        loop = loop.f_back  # a generator of the script's around this one is closed
    return False
