"""How fast a data-parallel job trains with other sizes: step time, statistical efficiency, best batch. Pure.

Source: Pollux (Qiao et al., OSDI 2021), sections 3.1 (efficiency), 3.2 (throughput) and 4.1 (what is
assumed before it is measured). With n instances, m records of each instance in a micro-step, and s extra
micro-steps before each synchronisation:

    compute = α_c + β_c·m                         synchronise = 0 if n = 1, else α + β·(n − 2)
    step    = s·compute + (compute^γ + synchronise^γ)^(1/γ)
    gain    = (var + sqr) / (var·M0/M + sqr)      goodput = gain / step

α and β differ between one machine and several. M = n·m·(s + 1) is the global batch, M0 the first one. A step
at M is worth `gain` steps at M0, so goodput is counted in steps at M0 a second. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

Array = NDArray[np.float64]

OVERLAPS: Final = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)
"""Values of γ that are tried: 1 is no overlap of computing and synchronising, 10 nearly all."""
PREFERRED: Final = 1e-3
"""What a larger γ has to improve, times (γ − 1)²."""
FURTHER: Final = 1.1
"""Synchronisation between machines takes at least so much longer than within one, until it is measured."""
BATCHES: Final = 50
"""Global batches that are tried, in geometric steps."""


@dataclass(frozen=True)
class Measurement:
    """The times of a step with `count` instances on `machines`, each with `local` records in a micro-step.

    `compute` is the time without synchronisation, which is that of a micro-step.
    """

    machines: int
    count: int
    local: int
    step: float
    compute: float


Ratios = tuple[Array, Array]
"""Records of a micro-step, ascending, and for each the time that was measured over that of the model."""


@dataclass(frozen=True)
class StepTime:
    """The fitted model of a step; pairs are α and β.

    What was measured counts more than the model: `micros` corrects the time of a micro-step, `steps` that of
    a whole step by machines and instances, between the measured batches in proportion.
    """

    compute: tuple[float, float]
    within: tuple[float, float]
    between: tuple[float, float]
    overlap: float
    micros: Ratios | None = None
    steps: Mapping[tuple[int, int], Ratios] = field(default_factory=dict)

    def micro(self, local: ArrayLike) -> Array:
        """Return the time of a micro-step without synchronisation."""
        local = np.asarray(local, dtype=float)
        line = self.compute[0] + self.compute[1] * local
        return np.asarray(line if self.micros is None else line * np.interp(local, *self.micros))

    def seconds(self, machines: ArrayLike, count: ArrayLike, local: ArrayLike, extra: ArrayLike = 0) -> Array:
        """Return the time of a step with `extra` micro-steps before the last; arguments are broadcast."""
        machines, count = np.asarray(machines), np.asarray(count)
        beyond = np.maximum(count - 2, 0)
        within = self.within[0] + self.within[1] * beyond
        between = self.between[0] + self.between[1] * beyond
        sync = np.where(machines > 1, between, np.where(count > 1, within, 0.0))
        micro = self.micro(local)
        last = (micro**self.overlap + sync**self.overlap) ** (1 / self.overlap)
        return np.asarray(np.asarray(extra) * micro + last * self._ratios(machines, count, local))

    def _ratios(self, machines: ArrayLike, count: ArrayLike, local: ArrayLike) -> Array:
        """Return the ratio of measured to modelled time for each argument, 1 where nothing was measured."""
        machines, count, local = np.broadcast_arrays(machines, count, np.asarray(local, dtype=float))
        found = np.ones(local.shape)
        for (on, instances), ratios in self.steps.items():
            same = (machines == on) & (count == instances)
            if same.any():
                found[same] = np.interp(local[same], *ratios)
        return found


@dataclass(frozen=True)
class Noise:
    """The gradient's squared norm and variance at the first batch, as a trainer reports them."""

    sqr: float
    var: float
    first_batch: int

    def gain(self, batch: ArrayLike) -> Array:
        """Return how many steps at the first batch one step at `batch` is worth."""
        scale = np.asarray(batch, dtype=float) / self.first_batch
        below = self.var / scale + self.sqr
        return np.where(below > 0, (self.var + self.sqr) / np.where(below > 0, below, 1.0), 1.0)


