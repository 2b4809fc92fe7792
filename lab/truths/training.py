"""A job that trains on a cluster: its conditions, its counted steps, its account, what is left of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from elasticjob.cli.story.processes import Process
from elasticjob.cli.story.seen import Seen
from elasticjob.cli.story.steps import Step, gaps, lost
from lab.jobs.digits import COMPLETE_WITHIN, Digits
from lab.story import Truth

WITHIN: Final = 0.01
RECOVERED_WITHIN: Final = 1.0


def is_complete(end: Seen) -> list[str]:
    """The job is Complete, and says so in a sentence."""
    complete = next((each for each in end.conditions if each.type == "Complete" and each.status), None)
    if complete is None:
        return [f"the job is not Complete within {COMPLETE_WITHIN:.0f} s: {end.phase}: {end.sentence()}"]
    return [] if complete.message else ["the condition Complete has no sentence"]


def are_contiguous(steps: Sequence[Step]) -> list[str]:
    """Steps were counted, and without a gap."""
    return [*gaps(steps), *([] if steps else ["no step was counted"])]


def left(processes: Iterable[Process]) -> list[str]:
    """No process of the job is left."""
    return [f"process {each.pid} of pod {each.pod} is left: {each.command[:80]}" for each in processes]


def adds_up(account: float, wall: float) -> list[str]:
    """Productive and lost seconds are the seconds of all workers."""
    off = account / wall - 1
    return [f"the account is off by {off:+.2%} of {wall:.1f} s"] if abs(off) > WITHIN else []


def _no_step_lost(scene: Digits) -> list[str]:
    missing = lost(scene.watched.steps)
    return [f"{missing} steps are lost of {scene.end.step}"] if missing else []


def _no_restart(scene: Digits) -> list[str]:
    restarts = scene.status.status.restarts if scene.status else 0
    return [f"{restarts} restarts are counted"] if restarts else []


def _recovered(scene: Digits) -> list[str]:
    seconds = median(scene.recoveries)
    scene.figures["median"] = f"{seconds:.2f} s"
    return [f"half of the losses cost more than {seconds:.2f} s"] if seconds > RECOVERED_WITHIN else []


TRUTHS: Final = (
    Truth("complete", lambda scene: is_complete(scene.end)),
    Truth("steps", lambda scene: are_contiguous(scene.watched.steps)),
    Truth("no-processes", lambda scene: left(scene.left)),
    Truth("account", lambda scene: adds_up(sum(scene.account.values()), scene.wall)),
    Truth("no-step-lost", _no_step_lost),
    Truth("no-restart", _no_restart),
    Truth("recovery", _recovered),
)
