"""What a step costs beyond bare DDP: the systems' jobs are all there and take turns of some steps each.

So a load of the machine that comes and goes meets all of them alike. A sample is one turn of one system: the
median duration of its steps. Bare DDP is the plain script under torchrun.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.training.job import Job, NotInTime, running
from benchmarks.training.systems import Shape, System
from lab.processes import ProgramFailed

TWO_WORKERS: Final = Shape(nodes=1, workers=2)
BLOCKS: Final = {"tiny": 300, "mlp": 100, "transformer": 40}
"""Steps of a turn: about a second."""


@dataclass(frozen=True)
class Turns:
    """A job that takes turns; its script waits for the next one."""

    job: Job
    folder: Path

    def take(self, turn: int) -> float:
        """Let it have this turn; return the median of its steps, in seconds. Turn 0 begins by itself."""
        (self.folder / str(turn)).touch()
        step = self.job.until(lambda line: line.get("turn") == turn)
        if step["world"] != 2:
            raise ProgramFailed(f"trained with {step['world']} workers in turn {turn}")
        return float(step["median"])


def compare(
    work: str,
    systems: Sequence[System],
    rounds: int,
    patience: float,
    refuse: Callable[[System, str], None],
) -> Iterator[tuple[System, float]]:
    """Yield the median step of each system in each round; `refuse` is told of systems that cannot."""
    with ExitStack() as stack:
        taking: dict[System, Turns] = {}
        for system in systems:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-turns-")))
            environ = {"BENCH_WORK": work, "BENCH_TURNS": str(folder), "BENCH_BLOCK": str(BLOCKS[work])}
            try:
                job = stack.enter_context(running(system, TWO_WORKERS, patience, work=environ))
                taking[system] = Turns(job, folder)
                taking[system].take(0)
            except (NotInTime, ProgramFailed) as error:
                taking.pop(system, None)
                refuse(system, str(error) or f"no step in {patience:.0f} s")
        for turn in range(1, rounds + 1):
            for system, turns in list(taking.items()):
                try:
                    yield system, turns.take(turn)
                except (NotInTime, ProgramFailed) as error:
                    del taking[system]
                    refuse(system, str(error) or f"no step in {patience:.0f} s")
