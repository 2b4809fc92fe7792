"""The acts of the demo, as data: an action on the job, and the condition that ends the act.

An act ends when its question is answered by observed facts (the job, its pods, the record of steps), never by
time. The training has no end of its own while acts are played on it: it is given one when it is resumed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from elasticjob.cli.story.seen import Question, has_succeeded, is_suspended, trains


class Stage(Protocol):
    """Actions on the job. Each returns a sentence with what exactly was done."""

    async def apply(self) -> str:
        """Create the job."""

    async def kill_worker(self) -> str:
        """SIGKILL the newest worker process."""

    async def delete_pod(self) -> str:
        """Delete the newest worker pod."""

    async def scale(self, workers: int) -> str:
        """Set the number of workers through the scale subresource."""

    async def suspend(self) -> str:
        """Suspend the job."""

    async def resume(self) -> str:
        """Resume the job, which then comes to its end."""

    async def wait(self) -> str:
        """Do nothing: let the job train to its end."""


class Mark(StrEnum):
    """The kind of event an act is; decides how it is drawn."""

    LIFE = "life"
    FAULT = "fault"
    SCALE = "scale"
    PAUSE = "pause"


@dataclass(frozen=True)
class Act:
    """One action and the condition that ends it: in words (`expects`), with a limit in seconds (`within`)."""

    title: str
    mark: Mark
    do: Callable[[Stage], Awaitable[str]]
    until: Question
    expects: str
    within: float = 120.0


STORY: tuple[Act, ...] = (
    Act("apply", Mark.LIFE, lambda s: s.apply(), trains(2, again=False), "2 workers train", 180.0),
    Act("SIGKILL a worker", Mark.FAULT, lambda s: s.kill_worker(), trains(2), "2 workers train again"),
    Act("delete a pod", Mark.FAULT, lambda s: s.delete_pod(), trains(2), "2 workers train again"),
    Act("scale 2 → 3", Mark.SCALE, lambda s: s.scale(3), trains(3), "3 workers train"),
    Act("scale 3 → 1", Mark.SCALE, lambda s: s.scale(1), trains(1), "1 worker trains"),
    Act("suspend", Mark.PAUSE, lambda s: s.suspend(), is_suspended, "the job is Suspended, its pods gone"),
    Act("resume", Mark.PAUSE, lambda s: s.resume(), trains(1), "1 worker trains, from where it was"),
    Act("train on", Mark.LIFE, lambda s: s.wait(), has_succeeded, "the job is Complete", 900.0),
)
