"""What is wrong with jobs, as the page shows it. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.troubles.facts import JobFacts
from elasticjob.api.troubles.job import examine
from elasticjob.api.troubles.trouble import Grade, Trouble
from elasticjob.page.words import View, cut, seconds_of

SERIOUS: Final = (Grade.WRONG, Grade.DOUBTFUL)
ORDINARY: Final = ("Suspended", "Deleting", "Queued", "AdmissionChecks", "WaitingForQuota", "LowGoodput")
"""What was asked for, waits its turn, or has a column of its own: no trouble among all jobs."""
PAST: Final = timedelta(days=1)
"""A job that failed longer ago than that is history."""


def troubles(seen: JobFacts, now: datetime) -> list[View]:
    """Return what is or was wrong with a job, the serious first."""
    return [_view(each) for each in examine(seen, now) if each.grade is not Grade.WELL]


def worst(seen: JobFacts, now: datetime) -> View | None:
    """Return the worst trouble of a job that a person should know of among all jobs."""
    ended = seen.job.status.completion_time
    if ended and now - ended > PAST:
        return None
    found = examine(seen, now)
    first = next((each for each in found if each.grade in SERIOUS and each.cause not in ORDINARY), None)
    return _view(first) if first else None


def urgency(trouble: View | None) -> tuple[int, float]:
    """Return a key that sorts jobs: what is wrong, then what is doubtful, the newest first."""
    return (SERIOUS.index(trouble["grade"]), -(trouble["since"] or 0.0)) if trouble else (len(SERIOUS), 0.0)


def _view(trouble: Trouble) -> View:
    return {
        "cause": cut(trouble.cause),
        "sentence": cut(trouble.sentence),
        "grade": trouble.grade.value,
        "act": cut(trouble.act),
        "commands": [cut(each) for each in trouble.commands],
        "since": seconds_of(trouble.since),
        "last": seconds_of(trouble.last),
        "count": trouble.count,
    }
