"""The shared part of the scripts of all loops: command line, lines of JSON, places where a step can fail.

`--at PLACE:STEP:RANK:HOW` has the worker of that rank fail once at a place of a step: `before` its sum, `in`
it, `after` it, or `behind` it, in the script's own code. HOW is kill, raise or long. A file `slow/NAME` is
taken by one reader, who then reads as many seconds as it says; with a file `slowly`, steps are long.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from elasticjob.trainer.link.channel import ROUND
from elasticjob.trainer.shards import Dataset
from lab.scripts.told import Lines

LONG: Final = 0.5
"""Seconds of a step while a node is paused, which is to find the others at work."""


class OfTheStep(RuntimeError):
    """An error of the script's own."""


parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--kind", default="counts", help="what is trained, in a script that knows several")
parser.add_argument("--place", help="of checkpoints; the folder's `kept`, if it is not given")
parser.add_argument("--life", type=int, default=1, help="how many jobs went on with this training so far")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--batch", type=int, default=8, help="records of a step, of all workers together")
parser.add_argument("--micro", type=int, default=1, help="batches of a step, of a worker")
parser.add_argument("--records", type=int, default=48)
parser.add_argument("--readers", type=int, default=0, help="processes that read for a worker")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--sampler", choices=("shuffle", "none", "reversed"), default="shuffle")
parser.add_argument("--memory-every", type=int, default=1)
parser.add_argument("--save-every", type=int, default=4)
parser.add_argument("--seconds-between-saves", type=float, default=0.2, help="of servers")
parser.add_argument("--at", default="", help="PLACE:STEP:RANK:HOW")
parser.add_argument("--seconds", type=float, default=2.0, help="of a long step")
parser.add_argument("--stop", type=int, default=0, help="leave the loop by break after this step")
parser.add_argument("--half", choices=("float16", "bfloat16"), help="sum 150 over records of this type")
parser.add_argument("--other", action="store_true", help="the second worker of rank 1 has another model")
parser.add_argument("--wrong", action="store_true", help="give arguments that make no sense")
parser.add_argument("--lacks", default="", help="what the framework is said not to have")
parser.add_argument("--within", type=float, default=0.5, help="seconds until a kill in a sum")
parser.add_argument("--pace", type=float, default=0.0, help="seconds of each step")
args = parser.parse_args()
place: Final[str] = str(args.folder / "kept") if args.place is None else args.place
every: Final[int] = 0 if args.wrong else args.memory_every
lines: Final = Lines(args.folder / "lines", args.life)


def dataset(**more: Any) -> Dataset:
    """Return the records as the command line wants them; a Dataset takes no sampler."""
    if args.sampler == "reversed":
        raise SystemExit("a Dataset takes no sampler")
    about = {"epochs": args.epochs, "seed": args.seed, "shuffle": args.sampler == "shuffle"}
    return Dataset(name="numbers", size=args.records, **about, **more)


def say(**line: Any) -> None:
    """Write a line; round and rank are those of a process that is started again for each round."""
    lines.say(**{"round": int(os.environ.get(ROUND, "0")), "rank": int(os.environ.get("RANK", "0")), **line})


def end(**states: Any) -> None:
    """Write what the training has come to: all numbers of each state."""
    say(end={name: leaves(state) for name, state in states.items()})


def leaves(state: Any) -> list[Any]:
    """Return the numbers and other values of a state, in their order; all workers that share it call this."""
    if hasattr(state, "full_tensor"):
        state = state.full_tensor()
    if hasattr(state, "tolist"):
        state = state.tolist()
    if isinstance(state, Mapping):
        state = [*state.values()]
    if isinstance(state, (list, tuple)):
        return [leaf for each in state for leaf in leaves(each)]
    return [state if isinstance(state, (int, float, str)) else repr(state)]


def slow() -> None:
    """Read slowly, if a reader is to."""
    for file in (args.folder / "slow").glob("*"):
        try:
            taken = file.rename(args.folder / "slow-taken" / file.name)
        except OSError:  # by another reader
            continue
        time.sleep(float(taken.read_text()))
        return


def pace() -> None:
    """Let a step take its time."""
    time.sleep(LONG if (args.folder / "slowly").exists() else args.pace)


def at(place: str, step: int, rank: int, *, whole: bool = False) -> None:
    """Fail here, where the command line wants that, once; with `whole` a script has a place `in` its step."""
    if place == "after":
        pace()
    if not args.at:
        return
    where, number, who, how = args.at.split(":")
    mark = args.folder / "failed"
    if step != int(number) or place != ("before" if where == "in" and not whole else where):
        return
    if rank != int(who):
        if where == "in":
            wait_for_the_end_of(mark)
        return
    if mark.exists() and how != "raise":
        return
    mark.with_name("new").write_text(str(os.getpid()))
    mark.with_name("new").rename(mark)
    if how == "raise":
        raise OfTheStep("the step's own")
    if how == "long":
        time.sleep(args.seconds)
    elif where == "in":  # the others come to the sum when this one has died in it
        threading.Timer(args.within, os.kill, (os.getpid(), signal.SIGKILL)).start()
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def wait_for_the_end_of(mark: Path) -> None:
    """Wait until the worker that is to be killed in its sum is gone."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if mark.exists() and not Path(f"/proc/{mark.read_text()}").exists():
            return
        time.sleep(0.01)


def is_other() -> bool:
    """Whether this worker is one that came later, with another model."""
    return bool(args.other) and (args.folder / "failed").exists()


def export(write: Callable[[Path], object]) -> None:
    """Write the result, as a script does after its loop."""
    write(args.folder / "exported.new")
    (args.folder / "exported.new").rename(args.folder / "exported")


def last_line() -> None:
    """Be the last line."""
    print("the last line", file=sys.stderr, flush=True)
