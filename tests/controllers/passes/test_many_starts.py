"""What waits while many jobs begin at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from elasticjob.controllers.passes.many_starts import EACH, FEW, LONGEST, SHORTEST, Rush, only_begins
from elasticjob.kube.objects.kinds import Key
from lab.build.jobs import NOW

SECOND = timedelta(seconds=1)


def rush(jobs: int) -> Rush:
    found = Rush()
    for number in range(jobs):
        found.saw(Key("ns", f"job-{number}"), NOW, begins=True)
    return found


@pytest.mark.parametrize(
    ("jobs", "age", "waits"),
    [
        (FEW, 0 * SECOND, None),
        (FEW + 1, 0 * SECOND, SHORTEST),
        (500, 0 * SECOND, 500 * EACH),
        (500, LONGEST - SECOND, SECOND),
        (500, LONGEST, None),
        (500, -SECOND, None),
    ],
)
def test_the_more_jobs_begin_the_longer_a_young_one_waits(
    jobs: int, age: timedelta, waits: timedelta | None
) -> None:
    assert rush(jobs).wait(NOW - age, NOW) == waits


def test_a_job_counts_until_its_pods_are_made_and_no_longer_than_half_a_minute() -> None:
    found = rush(FEW + 2)
    for number in range(2):
        found.saw(Key("ns", f"job-{number}"), NOW, begins=False)
    assert found.wait(NOW, NOW) is None
    found, later = rush(500), NOW + LONGEST + SECOND
    assert found.wait(later, later) is None


@pytest.mark.parametrize(
    ("old", "new", "begins"),
    [
        ({}, {"phase": "Pending"}, True),
        ({"phase": "Pending"}, {"phase": "Running"}, True),
        ({"phase": "Pending"}, {"phase": "Pending", "reason": "Unschedulable"}, False),
        ({"phase": "Running"}, {"phase": "Restarting"}, False),
        ({"phase": "Suspended"}, {"phase": "Pending"}, False),
        ({}, {"phase": "Failed"}, False),
    ],
)
def test_only_statuses_of_a_beginning_wait(old: dict[str, str], new: dict[str, str], begins: bool) -> None:
    assert only_begins(old, new) is begins
