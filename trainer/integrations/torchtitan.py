"""Checkpoints in memory for torchtitan's Trainer, by one line in the function that makes its config:

    config.checkpoint = ElasticCheckpointer.Config(folder="/mnt/run", every=10, interval=500)

Where the folder has none of ours, torchtitan's own load decides: its checkpoints there, or initial_load_path.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor
from torchtitan.components.checkpointer.base import DATALOADER, MODEL, OPTIMIZER, TRAIN_STATE
from torchtitan.components.checkpointer.dcp import CheckpointManager
from torchtitan.components.checkpointer.utils import canonical_fqn

from elasticjob.trainer.torch.checkpoint import Checkpoint, RandomState
from elasticjob.trainer.torch.saving.targets import Own

ALONE: Final = ("load_step", "exclude_from_loading", "load_only", "create_seed_checkpoint", "last_save_in_hf")
"""Arguments that torchtitan's own checkpointer alone has a use for."""


class ElasticCheckpointer(CheckpointManager):
    """torchtitan's checkpointer with copies in memory each `every` steps, written each `interval` steps.

    All that torchtitan saves is in a copy, the last one too, and the random numbers of each worker.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):
        """torchtitan's, and steps between copies; `interval` is a multiple of them."""

        enable: bool = True
        every: int = 100

        def __post_init__(self) -> None:
            CheckpointManager.Config.__post_init__(self)  # slots know no super()
            if given := [name for name in ALONE if getattr(self, name) not in (-1, [], False)]:
                raise ValueError(
                    "ElasticCheckpointer saves, and loads the newest state whole: leave "
                    f"checkpoint.{given[0]} out, or use torchtitan's CheckpointManager"
                )

    def __init__(self, config: Config, **given: Any) -> None:
        super().__init__(config, **given)
        if self.enable:
            models, optimizers = self.states[MODEL].model, self.states[OPTIMIZER]
            filled = {
                MODEL: Own(lambda: dict(tensors_of(models)), lambda _: None),
                OPTIMIZER: Own(optimizers.state_dict, optimizers.load_state_dict),
                DATALOADER: Own(self.states[DATALOADER].state_dict, self._go_on),
                TRAIN_STATE: Own(self._counted, self._count),
            }
            self._checkpoint = Checkpoint(
                self.folder,
                {**self.states, **filled, "random": RandomState()},
                every=config.every,
                save_every=config.interval,
                keep=config.keep_latest_k or sys.maxsize,
            )

    def _load(self, step: int = -1) -> bool:
        loaded, theirs = self._checkpoint.load(), self._find_load_step()
        if 0 < loaded < theirs:
            raise ValueError(
                f"{self.folder} has torchtitan's own checkpoint of step {theirs}, and {loaded} is the newest "
                "of ElasticCheckpointer: remove what is older in training, or give another folder"
            )
        if loaded and not (self._checkpoint.is_stored or self.states[TRAIN_STATE].should_continue_training()):
            self._checkpoint.save(loaded, last=True)
        return bool(loaded) or bool(super()._load(step))

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        self._checkpoint.save(curr_step, last=last_step)
        return last_step or self._checkpoint.is_due(curr_step)

    def _go_on(self, state: dict[str, Any]) -> None:
        """Load the place in the data."""
        loader = self.states[DATALOADER]
        there, here = state.get("world_size"), loader.state_dict().get("world_size")
        if there != here:
            raise ValueError(
                f"{self.folder} is of {there} data-parallel workers, and here are {here}: torchtitan's own "
                f"loader goes on with {there} alone; write one whose state is the same on all workers"
            )
        loader.load_state_dict(state)

    def _counted(self) -> dict[str, Any]:
        """Return the Trainer's state with the tokens of all workers: it counts, and saves, those of one."""
        state = self.states[TRAIN_STATE].state_dict()
        return {**state, "ntokens_seen": state["ntokens_seen"] * self._counts}

    def _count(self, state: dict[str, Any]) -> None:
        mine = state["ntokens_seen"] // self._counts
        self.states[TRAIN_STATE].load_state_dict({**state, "ntokens_seen": mine})

    @property
    def _counts(self) -> int:
        """How many workers count tokens of their own."""
        mesh = self.states[TRAIN_STATE].parallel_dims.get_optional_mesh("loss")
        return mesh.size() if mesh is not None else 1


def tensors_of(models: list[Any]) -> Iterator[tuple[str, Tensor]]:
    """Yield what state_dict has, by name: some of its tensors are copies, and these are not."""
    for model in models:
        saved = model.state_dict()
        yield from ((canonical_fqn(name), each.detach()) for name, each in model.named_parameters())
        buffers = ((canonical_fqn(name), each) for name, each in model.named_buffers())
        yield from ((name, each) for name, each in buffers if name in saved)
