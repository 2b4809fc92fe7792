"""Progress, speed and goodput of a job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import structs

from elasticjob.api.rpc.nodes import Kept, Progress
from elasticjob.master.progress.goodput import Cause, charge, ratio
from elasticjob.master.state.job import Job
from elasticjob.master.state.training import Change, Sample, Training

WINDOW = 30  # samples of one round over which the speed is computed


class Speed(NamedTuple):
    """Steps and records per second."""

    steps: float
    samples: float


def record(job: Job, progress: Progress, now: datetime) -> Job:
    """Record the progress that a member of the running or ending world reports; older steps are ignored.

    Metrics of the newest known step are merged, such as a test result after the last step.
    """
    if not job.world:
        return job
    training = job.training
    if training.round != job.world.round:
        world = job.world
        job = charge(job, _redone(training, progress) * world.size, Cause.RECOMPUTE)
        training = _resume(training, world.round, progress, now)
        if not training.stored and (read := _read(job, progress)):
            training = training.but(stored=read)  # of newer ones a script that saves by itself tells nothing
    elif training.progress and progress.step <= training.progress.step:
        training = _merge(_prefer_measurement(training, progress), progress)
    else:
        training = _go_on(_prefer_measurement(training, progress), progress, now)
    return job.but(training=training)


def shift(job: Job, gap: timedelta) -> Job:
    """Return the job with the times from which durations are counted moved by `gap`: a new master's clock may
    differ by hours, and cannot tell how long there was none. The speed is measured anew.
    """
    training, ending = job.training, job.ending
    change = _of_round(training, job.round)
    if change and change.stopped and not change.resumed:
        changes = _replace(training.changes, change.but(stopped=change.stopped + gap))
        training = training.but(changes=changes)
    if ending:
        ending = ending.but(since=ending.since + gap, stopped=ending.stopped and ending.stopped + gap)
    rate = speed(training)
    training = training.but(
        at=training.at and training.at + gap,
        window=(),
        pace=rate.steps if rate else training.pace,
        stored_at=training.stored_at and training.stored_at + gap,
    )
    return job.but(training=training, ending=ending)


def speed(training: Training) -> Speed | None:
    """Return the speed in the present round; None before its second report."""
    if len(training.window) < 2:
        return None
    first, last = training.window[0], training.window[-1]
    seconds = (last.at - first.at).total_seconds()
    if seconds <= 0:
        return None
    return Speed((last.step - first.step) / seconds, (last.samples - first.samples) / seconds)


def goodput(training: Training) -> float | None:
    """Return the share of time since the first step spent in steps that were not lost."""
    spent = training.productive + training.standstill
    return max(0.0, training.productive) / spent if spent > 0 else None


def shown_goodput(job: Job) -> float | None:
    """Return the goodput for people: the account's; without one, the share of time in steps that count."""
    found = ratio(job.account)
    return goodput(job.training) if found is None else found


def last_step(job: Job) -> datetime | None:
    """Return when a step ended last, as far as the master knows."""
    return max((at for at in (job.training.at, job.health.stepped) if at), default=None)


def note_stored_step(training: Training, told: Kept, now: datetime) -> Training:
    """Note when the newest checkpoint reached storage; before the first, when nodes told of some."""
    if training.stored_at is not None and told.stored <= training.stored:
        return training
    return training.but(stored=max(training.stored, told.stored), stored_at=now)


def checkpoints_of(job: Job) -> Kept:
    """Return how the checkpoints of the job stand, from what its nodes say; a lost node has no trouble."""
    all_ = [node.kept for node in job.nodes.values() if node.kept]
    here = [node.kept for node in job.nodes.values() if node.kept and (node.has_succeeded or not node.ended)]
    newest = max(all_, key=lambda each: each.stored, default=Kept())
    return Kept(
        in_memory=max((each.in_memory for each in all_), default=0),
        memory_alone=any(each.memory_alone for each in all_),
        stored=newest.stored,
        seconds=newest.seconds,
        error=next((each.error for each in here if each.error), ""),
    )


def eta(training: Training) -> float | None:
    """Return the seconds until the last step at the present speed; None when unknown."""
    rate, progress = speed(training), training.progress
    if not rate or not progress or rate.steps <= 0 or progress.total_steps <= 0:
        return None
    return max(0.0, (progress.total_steps - progress.step) / rate.steps)


