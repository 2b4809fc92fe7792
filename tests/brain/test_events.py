"""When a running job is looked at, and when it counts as settled at its size."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from elasticjob.api.sizes.facts import JobFacts, Placement, Sample, Stage, Use
from elasticjob.api.sizes.role import Role
from elasticjob.brain.events import Pace, event_of, is_steady, size_of_verdict
from elasticjob.sizing import demand
from elasticjob.sizing.facts import Event, Facts

START = datetime(2026, 1, 1, tzinfo=UTC)
PACE = Pace()
FULL_SERVER = Use("job-ps-0", "ps", cpu=1.0, memory=98, cores=8.0, bytes=100)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def samples(*given: tuple[float, int]) -> tuple[Sample, ...]:
    """Samples by their seconds and numbers of workers."""
    return tuple(Sample(at(seconds), workers, 1.0, 8.0) for seconds, workers in given)


def facts(*given: tuple[float, int], done: bool = False) -> Facts:
    job = JobFacts(name="job", roles={"worker": Role(), "ps": Role()})
    return Facts(job, Placement(), Stage.RUNNING, START, samples(*given), settled=done)


@pytest.mark.parametrize(
    ("given", "workers", "is_settled", "size"),
    [
        ((), 2, False, 0),
        (((0, 2), (59, 2)), 2, False, 0),
        (((0, 2), (60, 2)), 2, True, 0),
        (((0, 2), (60, 2)), 3, False, 0),  # one has not come
        (((0, 1), (60, 2), (119, 2)), 2, False, 0),  # the size before does not count
        (((0, 1), (60, 2), (120, 2)), 2, True, 0),
        (((0, 2), (60, 1), (90, 2), (120, 2)), 2, False, 0),  # nor what was at this size before that
        (((0, 1), (60, 1)), 0, True, 0),  # nobody said how many there should be
        (((0, 1), (60, 2), (419, 2)), 2, True, 0),
        (((0, 1), (60, 2), (420, 2)), 2, True, 2),  # its speed has been compared by now
    ],
)
def test_settled_at_its_size(
    given: tuple[tuple[float, int], ...], workers: int, is_settled: bool, size: int
) -> None:
    assert is_steady(samples(*given), {"worker": workers}, PACE) is is_settled
    assert size_of_verdict(samples(*given), PACE) == size


STEADY = facts((0, 2), (60, 2), done=True)
LATEST = STEADY.samples[-1].but(nodes=(FULL_SERVER,))
CROWDED = replace(STEADY, settled=False, samples=(*STEADY.samples[:-1], LATEST))
RISES = tuple(
    Sample(at(60 * n), 2, 1.0, 8.0, (Use("job-worker-0", "worker", memory=(80 + n) << 20, bytes=100 << 20),))
    for n in range(10)
)
GIVEN = Placement(resources={"worker": {"memory": "100Mi"}})
FILLING = replace(
    STEADY, settled=False, samples=RISES, placed=GIVEN, demand=demand.of_samples(RISES, timedelta(seconds=60))
)


@pytest.mark.parametrize(
    ("given", "seconds", "last", "event"),
    [
        (facts(), 0, None, None),
        (CROWDED, 60, None, Event.TROUBLE),
        (CROWDED, 59, 0, None),
        (CROWDED, 60, 0, Event.TROUBLE),
        (FILLING, 540, None, Event.TROUBLE),  # memory runs out within a quarter of an hour
        (STEADY, 60, None, Event.IDLE),
        (replace(STEADY, settled=False), 60, None, None),
        (STEADY, 299, 0, None),
        (STEADY, 300, 0, Event.IDLE),
    ],
)
def test_why_a_job_is_looked_at(
    given: Facts, seconds: float, last: float | None, event: Event | None
) -> None:
    given = replace(given, now=at(seconds))
    assert event_of(given, None if last is None else at(last), PACE) is event
