"""Means and maxima over the newest records: the numbers on which rules rest.

An amount of 0 in a record means that it is not known, and is left out; what no record knows is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from statistics import fmean
from typing import Final

from elasticjob.api.resources import Bytes, Cores
from elasticjob.api.v1alpha1.common import CHIEF, PS, WORKER
from elasticjob.master.state.scaling import KEPT, Record, Use

MIB: Final = 2**20
GIB: Final = 2**30
TRAIN: Final = (WORKER, CHIEF)
"""Roles that are counted as workers."""


@dataclass(frozen=True)
class Samples:
    """The newest records of one shape of the job."""

    records: tuple[Record, ...]

    @property
    def workers(self) -> int:
        """Workers and chiefs now."""
        return self.records[-1].workers if self.records else 0

    @property
    def servers(self) -> tuple[str, ...]:
        """The parameter servers now."""
        return tuple(use.name for use in self.records[-1].nodes if use.role == PS) if self.records else ()

    def uses(self, *roles: str) -> list[Use]:
        """Return what nodes of these roles used, in all records."""
        return [use for record in self.records for use in record.nodes if use.role in roles]

    def cpu(self, *roles: str) -> float | None:
        """Return the mean of the cores that a node of these roles uses."""
        return _mean(use.cpu for use in self.uses(*roles))

    def memory(self, *roles: str) -> int | None:
        """Return the most bytes that a node of these roles used."""
        return max((use.memory for use in self.uses(*roles) if use.memory), default=None)

    def all_servers(self) -> float | None:
        """Return the mean over records of the cores that all parameter servers use together."""
        return _mean(sum(use.cpu for use in record.nodes if use.role == PS) for record in self.records)

    def busiest(self) -> Use | None:
        """Return the parameter server that used the largest share of its cores in any record."""
        known = [use for use in self.uses(PS) if use.cpu and use.cores]
        return max(known, key=lambda use: use.cpu / use.cores, default=None)

    def server(self, name: str) -> float | None:
        """Return the mean of the cores that one parameter server uses."""
        return _mean(use.cpu for use in self.uses(PS) if use.name == name)


def of_workers(records: Sequence[Record]) -> Samples:
    """Return the newest records with as many workers as the newest."""
    return Samples(tuple(r for r in records[-KEPT:] if r.workers == records[-1].workers))


def of_servers(records: Sequence[Record]) -> Samples:
    """Return the newest records with the parameter servers of the newest."""
    names = Samples(tuple(records)).servers
    return Samples(tuple(r for r in records[-KEPT:] if Samples((r,)).servers == names))


@dataclass(frozen=True)
class Growth:
    """The last change of size, with the mean speed before and after it."""

    before: int
    after: int
    slow: float
    fast: float

    @property
    def ratio(self) -> float:
        """What each added worker brought, as a share of what a worker brought before; 1: as much."""
        return ratio({self.before: self.slow, self.after: self.fast}, self.before, self.after)


def last_growth(records: Sequence[Record]) -> Growth | None:
    """Return the last change of size in the records; None without one."""
    if not records:
        return None
    after = records[-1].workers
    cut = next((i for i in range(len(records) - 1, -1, -1) if records[i].workers != after), None)
    if cut is None:
        return None
    new, before = records[cut + 1 :], records[cut].workers
    old = tuple(r for r in records[: cut + 1] if r.workers == before)
    samples = all(r.samples for r in (*old, *new))
    slow, fast = (fmean(r.samples if samples else r.steps for r in part) for part in (old, new))
    return Growth(before, after, slow, fast)


def ratio(speeds: Mapping[int, float], before: int, after: int) -> float:
    """Return what each node beyond `before` brings, as a share of what those before bring; 1: as much."""
    slow, fast = speeds[before], speeds[after]
    if not before or not slow or before == after:
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
