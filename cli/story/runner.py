"""Plays acts: perform the action, wait for its end condition, record the result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from elasticjob.cli.errors import Failure
from elasticjob.cli.story.acts import Act, Stage
from elasticjob.cli.story.seen import Seen


class View(Protocol):
    """The observed state of the job, kept up to date."""

    @property
    def seen(self) -> Seen:
        """The present state."""

    async def change(self) -> None:
        """Return when `seen` has changed."""


@dataclass(frozen=True)
class ActResult:
    """A played act: when it began and ended, its action, and the state before and after."""

    act: Act
    began: float
    ended: float
    did: str
    before: Seen
    after: Seen


@dataclass
class Story:
    """The state of the acts that are being played, for the display."""

    acts: Sequence[Act]
    played: list[ActResult] = field(default_factory=list)
    current: Act | None = None
    did: str = ""


class ActFailed(Failure):
    """An act failed: which one, the expected and the observed state."""

    def __init__(self, act: Act, seen: Seen, why: str) -> None:
        super().__init__(f"act '{act.title}': expected that {act.expects}, {why}; {_instead(seen)}")
        self.act = act
        self.seen = seen


async def play(story: Story, stage: Stage, view: View, now: Callable[[], float]) -> None:
    """Play all acts in order; `story.played` grows with each. Raises ActFailed at the first that fails."""
    for act in story.acts:
        story.current, story.did = act, ""
        story.played.append(await _play(act, story, stage, view, now))
    story.current = None


async def _play(act: Act, story: Story, stage: Stage, view: View, now: Callable[[], float]) -> ActResult:
    before, began = view.seen, now()
    try:
        async with asyncio.timeout(act.within):
            story.did = await act.do(stage)
            after = await _answer(act, before, view)
    except TimeoutError:
        raise ActFailed(act, view.seen, f"which did not come true within {act.within:.0f} s") from None
    return ActResult(act, began, now(), story.did, before, after)


async def _answer(act: Act, before: Seen, view: View) -> Seen:
    """Return the state that answers the act's question; ActFailed when it can no longer be answered."""
    while not act.until(before, view.seen):
        if view.seen.holds("Failed"):
            raise ActFailed(act, view.seen, "but the job failed")
        if view.seen.holds("Complete"):
            raise ActFailed(act, view.seen, "but the job was complete before that")
        await view.change()
    return view.seen


def _instead(seen: Seen) -> str:
    pods = (
        ", ".join(f"{pod.name} {'Terminating' if pod.leaving else pod.phase}" for pod in seen.pods) or "none"
    )
    return (
        f"seen: phase {seen.phase or 'unknown'}, step {seen.step} by {seen.world} workers"
        f" in round {seen.round},"
        f" pods: {pods}; the operator says: {seen.sentence() or 'nothing'}"
    )
