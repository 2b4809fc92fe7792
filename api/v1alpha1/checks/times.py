"""Numbers of seconds that are added to a time stay within the calendar."""

from __future__ import annotations

from collections.abc import Iterator

from elasticjob.api.readings import LONGEST_SECONDS
from elasticjob.api.v1alpha1.elasticjob import ElasticJob, RunPolicy
from elasticjob.kube.objects.problem import Problem

SECONDS = tuple(name for name in RunPolicy.model_fields if "_seconds" in name)


def times_are_bounded(new: ElasticJob, old: ElasticJob | None = None) -> Iterator[Problem]:
    """Numbers of seconds are a hundred years at most, as far as an update changes them."""
    for name in SECONDS:
        seconds = getattr(new.spec.run_policy, name)
        same = old is not None and seconds == getattr(old.spec.run_policy, name)
        if seconds is not None and seconds > LONGEST_SECONDS and not same:
            yield Problem(
                f"spec.runPolicy.{RunPolicy.model_fields[name].alias}",
                f"{seconds} s are more than a hundred years: write at most {LONGEST_SECONDS}",
            )
