"""The simulated jobs: known speeds, and runs that a seed decides."""

from __future__ import annotations

from math import isclose

import pytest

from benchmarks.simulator.__main__ import run
from benchmarks.simulator.physics import AllReduce, Memory, Servers
from benchmarks.simulator.policies import Peer
from benchmarks.simulator.rows import ROWS, Row


def row(name: str) -> Row:
    return next(each for each in ROWS if each.name == name)


@pytest.mark.parametrize(
    ("physics", "workers", "servers", "steps"),
    [
        (AllReduce(work=8, most=4, latency=0, wire=0), [4], [], 0.5),
        (AllReduce(work=8, most=4, latency=0, wire=0), [4, 4], [], 1.0),
        (AllReduce(work=8, most=4, latency=0, wire=0), [8, 8], [], 1.0),
        (AllReduce(work=8, most=4, latency=0.5, wire=0), [4, 4], [], 2 / 3),
        (Servers(work=2, cost=1), [1], [100], 0.5),
        (Servers(work=2, cost=1), [8] * 100, [1, 1], 2.0),
        (Servers(work=2, cost=1, skew=1), [8] * 100, [1, 1], 1.5),
        (Servers(), [8], [], 0.0),
    ],
)
def test_speed_is_that_of_the_narrowest_part(
    physics: AllReduce | Servers, workers: list[float], servers: list[float], steps: float
) -> None:
    assert isclose(physics.speed(workers, servers).steps, steps, rel_tol=1e-3)


def test_memory_grows_to_its_plateau_and_jumps() -> None:
    memory = Memory(base=2, growth=4, plateau=6, jump=3, every=9000, lasts=10)
    assert [memory.at(seconds) for seconds in (0, 900, 1800, 1809, 7200)] == [2, 3, 4, 4.01, 8]
    assert memory.at(18005) == 11
    assert memory.peak == 11


def test_a_seed_decides_a_run() -> None:
    spot = row("spot losses")
    first = run(spot, Peer(), 1).track
    assert run(spot, Peer(), 1).track == first != run(spot, Peer(), 2).track
