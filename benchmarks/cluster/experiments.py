"""EDL's published experiments, rebuilt with our planner: 20 jobs, and 6 jobs beside nginx.

Source: PaddlePaddle/PaddleCloud, doc/edl/experiment (report, templates and logs of the runs). Its cluster had
133 machines, and 2.15 % of the cpu in use before the jobs. Machine sizes are not published: ours have 17.669
cores, so that all have 2,350, and 128 GiB. A job has 2 to 60 trainers of 5 cores and 8 GiB, 10 parameter
servers of 4 cores and 5 GiB, and a master of 1.2 cores and 1 GiB. Jobs of fixed size have 60 trainers, beside
nginx 15, as in the published logs. No job ends within a run; one that never starts is pending until its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import Annotated, Final

from typer import Option

from benchmarks.cluster.plots import Line, plot
from benchmarks.cluster.simulated import Simulated
from benchmarks.figures import Sheet, quantile, show, spread
from elasticjob.brain.fulfilment.state import Amounts, Machine, Options
from lab.processes import say

GIB: Final = 1 << 30
MACHINES: Final = 133
TWENTY: Final = "20 jobs"
BESIDE: Final = "6 jobs beside nginx"
LENGTHS: Final = {TWENTY: 563, BESIDE: 700}
"""Seconds of a run; in the first case, until the fixed jobs that never start are pending as published."""


def _amount(cores: float, gib: int) -> Amounts:
    return {"cpu": round(cores * 1000), "memory": gib * GIB, "pods": 1}


TOTAL: Final[Amounts] = {"cpu": 17669, "memory": 128 * GIB, "pods": 110}
SYSTEM: Final[Amounts] = {"cpu": 380, "memory": 2 * GIB, "pods": 4}
TRAINER: Final = _amount(5, 8)
OTHERS: Final = (*[_amount(4, 5)] * 10, _amount(1.2, 1))
NGINX: Final = _amount(3, 3)
SERVED: Final = ((0, 400), (110, 300), (200, 200), (290, 100), (385, 200), (475, 300), (565, 400))
"""Seconds, and the number of nginx pods from then on."""
BEFORE_JOBS: Final = 6
"""Seconds that nginx has to start."""


@dataclass
class Outcome:
    """What a run came to. Times in seconds, use and scores as shares; `cpu` and `scores` by second."""

    pending: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    spread: list[float] = field(default_factory=list)
    plans: list[float] = field(default_factory=list)

    def use(self, since: int = 0, until: int | None = None) -> float:
        return 100 * fmean(self.cpu[since:until])


def run(case: str, *, elastic: bool, seed: int, options: Options) -> Outcome:
    """Return what a run of a case comes to; the seed decides how long pods take to start."""
    machines = [_machine(i) for i in range(MACHINES)]
    world = Simulated(machines, seed, options if elastic else None)
    nginx = case == BESIDE
    jobs, least = 6 if nginx else 20, 2 if elastic else 15 if nginx else 60
    outcome = Outcome()
    served = dict(SERVED if nginx else ())
    for second in range(LENGTHS[case]):
        if second in served:
            world.serve(served[second], NGINX, priority=1000)
        begun = second - (BEFORE_JOBS if nginx else 0)
        if begun % 10 == 0 and 0 <= begun // 10 < jobs:
            world.submit(f"default/job-{begun // 10:02}", least, 60 if elastic else least, TRAINER, OTHERS)
        world.turn()
        outcome.cpu.append(world.used("cpu"))
        scores = [job.score for job in world.jobs if job.ran is not None]
        outcome.spread.append(max(scores, default=0) - min(scores, default=0))
    for job in world.jobs:
        outcome.pending.append((LENGTHS[case] if job.ran is None else job.ran) - job.submitted)
        outcome.stopped.append(job.stopped)
    outcome.waits = [(pod.runs or LENGTHS[case]) - pod.created for pod in world.served if pod.created > 0]
    outcome.plans = world.plans
    return outcome


def _machine(i: int) -> Machine:
    idle = {name: TOTAL[name] - SYSTEM[name] for name in TOTAL}
    return Machine(f"machine-{i:03}", TOTAL, idle, idle)


Row = tuple[str, Callable[[Outcome], float], str, str]
"""What is measured; how; the published figures of the elastic and of the fixed runs."""
ROWS: Final[Mapping[str, Sequence[Row]]] = {
    TWENTY: (
        ("mean pending, s", lambda each: fmean(each.pending), "47.2", "308.5"),
        ("p95 pending, s", lambda each: quantile(each.pending, 0.95), "–", "–"),
        ("cpu in use, 0–550 s, %", lambda each: each.use(0, 550), "76.3", "76.2"),
        ("cpu in use, 300–500 s, %", lambda each: each.use(300, 500), "86.3", "88.7"),
    ),
    BESIDE: (
        ("mean pending, s", lambda each: fmean(each.pending), "51.5", "1.5"),
        ("p95 pending, s", lambda each: quantile(each.pending, 0.95), "–", "–"),
        ("cpu in use, whole run, %", lambda each: each.use(), "83.4", "61.9"),
        ("cpu in use, 300–370 s, %", lambda each: each.use(300, 370), "79.4", "44.9"),
        ("nginx pods wait, mean, s", lambda each: fmean(each.waits), "–", "–"),
        ("nginx pods wait, p95, s", lambda each: quantile(each.waits, 0.95), "–", "–"),
        ("nginx pods wait, most, s", lambda each: max(each.waits), "–", "–"),
    ),
}
COMMON: Final[Sequence[Row]] = (
    ("instances stopped, mean of a job", lambda each: fmean(each.stopped), "–", "–"),
    ("instances stopped, most of a job", lambda each: max(each.stopped), "–", "–"),
    ("spread of scores, mean over time", lambda each: fmean(each.spread), "–", "–"),
    ("spread of scores, at the end", lambda each: each.spread[-1], "–", "–"),
    ("plans", lambda each: len(each.plans), "–", "–"),
    ("a plan takes, p50, ms", lambda each: 1000 * quantile(each.plans or [0], 0.5), "–", "–"),
    ("a plan takes, most, ms", lambda each: 1000 * max(each.plans, default=0), "–", "–"),
)


def experiments(
    passes: Annotated[int, Option(min=1)] = 10,
    settle: Annotated[float, Option(min=0, help="seconds before a job grows again")] = 60.0,
    rebalance: Annotated[bool, Option("--rebalance", help="move steps between running jobs")] = False,
    plots: Annotated[Path | None, Option(help="write plots into this folder")] = None,
) -> None:
    """EDL's published experiments with our planner, elastic and of fixed size, beside its figures."""
    settings = Options(settle=timedelta(seconds=settle), rebalance=rebalance)
    for case, rows in ROWS.items():
        found: dict[bool, list[Outcome]] = {True: [], False: []}
        for elastic in found:
            for seed in range(passes):
                found[elastic].append(run(case, elastic=elastic, seed=seed, options=settings))
                say(f"{case}, {'elastic' if elastic else 'fixed'}, pass {seed}")
        cells = [
            [name, spread(list(map(of, found[True]))), ours, spread(list(map(of, found[False]))), fixed]
            for name, of, ours, fixed in (*rows, *COMMON)
        ]
        show(Sheet((case, "ours, elastic", "published", "fixed, simulated", "published"), cells))
        print()
        if plots:
            ours, theirs = found[True][0], found[False][0]
            lines = (
                ("cpu in use, %; faint: jobs of fixed size", percent(ours.cpu), percent(theirs.cpu)),
                ("spread of scores between jobs, %", percent(ours.spread), ()),
            )
            plot(plots, case, "s", lines)
    print(
        "published cpu in use is a mean of samples, which were denser in the first minute, when few jobs ran"
    )
    print(f"median (least–most) of {passes} passes in virtual time; settle time {settle:g} s")


def percent(shares: Sequence[float]) -> Line:
    """Return shares by second as points."""
    return [(float(second), 100 * share) for second, share in enumerate(shares)]
