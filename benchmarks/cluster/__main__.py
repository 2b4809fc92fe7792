"""Planners of the whole cluster in virtual time, beside published results."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.cluster.experiments import experiments
from benchmarks.cluster.planning import goodput, planning
from benchmarks.cluster.pollux import pollux
from benchmarks.commands import play

PLOTS: Final = Path("bench-cluster")


def everything() -> None:
    """All of these, with plots in bench-cluster/."""
    experiments(plots=PLOTS)
    pollux(plots=PLOTS)
    planning()
    goodput()


if __name__ == "__main__":
    play(everything, experiments, pollux, planning, goodput)
