"""`Elastic`: a training loop whose number of workers may change between any two steps.

    elastic = Elastic(model, optimizer, dataset=digits, micro_batch=32)
    for step in elastic.steps(epochs=10):
        loss = elastic.step(lambda images, labels: F.cross_entropy(elastic.model(images), labels))

A lost peer breaks the step: it is repeated, with the same records, in the next world. A planned join or leave
ends the world at a step boundary, on which all workers agree by a flag in the one small all-reduce of each
step.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import default_collate

from elasticjob.api.rpc.nodes import Progress
from elasticjob.trainer.channel import Advance, Enter
from elasticjob.trainer.torch import link as links
from elasticjob.trainer.torch import record as records
from elasticjob.trainer.torch.batch import weight
from elasticjob.trainer.torch.checkpoint import Checkpoints
from elasticjob.trainer.torch.link import Stopped
from elasticjob.trainer.torch.peers import Peers
from elasticjob.trainer.torch.sampler import Piece, Sampler
from elasticjob.trainer.torch.state import Done, State

log = logging.getLogger("elasticjob")

REPORT_EVERY = 0.25  # seconds
ALONE = Enter(round=1, rank=0, size=1, address="", port=0, batch_slots=1)


class Elastic:
    """Trains `model` with `optimizer` on `dataset`, in any world that the agent assigns.

    The global batch is fixed: N micro-batches of `micro_batch` records per step, N being the job's configured
    maximum of workers; fewer workers compute several each. Gradients, clipping and schedules see the same
    step for every number of workers. Random numbers in the model are drawn from a stream per micro-batch, so
    they do not depend on it either. Buffers that `forward` changes (running statistics of BatchNorm) are rank
    0's, and see the micro-batches of a repeated step twice.

    `loss_of` (see `step`) gets a micro-batch as `collate` makes it (the parts of a tuple or list one by one,
    a dict or a tensor as it is) and returns its mean loss. With `checkpoint`, rank 0 saves there every
    `save_every` steps, at the end and when the job is stopped; a new job resumes from the newest file.
    Without an agent this is a single worker.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        dataset: Any,
        micro_batch: int,
        scheduler: LRScheduler | None = None,
        seed: int = 0,
        checkpoint: str | Path | None = None,
        save_every: int = 1000,
        collate: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"optimizer is a {type(optimizer).__name__}: give one torch.optim.Optimizer, with a "
                "parameter group for each part of the model that needs other settings"
            )
        self._state = State(model, optimizer, scheduler, Done())
        self._device = next(model.parameters()).device
        self._dataset = dataset
        self._micro_batch = micro_batch
        self._seed = seed
        self._checkpoints = Checkpoints(folder(checkpoint)) if checkpoint else None
        self._save_every = save_every
        self._collate = collate
        self._order: tuple[int, Tensor] | None = None
        self._epochs = 0
        self._said = self._began = 0.0
        self._stepped: float | None = None  # end of the last step in the previous world
        self._entered = False  # no step in this world yet
        self._boundary = False  # all agreed to end this world
        self._distributed: DistributedDataParallel | None = None
        self._used = False
        self._metrics: dict[str, float | None] = {}
        self._before = Done()  # the last step
        self._record = records.from_environment(os.environ)
        self._link = links.from_environment(os.environ)
        self._peers = Peers(ALONE, self._device)
        self._first_world()

    @property
    def model(self) -> nn.Module:
        """The model for `loss_of` to call: wrapped for the present world, bare after the last step."""
        return self._distributed or self._state.model

    @property
    def rank(self) -> int:
        """The rank of this worker in the current world; the oldest worker has 0."""
        return self._peers.rank

    @property
    def world_size(self) -> int:
        """The number of workers now."""
        return self._peers.size

    @property
    def round(self) -> int:
        """The number of the present world; it rises with every change."""
        return self._peers.place.round

    @property
    def is_main(self) -> bool:
        """Whether this worker should print, evaluate and write files."""
        return self.rank == 0

    @property
    def epoch(self) -> int:
        """The epoch of the next step."""
        return self._state.done.epoch

    @property
    def progress(self) -> Done:
        """Steps and records so far, over all worlds."""
        return self._state.done

    def steps(self, epochs: int) -> Iterator[int]:
        """Yield the number of each remaining step, counted from 1 over the life of the job; call `step` for
        each.

        Ends after `epochs` epochs; then the group is closed and the last checkpoint written.
        """
        self._epochs = epochs
        while self._left():
            number = self._state.done.step + 1
            yield number
            if self._state.done.step < number:
                raise RuntimeError(f"step {number} was not taken: call elastic.step(...) in the loop")
            if self._boundary and self._left():
                self._next_world()
        self._report(last=True)
        self._leave_group()
        if self._checkpoints and self.is_main:
            self._save()

    def step(self, loss_of: Callable[..., Tensor]) -> float:
        """Take one step on the next records; return the mean loss over all of them.

        `loss_of` is called for each micro-batch of this worker, and again if the world breaks, so it must
        have no side effects. A worker for which the end of an epoch has no records gets the first ones, and
        its loss counts nothing. A worker that is told to leave exits after its step (SystemExit).
        """
        number = self._state.done.step + 1
        while self._state.done.step < number:
            try:
                with self._inside():
                    self._boundary = self._attempt(loss_of)
            except RuntimeError as error:
                if self._link is None or not self._peers.broken_by(error):
                    raise
                self._next_world(str(error))
            else:
                self._after_step()
        return self._state.done.loss

    def report(self, **metrics: float) -> None:
        """Add your own metrics (accuracy, perplexity) to the progress in the job's status."""
        self._metrics |= {name: float(value) for name, value in metrics.items()}
        if self._link is not None:
            self._link.advance(Advance(round=self._peers.place.round, progress=self._news(None)))

    def _attempt(self, loss_of: Callable[..., Tensor]) -> bool:
        """Take the next step or change nothing; return whether all agreed to end this world."""
        self._began = time.monotonic()
        done, sampler = self._state.done, self._sampler()
        self._before = done
        window = sampler.window(done.position)
        total = len(window.places)
        self._state.optimizer.zero_grad()
        loss = self._gradients(loss_of, window.of(self.rank, self.world_size), total)
        interrupted = self._link is not None and self._link.interrupted(self._peers.place.round)
        sums = self._peers.sum((loss, interrupted, done.step))
        if sums[2] != done.step * self.world_size:
            raise RuntimeError(
                f"the workers take different steps: this one step {done.step}, the sum of all {sums[2]:.0f}"
            )
        self._state.optimizer.step()
        if self._state.scheduler is not None:
            self._state.scheduler.step()
        self._state.done = done.then(sampler.after(done.position), total, sums[0])
        return sums[1] > 0

    def _gradients(self, loss_of: Callable[..., Tensor], pieces: Sequence[Piece], total: int) -> float:
        """Leave this step's gradients in the model; return this worker's part of the mean loss.

        A worker without records (at the end of an epoch) takes the first ones with weight 0, because every
        worker has to take part in the reduction.
        """
        wrapped = self._distributed
        if wrapped is None:
            raise RuntimeError("training has ended: make another Elastic to train again")
        idle = Piece(0, range(min(self._micro_batch, len(self._dataset))))
        loss_sum = 0.0
        for piece in pieces or (idle,):
            last = piece is (pieces or (idle,))[-1]
            count = len(piece.places) if pieces else 0
            torch.manual_seed(stream(self._seed, self._state.done.step, piece.index))
            with self._inside(False):
                batch = self._records(piece)
            self._peers.check()
            self._used = False
            with nullcontext() if last else wrapped.no_sync():
                loss = loss_of(*batch)
                if not self._used:
                    raise RuntimeError(
                        "loss_of called the bare model: its gradients are not averaged over the workers, "
                        "which would train different models; call elastic.model"
                    )
                torch.autograd.backward(loss * weight(count, total, self.world_size))
            loss_sum += float(loss.detach()) * count / total
        return loss_sum

    def _records(self, piece: Piece) -> Sequence[Any]:
        """Return the arguments of `loss_of` for a micro-batch, on the model's device."""
        epoch = self._state.done.epoch
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, permutation(len(self._dataset), self._seed, epoch))
        indices: list[int] = self._order[1][piece.places.start : piece.places.stop].tolist()
        many = getattr(self._dataset, "__getitems__", None)
        records = many(indices) if many else [self._dataset[index] for index in indices]
        batch = moved(self._collate(records), self._device)
        return batch if isinstance(batch, (tuple, list)) else (batch,)

    def _sampler(self) -> Sampler:
        return Sampler(len(self._dataset), self._micro_batch, self._peers.place.batch_slots)

    def _left(self) -> int:
        return self._sampler().steps_left(self._state.done.position, self._epochs)

    def _first_world(self) -> None:
        if self._link is None:
            self._enter(ALONE, None)
            return
        place, listener = self._link.first_world()
        try:
            self._enter(place, listener)
        except RuntimeError as error:
            if not self._peers.broken_by(error):
                raise
            self._next_world(str(error))

    def _next_world(self, error: str | None = None) -> None:
        """Leave the group and enter the next world that holds; Stopped if there is none for this worker."""
        if self._link is None:
            raise RuntimeError("a worker without an agent has no next world")
        while True:
            was_main, ended = self.is_main, self._peers.place.round
            with self._inside():
                self._leave_group()
            try:
                place, listener = self._link.next_world(ended, error)
            except Stopped:
                if was_main and self._checkpoints and self._state.whole:
                    self._save()
                raise
            try:
                self._enter(place, listener)
                return
            except RuntimeError as failed:
                if not self._peers.broken_by(failed):
                    raise
                error = str(failed)

    def _enter(self, place: Enter, listener: socket.socket | None) -> None:
        """Form the group of `place` and synchronize the state of all workers."""
        self._peers = Peers(place, self._device)
        if self._link is not None:
            self._link.guard(place.round, self._peers)
        with self._inside():
            self._peers.open(listener)
            self._state.share(self._peers, self._start_state)
        devices = [self._device] if self._device.type == "cuda" else None
        self._distributed = DistributedDataParallel(self._state.model, device_ids=devices, init_sync=False)
        self._distributed.register_forward_pre_hook(self._note_use)
        self._entered = self._boundary = False
        os.environ.update(
            RANK=str(place.rank),
            WORLD_SIZE=str(place.size),
            MASTER_ADDR=place.address,
            MASTER_PORT=str(place.port),
        )

    def _inside(self, inside: bool = True) -> AbstractContextManager[None]:
        """Tell the agent's questions from now on that this thread may be in a collective, or is in none."""
        return self._link.inside(inside) if self._link else nullcontext()

    def _note_use(self, *_: object) -> None:
        self._used = True

    def _start_state(self) -> bool:
        """Start with the newest checkpoint; return whether there is one."""
        with self._inside(False):
            snapshot = self._checkpoints.load() if self._checkpoints else None
        if snapshot is not None:
            self._state.restore(snapshot)
            self._sampler().check(self._state.done.position)
        return snapshot is not None

    def _leave_group(self) -> None:
        self._distributed = None
        if self._link is not None:
            self._link.release()
        self._peers.close()

    def _after_step(self) -> None:
        done = self._state.done
        if self._record and self.is_main:
            self._record.add(self._peers.place.round, self.world_size, self._before, done)
        self._report(last=False)
        if self._checkpoints and self.is_main and done.step % self._save_every == 0:
            self._save()

    def _report(self, *, last: bool) -> None:
        """Report progress: the first step of a world at once, then a few a second, and the last."""
        now = time.monotonic()
        seconds = now - self._began
        first, before = not self._entered, self._stepped
        self._entered, self._stepped = True, now
        if self._link is None or not (first or last or now - self._said >= REPORT_EVERY):
            return
        self._said = now
        standstill = now - before if first and before is not None else None
        self._link.advance(
            Advance(round=self._peers.place.round, progress=self._news(standstill), seconds=seconds)
        )

    def _news(self, standstill: float | None) -> Progress:
        done = self._state.done
        return Progress(
            step=done.step,
            epoch=done.epoch + done.offset / len(self._dataset),
            total_steps=done.step + self._left(),
            samples=done.samples,
            loss=done.loss,
            metrics=self._metrics,
            standstill=standstill,
        )

    def _save(self) -> None:
        if self._checkpoints:
            self._checkpoints.save(self._state.done.step, self._state.snapshot())


