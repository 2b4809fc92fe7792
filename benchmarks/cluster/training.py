"""A job of a published workload while it trains: its true progress, and what it measures on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from math import ceil

from benchmarks.cluster.efficiency import Batches, Measurement, Noise, StepTime, configure, fit
from benchmarks.cluster.traces import Application, Submission

TINY = 1e-8


@dataclass(eq=False)
class Training:
    """One job. `places` names the node of each GPU; times in seconds, `trained` without standing still."""

    submission: Submission
    application: Application
    places: tuple[str, ...] = ()
    progress: float = 0.0
    epoch: int = 0
    stands: float = 0.0
    trained: float = 0.0
    service: float = 0.0
    changed: float | None = None
    changes: int = 0
    completed: float | None = None
    noise: Noise | None = None
    model: StepTime | None = None
    local: int = 0
    extra: int = 0
    _measured: dict[tuple[int, int, int], Measurement] = field(default_factory=dict)
    fair: list[float] = field(default_factory=list)
    """The goodput that a fair share would have had, at each plan."""
    known: tuple[object, dict[int, float]] | None = None
    """The goodput by number of GPUs, with what it was computed from."""
    _fitted: int = 0

    @property
    def placement(self) -> tuple[int, ...]:
        """The number of GPUs on each node."""
        return tuple(len(list(same)) for _, same in groupby(self.places))

    @property
    def batches(self) -> Batches:
        """The batches that it may train with."""
        of = self.application
        fixed = of.fixed_batch
        return Batches(fixed or of.first_batch, fixed or of.most_batch, of.least_local, of.most_local)

    @property
    def most_measured(self) -> int:
        """The largest number of GPUs that it has run with."""
        return max((count for _, count, _ in self._measured), default=0)

    def learn(self) -> None:
        """Fit the model of its speed to what it has measured."""
        if len(self._measured) > self._fitted:
            self._fitted = len(self._measured)
            self.model = fit(tuple(self._measured.values()))

    def place(self, places: tuple[str, ...], now: float, cost: float) -> None:
        """Change the list of its nodes: it stands still for `cost` seconds."""
        self.places, self.changed = places, now
        self.changes += 1
        self.stands = cost
        if places:
            self._configure()

    def advance(self, now: float, seconds: float) -> None:
        """Let it train from `now` on."""
        if not self.places or self.completed is not None:
            return
        still = min(self.stands, seconds)
        self.stands -= still
        self.service += seconds * len(self.places)
        left = seconds - still
        while left > 0:
            rate = self._measure()
            end = float(self.application.ends[self.epoch])
            needed = (end - self.progress) / rate
            if needed > left:
                self.progress += rate * left
                self.trained += left
                return
            left -= needed
            self.trained += needed
            self.progress = end
            self.epoch += 1
            if self.epoch == self.application.epochs:
                self.completed = now + seconds - left
                self.service -= left * len(self.places)
                return
            self._configure()

    def _measure(self) -> float:
        """Return the goodput, and note what its trainer would report."""
        of, placement = self.application, self.placement
        count = len(self.places)
        step, sync = of.step_time(placement, self.local)
        batch = count * self.local * (self.extra + 1)
        self.noise = Noise(*of.gradient(batch, self.epoch), of.first_batch)
        key = len(placement), count, self.local
        self._measured.setdefault(key, Measurement(*key, step, step - sync))
        return float(self.noise.gain(batch)) / (step + self.extra * (step - sync))

    def _configure(self) -> None:
        """Choose the batch, as its trainer does at each start and epoch."""
        self.learn()
        count, batches = len(self.places), self.batches
        if self.model is not None and self.noise is not None and batches.least < batches.most:
            found = configure(self.model, self.noise, batches, [len(self.placement)], [count])
            self.local, self.extra = int(found.local[0]), int(found.extra[0])
            return
        share = ceil(max(batches.least, batches.least_local * count) / count - TINY)
        self.extra = ceil(share / batches.most_local - TINY) - 1
        self.local = ceil(share / (self.extra + 1) - TINY)
