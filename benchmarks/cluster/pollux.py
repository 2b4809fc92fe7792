"""The 24 published workloads of the Pollux paper under the goodput planner, beside its results.

Source: Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021;
traces and completion times of petuum/adaptdl, branch osdi21-artifact (Apache-2.0). 16 nodes of 4 GPUs, a plan
each minute; a policy knows of a job what it has measured, and tries at most twice the GPUs that it has had.

    python -m benchmarks.cluster pollux --load 1.0
    python -m benchmarks.cluster pollux --jobs FILE --models FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from math import nan
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Final

import numpy as np
from typer import BadParameter, Option

from benchmarks.cluster.plots import plot
from benchmarks.cluster.traces import Application, BadTrace, read_applications, read_jobs
from benchmarks.cluster.workload import Outcome, Rules, run
from benchmarks.commands import some
from benchmarks.figures import Sheet, number, show, spread
from elasticjob.brain.fulfilment.offers import Options
from lab.processes import say

Row = tuple[float, ...]
PUBLISHED: Final[Mapping[str, Mapping[str, tuple[Row, float, float]]]] = {
    "0.5": {
        "Pollux": ((0.29, 0.51, 0.36, 0.42, 0.27, 0.36), 0.37, 2.6),
        "Optimus": ((0.36, 0.87, 0.55, 0.60, 0.37, 0.54), 0.55, 4.1),
        "Tiresias": ((0.40, 0.65, 0.52, 0.54, 0.40, 0.51), 0.50, 4.4),
    },
    "1.0": {
        "Pollux": ((0.58, 0.92, 0.61, 0.76, 0.74, 0.68), 0.71, 10.4),
        "Optimus": ((1.14, 1.92, 1.10, 1.66, 1.57, 1.47), 1.48, 12.3),
        "Tiresias": ((0.69, 1.43, 1.08, 0.91, 0.97, 0.96), 1.01, 13.4),
    },
    "1.5": {
        "Pollux": ((1.07, 0.94, 0.92, 1.08, 1.11, 0.96), 1.01, 13.1),
        "Optimus": ((2.13, 1.85, 1.58, 2.13, 2.19, 2.08), 2.00, 16.7),
        "Tiresias": ((1.53, 1.76, 1.82, 1.55, 1.90, 1.62), 1.70, 17.1),
    },
    "2.0": {
        "Pollux": ((1.72, 1.16, 1.43, 1.46, 1.83, 1.42), 1.50, 17.4),
        "Optimus": ((3.00, 2.37, 2.32, 2.87, 3.29, 2.71), 2.76, 23.1),
        "Tiresias": ((2.82, 2.40, 2.98, 2.69, 3.36, 2.85), 2.85, 25.0),
    },
}
"""By load and policy: mean completion time of workloads 1 to 6, its mean, the mean of their p99. Hours."""
TRACES: Final = Path(__file__).parent / "published"
WORKLOADS: Final = 6
UNKNOWN: Final = Options(power=0.5, favour=0.35, short=timedelta(hours=1))
KNOWN: Final = Options(power=0.5, favour=0.7, short=timedelta(minutes=12))
"""Chosen on two workloads of each load but 1.0 (one of it), and again after all of 0.5 to 1.5 were seen."""
RULES: Final[Mapping[str, Rules]] = {
    "restart 30 s": Rules(30, 30, options=UNKNOWN),
    "any change 0.1 s": Rules(0.1, 0.1, options=UNKNOWN),
    "resize 0.1 s, start or move 30 s": Rules(30, 0.1, options=UNKNOWN),
    "restart 30 s, work left is known": Rules(30, 30, known=True, options=KNOWN),
    "any change 0.1 s, work left is known": Rules(0.1, 0.1, known=True, options=KNOWN),
    "the same, a plan each 15 s": Rules(0.1, 0.1, known=True, tick=15, options=KNOWN),
}
FIGURES: Final[Mapping[str, Callable[[Outcome], float]]] = {
    "p99 h": lambda outcome: p99_of(outcome.hours),
    "rho, mean": lambda outcome: fmean(outcome.rho.values()),
    "rho, p99": lambda outcome: p99_of(outcome.rho),
    "changes a job": lambda outcome: fmean(outcome.changes.values()),
    "plan, ms": lambda outcome: 1000 * fmean(outcome.plans),
}
"""Of one workload, beside its mean completion time."""


def p99_of(by_job: Mapping[str, float]) -> float:
    return float(np.percentile(list(by_job.values()), 99))


def pollux(
    traces: Annotated[Path, Option(help="a folder with jobs/<load>/<n>.csv and models/")] = TRACES,
    load: Annotated[list[str] | None, Option(help="0.5 to 2.0, default: all; may be repeated")] = None,
    workload: Annotated[list[int] | None, Option(help="by number; may be repeated")] = None,
    jobs: Annotated[Path | None, Option(help="one file of jobs, instead of all")] = None,
    models: Annotated[Path | None, Option(help="the folder of applications for --jobs")] = None,
    plots: Annotated[Path | None, Option(help="write plots into this folder")] = None,
    only: Annotated[list[str] | None, Option(help=f"a row, of {'; '.join(RULES)}; may be repeated")] = None,
    power: Annotated[float | None, Option(help="p of the power mean")] = None,
    favour: Annotated[float | None, Option(help="how much short jobs are favoured")] = None,
    short: Annotated[float | None, Option(help="jobs of fewer hours are equally short")] = None,
) -> None:
    """The published workloads of the Pollux paper, or others of their form: a table for each load."""
    if bool(jobs) != bool(models):
        raise BadParameter("--jobs FILE and --models FOLDER are given together")
    given = {"power": power, "favour": favour, "short": None if short is None else timedelta(hours=short)}
    changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    rules = {
        name: replace(RULES[name], options=replace(RULES[name].options, **changed))
        for name in some(only, RULES)
    }
    try:
        applications = read_applications(models or traces / "models")
        if jobs:
            table(jobs.name, [jobs], applications, rules, plots)
            return
        for each in some(load, PUBLISHED):
            numbers = workload or [*range(1, WORKLOADS + 1)]
            files = [traces / "jobs" / each / f"{at}.csv" for at in numbers]
            table(f"load {each}", files, applications, rules, plots, published(each, numbers))
    except BadTrace as error:
        sys.exit(str(error))


Hours = Mapping[str, tuple[Sequence[float], float]]
"""By policy: the mean completion time of each workload, and their p99."""


def published(load: str, numbers: Sequence[int]) -> Hours:
    """Return the results of some workloads; their p99 is known for all together alone."""
    every = len(numbers) == WORKLOADS
    return {
        name: ([means[at - 1] for at in numbers], p99 if every else nan)
        for name, (means, _, p99) in PUBLISHED[load].items()
    }


def table(
    title: str,
    files: Sequence[Path],
    applications: Mapping[str, Application],
    rules: Mapping[str, Rules],
    plots: Path | None,
    beside: Hours | None = None,
) -> None:
    """Run workloads and print them, beside what was published if they were; plot the first one."""
    rows, firsts, columns = [], {}, [f"{file.stem}, h" for file in files if beside]
    pollux = fmean(beside["Pollux"][0]) if beside else nan
    for name, (means, p99) in (beside or {}).items():
        mean = fmean(means)
        rows.append([name, *map(number, means), number(mean), number(mean / pollux), spread([p99])])
    for name, each in rules.items():
        outcomes = []
        for file in files:
            outcomes.append(run(read_jobs(file, applications), applications, each))
            say(f"{title}, workload {file.stem}, {name}: {outcomes[-1].mean:.3f} h")
        means = [outcome.mean for outcome in outcomes]
        mean = fmean(means)
        figures = (number(fmean(map(figure, outcomes))) for figure in FIGURES.values())
        single = map(number, means[: len(columns)])
        rows.append([name, *single, number(mean), spread([mean / pollux]), *figures])
        firsts[name] = outcomes[0]
    show(Sheet((title, *columns, "mean h", "of Pollux", *FIGURES), rows))
    if plots:
        draw(plots, f"{title}, workload {files[0].stem}" if beside else title, firsts)


def draw(folder: Path, title: str, outcomes: Mapping[str, Outcome]) -> None:
    """Plot the cheapest resizes of the chosen rows, beside the dearest."""
    (_, dear), *_, (name, cheap) = outcomes.items()
    first = next(iter(outcomes))
    jobs, gpus = ([(busy[0], float(busy[at])) for busy in cheap.busy] for at in (1, 2))
    beside = [[(busy[0], float(busy[at])) for busy in dear.busy] for at in (1, 2)]
    lines = (
        (f"jobs that have not ended; {name}, faint: {first}", jobs, beside[0]),
        ("GPUs in use", gpus, beside[1]),
    )
    plot(folder, title, "h", lines)
