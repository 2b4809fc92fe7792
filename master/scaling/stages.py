"""When an optimizer is asked, and what becomes of its answer."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from elasticjob.master.job import Job
from elasticjob.master.scaling.optimizer import Question
from elasticjob.master.scaling.plan import Change, ResourcePlan
from elasticjob.master.scaling.state import Mode, Stage

EVERY: Final = timedelta(seconds=30)
"""Time between two questions."""


def question(job: Job, now: datetime) -> Question | None:
    """Return the question to ask now; None while nothing is to be asked."""
    scaling, wish = job.scaling, job.spec.wish
    if wish.mode is Mode.MANUAL or job.verdict or scaling.placed.open or not scaling.records:
        return None
    if scaling.planned and now - scaling.planned < EVERY:
        return None
    return Question(
        job=job.spec.job,
        stage=scaling.stage,
        wish=wish,
        placed=scaling.placed,
        records=scaling.records,
        now=now,
    )


def answered(job: Job, plan: ResourcePlan, now: datetime) -> Job:
    """Return the job after an answer: the stage moves on, and what was decided is remembered."""
    numbers = job.scaling.numbers + bool(plan)
    scaling = job.scaling.but(stage=Stage.RUNNING, planned=now, numbers=numbers, reason=plan.reason)
    return job.but(scaling=scaling)


def change(job: Job, plan: ResourcePlan) -> Change | None:
    """Return what is to be carried out of a plan, within what the user allows; None if nothing is."""
    if not plan:
        return None
    key = f"{job.spec.job}-auto-{job.scaling.numbers}"
    return Change(key=key, reason=plan.reason, groups=plan.groups, migrate=plan.nodes)