def folder(checkpoint: str | Path) -> Path:
    """Return the folder named by the argument `checkpoint`; ValueError for a URL."""
    if "://" in str(checkpoint):
        raise ValueError(
            f"checkpoint is {str(checkpoint)!r}: URLs are not supported, give a folder that all workers can "
            "reach, like a mounted volume"
        )
    return Path(checkpoint)


def moved(batch: Any, device: torch.device) -> Any:
    """Return a batch with its tensors on `device`."""
    match batch:
        case Tensor():
            return batch.to(device)
        case dict():
            return {key: moved(part, device) for key, part in batch.items()}
        case list():
            return [moved(part, device) for part in batch]
        case tuple():
            parts = [moved(part, device) for part in batch]
            return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
        case _:
            return batch.to(device) if hasattr(batch, "to") else batch


def permutation(records: int, seed: int, epoch: int) -> Tensor:
    """Return the order of the records in `epoch`, the same on every worker."""
    generator = torch.Generator().manual_seed(stream(seed, epoch, -1))
    return torch.randperm(records, generator=generator)


def stream(seed: int, step: int, index: int) -> int:
    """Return the seed of one stream of random numbers, unique to its arguments."""
    mixed = (seed * 0x9E3779B97F4A7C15 + step) * 0xBF58476D1CE4E5B9 + index + 1
    return (mixed ^ (mixed >> 31)) & 0x7FFF_FFFF_FFFF_FFFF
