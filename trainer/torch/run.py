"""One worker's part in the training: its state, and what each step does to it.

All workers are at the same place of the script when they meet in a collective: a step that broke is repaired
inside its `with` block, so that `step.done` is the same everywhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from elasticjob.api.rpc.nodes import Progress
from elasticjob.trainer.checkpoint.flash import Flash
from elasticjob.trainer.link.address import SLOT
from elasticjob.trainer.link.channel import Advance
from elasticjob.trainer.link.line import Line
from elasticjob.trainer.link.pulse import Phase
from elasticjob.trainer.records import record as records
from elasticjob.trainer.records.done import Done
from elasticjob.trainer.records.sampler import Piece, Position, Window
from elasticjob.trainer.torch.buffers import Buffers
from elasticjob.trainer.torch.copies import Copies
from elasticjob.trainer.torch.losses import Remedy
from elasticjob.trainer.torch.membership import Membership
from elasticjob.trainer.torch.noise import METRIC, Noise
from elasticjob.trainer.torch.reading import Reading
from elasticjob.trainer.torch.reduction import reduction_of
from elasticjob.trainer.torch.reports import Reports
from elasticjob.trainer.torch.saving.tensors import Tensors
from elasticjob.trainer.torch.state import State
from elasticjob.trainer.torch.world.peers import Peers

KEEP: Final = 2  # checkpoints in storage


class Run:
    """The training of one worker: `Elastic` and `Step` are what a script sees of it."""

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
        self.state = state
        self.seed = seed
        self.device = next(state.model.parameters()).device
        self.reduction = reduction_of(state, noise_every, ddp)
        self.noise, self.reports = Noise(noise_every), Reports()
        self.evaluating = self.ended = False
        self.buffers = Buffers((), ())
        self._buffers: Sequence[Tensor] = ()
        self._remedy = remedy
        self._before = Done()
        self._began = 0.0
        self._records = 0  # that this worker takes in the present step
        self.repeated = 0  # meetings before the first step that this newcomer has had again
        self._record = records.from_environment(environment)
        self.line = Line(environment)
        self.reading = Reading(state, self.line, self.reduction.together)
        say = self.line.send
        flash = (
            Flash(checkpoint, Tensors(), keep=KEEP, environment=environment, say=say) if checkpoint else None
        )
        one_of_its_node = environment.get(SLOT, "0") == "0"
        self.copies = Copies(
            state,
            flash,
            save_every=save_every,
            memory_every=memory_every,
            together=self.reduction.together,
            takes=one_of_its_node or self.reduction.together > 1,
            clones=remedy is not None and remedy.rolls_back,
            page=self.line.page,
        )
        self.membership = Membership(state, self.reduction, self.copies, self.line, self.reports)
        self.membership.begin()

    @property
    def peers(self) -> Peers:
        """The workers of the present world."""
        return self.membership.peers

    @property
    def left(self) -> int:
        """The number of steps that are left."""
        return self.reading.left(self.peers.place)

    def begin_step(self, window: Window) -> tuple[Piece, ...]:
        """Clear the gradients; return this worker's micro-batches of `window`."""
        self.membership.wrap_what_is_trained()
        self._began = time.monotonic()
        self._before = self.state.done
        self.reduction.begin()
        for optimizer in self.state.optimizers:
            optimizer.zero_grad()
        self.reading.ahead(self.peers.place)
        pieces = window.of(self.peers.rank, self.peers.size, self.reduction.together)
        self._buffers = self.state.buffers() if self.peers.size > 1 or len(pieces) > 1 else ()
        self.buffers = Buffers(list(self.state.model.buffers()), self._buffers)
        self._records = sum(piece.count for piece in pieces)
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
        self.state.done = self.state.done.then(position, records, loss)
        self.state.said = []
        self.reading.advance(self.peers.place)
        self.membership.boundary = boundary

    def after_step(self) -> None:
        """Report and record a step that is done."""
        done = self.state.done
        self.line.say(Phase.OUTSIDE, step=done.step, reduced=time.monotonic(), records=self._records)
        if self._record and self.peers.rank == 0:
            self._record.add(self.peers.place.round, self.peers.size, self._before, done)
        self.report_step()

    def repair(self, number: int, error: str) -> bool:
        """Form the next world after a loss in step `number`; return whether a survivor has finished it."""
        if self._buffers:
            self.state.put_back(self._buffers)
        self.membership.next(error)
        if self.state.done.step < number:
            return False
        self.after_step()
        return True

    def report(self, metrics: Mapping[str, float]) -> None:
        """Add metrics to the progress in the job's status."""
        self.reports.add(metrics)
        if not self.line.is_alone and self.reading.loader is not None:
            self.line.send(Advance(round=self.peers.place.round, progress=self._progress(None)))

    def report_step(self, *, last: bool = False, at_once: bool = False) -> None:
        """Report progress, if it is time."""
        now = time.monotonic()
        if not self.reports.step(now, at_once=last or at_once) or self.line.is_alone:
            return
        self.line.send(
            Advance(
                round=self.peers.place.round,
                progress=self._progress(self.reports.standstill(now)),
                seconds=now - self._began,
                ended=last,
            )
        )

    def _progress(self, standstill: float | None) -> Progress:
        if self.noise.scale is not None:
            self.reports.add({METRIC: self.noise.scale})
        return self.reports.progress(
            self.state.done,
            left=self.left,
            records=self.reading.sampler(self.peers.place).records,
            standstill=standstill,
        )


def trained_parameters(state: State) -> list[Tensor]:
    """Return the parameters of all optimizers."""
    groups = (group for optimizer in state.optimizers for group in optimizer.param_groups)
    return [parameter for group in groups for parameter in group["params"]]
