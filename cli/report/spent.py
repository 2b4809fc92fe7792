"""Where the time of the workers went: one bar from end to end, and what its parts mean. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Final

from elasticjob.master.progress.goodput import Cause

MEANINGS: Final = {
    Cause.PRODUCTIVE: "steps that count, and what the script does between them",
    Cause.SCHEDULE: "a pod was yet to be made, or waited for a machine",
    Cause.PULL: "a pod started: images, volumes",
    Cause.INIT: "an agent and its worker started",
    Cause.RENDEZVOUS: "waited for the others, at first or after a loss",
    Cause.DATA: "waited for records",
    Cause.CHECKPOINT: "copied or wrote the state",
    Cause.RECOMPUTE: "made steps again that were lost",
    Cause.STRAGGLER: "waited for a slow worker",
    Cause.HANG: "waited for one that made no step",
    Cause.RESIZE: "the world changed as planned",
    Cause.DRAIN: "the same, because a machine went away",
}


def spent(account: Mapping[str, float]) -> str:
    """Return the section about an account in seconds; empty where there is none."""
    total = sum(account.values())
    if not total:
        return ""
    return f"""<h2>Where the time of the workers went</h2>
<div class="card spent">
<div class="bar" role="img" aria-label="{escape(sentence(account))}">{"".join(segments(account))}</div>
<table><tbody>
{"".join(rows(account))}</tbody></table>
</div>
<p class="said">{escape(sentence(account))}</p>
"""


def sentence(account: Mapping[str, float]) -> str:
    """Return the account in one sentence."""
    total = sum(account.values())
    share = account.get(Cause.PRODUCTIVE, 0.0) / total
    return f"Each second of each worker went to one of these: {total:.0f} s in all, {share:.1%} productive."


def segments(account: Mapping[str, float]) -> Iterator[str]:
    """Yield the parts of the bar."""
    total = sum(account.values())
    for cause, seconds in losses(account):
        note = escape(f"{cause}: {seconds:.1f} s, {seconds / total:.1%}")
        yield f'<span class="{cause}" style="width:{seconds / total:.3%}" title="{note}"></span>'


def rows(account: Mapping[str, float]) -> Iterator[str]:
    """Yield a row for each part of the bar, the longest first."""
    total = sum(account.values())
    for cause, seconds in losses(account):
        yield (
            f'<tr><td class="what"><i class="{cause}"></i><b>{cause}</b></td>'
            f'<td class="number">{seconds:.1f} s</td><td class="number">{seconds / total:.1%}</td>'
            f'<td class="said">{MEANINGS[cause]}</td></tr>\n'
        )


def losses(account: Mapping[str, float]) -> list[tuple[Cause, float]]:
    """Return productive time, then what was lost, the most first; parts of less than 50 ms are left out."""
    found = [(Cause(cause), seconds) for cause, seconds in account.items() if seconds >= 0.05]
    return sorted(found, key=lambda part: (part[0] is not Cause.PRODUCTIVE, -part[1]))
