"""Checkpoints in memory for Lightning's Trainer:

    loader = ResumableLoader(dataset, batch_size=32, shuffle=True)
    Trainer(..., callbacks=[ElasticCallback("/mnt/run")]).fit(model, loader)

The callback restores what Lightning would from its own file, where Lightning would, and random numbers; an
epoch that was cut off goes on at the batch that is next.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins import CheckpointIO
from lightning.pytorch.strategies import ModelParallelStrategy

from elasticjob.trainer.integrations import plain
from elasticjob.trainer.torch.checkpoint import Checkpoint, RandomState
from elasticjob.trainer.torch.saving.loader import ResumableLoader as Resumable
from elasticjob.trainer.torch.saving.tree import StateParts, is_distributed


class ResumableLoader(Resumable):
    """A DataLoader that can begin an epoch at any batch; `shuffle` is by `seed` and epoch.

    The batches before are read, and thrown away. Lightning saves and restores its state; it reads ahead, so
    the callback sets the place. With another number of workers it goes on at the same number of batches, each
    of as many records as before on a worker, or of all workers together.
    """

    counts = False

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next epoch there. ValueError if it is within an epoch of other batches."""
        mine, order = self._order(), state.get("order", {})
        if order.get("workers") != mine.get("workers"):  # which the log of RandomState tells
            together = [(each.get("batch size") or 1) * each.get("workers", 1) for each in (mine, order)]
            lost = {"workers", "sampler"} | ({"batch size"} if together[0] == together[1] else set())
            rest = {name: each for name, each in order.items() if name not in lost}
            state = {**state, "order": rest, "taken": ()}
        super().load_state_dict(state)


OF_SCRIPT: Final = re.compile("hyper_parameters|hparams_")


