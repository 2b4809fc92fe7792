"""Checkpoints in memory for Lightning's Trainer:

    loader = ResumableLoader(dataset, batch_size=32, shuffle=True)
    Trainer(..., callbacks=[ElasticCallback("/mnt/run")]).fit(model, loader)

The callback restores what Lightning would from its own file, when all workers are connected and before the
first batch; an epoch that was cut off goes on at the batch that is next.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader

from elasticjob.trainer.torch.checkpoint import Checkpoint


class ResumableLoader(DataLoader[Any]):
    """A DataLoader that can begin an epoch at any batch; `shuffle` is by `seed` and epoch.

    The batches before are read, and thrown away. Lightning saves and restores its state.
    """

    def __init__(self, *arguments: Any, seed: int = 0, **more: Any) -> None:
        super().__init__(*arguments, **{"generator": torch.Generator(), **more})
        self.seed = seed
        self.epoch = self.batch = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.generator.manual_seed(self.seed + self.epoch)
        return islice(super().__iter__(), self.batch, None)

    def state_dict(self) -> dict[str, int]:
        """Return where the loader is: `batch` is the next one of the epoch."""
        return {"epoch": self.epoch, "batch": self.batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Begin the next epoch there."""
        self.epoch, self.batch = state["epoch"], state["batch"]


class ElasticCallback(Callback):
    """Copies the state of a Trainer to memory each `every` steps; see `Checkpoint` for the arguments.

    The train loader should be a `ResumableLoader`: else a restarted epoch begins with its first records.
    """

    def __init__(
        self, where: str | os.PathLike[str], *, every: int = 100, save_every: int = 1000, keep: int = 2
    ) -> None:
        self._made = partial(Checkpoint, where, every=every, save_every=save_every, keep=keep)
        self._checkpoint: Checkpoint | None = None

    def on_fit_start(self, trainer: Trainer, module: LightningModule) -> None:
        """Restore the newest checkpoint."""
        schedulers = [each.scheduler for each in trainer.lr_scheduler_configs]
        state: dict[str, Any] = {"model": module, "loop": trainer.fit_loop}
        state |= {f"optimizer{index}": each for index, each in enumerate(trainer.optimizers)}
        state |= {f"scheduler{index}": each for index, each in enumerate(schedulers)}
        self._checkpoint = self._made(state)
        self._checkpoint.load()

    def on_train_batch_start(
        self, trainer: Trainer, module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Copy the state between two batches, if it is time."""
        if trainer.global_step:
            self._save(trainer, trainer.current_epoch, batch_idx, last=False)

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Let the loader shuffle anew."""
        _place(trainer, trainer.current_epoch + 1, 0)

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Save the last state."""
        self._save(trainer, trainer.current_epoch, 0, last=True)

    def _save(self, trainer: Trainer, epoch: int, batch: int, *, last: bool) -> None:
        assert self._checkpoint is not None
        _place(trainer, epoch, batch)
        self._checkpoint.save(trainer.global_step, last=last)


def _place(trainer: Trainer, epoch: int, batch: int) -> None:
    """Tell the loader where the training is: it may have read ahead."""
    loader = trainer.train_dataloader
    if isinstance(loader, ResumableLoader):
        loader.epoch, loader.batch = epoch, batch
