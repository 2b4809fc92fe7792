"""What jobs have after a plan, and the sentences that say why. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from math import inf

from elasticjob.brain.fulfilment.offers import Draft
from elasticjob.brain.fulfilment.state import Job


@dataclass(frozen=True)
class Share:
    """What a job has after a plan: its size, the speed of a fair share, its own against that, its fairness.

    `rho` is the expected time from submission to the end, divided by that with a fair share all the time
    (finish-time fairness, Themis, NSDI 2020); more than 1 is worse than fair, infinite for a job that waits.
    """

    size: int
    fair: float
    speedup: float
    rho: float


def share(draft: Draft, size: int, now: datetime) -> Share:
    """Return what a job has with places for so many instances."""
    speed = draft.speeds.get(size, 0.0)
    age = (now - draft.job.submitted).total_seconds()
    alone = (draft.trained.done + draft.left) / draft.fair
    return Share(size, draft.fair, speed / draft.fair, (age + draft.left / speed) / alone if speed else inf)


def reason(draft: Draft, size: int, share: Share) -> str:
    """Return why the desired size becomes `size`, in one sentence."""
    job, before = draft.job, draft.job.now
    if size != share.size and size:
        return (
            f"{job.key} must have {draft.first} to {job.most} instances{_steps(job)}, not {before}, and waits"
        )
    told = f"{share.speedup:.2f} times the speed of its fair share, rho {share.rho:.2f}"
    if not size:
        return f"{job.key} is suspended: its {_instances(before)} speed up other jobs more"
    if not before:
        return f"{job.key} starts with {_instances(size)}: {told}"
    had = draft.speeds.get(before)
    faster = f"{draft.speeds[size] / had:.2f} times as fast as now, " if had else ""
    if size > before:
        return f"{job.key} grows from {before} to {_instances(size)}: {faster}{told}"
    slower = not had or draft.speeds[size] <= had
    why = "which speed up other jobs more" if slower else "without which it is faster"
    return f"{job.key} gives up {_instances(before - size)} of {before}, {why}: {faster}{told}"


def waits(draft: Draft, missing: int) -> str:
    """Return the sentence of a job that waits."""
    job = draft.job
    if not draft.sizes:
        return f"{job.key} has no size in {job.least} to {job.most} that is a multiple of {job.step}"
    return f"{job.key} has no place for {missing} of its minimum of {draft.first}"


def _steps(job: Job) -> str:
    return f" in steps of {job.step}" if job.step > 1 else ""


def _instances(number: int) -> str:
    return f"{number} instance" if number == 1 else f"{number} instances"