class ElasticCallback(Callback):
    """Copies the state of a Trainer to memory each `every` steps; see `Checkpoint` for the arguments.

    All that Lightning's own file has is in a copy, except hyper-parameters, which are the script's: model,
    optimizers, schedulers, loops, the states of callbacks, datamodule and precision plugin, and what hooks
    add in `on_save_checkpoint`. A copy counts more than the `ckpt_path` of `fit`. The model is
    replicated, or divided (ModelParallelStrategy): then workers save and load the pieces that they have. The
    train loader should be a `ResumableLoader`: else a restarted epoch begins with its first
    records. A training that was stopped early (`trainer.should_stop`) is not gone on with, until it is to
    make more steps.
    """

    def __init__(
        self, where: str | os.PathLike[str], *, every: int = 100, save_every: int = 1000, keep: int = 2
    ) -> None:
        self._made = partial(Checkpoint, where, every=every, save_every=save_every, keep=keep)
        self._checkpoint: Checkpoint | None = None
        self._whole: Whole | None = None
        self._random = RandomState()
        self._asked: Any = None  # what hears SIGTERM for the checkpoint
        self._ended = False  # before this start
        self._step = -1  # optimizer steps when it was last time for a copy

    def setup(self, trainer: Trainer, module: LightningModule, stage: str) -> None:
        """Give Lightning the newest checkpoint, to restore it with all that is set up by then."""
        if stage != "fit":
            return
        divided = isinstance(trainer.strategy, ModelParallelStrategy)
        if trainer.strategy.restore_checkpoint_after_setup and not divided:
            name = type(trainer.strategy).__name__
            raise TypeError(f"{name} divides the model in its own way: use ModelParallelStrategy or DDP")
        # first of all callbacks, so that a copy is from before any of them has seen the batch
        trainer.callbacks = [self, *(each for each in trainer.callbacks if each is not self)]
        self._whole = whole = Whole(trainer)
        before = signal.getsignal(signal.SIGTERM)
        self._checkpoint = self._made({"lightning": whole, "random": self._random})
        after = signal.getsignal(signal.SIGTERM)
        self._asked = after if after is not before else None
        if not divided:
            self._restore(trainer, {})

    def on_fit_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Restore a divided model, which exists now; let Lightning read and write its own files as before."""
        if any(type(each).__name__ == "ZeroRedundancyOptimizer" for each in trainer.optimizers):
            raise TypeError("ZeroRedundancyOptimizer divides its state: ElasticCallback copies whole ones")
        if isinstance(trainer.strategy, ModelParallelStrategy):
            optimizers = {f"optimizer{number}": each for number, each in enumerate(trainer.optimizers)}
            self._restore(trainer, {"model": module, **optimizers})
        if isinstance(trainer.strategy.checkpoint_io, OneRead):
            trainer.strategy.checkpoint_io = trainer.strategy.checkpoint_io.usual
        assert self._checkpoint is not None
        self._ended = bool(self._checkpoint.ended) and self._checkpoint.is_ended(max_steps(trainer))
        trainer.should_stop |= self._ended

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Count batches as before this one was begun; hear SIGTERM, where Lightning would end with code 0."""
        _check_loaders(trainer.train_dataloader)
        vars(trainer.strategy).pop("load_checkpoint", None)
        assert self._checkpoint is not None
        self._checkpoint.check()
        trainer.fit_loop.epoch_loop.batch_progress.total.reset_on_restart()
        if self._asked is not None:
            signal.signal(signal.SIGTERM, self._asked)

    def on_train_batch_start(
        self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Copy the state before the first batch of a step, if it is time.

        Only then no gradients are being accumulated, and the validation after the step before is over.
        """
        self._random.restore()
        self._random.mine = None
        if trainer.global_step != self._step and trainer.global_step:
            self._step = trainer.global_step
            self._save(trainer, trainer.current_epoch, batch_idx, last=False)

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Let the loader shuffle anew."""
        _place(trainer, trainer.current_epoch + 1, 0)

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Save the last state, as an end if there are steps left."""
        self._save(trainer, trainer.current_epoch, 0, last=True)

    def on_fit_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Save the state of a training that had ended before, if that could not be written."""
        assert self._checkpoint is not None
        if self._ended and not self._checkpoint.is_stored:
            self._save(trainer, trainer.current_epoch, 0, last=True)

    def teardown(self, trainer: Trainer, module: LightningModule, stage: str) -> None:
        """Leave SIGTERM to whoever comes next."""
        if self._asked is not None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._asked = None

    def _restore(self, trainer: Trainer, made: dict[str, Any]) -> None:
        """Load the newest checkpoint, and have Lightning restore what it restores by itself."""
        assert self._checkpoint is not None
        assert self._whole is not None
        self._step = self._checkpoint.load(made)
        if (loaded := self._whole.take()) is None:
            return
        if made:
            vars(trainer.strategy)["load_checkpoint"] = lambda *_, **__: loaded
        else:
            trainer.strategy.checkpoint_io = OneRead(loaded, trainer.strategy.checkpoint_io)
        # a callback has no other way to name a checkpoint: fit has read its ckpt_path already
        trainer._checkpoint_connector.resume_start("elasticjob")

    def _save(self, trainer: Trainer, epoch: int, batch: int, *, last: bool) -> None:
        assert self._checkpoint is not None
        assert self._whole is not None
        self._whole.ended = last
        _place(trainer, epoch, batch)
        left = last and trainer.should_stop and trainer.global_step < max_steps(trainer)
        self._checkpoint.save(trainer.global_step, last=last, ended=max_steps(trainer) if left else 0)


class Whole:
    """All that Lightning saves in its own file."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._checked = False
        self.ended = False
        self._loaded: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return what Lightning would write.

        Trainer.save_checkpoint has it for rank 0 only, and waits for workers that may have ended.
        """
        loop, strategy = self._trainer.fit_loop, self._trainer.strategy
        divided = isinstance(strategy, ModelParallelStrategy)
        with without_tensors(strategy) if divided else nullcontext():
            state: dict[str, Any] = self._trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        state = {name: each for name, each in state.items() if not OF_SCRIPT.search(name)}
        if not (self.ended or loop._should_accumulate()):  # Lightning adds one to what it saved in a batch
            state["loops"]["fit_loop"]["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1
        if not self._checked:
            plain.check("checkpoint", state)
            if divided:
                _check_added(state)
            self._checked = True
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep the state for Lightning, which restores it."""
        self._loaded = state

    def take(self) -> dict[str, Any] | None:
        """Return what was loaded, once: it is as large as the model."""
        loaded, self._loaded = self._loaded, None
        return loaded


class OneRead(CheckpointIO):
    """Reads one checkpoint, whatever is asked for, and leaves the rest to the `usual` plugin."""

    def __init__(self, checkpoint: dict[str, Any], usual: CheckpointIO) -> None:
        self._checkpoint, self.usual = checkpoint, usual

    def load_checkpoint(self, path: Any, *_: Any, **__: Any) -> dict[str, Any]:
        """Return the checkpoint."""
        return self._checkpoint

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a file."""
        self.usual.save_checkpoint(checkpoint, path, storage_options)

    def remove_checkpoint(self, path: Any) -> None:
        """Remove a file."""
        self.usual.remove_checkpoint(path)


@contextmanager
def without_tensors(strategy: Any) -> Iterator[None]:
    """Have Lightning leave out the state of model and optimizers, which may be gathered for its own file."""
    vars(strategy).update(lightning_module_state_dict=dict, optimizer_state=lambda _: {})
    try:
        yield
    finally:
        del strategy.lightning_module_state_dict, strategy.optimizer_state


def _check_added(state: dict[str, Any]) -> None:
    """Raise TypeError for pieces of tensors that hooks have added: each worker has others."""
    found = [name for name, each in StateParts(state).tensors.items() if is_distributed(each)]
    if found or state["state_dict"]:
        raise TypeError(
            f"a callback or on_save_checkpoint adds tensors of a divided model to Lightning's checkpoint "
            f"({(found or list(state['state_dict']))[0]}): leave it out, or use DDP"
        )


def max_steps(trainer: Trainer) -> int:
    """Return how many steps a training is to make."""
    return int(min(trainer.estimated_stepping_batches, sys.maxsize))


def _check_loaders(loaders: Any) -> None:
    """Raise TypeError for loaders of several lengths: the shorter one begins again within an epoch."""
    several = loaders.values() if isinstance(loaders, dict) else loaders
    if isinstance(several, Collection) and any(isinstance(each, ResumableLoader) for each in several):
        raise TypeError("there are several train loaders, and a ResumableLoader has to be the only one")


def _place(trainer: Trainer, epoch: int, batch: int) -> None:
    """Tell the loader where the training is: it may have read ahead."""
    loader = trainer.train_dataloader
    if isinstance(loader, ResumableLoader):
        loader.epoch, loader.batch = epoch, batch
