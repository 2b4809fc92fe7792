"""Laws of each kind of jobs that a queue admits."""

from __future__ import annotations

import pytest

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.controllers.kueue.kinds import KINDS, Jobs, Sources
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import POD, Pod
from lab.build.caches import cache, caches
from lab.build.jobs import NOW

DIGITS = Key("ml", "digits")
ALL = [make(Sources(caches(), cache(DIJOB), lambda job: {})) for make in KINDS]


def pod(**labels: str) -> Pod:
    return POD.convert({"metadata": {"name": "any", "namespace": "ml", "labels": labels}})


def test_a_kind_has_one_row() -> None:
    assert len({jobs.kind for jobs in ALL}) == len(KINDS)


@pytest.mark.parametrize("jobs", ALL, ids=lambda jobs: jobs.kind.name)
def test_the_pods_that_a_kind_selects_lead_to_their_job(jobs: Jobs) -> None:
    """A pod whose job is not found would change without a pass; one of another kind begins a pass in vain."""
    labels = dict(each.split("=") for each in jobs.selector(DIGITS).split(",") if "=" in each)
    assert list(jobs.job_of(pod(**labels))) == [DIGITS]
    assert list(jobs.job_of(pod())) == []
    assert jobs.find(DIGITS) is None
    assert jobs.lives(DIGITS, None, NOW) == ()
