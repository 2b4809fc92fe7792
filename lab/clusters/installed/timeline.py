"""The timeline of the stories: each event, its time, and how long training stopped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from elasticjob.cli.story.runner import ActResult
from elasticjob.cli.story.steps import Step
from elasticjob.cli.story.timeline import Result


@dataclass(frozen=True)
class Row:
    """One event. `longest` is the longest time between two steps during it, whatever the reason."""

    at: float
    event: str
    did: str
    took: float
    worlds: str = ""
    still: str = "–"
    longest: float | None = None


def rows(played: Sequence[ActResult], result: Result) -> list[Row]:
    """Return the events of a recorded story."""
    return [
        Row(
            line.at,
            line.act.title,
            line.did,
            one.ended - one.began,
            " → ".join(map(str, line.worlds)),
            " + ".join(f"{seconds:.2f} s" for seconds in line.pauses) or "–",
            longest(step for step in result.steps if one.began <= step.at <= one.ended),
        )
        for one, line in zip(played, result.lines, strict=True)
    ]


def longest(steps: Iterable[Step]) -> float | None:
    """Return the longest time between two steps; None if there are fewer than two."""
    return max((after.at - before.at for before, after in pairwise(steps)), default=None)


def text(found: Sequence[Row]) -> str:
    """Return the table as Markdown, which is as readable in a terminal."""
    head = ("at", "event", "took", "workers", "stood still", "longest gap between steps", "by")
    body = [
        (
            f"{row.at:.1f} s",
            row.event,
            f"{row.took:.1f} s",
            row.worlds,
            row.still,
            "–" if row.longest is None else f"{row.longest:.2f} s",
            row.did,
        )
        for row in found
    ]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = [
        " | ".join(word.ljust(width) for word, width in zip(line, widths, strict=True))
        for line in (head, *body)
    ]
    rule = " | ".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))
