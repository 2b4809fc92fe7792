"""One worker's part in the training: its state in torch, and what each step does to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from elasticjob.api.rpc.nodes import Progress
from elasticjob.trainer.link.line import Line
from elasticjob.trainer.loop import run
from elasticjob.trainer.loop.losses import Remedy
from elasticjob.trainer.loop.reports import Reports
from elasticjob.trainer.records.sampler import Piece, Position, Window
from elasticjob.trainer.torch.buffers import Buffers
from elasticjob.trainer.torch.membership import Membership
from elasticjob.trainer.torch.noise import METRIC, Noise
from elasticjob.trainer.torch.reading import Reading
from elasticjob.trainer.torch.reduction import reduction_of
from elasticjob.trainer.torch.saving.tensors import Tensors
from elasticjob.trainer.torch.state import State
from elasticjob.trainer.torch.world.peers import Peers


class Run(run.Run[Peers, State, Reading]):
    """The training of one worker: `Elastic` and `Step` are what a script sees of it."""

    membership: Membership

    def __init__(
        self,
        state: State,
        *,
        seed: int,
        checkpoint: str | None,
        save_every: int,
        memory_every: int,
        noise_every: int,
        ddp: Mapping[str, Any],
        environment: Mapping[str, str],
        remedy: Remedy | None = None,
    ) -> None:
        self.seed = seed
        self.device = next(state.model.parameters()).device
        self.noise = Noise(noise_every)
        self.reduction = reduction_of(state, noise_every, ddp)
        self.evaluating = False
        self.buffers = Buffers((), ())
        self._buffers: Sequence[Tensor] = ()
        self._remedy = remedy
        self.repeated = 0  # meetings before the first step that this newcomer has had again
        line, reports = Line(environment), Reports()
        copies = run.copies_of(
            state,
            Tensors(),
            line,
            environment,
            checkpoint=checkpoint,
            save_every=save_every,
            memory_every=memory_every,
            together=self.reduction.together,
            clones=remedy is not None and remedy.rolls_back,
        )
        super().__init__(
            state,
            Reading(state, line, self.reduction.together),
            reports,
            copies,
            Membership(state, self.reduction, copies, line, reports),
            line,
            environment,
        )
        self.membership.begin()

    def begin_step(self, window: Window) -> tuple[Piece, ...]:
        """Clear the gradients; return this worker's micro-batches of `window`."""
        self.membership.wrap_what_is_trained()
        self.reduction.begin()
        for optimizer in self.state.optimizers:
            optimizer.zero_grad()
        self.reading.ahead(self.peers.place)
        pieces = window.of(self.peers.rank, self.peers.size, self.reduction.together)
        self._buffers = self.state.buffers() if self.peers.size > 1 or len(pieces) > 1 else ()
        self.buffers = Buffers(list(self.state.model.buffers()), self._buffers)
        self.note_step(sum(piece.count for piece in pieces))
        return pieces

    def remedies(self, loss: float) -> bool:
        """Whether this step is not to be taken: its loss or its gradients are not finite.

        RuntimeError if that was so too often. The same on all workers. Gradients that overflow while a
        GradScaler can still lower its scale are its own: it leaves that step out, and looks for a scale.
        """
        if self._remedy is None:
            return False
        scaler = self.state.scaler
        if math.isfinite(loss):
            if scaler is not None and scaler.get_scale() > 1:
                return False
            norm = self.reduction.clip(trained_parameters(self.state), math.inf, 2.0)
            if bool(torch.isfinite(norm)):
                return False
        if scaler is not None:
            scaler.update(scaler.get_scale())  # the step is over for it; the scale is not to blame
        self.state.left_out += 1
        self._remedy.check(self.state.done.step + 1, self.state.left_out)
        self.copies.roll_back()
        return True

    def count_step(self, records: int, position: Position, loss: float, boundary: bool) -> None:
        """Count a step of `records` records as done; `boundary`: this world ends with it."""
        super().count_step(records, position, loss, boundary)
        self.state.said = []
        self.reading.advance(self.peers.place)

    def repair(self, number: int, error: str) -> bool:
        """Form the next world after a loss in step `number`; return whether a survivor has finished it."""
        if self._buffers:
            self.state.put_back(self._buffers)
        return super().repair(number, error)

    def _progress(self, standstill: float | None) -> Progress:
        if self.noise.scale is not None:
            self.reports.add({METRIC: self.noise.scale})
        return super()._progress(standstill)


def trained_parameters(state: State) -> list[Tensor]:
    """Return the parameters of all optimizers."""
    groups = (group for optimizer in state.optimizers for group in optimizer.param_groups)
    return [parameter for group in groups for parameter in group["params"]]
