"""How fast a job is with given nodes, and what each node uses: the truth, without noise.

All-reduce, strong scaling (a fixed global batch): a step takes work/(n·c) to compute with n workers of c
cores, and latency·(n-1) + wire·2(n-1)/n for the ring. Parameter servers, asynchronous: workers alone would
make Σ c/work steps a second, server i carries at most c_i/(cost·share_i); the smaller of both bounds the
speed, smoothly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True)
class Memory:
    """What a node of a role uses, in GiB: a base, growth per hour to a plateau, jumps while it evaluates."""

    base: float = 2.0
    growth: float = 0.0
    plateau: float = 0.0
    jump: float = 0.0
    every: float = 3600.0
    lasts: float = 60.0

    def at(self, seconds: float) -> float:
        """Return the use after `seconds` of training."""
        grown = min(self.plateau, self.growth * seconds / 3600)
        jumps = self.jump if seconds > self.every and seconds % self.every < self.lasts else 0.0
        return self.base + grown + jumps

    @property
    def peak(self) -> float:
        """Return the most that it ever uses."""
        return self.base + (self.plateau if self.growth else 0.0) + self.jump


@dataclass(frozen=True)
class Speed:
    """Steps a second, and the cores that each node uses at that speed."""

    steps: float
    workers: tuple[float, ...] = ()
    servers: tuple[float, ...] = ()


@dataclass(frozen=True)
class AllReduce:
    """A job of workers. `work` in core-seconds a step, `most` cores that one worker can use."""

    work: float = 8.0
    most: float = 4.0
    latency: float = 0.002
    wire: float = 0.05

    def speed(self, workers: Sequence[float], servers: Sequence[float] = (), slow: float = 1.0) -> Speed:
        """Return the speed with workers of so many cores; the slowest one is `slow` times slower."""
        if not workers:
            return Speed(0.0)
        n, cores = len(workers), min(min(workers), self.most)
        computing = self.work / (n * cores) * slow
        step = computing + self.latency * (n - 1) + self.wire * 2 * (n - 1) / n
        return Speed(1 / step, tuple(cores * computing / slow / step for _ in workers))


@dataclass(frozen=True)
class Servers:
    """A job with parameter servers. `work`, `cost`: core-seconds a step; with `skew` > 0 the first is hot."""

    work: float = 2.0
    most: float = 8.0
    cost: float = 0.8
    skew: float = 0.0

    def shares(self, servers: int) -> tuple[float, ...]:
        """Return which part of each step every server carries."""
        weights = [1.0 + (self.skew if index == 0 else 0.0) for index in range(servers)]
        return tuple(weight / sum(weights) for weight in weights)

    def speed(self, workers: Sequence[float], servers: Sequence[float] = (), slow: float = 1.0) -> Speed:
        """Return the speed; one of the workers is `slow` times slower."""
        if not workers or not servers:
            return Speed(0.0)
        used = [min(cores, self.most) for cores in workers]
        alone = (sum(used) - used[0] + used[0] / slow) / self.work
        shares = self.shares(len(servers))
        carried = min(cores / (self.cost * share) for cores, share in zip(servers, shares, strict=True))
        steps = (alone**-4 + carried**-4) ** -0.25
        per_worker = tuple(steps * self.work * cores / sum(used) for cores in used)
        return Speed(steps, per_worker, tuple(steps * self.cost * share for share in shares))


Physics = AllReduce | Servers
