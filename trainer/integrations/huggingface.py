"""Checkpoints in memory for Hugging Face's Trainer:

    elastic = ElasticCallback("/mnt/run")
    trainer = Trainer(..., callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.newest(trainer))

Trainer reads where it was from a folder, which is made, and removed when it was read. All tensors are loaded
by `Checkpoint`, when Trainer has made and divided what they belong to.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch
from accelerate.optimizer import AcceleratedOptimizer
from transformers import Trainer, TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState

from elasticjob.trainer.integrations import plain
from elasticjob.trainer.torch.checkpoint import Checkpoint, RandomState
from elasticjob.trainer.torch.saving import random_state

LATER: Final = ("model", "optimizer", "scheduler", "scaler")
"""What Trainer makes later than its callbacks, or not at all."""


class ElasticCallback(TrainerCallback):
    """Copies the state of a Trainer to memory each `every` steps; see `Checkpoint` for the arguments.

    All that Trainer's own folder has is in a copy: model, optimizer, scheduler, scaler, the state of Trainer
    and its callbacks, and the random numbers of each worker. The model is replicated, or divided by FSDP2,
    whose workers save and load the pieces that they have. Set `save_strategy="no"`, unless you want Trainer's
    own files as well.
    A training that a callback has stopped early is not gone on with, until it is to make more steps.
    """

    def __init__(
        self, where: str | os.PathLike[str], *, every: int = 100, save_every: int = 1000, keep: int = 2
    ) -> None:
        self._loop: dict[str, Any] = {}
        self._random = RandomState()
        state = {**{name: {} for name in LATER}, "random": self._random, "loop": self._loop}
        self._checkpoint = Checkpoint(where, state, every=every, save_every=save_every, keep=keep)
        self._trainer: Trainer | None = None
        self._folder: Path | None = None
        self._begun = False
        self._step = 0  # when it was last time for a copy

    def newest(self, trainer: Trainer) -> str | None:
        """Return a folder with the newest checkpoint, for `trainer.train(resume_from_checkpoint=…)`.

        None if there is none. All workers call it, after the Trainer was made.
        """
        plain.check_division(trainer.accelerator)
        self._trainer = trainer
        callbacks = trainer.callback_handler.callbacks
        # first of all, so that a copy is from before any of them has seen the step
        callbacks[:] = [self, *(each for each in callbacks if each is not self)]
        rest = self._checkpoint.rest()
        if not rest:
            return None
        self._folder = Path(tempfile.mkdtemp(prefix="elasticjob-trainer-"))
        (self._folder / TRAINER_STATE_NAME).write_text(rest["loop"]["state"])
        # Trainer refuses a folder without a model, and cannot be told otherwise that it comes from elsewhere
        vars(trainer)["_load_from_checkpoint"] = nothing
        return str(self._folder)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Load what Trainer has made by now, and write random numbers, which it reads in the first epoch.

        A training that has ended gets no batches, and stops after none.
        """
        if self._trainer is None:
            raise RuntimeError("call trainer.train(resume_from_checkpoint=elastic.newest(trainer))")
        self._load(self._trainer, given)
        order = self._order(args, given)
        if state.epoch and state.epoch % 1:
            plain.check_order(f"{state.epoch:.4g} epochs", order, self._loop.get("order", {}))
        self._loop["order"] = order
        if state.global_step < state.max_steps and self._checkpoint.is_ended(state.max_steps):
            control.should_training_stop = True
            self._trainer.get_batch_samples = no_batches  # until it has ended

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Copy the state after the last step of an epoch: all that belongs to it is over."""
        self._save(state, given)

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Copy the state, if it is time: the step before is logged, and evaluated.

        Trainer restores random numbers just here in an epoch that it goes on with: all has been read then.
        """
        self._clean()
        self._save(state, given)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Save the last state, as an end if there are steps left."""
        self._clean()
        if (
            vars(self._trainer).pop("get_batch_samples", None) is not no_batches
            or not self._checkpoint.is_stored
        ):
            self._save(state, given, last=True)

    def _clean(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _save(self, state: Any, given: dict[str, Any], *, last: bool = False) -> None:
        if state.global_step == self._step and not last:
            return
        first, self._begun, self._step = not self._begun, True, state.global_step
        if not (first or last or self._checkpoint.is_due(state.global_step)):
            return
        assert self._trainer is not None
        self._loop["state"] = json.dumps(asdict(state) | {"stateful_callbacks": callbacks_of(self._trainer)})
        ended = state.max_steps if last and state.global_step < state.max_steps else 0
        self._checkpoint.save(state.global_step, last=last, ended=ended)

    def _load(self, trainer: Trainer, given: dict[str, Any]) -> None:
        prepared, scaler = given["optimizer"], getattr(trainer.accelerator, "scaler", None)
        optimizer = prepared.optimizer if isinstance(prepared, AcceleratedOptimizer) else prepared
        model, scheduler = given["model"], given["lr_scheduler"]
        made = (model, optimizer, scheduler, {} if scaler is None else scaler)
        self._step = self._checkpoint.load(dict(zip(LATER, made, strict=True)))
        self._checkpoint.check()
        if self._folder and self._random.mine is not None and "numpy" in self._random.mine:
            number = f"_{trainer.args.process_index}" if trainer.args.world_size > 1 else ""
            torch.save(self._drawn(trainer, self._random.mine), self._folder / f"rng_state{number}.pth")

    @staticmethod
    def _order(args: Any, given: dict[str, Any]) -> dict[str, Any]:
        seed = args.seed if args.data_seed is None else args.data_seed
        order = plain.order_of(given["train_dataloader"], args.world_size, seed)
        return order | {"gradient_accumulation_steps": args.gradient_accumulation_steps}

    @staticmethod
    def _drawn(trainer: Trainer, state: dict[str, Any]) -> dict[str, Any]:
        """Return random numbers as Trainer has them in its file."""
        drawn = {
            "python": random_state.python_state(state),
            "numpy": random_state.numpy_state(state),
            "cpu": state["torch"],
        }
        if "cuda" in state:
            alone = trainer.args.world_size == 1
            drawn["cuda"] = state["cuda"][torch.cuda.current_device()] if alone else state["cuda"]
        return drawn


def nothing(*_: Any) -> None:
    """Load nothing."""


def no_batches(*_: Any) -> tuple[list[Any], None]:
    """Return what Trainer gets in place of the batches of a step."""
    return [], None


def callbacks_of(trainer: Trainer) -> dict[str, Any]:
    """Return the states of callbacks as Trainer has them in its file."""
    states: dict[str, Any] = {}
    for each in (*trainer.callback_handler.callbacks, trainer.control):
        if isinstance(each, ExportableState):
            states.setdefault(type(each).__name__, []).append(each.state())
    return {name: of[0] if len(of) == 1 else of for name, of in states.items()}
