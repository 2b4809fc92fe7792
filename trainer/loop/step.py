"""One step of the training loop: its records, and what becomes of it when a peer is lost."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Final, Generic, Literal, Self, TypeVar

from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.loop.run import Run
from elasticjob.trainer.loop.whereabouts import At

FOLD: Final = 64  # steps are compared modulo this: small numbers, and means of them, are exact
AnyRun = TypeVar("AnyRun", bound=Run[Any, Any, Any])


class Step(ABC, Generic[AnyRun]):
    """A step: a `with` block that ends without an error if a peer is lost, and comes again then."""

    def __init__(self, run: AnyRun) -> None:
        done, sampler = run.state.done, run.reading.sampler(run.peers.place)
        self._run = run
        self.number = done.step + 1
        self.epoch = done.epoch
        self._window = sampler.window(done.position)
        self.records = len(self._window.places)
        self._next = sampler.following(self._window)
        self.ends_epoch = self._next.epoch > done.epoch
        self.done = self.entered = False
        self.loss = float("nan")
        self._began = 0.0

    def __enter__(self) -> Self:
        """Begin the step. RuntimeError if it has begun before."""
        if self.entered:
            raise RuntimeError(f"step {self.number} was begun already: take the next one from the loop")
        self.entered, self._began = True, time.monotonic()
        self._run.membership.at = At.STEP
        self._run.line.say(Phase.COMPUTING)
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[True] | None:
        """Count the step, or form the next world if peers were lost."""
        try:
            return self._end(error)
        finally:
            self._run.membership.at = At.ELSEWHERE

    def _end(self, error: BaseException | None) -> Literal[True] | None:
        run, broken = self._run, error
        try:
            if error is None:
                self._finish()
        except RuntimeError as failed:
            if not run.membership.broken_by(failed):
                raise
            broken = failed
        finally:
            self._close()
        if isinstance(broken, RuntimeError) and run.membership.broken_by(broken):
            self.done = run.repair(self.number, str(broken))
            self.loss = run.state.done.loss if self.done else self.loss
            return True
        if error is None:
            run.after_step()
        return None

    def _reducing(self) -> int:
        """Say that the sums of this step may wait for others; return what tells steps apart."""
        self._run.line.say(Phase.REDUCING, busy=time.monotonic() - self._began)
        self._run.peers.check()
        fold: int = (self.number - 1) % FOLD
        return fold

    def _count(self, loss: float, boundary: bool) -> None:
        """Count this step; `boundary`: this world ends with it."""
        self.loss = loss
        self._run.count_step(self.records, self._next, loss, boundary)
        self.done = True

    @abstractmethod
    def _begin(self) -> None:
        """Begin what is to be computed."""

    @abstractmethod
    def _finish(self) -> None:
        """Take the step, and count it. A RuntimeError that breaks the world, or is the script's."""

    def _close(self) -> None:
        """End what `_begin` began, however the step has ended."""
