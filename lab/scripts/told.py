"""What the benchmark scripts tell the benchmark, in lines of JSON: each step, or how long steps take.

They go to the standard output, or to $BENCH_TOLD where a launcher keeps that for itself.

With $BENCH_TURNS, a folder, several jobs take turns on this machine: a worker that has done $BENCH_BLOCK
steps waits until there is a file with the number of the next turn. Rank 0 tells the median of each turn.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import cache
from pathlib import Path
from statistics import median
from typing import Final, TextIO

LOOK: Final = 0.02  # seconds between two looks for the file
SKIPPED: Final = 5  # first steps of a turn that do not count


class Steps:
    """Tells of the counted steps of this worker."""

    def __init__(self) -> None:
        turns = os.environ.get("BENCH_TURNS")
        self._turns = Path(turns) if turns else None
        self._block = int(os.environ.get("BENCH_BLOCK", "100"))
        self._turn = self._done = 0
        self._times: list[float] = []
        self._last = time.perf_counter()

    def done(self, step: int, rank: int, world: int, life: object) -> None:
        """A step has been counted in a world of so many workers; `life` names that world, or this process."""
        if self._turns is None:
            tell(at=time.time(), step=step, rank=rank, world=world, life=life)
            return
        now = time.perf_counter()
        self._times.append(now - self._last)
        if len(self._times) == self._block:
            if rank == 0:
                tell(turn=self._turn, median=median(self._times[SKIPPED:]), world=world)
            self._turn += 1
            self._times.clear()
            while not (self._turns / str(self._turn)).exists():
                time.sleep(LOOK)
        self._last = time.perf_counter()


def tell(**line: object) -> None:
    """Print a line in one piece, with the process that tells."""
    print(json.dumps({**line, "pid": os.getpid()}) + "\n", end="", flush=True, file=output())


@cache
def output() -> TextIO:
    """Return the file for the lines."""
    return open(os.environ["BENCH_TOLD"], "w") if "BENCH_TOLD" in os.environ else sys.stdout
