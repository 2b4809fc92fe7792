"""What algorithms ask of samples: the newest of one size, and what each node used on average and at most."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Final

from elasticjob.api.resources import Amount, Bytes, Cores, Resources
from elasticjob.api.v1alpha1.common import CHIEF, PS, WORKER
from elasticjob.brain.history import Limits, Sample, Use

NEWEST: Final = 3
"""Samples that a rule looks at."""
TRAIN: Final = (WORKER, CHIEF)
GIB: Final = 1 << 30
MARGIN: Final = 4
"""Cores beyond what a parameter server uses."""
PARTS: Final = 5
WIDEST: Final = 32
"""Cores of a node at most."""


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
        found["memory"] = Bytes(-(-int(size) >> 20 << 20))
    return Resources(found)


def first(cores: float, size: float, limits: Limits) -> Resources:
    """Return what a first node gets: no more than a fifth of what the whole job may have."""
    total = limits.total
    if "cpu" in total:
        cores = min(cores, cores_of(total) / PARTS)
    if "memory" in total:
        size = min(size, bytes_of(total) / PARTS)
    return resource(cores, size)


def cores_of(found: Resources) -> float:
    """Return the cores in an amount, 0.0 if it has none."""
    return float(found["cpu"].value) if "cpu" in found else 0.0


def bytes_of(found: Resources) -> int:
    """Return the memory in an amount in bytes, 0 if it has none."""
    return int(found["memory"].value) if "memory" in found else 0
