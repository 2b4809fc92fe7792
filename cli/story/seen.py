"""The observed state of a job at one time, as a frozen value, and the questions that acts ask of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elasticjob.cli.story.steps import Step


@dataclass(frozen=True)
class Pod:
    """A pod of the job."""

    name: str
    uid: str
    role: str
    phase: str
    leaving: bool = False
    index: int = 0

    @property
    def alive(self) -> bool:
        """Whether it runs or is about to."""
        return self.phase not in ("Succeeded", "Failed")

    @property
    def place(self) -> str:
        """Its role and index, which its replacement inherits."""
        return f"{self.role}-{self.index}"


@dataclass(frozen=True)
class Condition:
    """A condition of the job's status."""

    type: str
    status: bool
    reason: str
    message: str


@dataclass(frozen=True)
class Message:
    """A message of the operator at a time: an Event, or a condition that changed."""

    at: float
    reason: str
    sentence: str
    warning: bool = False


@dataclass(frozen=True)
class Seen:
    """The job, its pods, its last counted step, and the first one of the same round."""

    uid: str = ""
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    pods: tuple[Pod, ...] = ()
    last: Step | None = None
    first: Step | None = None

    @property
    def step(self) -> int:
        """The last counted step; 0 before the first."""
        return self.last.step if self.last else 0

    @property
    def round(self) -> int:
        """The round of the last counted step; 0 before the first."""
        return self.last.round if self.last else 0

    @property
    def world(self) -> int:
        """The number of workers in the last counted step; 0 before the first."""
        return self.last.world if self.last else 0

    @property
    def pace(self) -> float:
        """The steps per second of the present round; 0 before its second step."""
        if self.last is None or self.first is None or self.last.at <= self.first.at:
            return 0.0
        return (self.last.step - self.first.step) / (self.last.at - self.first.at)

    @property
    def steady(self) -> bool:
        """Whether the present round has lasted long enough to be visible in a plot."""
        if self.last is None or self.first is None:
            return False
        return self.last.at - self.first.at >= SECONDS or self.last.step - self.first.step >= STEPS

    @property
    def workers(self) -> tuple[Pod, ...]:
        """Live worker pods that are not being deleted."""
        return tuple(pod for pod in self.pods if pod.role == "worker" and pod.alive and not pod.leaving)

    def holds(self, condition: str) -> bool:
        """Whether a condition is True."""
        return any(found.type == condition and found.status for found in self.conditions)

    def sentence(self) -> str:
        """Return the messages of the conditions that are True."""
        return " ".join(f"{found.type}: {found.message}" for found in self.conditions if found.status)


Question = Callable[[Seen, Seen], bool]
"""A question about the state when the act began and the present state."""

SECONDS, STEPS = 2.5, 200
"""A round counts as steady after so many: in seconds on a slow machine, in steps on a fast one."""


def trains(world: int, *, again: bool = True) -> Question:
    """Ask whether `world` workers train steadily and steps are counted; with `again`, in a later round."""

    def asked(before: Seen, now: Seen) -> bool:
        moved_on = now.step > before.step and (now.round > before.round or not again)
        return moved_on and now.world == world and now.steady

    return asked


def is_suspended(before: Seen, now: Seen) -> bool:
    """Ask whether the job is suspended and none of its pods is alive."""
    return now.holds("Suspended") and not any(pod.alive for pod in now.pods)


def has_succeeded(before: Seen, now: Seen) -> bool:
    """Ask whether the job is complete."""
    return now.holds("Complete")
