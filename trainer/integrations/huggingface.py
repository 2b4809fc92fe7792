"""Checkpoints in memory for Hugging Face's Trainer:

    elastic = ElasticCallback("/mnt/run")
    trainer = Trainer(..., callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.newest(trainer))

Trainer reads a checkpoint from a folder. One is made of what is in memory, and removed when it was read.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME
from transformers.utils import WEIGHTS_NAME

from elasticjob.trainer.torch.checkpoint import Checkpoint


class ElasticCallback(TrainerCallback):
    """Copies the state of a Trainer to memory each `every` steps; see `Checkpoint` for the arguments.

    The model has to be replicated. Set `save_strategy="no"`, unless you want Trainer's own files as well.
    """

    def __init__(
        self, where: str | os.PathLike[str], *, every: int = 100, save_every: int = 1000, keep: int = 2
    ) -> None:
        self._loop: dict[str, Any] = {}
        self._parts = {name: Part() for name in ("model", "optimizer", "scheduler")}
        state = {**self._parts, "loop": self._loop}
        self._checkpoint = Checkpoint(where, state, every=every, save_every=save_every, keep=keep)
        self._folder: Path | None = None

    def newest(self, trainer: Trainer) -> str | None:
        """Return a folder with the newest checkpoint, for `trainer.train(resume_from_checkpoint=…)`.

        None if there is none. All workers call it, after the Trainer was made.
        """
        del trainer  # which has set up the process group
        if not self._checkpoint.load():
            return None
        self._folder = folder = Path(tempfile.mkdtemp(prefix="elasticjob-trainer-"))
        (folder / TRAINER_STATE_NAME).write_text(self._loop["state"])
        torch.save(self._parts["model"].state, folder / WEIGHTS_NAME)
        torch.save(self._parts["optimizer"].state, folder / OPTIMIZER_NAME)
        torch.save(self._parts["scheduler"].state, folder / SCHEDULER_NAME)
        return str(folder)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Remove the folder: all has been read."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Copy the state, if it is time."""
        self._save(state, given, last=False)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Save the last state."""
        self._save(state, given, last=True)

    def _save(self, state: Any, given: dict[str, Any], *, last: bool) -> None:
        if not (last or self._checkpoint.is_due(state.global_step)):
            return
        self._parts["model"].of = getattr(given["model"], "module", given["model"])
        self._parts["optimizer"].of = given["optimizer"]
        self._parts["scheduler"].of = given["lr_scheduler"]
        self._loop["state"] = json.dumps(asdict(state))
        self._checkpoint.save(state.global_step, last=last)


class Part:
    """Something that Trainer makes later than its callbacks."""

    def __init__(self) -> None:
        self.of: Any = None
        self.state: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return its state."""
        state: dict[str, Any] = self.of.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Keep the state for Trainer, who restores it."""
        self.state = state
