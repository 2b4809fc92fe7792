"""Means and maxima over the newest samples: the numbers on which rules rest.

An amount of 0 in a sample means that it is not known, and is left out; what no sample knows is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from statistics import fmean
from typing import Final

from elasticjob.api.resources import Amount, Bytes, Cores, Resources
from elasticjob.api.roles import CHIEF, PS, WORKER
from elasticjob.api.sizes.facts import Sample, Use

MIB: Final = 2**20
GIB: Final = 2**30
TRAIN: Final = (WORKER, CHIEF)
"""Roles that are counted as workers."""
KEPT: Final = 5
"""Newest samples of one size that count."""
NEWEST: Final = 3
"""Samples that a rule of Brain looks at."""

SLOWEST: Final = 1e-9
"""A step or record a second in thirty years: less is no speed, and quotients of it are no numbers."""


@dataclass(frozen=True)
class Window:
    """The newest samples of one shape of the job."""

    samples: tuple[Sample, ...]

    @property
    def workers(self) -> int:
        """Workers and chiefs now."""
        return self.samples[-1].workers if self.samples else 0

    @property
    def servers(self) -> tuple[str, ...]:
        """The parameter servers now."""
        return tuple(use.name for use in self.samples[-1].nodes if use.role == PS) if self.samples else ()

    def uses(self, *roles: str) -> list[Use]:
        """Return what nodes of these roles used, in all samples."""
        return [use for sample in self.samples for use in sample.nodes if use.role in roles]

    def cpu(self, *roles: str) -> float | None:
        """Return the mean of the cores that a node of these roles uses."""
        return _mean(use.cpu for use in self.uses(*roles))

    def all_servers(self) -> float | None:
        """Return the mean over samples of the cores that all parameter servers use together."""
        return _mean(sum(use.cpu for use in sample.nodes if use.role == PS) for sample in self.samples)

    def busiest(self) -> Use | None:
        """Return the parameter server that used the largest share of its cores in any sample."""
        known = [use for use in self.uses(PS) if use.cpu and use.cores]
        return max(known, key=lambda use: use.cpu / use.cores, default=None)

    def server(self, name: str) -> float | None:
        """Return the mean of the cores that one parameter server uses."""
        return _mean(use.cpu for use in self.uses(PS) if use.name == name)


def of_servers(samples: Sequence[Sample]) -> Window:
    """Return the newest samples with the parameter servers of the newest."""
    names = Window(tuple(samples)).servers
    return Window(tuple(r for r in samples[-KEPT:] if Window((r,)).servers == names))


@dataclass(frozen=True)
class Growth:
    """The last change of size, with the mean speed before and after it."""

    before: int
    after: int
    slow: float
    fast: float

    @property
    def ratio(self) -> float:
        """Speed of each added worker, as a share of that of a worker before; 1: as much."""
        return ratio({self.before: self.slow, self.after: self.fast}, self.before, self.after)


def last_growth(samples: Sequence[Sample]) -> Growth | None:
    """Return the last change of size in the samples; None without one."""
    if not samples:
        return None
    after = samples[-1].workers
    cut = next((i for i in range(len(samples) - 1, -1, -1) if samples[i].workers != after), None)
    if cut is None:
        return None
    new, before = samples[cut + 1 :], samples[cut].workers
    old = tuple(r for r in samples[: cut + 1] if r.workers == before)
    counted = all(each.samples for each in (*old, *new))
    slow, fast = (fmean(each.samples if counted else each.steps for each in part) for part in (old, new))
    return Growth(before, after, slow, fast)


def ratio(speeds: Mapping[int, float], before: int, after: int) -> float:
    """Return what each node beyond `before` brings, as a share of what those before bring; 1: as much."""
    slow, fast = speeds[before], speeds[after]
    if not before or slow < SLOWEST or before == after:
        return 1.0
    return ((fast - slow) / (after - before)) / (slow / before)


def cores(amount: float) -> Cores:
    """Return cores, rounded up to a tenth."""
    return Cores(Fraction(ceil(round(amount * 10, 6)), 10))


def mebibytes(amount: float) -> Bytes:
    """Return bytes, rounded up to a MiB."""
    return Bytes(ceil(amount / MIB) * MIB)


def _mean(values: Iterable[float]) -> float | None:
    known = [value for value in values if value]
    return fmean(known) if known else None


def newest(samples: Sequence[Sample], most: int = NEWEST) -> tuple[Sample, ...]:
    """Return the newest samples with the parameter servers of the last one."""
    if not samples:
        return ()
    servers = _names(samples[-1])
    same = [sample for sample in samples if _names(sample) == servers]
    return tuple(same[-most:])


def _names(sample: Sample) -> frozenset[str]:
    return frozenset(use.name for use in sample.of(PS))


def means(samples: Sequence[Sample], *roles: str) -> dict[str, float]:
    """Return the mean cores that each node of some roles used."""
    return _each(samples, roles, lambda uses: fmean(use.cpu for use in uses))


def shares(samples: Sequence[Sample], *roles: str) -> dict[str, float]:
    """Return the mean share of its cores that each node used; without those whose cores are not known."""
    found = _each(samples, roles, lambda uses: fmean(use.cpu_share for use in uses))
    return {name: share for name, share in found.items() if share}


def memory(samples: Sequence[Sample], *roles: str) -> dict[str, float]:
    """Return the largest memory that each node used, in bytes."""
    return _each(samples, roles, lambda uses: max(use.memory for use in uses))


def totals(samples: Sequence[Sample], *roles: str) -> float:
    """Return the largest sum of cores that all nodes of some roles used at one time."""
    return max((sum(use.cpu for use in sample.of(*roles)) for sample in samples), default=0.0)


def _each(
    samples: Sequence[Sample], roles: Iterable[str], value: Callable[[list[Use]], float]
) -> dict[str, float]:
    by_name: dict[str, list[Use]] = {}
    for sample in samples:
        for use in sample.of(*roles):
            by_name.setdefault(use.name, []).append(use)
    return {name: value(uses) for name, uses in by_name.items()}


def resource(cores: float | None = None, size: float | None = None) -> Resources:
    """Return an amount of cores and of memory in bytes, in whole hundredths and MiB; None: as it is."""
    found: dict[str, Amount] = {}
    if cores:
        found["cpu"] = Cores.parse(f"{cores:.2f}")
    if size:
        found["memory"] = mebibytes(size)
    return Resources(found)
