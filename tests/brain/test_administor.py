"""When a running job is looked at, and when it counts as settled at its size."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from elasticjob.brain.administor import Pace, event_of, is_settled
from elasticjob.brain.history import Event, History, Killed, Planned, Sample, Stage, Use

START = datetime(2026, 1, 1, tzinfo=UTC)
PACE = Pace()
FULL_SERVER = Use("job-ps-0", "ps", cpu=1.0, memory=98, cores=8.0, bytes=100)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def samples(*given: tuple[float, int]) -> tuple[Sample, ...]:
    """Samples by their seconds and numbers of workers."""
    return tuple(Sample(at(seconds), workers, 1.0, 8.0) for seconds, workers in given)


def history(*given: tuple[float, int], workers: int = 2) -> History:
    return History("uid", "job", Stage.RUNNING, samples=samples(*given), counts={"worker": workers})


@pytest.mark.parametrize(
    ("given", "settled"),
    [
        (history(), False),
        (history((0, 2), (59, 2)), False),
        (history((0, 2), (60, 2)), True),
        (history((0, 2), (60, 2), workers=3), False),  # one has not come
        (history((0, 1), (60, 2), (119, 2)), False),  # the size before does not count
        (history((0, 1), (60, 2), (120, 2)), True),
        (history((0, 2), (60, 1), (90, 2), (120, 2)), False),  # nor what was at this size before that
        (history((0, 1), (60, 1), workers=0), True),  # nobody said how many there should be
    ],
)
def test_settled_at_its_size(given: History, settled: bool) -> None:
    assert is_settled(given, PACE) is settled


STEADY = replace(history((0, 2), (60, 2)), settled=True)
LATEST = replace(STEADY.samples[-1], nodes=(FULL_SERVER,))
CROWDED = replace(STEADY, settled=False, samples=(*STEADY.samples[:-1], LATEST))
PLANNED = (Planned(at(0), "growth"),)
LOST = (Killed("job-worker-0", "worker", at(30), 2**30),)


@pytest.mark.parametrize(
    ("given", "seconds", "event"),
    [
        (history(), 0, None),
        (replace(history(), killed=LOST), 40, Event.OOM),
        (replace(STEADY, killed=LOST, planned=(Planned(at(30), "memory"),)), 40, None),  # it is answered
        (CROWDED, 60, Event.TROUBLE),
        (replace(CROWDED, planned=PLANNED), 59, None),
        (replace(CROWDED, planned=PLANNED), 60, Event.TROUBLE),
        (STEADY, 60, Event.IDLE),
        (replace(STEADY, settled=False), 60, None),
        (replace(STEADY, planned=PLANNED), 299, None),
        (replace(STEADY, planned=PLANNED), 300, Event.IDLE),
    ],
)
def test_why_a_job_is_looked_at(given: History, seconds: float, event: Event | None) -> None:
    assert event_of(given, at(seconds), PACE) is event