def _read(job: Job, progress: Progress) -> int:
    """Return the step of a checkpoint in storage that a job has read as it goes on, if sure; else 0.

    All members are new to their world, no node has had an earlier step in its memory, and they did not come
    so far by themselves: quick steps may have been made before the first report.
    """
    world, before = job.world, job.training.progress
    if world is None or before is None or 2 * progress.step <= before.step:
        return 0
    if any(member.since != world.round for member in world.members):
        return 0
    told = (node.kept for member in world.members if (node := job.nodes.get(member.node)))
    if any(kept and 0 < kept.in_memory < progress.step for kept in told):
        return 0
    return min(progress.step - 1, before.step)


def _go_on(training: Training, progress: Progress, now: datetime) -> Training:
    """Add the time since the last report to the productive time."""
    elapsed = (now - training.at).total_seconds() if training.at else 0.0
    sample = Sample(at=now, step=progress.step, samples=progress.samples)
    return training.but(
        progress=progress,
        at=now,
        window=(*training.window, sample)[-WINDOW:],
        productive=training.productive + elapsed,
    )


def _merge(training: Training, progress: Progress) -> Training:
    """Merge metrics of the newest known step that come later, or from another member."""
    known = training.progress
    if known is None or progress.step < known.step:
        return training
    return training.but(progress=structs.replace(known, metrics=known.metrics | progress.metrics))


def _resume(training: Training, number: int, progress: Progress, now: datetime) -> Training:
    """End the standstill before this round at its first progress."""
    change = _of_round(training, number)
    stood = _standstill(change, progress, now)
    if change:
        closed = change.but(
            resumed=now, step_after=progress.step, standstill=stood, measured=progress.standstill is not None
        )
        training = training.but(changes=_replace(training.changes, closed))
    return training.but(
        progress=progress,
        round=number,
        at=now,
        window=(Sample(at=now, step=progress.step, samples=progress.samples),),
        productive=training.productive + _before_the_stop(training, change) - _redone(training, progress),
        lost=training.lost + _steps_again(training, progress),
        stored=min(training.stored, _resumes_after(training, progress)),  # a later one was not found
        standstill=training.standstill + (stood or 0.0),
    )


def _of_round(training: Training, number: int) -> Change | None:
    return next((change for change in training.changes if change.round == number), None)


def _standstill(change: Change | None, progress: Progress, now: datetime) -> float | None:
    """Return the seconds without a step before this round; None at the start of a job."""
    if progress.standstill is not None:
        return progress.standstill
    return (now - change.stopped).total_seconds() if change and change.stopped else None


def _before_the_stop(training: Training, change: Change | None) -> float:
    """Return the productive seconds between the last report and the stop of the previous round."""
    if not (training.at and change and change.stopped):
        return 0.0
    return max(0.0, (change.stopped - training.at).total_seconds())


def _redone(training: Training, progress: Progress) -> float:
    """Return the seconds of steps that were lost, if training resumed from an older step."""
    rate = speed(training)
    steps = rate.steps if rate else training.pace
    return _steps_again(training, progress) / steps if steps > 0 else 0.0


def _steps_again(training: Training, progress: Progress) -> int:
    """Return how many steps are made again, if training resumed from an older step."""
    return max(0, training.progress.step - _resumes_after(training, progress)) if training.progress else 0


def _resumes_after(training: Training, progress: Progress) -> int:
    """Return the step from which a round goes on whose first progress this is: usually the one before it.

    Where nothing is left to train, no step is made: what is told is the checkpoint of the last one.
    """
    if progress.step == progress.total_steps == training.stored:
        return progress.step
    return max(0, progress.step - 1)


def _prefer_measurement(training: Training, progress: Progress) -> Training:
    """Prefer the workers' own measurement from step to step, the slowest of them."""
    change = _of_round(training, training.round)
    stood = progress.standstill
    if stood is None or not change or (change.measured and stood <= (change.standstill or 0.0)):
        return training
    more = stood - (change.standstill or 0.0)
    closed = change.but(standstill=stood, measured=True)
    return training.but(changes=_replace(training.changes, closed), standstill=training.standstill + more)


def _replace(changes: tuple[Change, ...], change: Change) -> tuple[Change, ...]:
    return tuple(change if old.round == change.round else old for old in changes)
