"""Checkpoints in memory for training loops with accelerate:

    accelerator = ElasticAccelerator("/mnt/run")
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch, batches in accelerator.epochs(loader, 3):
        for batch in batches:
            ...                          # a step is counted when `optimizer.step()` would count

What was prepared is saved after each so many batches, and an epoch that was cut off goes on at the next one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from elasticjob.trainer.torch.checkpoint import Checkpoint


class ElasticAccelerator(Accelerator):
    """An Accelerator whose checkpoints are copies in memory; see `Checkpoint` for the arguments.

    Loaders shuffle by seed and epoch (`use_seedable_sampler`), so that an epoch can be gone on with.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        every: int = 100,
        save_every: int = 1000,
        keep: int = 2,
        **more: Any,
    ) -> None:
        more.setdefault("dataloader_config", DataLoaderConfiguration(use_seedable_sampler=True))
        super().__init__(**more)
        self._made = partial(Checkpoint, where, every=every, save_every=save_every, keep=keep)
        self._trained: dict[str, Any] = {}
        self.steps_done = 0

    def prepare(self, *objects: Any, **more: Any) -> Any:
        """Prepare as Accelerator does, and remember models, optimizers and schedulers."""
        prepared = super().prepare(*objects, **more)
        all_ = prepared if isinstance(prepared, tuple) else (prepared,)
        for given, each in zip(objects, all_, strict=True):
            if isinstance(given, (nn.Module, Optimizer, LRScheduler)):
                self._trained[f"{type(given).__name__}{len(self._trained)}"] = each
        return prepared

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Save these with what was prepared."""
        super().register_for_checkpointing(*objects)
        for each in objects:
            self._trained[f"{type(each).__name__}{len(self._trained)}"] = each

    def epochs(self, loader: Any, epochs: int) -> Iterator[tuple[int, Iterator[Any]]]:
        """Yield each remaining epoch with its remaining batches; `loader` was prepared."""
        done = {"epoch": 0, "batch": 0, "step": 0}
        state = {name: getattr(each, "optimizer", each) for name, each in self._trained.items()}
        checkpoint = self._made({**state, "done": done})
        checkpoint.load()
        self.steps_done = done["step"]
        while done["epoch"] < epochs:
            yield done["epoch"], self._batches(loader, checkpoint, done)
            done |= {"epoch": done["epoch"] + 1, "batch": 0}
        checkpoint.save(done["step"], last=True)

    def _batches(self, loader: Any, checkpoint: Checkpoint, done: dict[str, int]) -> Iterator[Any]:
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(done["epoch"])
        rest = self.skip_first_batches(loader, done["batch"]) if done["batch"] else loader
        for batch in rest:
            yield batch
            done["batch"] += 1
            if self.sync_gradients:
                done["step"] = self.steps_done = done["step"] + 1
                checkpoint.save(done["step"])
