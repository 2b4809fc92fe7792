"""Checkpoints in memory for training loops with accelerate:

    accelerator = ElasticAccelerator("/mnt/run")
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch, batches in accelerator.epochs(loader, 3):
        for batch in batches:
            ...                          # a step is counted when `optimizer.step()` would count

What was prepared or registered is saved after each so many steps, with the scaler and random numbers; an
epoch that was cut off goes on at the next batch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Iterator
from functools import partial
from inspect import GEN_SUSPENDED, getgeneratorstate
from itertools import chain, islice
from typing import Any

from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import DataLoaderConfiguration
from torch import nn

from elasticjob.trainer.integrations import plain
from elasticjob.trainer.records.done import is_left_by_script
from elasticjob.trainer.torch.checkpoint import Checkpoint, RandomState, exchange


class ElasticAccelerator(Accelerator):
    """An Accelerator whose checkpoints are copies in memory; see `Checkpoint` for the arguments.

    Loaders shuffle by seed and epoch (`use_seedable_sampler`), so that an epoch can be gone on with. Models
    are replicated, or divided by FSDP2, whose workers save and load the pieces that they have.
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
        plain.check_division(self)
        self._made = partial(Checkpoint, where, every=every, save_every=save_every, keep=keep)
        self._trained: dict[str, Any] = {}
        self._random = RandomState()
        self.steps_done = 0

    def prepare(self, *objects: Any, **more: Any) -> Any:
        """Prepare and remember models, optimizers and schedulers; FSDP2 divides a model in its place."""
        for each in objects if self.is_fsdp2 else ():
            if isinstance(each, nn.Module):
                self._remember("model", each)
        return super().prepare(*objects, **more)

    def prepare_model(self, model: Any, *arguments: Any, **more: Any) -> Any:
        """Prepare and remember a model; `prepare` calls this, too."""
        return self._remember("model", super().prepare_model(model, *arguments, **more))

    def prepare_optimizer(self, optimizer: Any, *arguments: Any, **more: Any) -> Any:
        """Prepare and remember an optimizer."""
        return self._remember("optimizer", super().prepare_optimizer(optimizer, *arguments, **more))

    def prepare_scheduler(self, scheduler: Any) -> Any:
        """Prepare and remember a scheduler."""
        return self._remember("scheduler", super().prepare_scheduler(scheduler))

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Save these with what was prepared."""
        super().register_for_checkpointing(*objects)
        for each in objects:
            self._remember(type(each).__name__, each)

    def epochs(self, loader: Any, epochs: int) -> Iterator[tuple[int, Iterator[Any]]]:
        """Yield each remaining epoch with its remaining batches; `loader` was prepared.

        A loop that the script leaves by `break` is saved as a training that has ended (`Checkpoint.steps`).
        """
        done: dict[str, Any] = {"epoch": 0, "batch": 0, "step": 0}
        for name, each in self._trained.items():
            plain.check(name, each.state_dict())
        scaler = {} if self.scaler is None else {"scaler": self.scaler}
        checkpoint = self._made({**self._trained, **scaler, "random": self._random, "done": done})
        checkpoint.load()
        checkpoint.check()
        self.steps_done = done["step"]
        self._go_on(loader, done)
        if done["epoch"] < epochs and checkpoint.is_ended(epochs):
            if not checkpoint.is_stored:
                checkpoint.end(done["step"], epochs)
            return
        while done["epoch"] < epochs:
            batches = self._batches(loader, checkpoint, done)
            try:
                yield done["epoch"], batches
            except GeneratorExit:
                if not sys.is_finalizing() and is_left_by_script(sys._getframe().f_back):
                    self._leave(batches, done)
                    checkpoint.end(done["step"], epochs)
                raise
            self._leave(batches, done)
            done |= {"epoch": done["epoch"] + 1, "batch": 0}
        checkpoint.save(done["step"], last=True)

    def _go_on(self, loader: Any, done: dict[str, Any]) -> None:
        """Take the order of an epoch that was cut off. ValueError if the script asks for another one."""
        seed, sampler = self.dataloader_config.data_seed, plain.sampler_of(loader)
        order = plain.order_of(loader, self.num_processes, seed)
        if done["batch"]:
            taken, drawn = f"{done['batch']} batches of epoch {done['epoch']}", done.get("drawn", [])
            plain.check_order(taken, order, done.get("order", {}))
            if seed is None and len(drawn) == self.num_processes and hasattr(sampler, "initial_seed"):
                sampler.initial_seed = drawn[self.process_index]  # by set_seed, or at random, on each worker
        mine = getattr(sampler, "initial_seed", None)
        done |= {"order": order, "drawn": [json.loads(each) for each in exchange(json.dumps(mine).encode())]}

    def _batches(self, loader: Any, checkpoint: Checkpoint, done: dict[str, Any]) -> Generator[Any]:
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(done["epoch"])
        rest = iter(self.skip_first_batches(loader, done["batch"]) if done["batch"] else loader)
        first = list(islice(rest, 1))  # reading draws random numbers, too
        self._random.restore()
        self._random.mine = None
        for batch in chain(first, rest):
            yield batch
            if self._count(done):
                checkpoint.save(done["step"])

    def _leave(self, batches: Generator[Any], done: dict[str, Any]) -> None:
        """Count the batch in which the script has left an epoch, if it has."""
        if getgeneratorstate(batches) == GEN_SUSPENDED:
            self._count(done)
            batches.close()

    def _count(self, done: dict[str, Any]) -> bool:
        """Count a batch; return whether a step was made with it."""
        done["batch"] += 1
        if self.sync_gradients:
            done["step"] = self.steps_done = done["step"] + 1
        return bool(self.sync_gradients)

    def _remember(self, kind: str, made: Any) -> Any:
        of = made.optimizer if isinstance(made, AcceleratedOptimizer) else made
        if all(each is not of for each in self._trained.values()):
            self._trained[f"{kind}{len(self._trained)}"] = of
        return made
