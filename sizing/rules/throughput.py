"""The model of a job's speed: step time as a sum of costs, fitted by non-negative least squares.

    all-reduce:          t = c0 + c1/cpu + c2·(n − 1)/n               n workers with `cpu` cores each
    parameter servers:   t = c0 + c1/cpu + c2·n/(p·cpu_p) + c3·n/p    p servers with `cpu_p` cores each

All c ≥ 0. Newer samples weigh more. It is used only with more settings than coefficients, where it explains
what was seen, and up to twice the largest setting that was seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import numpy as np
from scipy.optimize import nnls

from elasticjob.api.roles import CHIEF, PS, WORKER
from elasticjob.api.sizes.facts import Sample
from elasticjob.sizing.measures import SLOWEST

HALVES: Final = 32
"""Samples after which the weight of one is half."""
NEAR: Final = 2.0
FITS: Final = 0.15
"""The largest relative error (root of the mean square) of a model that is used."""


@dataclass(frozen=True)
class Setting:
    """Workers with `cpu` cores each, and `servers` with `server_cpu` cores each; 0 without servers."""

    workers: int
    cpu: float = 1.0
    servers: int = 0
    server_cpu: float = 0.0

    @property
    def costs(self) -> tuple[float, ...]:
        """The terms of the sum."""
        n, cpu = self.workers, max(self.cpu, 0.1)
        if not self.servers:
            return (1.0, 1 / cpu, (n - 1) / n)
        return (1.0, 1 / cpu, n / (self.servers * max(self.server_cpu, 0.1)), n / self.servers)


@dataclass(frozen=True)
class Model:
    """A fitted model, and the last setting that was seen. `str` gives the sentence for people."""

    costs: tuple[float, ...]
    last: Setting
    largest: int
    error: float

    def step_time(self, setting: Setting) -> float:
        """Return the seconds of a step."""
        return float(np.dot(self.costs, setting.costs))

    def speed(self, workers: int) -> float:
        """Return how much faster than one worker so many train, with the other settings of the last sample:
        each works on its own records."""
        one, many = (Setting(n, self.last.cpu, self.last.servers, self.last.server_cpu) for n in (1, workers))
        return workers * self.step_time(one) / self.step_time(many)

    def __str__(self) -> str:
        costs = ", ".join(f"{cost:.3g}" for cost in self.costs)
        return f"step time fitted with costs {costs} s (error {self.error:.0%})"


def fit(samples: Sequence[Sample]) -> Model | None:
    """Return the model of the samples; None with too few settings, or where it does not explain them."""
    known = [
        (_setting(sample), sample.workers / sample.samples) for sample in samples if sample.samples > SLOWEST
    ]
    if not known:
        return None
    of_servers = bool(known[-1][0].servers)
    known = [(setting, time) for setting, time in known if bool(setting.servers) == of_servers]
    settings = [setting for setting, _ in known]
    rows, times = np.array([each.costs for each in settings]), np.array([time for _, time in known])
    if len({setting.costs for setting in settings}) <= rows.shape[1]:
        return None
    weights = 0.5 ** (np.arange(len(times))[::-1] / HALVES) / times
    found, _ = nnls(rows * weights[:, None], times * weights)
    error = float(np.sqrt(np.mean(((rows @ found - times) / times) ** 2)))
    if error > FITS or not found.any():
        return None
    largest = int(NEAR * max(setting.workers for setting in settings))
    return Model(tuple(map(float, found)), settings[-1], largest, error)


def best(model: Model, counts: Iterable[int], pays: float) -> int:
    """Return the largest count of which each step up brings `pays` of what one worker brings, at least the
    first."""
    near = [count for count in counts if count <= model.largest] or [model.last.workers]
    chosen = near[0]
    for count in near[1:]:
        gain = (model.speed(count) - model.speed(chosen)) / (count - chosen)
        if gain < pays * model.speed(chosen) / chosen:
            break
        chosen = count
    return chosen


def _setting(sample: Sample) -> Setting:
    """A node's cores are those it has; with none configured, those it uses."""
    workers, servers = sample.of(WORKER, CHIEF), sample.of(PS)
    cpu = fmean(use.cores or use.cpu for use in workers) if workers else 1.0
    of_servers = fmean(use.cores or use.cpu for use in servers) if servers else 0.0
    return Setting(sample.workers, round(cpu or 1.0, 1), len(servers), round(of_servers, 1))
