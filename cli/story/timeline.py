"""The result of a played demo for people: its acts, standstills and messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from elasticjob.cli.story.acts import Act, Mark
from elasticjob.cli.story.runner import ActResult
from elasticjob.cli.story.seen import Message
from elasticjob.cli.story.steps import Standstill, Step, standstills


@dataclass(frozen=True)
class Line:
    """One act: `at` in seconds since the story began; `worlds` are the sizes that training went through."""

    at: float
    act: Act
    did: str
    worlds: tuple[int, ...]
    pauses: tuple[float, ...]
    messages: tuple[Message, ...]

    @property
    def stood_still(self) -> float:
        """Seconds without a step because of this act."""
        return sum(self.pauses)


@dataclass(frozen=True)
class Result:
    """The result of a demo that succeeded."""

    began: float
    ended: float
    lines: tuple[Line, ...]
    steps: tuple[Step, ...]
    messages: tuple[Message, ...]
    accuracy: float | None = None
    account: Mapping[str, float] = field(default_factory=dict)
    """Where the seconds of all workers went, by cause."""

    @property
    def seconds(self) -> float:
        """The duration of the whole demo."""
        return self.ended - self.began

    @property
    def step(self) -> int:
        """The last counted step."""
        return max((step.step for step in self.steps), default=0)

    @property
    def faults(self) -> tuple[Line, ...]:
        """Acts during which training stood still, in order; without the start of the job."""
        return tuple(line for line in self.lines if line.pauses)

    def sentence(self) -> str:
        """Return the last line of the demo: accuracy, steps, and every standstill."""
        accuracy = "" if self.accuracy is None else f"{self.accuracy:.1%} test accuracy after "
        stills = ", ".join(f"{line.stood_still:.2f} s ({line.act.title})" for line in self.faults)
        total = sum(line.stood_still for line in self.faults)
        still = f"stood still {stills}; in all {total:.2f} s of {self.seconds:.0f} s"
        return f"Succeeded: {accuracy}{self.step:,} steps; {still}"


def tell(
    played: Sequence[ActResult],
    steps: Sequence[Step],
    messages: Sequence[Message],
    accuracy: float | None,
    account: Mapping[str, float] | None = None,
) -> Result:
    """Return the result of a demo: each standstill and message belongs to the act during which it ended."""
    stills = standstills(steps)
    ends = [*(act.began for act in played[1:]), float("inf")]
    lines = tuple(
        _line(
            one,
            played[0].began,
            _during(stills, one.began, end),
            _spoken(messages, one.began, end),
            steps,
            end,
        )
        for one, end in zip(played, ends, strict=True)
    )
    spent = account or {}
    return Result(played[0].began, played[-1].ended, lines, tuple(steps), tuple(messages), accuracy, spent)


def _line(
    one: ActResult,
    start: float,
    stills: Iterable[Standstill],
    messages: tuple[Message, ...],
    steps: Sequence[Step],
    end: float,
) -> Line:
    pauses = tuple(still.ended - _counted_from(still, one) for still in stills)
    return Line(one.began - start, one.act, one.did, worlds(steps, one.began, end), pauses, messages)


def _counted_from(still: Standstill, one: ActResult) -> float:
    """Return the start of the standstill; a requested pause counts only from its intended end."""
    return max(still.began, one.began) if one.act.mark is Mark.PAUSE else still.began


def worlds(steps: Sequence[Step], began: float, end: float) -> tuple[int, ...]:
    """Return the world sizes between two times, including the one before, without repetition."""
    earlier = [step.world for step in steps if step.at <= began][-1:]
    sizes = earlier + [step.world for step in steps if began < step.at <= end]
    return tuple(size for before, size in pairwise([0, *sizes]) if size != before)


def _during(stills: Iterable[Standstill], began: float, end: float) -> tuple[Standstill, ...]:
    return tuple(still for still in stills if began < still.ended <= end)


def _spoken(messages: Iterable[Message], began: float, end: float) -> tuple[Message, ...]:
    """Return the messages between two times, without those contained in another one."""
    during = [one for one in messages if began <= one.at < end]
    others = [(one, [other.sentence for other in during if other is not one]) for one in during]
    return tuple(one for one, rest in others if not any(one.sentence in sentence for sentence in rest))
