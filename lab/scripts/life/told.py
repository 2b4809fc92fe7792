"""Shared by all trainings: their arguments and records, and the lines that they write.

A line is one write to a file of the process in $LIFE/lines, so that no kill takes it along. A file in
$LIFE/slow is taken by one reader, who then reads as long as it says.
"""

from __future__ import annotations

import json
import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from elasticjob.trainer.link.channel import ROUND
from lab.scripts import shared
from lab.scripts.shared import CLASSES as CLASSES
from lab.scripts.shared import WIDTH as WIDTH
from lab.scripts.shared import start as start
from lab.troubles import installed as installed

FOLDER: Final = Path(os.environ["LIFE"])
PAUSE, LONG = 0.04, 0.5
"""Seconds of a step, beside its computation."""


def arguments() -> Namespace:
    """Return the arguments, the same for all trainings."""
    parser = ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("--place", default="", help="of checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8, help="records of a step")
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--memory-every", type=int, default=5)
    parser.add_argument("--save-every", type=int, default=10)
    return parser.parse_args()


class Told:
    """Writes the lines of this process."""

    def __init__(self) -> None:
        name = f"{os.environ['LIFE_LIVES']}-{os.getpid()}-{time.monotonic_ns()}.jsonl"
        self._file = os.fdopen(os.open(FOLDER / "lines" / name, os.O_WRONLY | os.O_CREAT, 0o644), "wb", 0)
        self._file.write(b"")

    def say(self, **line: Any) -> None:
        """Write a line."""
        said = {**line, "life": int(os.environ["LIFE_LIVES"]), "pid": os.getpid(), "at": time.monotonic()}
        self._file.write(json.dumps(said).encode() + b"\n")

    def step(self) -> None:
        """Let a step take its time: more while a node is paused, which is to find the others at work."""
        time.sleep(LONG if (FOLDER / "slowly").exists() else PAUSE)

    def end(self, **states: Any) -> None:
        """Write what the training has come to: all numbers of each state."""
        self.say(end={name: leaves(state) for name, state in states.items()})


def round_of() -> int:
    """Return the round of this process's world, in a script that is started again for each."""
    return int(os.environ.get(ROUND, "0"))


def slow() -> None:
    """Read slowly, if a reader is to."""
    for file in (FOLDER / "slow").iterdir():
        try:
            taken = file.rename(FOLDER / "slow-taken" / f"{file.name}")
        except OSError:  # by another reader
            continue
        time.sleep(float(taken.read_text()))
        return


def problem(records: int) -> tuple[Tensor, Tensor]:
    """Return inputs and labels; fewer records are the first of more."""
    x, y = shared.problem(1000)
    return x[:records], y[:records]


class Numbered(shared.Numbered):
    """Records that are slow to read now and then."""

    def __init__(self, records: int) -> None:
        super().__init__(*problem(records))

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor, int]:
        slow()
        return super().__getitem__(index)


def leaves(state: Any) -> list[Any]:
    """Return the numbers and other values of a state, in their order."""
    if isinstance(state, Tensor):
        whole = state.full_tensor() if hasattr(state, "full_tensor") else state  # of all workers
        found: list[Any] = whole.detach().flatten().tolist()
        return found
    if isinstance(state, Mapping):
        return [leaf for each in state.values() for leaf in leaves(each)]
    if isinstance(state, (list, tuple)):
        return [leaf for each in state for leaf in leaves(each)]
    return [state if isinstance(state, (int, float, str)) else repr(state)]
