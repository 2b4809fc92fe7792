"""The state that workers share: model, optimizer, scheduler, and progress of the job."""

from __future__ import annotations

import copy
import io
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from elasticjob.trainer.torch.peers import Peers
from elasticjob.trainer.torch.sampler import Position

NOTHING = -1  # the step of a worker that holds no state of the job


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
        return replace(
            self,
            step=self.step + 1,
            samples=self.samples + samples,
            epoch=position.epoch,
            offset=position.offset,
            loss=loss,
        )


@dataclass
class State:
    """The training state of one worker; `done` is replaced after each step.

    `whole` says that this is the state of the job. `mixed` is True from the first received tensor of a
    broadcast until the last: if the sender dies in between, the state is inconsistent and must not be shared.
    """

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    done: Done
    whole: bool = False
    mixed: bool = False

    def snapshot(self) -> dict[str, Any]:
        """Return everything as plain tensors and numbers."""
        return {"model": self.model.state_dict(), **self._small()}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take over a `snapshot`."""
        self.model.load_state_dict(snapshot["model"])
        self._restore_small(snapshot)

    def share(self, peers: Peers, start: Callable[[], bool]) -> None:
        """Bring all workers to the newest whole state: the oldest worker's, or one that is a step ahead.

        Survivors of a broken collective may be one whole step apart. The broadcast is skipped if all states
        are equal. If no worker holds a state, rank 0 starts with what `start` restores, or with the script's
        initial state. RuntimeError if `start` restores nothing and the initial state is gone.
        """
        steps = peers.gather(self.done.step if self.whole else NOTHING)
        newest = max(steps)
        source = steps.index(newest)
        if min(steps) == newest != NOTHING:
            return
        giving = peers.rank == source
        if newest == NOTHING and giving and not start() and self.mixed:
            raise RuntimeError(
                "the worker that sent its model died during the transfer, no other has it, and there is no "
                "checkpoint: restart the job, with Elastic(checkpoint=...) to lose less next time"
            )
        self.whole, self.mixed = giving, not giving
        self._broadcast_model(source)
        received = self._broadcast_small(source, giving)
        if received is not None:
            self._restore_small(received)
        self.whole, self.mixed = True, False

    def _small(self) -> dict[str, Any]:
        return {
            "optimizer": plain(self.optimizer.state_dict()),
            "scheduler": plain(self.scheduler.state_dict()) if self.scheduler else None,
            "done": asdict(self.done),
        }

    def _restore_small(self, small: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(small["optimizer"])
        if self.scheduler is not None and small["scheduler"] is not None:
            self.scheduler.load_state_dict(small["scheduler"])
        self.done = Done(**small["done"])

    def _broadcast_model(self, source: int) -> None:
        with torch.no_grad():
            tensors = (*self.model.parameters(), *self.model.buffers())
            works = [dist.broadcast(tensor.detach(), source, async_op=True) for tensor in tensors]
            for work in works:
                if work is not None:
                    work.wait()

    def _broadcast_small(self, source: int, giving: bool) -> dict[str, Any] | None:
        """Send optimizer, scheduler and progress as one block of bytes; None for the sender."""
        block = torch.empty(0, dtype=torch.uint8)
        if giving:
            file = io.BytesIO()
            torch.save(self._small(), file)
            block = torch.frombuffer(bytearray(file.getbuffer()), dtype=torch.uint8)
        length = torch.tensor([len(block)])
        dist.broadcast(length, source)
        if not giving:
            block = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(block, source)
        if giving:
            return None
        received: dict[str, Any] = torch.load(
            io.BytesIO(block.numpy().tobytes()), map_location="cpu", weights_only=True
        )
        return received


def plain(value: Any) -> Any:
    """Return `value` with NumPy's scalars as Python's numbers: torch refuses to load others.

    A schedule that calls `np.cos` makes the learning rate such a scalar.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    if isinstance(value, dict):
        same = copy.copy(value)  # of the same class: a Counter stays one
        for key, each in value.items():
            same[key] = plain(each)
        return same
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