@dataclass(frozen=True)
class Batches:
    """The bounds of the global batch, and of the records of one instance in a micro-step."""

    least: int
    most: int
    least_local: int
    most_local: int


@dataclass(frozen=True)
class Configurations:
    """The best batch for each size: goodput (0: none fits), records of a micro-step, extra micro-steps."""

    goodput: Array
    local: NDArray[np.int64]
    extra: NDArray[np.int64]


def fit(measured: Sequence[Measurement]) -> StepTime:
    """Return the model of what was measured, one measurement at least.

    What was not measured is assumed to scale perfectly, so that it will be tried (Pollux, section 4.1).
    """
    table = np.array([(m.machines, m.count, m.local, m.step, m.compute) for m in measured], dtype=float)
    machines, count, local, step, compute = table.T
    fitted = _compute(local, compute)
    inter, intra = machines > 1, (machines == 1) & (count > 1)
    found: list[tuple[float, StepTime]] = []
    for overlap in OVERLAPS:
        sync = np.maximum(step**overlap - compute**overlap, 0.0) ** (1 / overlap)
        within = _line(count[intra] - 2, sync[intra], 1 / step[intra])
        between = _line(count[inter] - 2, sync[inter], 1 / step[inter])
        if not inter.any():
            between = FURTHER * within[0], FURTHER * within[1]
        model = StepTime(fitted, within, between, overlap)
        error = np.log(model.seconds(machines, count, local) / step)
        found.append((float(np.sqrt(np.mean(error**2))) + PREFERRED * (overlap - 1) ** 2, model))
    model = min(found, key=lambda each: each[0])[1]
    model = replace(model, micros=_ratios(local, compute / model.micro(local)))
    ratio = step / model.seconds(machines, count, local)
    places = set(zip(machines.astype(int).tolist(), count.astype(int).tolist(), strict=True))
    same = {place: (machines == place[0]) & (count == place[1]) for place in places}
    return replace(model, steps={place: _ratios(local[at], ratio[at]) for place, at in same.items()})


def _ratios(local: Array, ratio: Array) -> Ratios:
    known = np.unique(local)
    return known, np.array([ratio[local == each].mean() for each in known])


def configure(
    model: StepTime, noise: Noise, batches: Batches, machines: Sequence[int], counts: Sequence[int]
) -> Configurations:
    """Return the batch of the greatest goodput for each number of instances, on so many machines.

    One instance with more than the first batch takes two micro-steps: the noise is measured between them.
    """
    count = np.asarray(counts, dtype=float)
    least = np.maximum(batches.least, batches.least_local * count)
    wanted = np.geomspace(least, np.maximum(batches.most, least), BATCHES) / count
    tiny = 1e-8
    extra = np.ceil(wanted / batches.most_local - tiny) - 1
    alone = (count == 1) & (wanted > batches.least + tiny)
    extra = np.where(alone, np.maximum(extra, 1), extra)
    local = np.ceil(wanted / (extra + 1) - tiny)
    local = np.minimum(local, np.floor(batches.most / (count * (extra + 1))))
    goodput = noise.gain(count * local * (extra + 1)) / model.seconds(
        np.asarray(machines), count, local, extra
    )
    goodput = np.where((local >= batches.least_local) & (local <= batches.most_local), goodput, 0.0)
    best = np.argmax(goodput, axis=0), np.arange(len(count))
    return Configurations(goodput[best], local[best].astype(int), extra[best].astype(int))


def _compute(local: Array, seconds: Array) -> tuple[float, float]:
    """Return α and β of computing; with one batch only, half of the time is assumed to grow with it."""
    if len(np.unique(local)) == 1:
        half = float(np.mean(seconds)) / 2
        return half, half / float(local[0])
    return _line(local, seconds, 1 / seconds)


def _line(x: Array, y: Array, weight: Array) -> tuple[float, float]:
    """Return α, β ≥ 0 of the line with the least squares, β = 0 where there is one x only."""
    if not len(x):
        return 0.0, 0.0
    slope = x if len(np.unique(x)) > 1 else np.zeros_like(x)
    (alpha, beta), _ = nnls(np.stack([weight, slope * weight], axis=1), y * weight)
    return float(alpha), float(beta)
