"""One step of the training loop: micro-batches, backward passes, and what comes before the optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.loop import step
from elasticjob.trainer.loop.step import FOLD
from elasticjob.trainer.records.sampler import Piece
from elasticjob.trainer.torch.records.data import stream, to_device
from elasticjob.trainer.torch.records.randomness import Randomness, seed_torch
from elasticjob.trainer.torch.run import Run, trained_parameters
from elasticjob.trainer.torch.state import State


class Step(step.Step[Run]):
    """A step of the training: `with step: for batch in step: … step.backward(loss)`.

    When the block ends, the gradients of all workers have been reduced, and the optimizers step. If another
    worker is lost meanwhile, the block ends without an error, and `done` says whether the step counts: if
    not, the loop gives it again, with the same records. It is the same on all workers.

    `number` counts from 1 over the life of the job; `epoch` is that of its records, and `ends_epoch` says
    whether they are the last ones of it; `loss` is the mean over the records of all workers, once it is done.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._scope = run.line.inside()
        self._pieces: tuple[Piece, ...] = ()
        self._current: Piece | None = None  # its backward pass is due
        self._counted = 0  # records of the last batch
        self._last = self._iterated = self._divided = self._unscaled = False
        self._weighted: bool | None = None
        self._losses: Tensor | float = 0.0
        self._weights = 0.0
        self._sent = False
        self._random: Randomness | None = None

    @property
    def counted(self) -> int:
        """How many records of the present batch count: all, or none.

        A worker without records of its own computes another one's, because all take part in the reduction.
        Leave such a batch out of your own counters and metrics.
        """
        return self._current.count if self._current is not None else self._counted

    def _begin(self) -> None:
        self._random = Randomness.of(self._run.device)
        self._scope.__enter__()
        self._pieces = self._run.begin_step(self._window)
        self._run.noise.begin(self.number, self._window.count, trained_parameters(self._run.state))

    def _close(self) -> None:
        self._run.noise.end()
        self._scope.__exit__(None, None, None)
        if self._random is not None:
            self._random.put_back()

    def __iter__(self) -> Iterator[Any]:
        """Yield this worker's micro-batches, as `collate_fn` made them, on the model's device."""
        if not self.entered:
            raise RuntimeError("the batches of a step can be had inside of `with step:`")
        if self._iterated:
            raise RuntimeError("the batches of a step can be had once")
        self._iterated = True
        run = self._run
        for piece in self._pieces:
            run.peers.check()
            run.line.say(Phase.READING)
            with run.line.inside(False):
                batch = to_device(run.reading.next(), run.device)
            run.line.say(Phase.COMPUTING)
            seed_torch(stream(run.seed, self.number - 1, piece.index), run.device)
            self._current, self._last = piece, piece is self._pieces[-1]
            self._counted = piece.count
            with run.reduction.adding_up(self._last):
                yield batch
            if self._current is not None:
                raise RuntimeError(f"step {self.number} has a batch without step.backward(loss)")

    def backward(self, loss: Tensor, *, weight: float | None = None) -> None:
        """Compute the gradients of a micro-batch's mean loss, weighted for the fixed global batch.

        Each record counts the same. With `weight`, such as a number of tokens, micro-batches count by it:
        then give it for each of them, on all workers.
        """
        run, piece = self._run, self._current
        if piece is None:
            raise RuntimeError(
                "call step.backward once for each batch, inside of `for batch in step`: add up its losses"
            )
        run.reduction.check_used()
        if self._weighted not in (None, weight is not None):
            raise RuntimeError("give step.backward a weight for each batch, or for none")
        self._weighted, self._current = weight is not None, None
        counts = (piece.count if weight is None else weight) if piece.count else 0
        if loss.numel() != 1:
            raise RuntimeError(f"step.backward takes a mean loss, and this has the shape {(*loss.shape,)}")
        if counts:
            enough = torch.promote_types(loss.dtype, torch.float32)  # a sum of half precision may overflow
            known = loss.item() if loss.device.type == "cpu" else loss.detach().to(enough)
            self._losses = self._losses + known * counts
            self._weights += counts
        scaled = loss if run.state.scaler is None else run.state.scaler.scale(loss)
        factor = self._factor(counts)
        if run.noise.measures:
            scale = run.state.scaler.get_scale() if run.state.scaler else 1.0
            run.noise.weigh(counts / self.records, factor * scale)
        roots, gradients = [scaled], [torch.full_like(scaled, factor)]
        if self._last and (sent := self._send()) is not None:
            roots.append(sent[0])
            gradients.append(sent[1])
        with nullcontext() if factor else run.reduction.without_gradients(loss):
            torch.autograd.backward(roots, gradients)
        if len(self._pieces) > 1:
            run.buffers.after(first=piece is self._pieces[0], last=self._last)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Clip the gradients of all parameters that are trained; return their total norm before.

        Call it in the block, after the loop over the batches.
        """
        self.unscale()
        return self._run.reduction.clip(trained_parameters(self._run.state), max_norm, norm_type)

    def unscale(self) -> None:
        """Make the gradients those of the mean loss, where a GradScaler or weights are used.

        Call it in the block, after the loop over the batches, before you read or change gradients.
        """
        weight = self._means()[1] * self._run.peers.size
        if self._weighted and not self._divided:
            self._divided = True
            for parameter in trained_parameters(self._run.state):
                if parameter.grad is not None and weight:
                    parameter.grad.div_(weight)
        scaler = self._run.state.scaler
        if scaler is not None and not self._unscaled:
            self._unscaled = True
            for optimizer in self._run.state.optimizers:
                scaler.unscale_(optimizer)
        run = self._run
        if run.noise.measures and not self._weighted:
            round_, count = run.peers.place.round, self._window.count
            run.noise.finish(round_, count, self.records, trained_parameters(run.state))

    def log(self, **metrics: float | Tensor) -> None:
        """Add your own numbers (learning rate, gradient norm) to the progress in the job's status.

        The status shows those of the main worker. The mean loss is there without it.
        """
        self._run.reports.note(
            {name: each.detach() if isinstance(each, Tensor) else each for name, each in metrics.items()}
        )

    def _factor(self, counts: float) -> float:
        """Return the factor of a micro-batch's loss: DistributedDataParallel averages over the workers.

        With records, n·c/C makes the sum over all micro-batches the mean over all records. C is not known
        before the reduction if it counts something else: then it is divided afterwards.
        """
        size = self._run.peers.size
        return size * counts if self._weighted else size * counts / self.records

    def _send(self) -> tuple[Tensor, Tensor] | None:
        """Send the step's few numbers; return the tensor whose gradient they are if they ride along."""
        run, fold = self._run, self._reducing()
        self._sent = True
        known = isinstance(self._losses, float)
        first = self._losses if known else 0.0
        round_ = run.peers.place.round
        interrupted, squares = run.line.interrupted(round_), run.noise.mine(round_)
        numbers = torch.tensor((first, self._weights, interrupted, fold, squares), device=run.device)
        if not known:
            numbers[0] = self._losses
        return run.reduction.send(numbers)

    def _means(self) -> list[float]:
        if not self._sent or self._current is not None:
            raise RuntimeError(
                f"step {self.number} has not had all its batches: take each of `for batch in step`, and call "
                "step.backward(loss) for it"
            )
        return self._run.reduction.means()

    def _finish(self) -> None:
        loss, weights, interrupted, steps, squares = self._means()
        run, size = self._run, self._run.peers.size
        if abs(steps - (self.number - 1) % FOLD) > 0.25 / size:
            raise RuntimeError(
                f"the workers take different steps: this one step {self.number}, and the mean of all is "
                f"{steps:.4f} (modulo {FOLD})"
            )
        if self._weighted or run.noise.measures:
            self.unscale()
        run.noise.learn(squares * size)
        self.loss = loss / weights if weights else float("nan")
        run.reports.notice(self.number, self.loss)
        if not run.remedies(self.loss):
            step_optimizers(run.state)
        self._count(self.loss, interrupted > 0)


def step_optimizers(state: State) -> None:
    """Take a step: the gradients are reduced."""
    scaler = state.scaler
    for optimizer in state.optimizers:
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
    if scaler is not None:
        scaler.update()
    for scheduler in state.schedulers:
        scheduler.step()
