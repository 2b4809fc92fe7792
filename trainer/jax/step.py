"""One step of the training loop: this worker's records, and the mean over those of all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np

from elasticjob.trainer.jax.coordination import Lost
from elasticjob.trainer.jax.run import Run
from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.records.sampler import Piece

FOLD = 64  # steps are compared modulo this


class Step:
    """A step: `with step: for records in step: step.add(…)`, then `step.mean()`.

    The records of a step are cut into as many parts as the job may have workers; this worker has one or
    several. `for records in step` gives the numbers of the records of each part, an array. `add` takes any
    pytree of arrays that are means over them, such as a loss and gradients; `mean` returns the same tree: the
    means over all records of the step, the same on all workers.

    If another worker is lost meanwhile, the block ends without an error, and the step comes again with the
    same records: `done` is False then.

    `number` counts from 1 over the life of the job; `epoch` is that of its records, and `ends_epoch` says
    whether they are the last ones of it.
    """

    def __init__(self, run: Run) -> None:
        done, sampler = run.membership.done, run.sampler
        self._run = run
        self.number = done.step + 1
        self.epoch = done.epoch
        self._window = sampler.window(done.position)
        self.records = len(self._window.places)
        self._next = sampler.following(self._window)
        self.ends_epoch = self._next.epoch > done.epoch
        self.done = self.entered = False
        self._mean = self._interrupted = False
        self._current: Piece | None = None
        self._sum: Any = None
        self._counted = 0
        self._loss = float("nan")
        self._began = 0.0

    def __enter__(self) -> Self:
        """Begin the step. RuntimeError if it has begun before."""
        if self.entered:
            raise RuntimeError(f"step {self.number} was begun already: take the next one from the loop")
        self.entered, self._began = True, time.monotonic()
        self._run.line.say(Phase.COMPUTING)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[True] | None:
        """Count the step, or form the next world if peers were lost."""
        if isinstance(error, Lost):
            self.done = self._run.repair(self.number, str(error))
            return True
        if error is not None:
            return None
        if not self._mean:
            raise RuntimeError(f"step {self.number} ended without step.mean(): every step needs it once")
        self._run.count(self._window, self._next, self._loss, self._interrupted, self._began)
        self.done = True
        return None

    def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
        """Yield the numbers of the records of each part that this worker has."""
        if not self.entered:
            raise RuntimeError("the records of a step can be had inside of `with step:`")
        place = self._run.membership.peers.place
        for piece in self._window.of(place.rank, place.size):
            self._run.membership.peers.check()
            self._current = piece
            yield self._run.numbers(self.epoch, piece.places)
            if self._current is not None:
                raise RuntimeError(f"step {self.number} has records without step.add(…)")

    def add(self, tree: Any) -> None:
        """Add means over the present records, such as (loss, gradients), to those of the step."""
        piece, self._current = self._current, None
        if piece is None:
            raise RuntimeError("call step.add once for each `records`, inside of `for records in step`")
        weighted = jax.tree.map(lambda leaf: times(leaf, piece.count), tree)
        self._sum = weighted if self._sum is None else jax.tree.map(jnp.add, self._sum, weighted)
        self._counted += piece.count

    def mean(self) -> Any:
        """Return the means over all records of the step. Call it once, after the loop over the records."""
        if self._sum is None or self._current is not None or self._mean:
            raise RuntimeError("call step.mean once in a step, after the loop over all its records")
        run = self._run
        run.line.say(Phase.REDUCING, busy=time.monotonic() - self._began)
        fold, round_ = (self.number - 1) % FOLD, run.membership.peers.place.round
        flags = np.array([run.line.interrupted(round_), fold, self._counted], np.int32)
        with run.line.inside():
            total, flags = run.membership.peers.sum((self._sum, flags))
        self._check(np.asarray(flags), fold)
        self._interrupted, self._mean = bool(flags[0] > 0), True
        run.line.say(Phase.COMPUTING)
        return jax.tree.map(lambda leaf: leaf / np.asarray(self.records, leaf.dtype), total)

    def log(self, **metrics: Any) -> None:
        """Add numbers to the progress in the job's status; that named `loss` is the loss of the step."""
        if "loss" in metrics:
            self._loss = float(metrics.pop("loss"))
        self._run.reports.add(metrics)

    def _check(self, flags: np.ndarray[Any, Any], fold: int) -> None:
        """Raise RuntimeError if the workers are at different steps, or have not taken all records."""
        size = self._run.membership.peers.size
        if flags[1] != fold * size or flags[2] != self.records:
            raise RuntimeError(
                f"the workers take different steps: this one step {self.number} of {self.records} records, "
                f"and all together {flags[2]}; do the same on all workers, for all of `for records in step`"
            )


def times(leaf: Any, count: int) -> Any:
    """Return a mean over `count` records as a sum; zeros where the records are another worker's."""
    array = jnp.asarray(leaf)
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        array = array.astype(jnp.float32)
    return array * count if count else jnp.zeros_like(array)
