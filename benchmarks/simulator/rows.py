"""The situations that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Final, NamedTuple

from benchmarks.simulator.physics import AllReduce, Memory, Physics, Servers


class Best(NamedTuple):
    """The best speed within some cores, and the fewest nodes that come within 2 % of it."""

    steps: float
    workers: int
    cores: float
    servers: int
    server_cores: float


@dataclass(frozen=True, eq=False)
class Row:
    """A job and its cluster. Times in seconds; `cores` are the cluster's for this job, from each time on.

    `losses` and `slowness` are mean times between spot losses of workers, and between slow phases of one.
    """

    name: str
    physics: Physics
    hours: float = 2.0  # at the best speed
    workers: int = 16
    servers: int = 0  # the most; 0: none
    limit_cores: int = 64
    limit_gib: int = 256
    memory: Mapping[str, Memory] = field(default_factory=dict)
    cores: tuple[tuple[float, float], ...] = ((0.0, 64.0),)
    losses: float = 0.0
    slowness: float = 0.0
    startup: float = 30.0

    def capacity(self, seconds: float) -> float:
        """Return the cores that the cluster has for this job."""
        return [cores for since, cores in self.cores if since <= seconds][-1]

    @property
    def best(self) -> Best:
        """Return the best sizes for the cluster as it is at the end."""
        return best(self, self.cores[-1][1])


@cache
def best(row: Row, cores: float) -> Best:
    """Return the best sizes within `cores`, over numbers of workers and servers and their cores."""
    cores = min(cores, row.limit_cores)
    servers_of = range(1, row.servers + 1) if row.servers else (0,)
    found = []
    for workers, servers in product(range(1, row.workers + 1), servers_of):
        for each in (1.0, 2.0, 4.0, 8.0) if servers else (0.0,):
            own = min(row.physics.most, (cores - servers * each) / workers)
            if own >= 0.5:
                steps = row.physics.speed([own] * workers, [each] * servers).steps
                found.append(Best(steps, workers, own, servers, each))
    most = max(each.steps for each in found)
    enough = (each for each in found if each.steps >= 0.98 * most)
    return min(enough, key=lambda each: each.workers * each.cores + each.servers * each.server_cores)


WORKER: Final = {"worker": Memory(base=3.0)}
BOTH: Final = {"worker": Memory(base=3.0), "ps": Memory(base=4.0)}
ROWS: Final = (
    Row("all-reduce, scales well", AllReduce(work=40.0, latency=0.001, wire=0.02), memory=WORKER),
    Row("all-reduce, scales badly", AllReduce(work=8.0, latency=0.05, wire=0.4), memory=WORKER),
    Row("servers, balanced", Servers(), servers=8, memory=BOTH),
    Row("servers, one hot", Servers(skew=3.0), servers=8, memory=BOTH),
    Row(
        "memory grows",
        AllReduce(work=40.0, latency=0.001, wire=0.02),
        memory={"worker": Memory(base=3.0, growth=6.0, plateau=9.0)},
    ),
    Row(
        "memory jumps",
        AllReduce(work=40.0, latency=0.001, wire=0.02),
        memory={"worker": Memory(base=3.0, jump=8.0, every=1800.0)},
    ),
    Row("spot losses", AllReduce(work=40.0, latency=0.001, wire=0.02), memory=WORKER, losses=600.0),
    Row(
        "stragglers",
        AllReduce(work=40.0, latency=0.001, wire=0.02),
        memory=WORKER,
        slowness=1200.0,
    ),
    Row(
        "full cluster, room later",
        AllReduce(work=40.0, latency=0.001, wire=0.02),
        memory=WORKER,
        cores=((0.0, 8.0), (1800.0, 64.0)),
    ),
)
