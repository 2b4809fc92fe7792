"""One step of the training loop: this worker's records, and the mean over those of all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from elasticjob.trainer.jax.run import Run
from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.loop import step
from elasticjob.trainer.records.sampler import Piece


class Step(step.Step[Run]):
    """A step: `with step: for records in step: step.add(…)`, then `step.mean()`.

    The records of a step are cut into as many parts as the job may have workers; this worker has one or
    several. `for records in step` gives the numbers of the records of each part, an array. `add` takes any
    pytree of arrays that are means over them, such as a loss and gradients; `mean` returns the same tree: the
    means over all records of the step, the same on all workers.

    If another worker is lost meanwhile, the block ends without an error, and the step comes again with the
    same records: `done` is False then.

    `number` counts from 1 over the life of the job; `epoch` is that of its records, and `ends_epoch` says
    whether they are the last ones of it. `counted` is the number of the present records that count: 0 of
    another worker's, which one has where there are fewer parts than workers.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._mean = self._interrupted = False
        self._pieces: tuple[Piece, ...] = ()
        self._current: Piece | None = None
        self._sum: Any = None
        self._types: Any = None  # of the leaves that were added
        self.counted = self._counted = 0
        self._loss: float | None = None

    def _begin(self) -> None:
        self._pieces = self._run.begin_step(self._window)

    def _finish(self) -> None:
        if not self._mean:
            raise RuntimeError(f"step {self.number} ended without step.mean(): every step needs it once")
        self._run.state.check(self.number)
        if self._loss is not None:
            self._run.reports.notice(self.number, self._loss)
        self._count(float("nan") if self._loss is None else self._loss, self._interrupted)

    def _close(self) -> None:
        if not self.done:
            self._run.put_back()

    def __iter__(self) -> Iterator[np.ndarray[Any, Any]]:
        """Yield the numbers of the records of each part that this worker has."""
        if not self.entered:
            raise RuntimeError("the records of a step can be had inside of `with step:`")
        for piece in self._pieces:
            self._run.peers.check()
            self._current, self.counted = piece, piece.count
            yield self._run.reading.numbers(self.epoch, piece.places)
            if self._current is not None:
                raise RuntimeError(f"step {self.number} has records without step.add(…)")

    def add(self, tree: Any) -> None:
        """Add means over the present records, such as (loss, gradients), to those of the step."""
        piece, self._current = self._current, None
        if piece is None:
            raise RuntimeError("call step.add once for each `records`, inside of `for records in step`")
        self._types = jax.tree.map(jnp.result_type, tree)
        weighted = jax.tree.map(lambda leaf: times(leaf, self._weight(piece.count)), tree)
        self._sum = weighted if self._sum is None else jax.tree.map(jnp.add, self._sum, weighted)
        self._counted += piece.count

    def mean(self) -> Any:
        """Return the means over all records of the step. Call it once, after the loop over the records."""
        if self._sum is None or self._current is not None or self._mean:
            raise RuntimeError("call step.mean once in a step, after the loop over all its records")
        run = self._run
        if run.is_donated:
            raise RuntimeError(
                f"the state at the beginning of step {self.number} was donated before step.mean(): the step "
                "begins anew with it if a worker is lost; donate it to what comes after step.mean()"
            )
        fold, round_ = self._reducing(), run.peers.place.round
        flags = np.array([run.line.interrupted(round_), fold, self._counted], np.int32)
        with run.line.inside():
            total, flags = run.peers.sum((self._sum, flags))
        self._check(np.asarray(flags), fold)
        self._interrupted, self._mean = bool(flags[0] > 0), True
        run.line.say(Phase.COMPUTING)
        return jax.tree.map(
            lambda leaf, kind: mean_of(leaf, self._weight(self.records), kind), total, self._types
        )

    def log(self, **metrics: Any) -> None:
        """Add numbers to the progress in the job's status; that named `loss` is the loss of the step."""
        if "loss" in metrics:
            self._loss = float(metrics.pop("loss"))
        self._run.reports.add(metrics)

    def _weight(self, count: int) -> int:
        """Return the weight of a mean over so many records; the only part of a step stays as it is."""
        return count if self._window.count > 1 else min(count, 1)

    def _check(self, flags: np.ndarray[Any, Any], fold: int) -> None:
        """Raise RuntimeError if the workers are at different steps, or have not taken all records."""
        size = self._run.peers.size
        if flags[1] != fold * size or flags[2] != self.records:
            raise RuntimeError(
                f"the workers take different steps: this one step {self.number} of {self.records} records, "
                f"and all together {flags[2]}; do the same on all workers, for all of `for records in step`"
            )


def times(leaf: Any, weight: int) -> Any:
    """Return a mean, so many times; zeros where the records are another worker's.

    In 32 bits at least: a sum in half precision overflows, and loses what is small beside it.
    """
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)  # of 64 bits, which JAX would cut off
    array = jnp.asarray(array.astype(jnp.promote_types(array.dtype, jnp.float32)))
    return array * weight if weight else jnp.zeros_like(array)


def mean_of(leaf: Any, weight: int, kind: Any) -> Any:
    """Return a sum divided by all weights, in the type of what was added: float32 for integers."""
    mean = leaf / np.asarray(weight, leaf.dtype)
    return mean.astype(kind) if jnp.issubdtype(kind, jnp.inexact) else mean
