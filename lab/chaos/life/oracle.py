"""The conditions after a case: by the lines of its workers, the ends of its lives, and the checkpoints.

The lineage of the state that survives: of each step, the attempt of the newest life and round that did it.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, pairwise
from typing import Any, Final

Line = dict[str, Any]
NEXT: Final = re.compile(
    r"\b(give|use|start|free|mount|set|remove|restore|run|keep|try|make|move|delete|pass|put|add|check|wait|see"
    r"|rename|choose|lower|raise|begin|train)\b"
)


class Outcome(StrEnum):
    """How a case ended."""

    EQUAL = "equal"
    REFUSED = "refused"
    WRONG = "WRONG"


@dataclass(frozen=True)
class Stored:
    """The checkpoints in storage: the newest whole one, 0 if there is none, and whether any was there."""

    newest: int = 0
    any: bool = False

    @property
    def lost(self) -> bool:
        """Whether there were some, and none can be read."""
        return self.any and not self.newest


@dataclass(frozen=True)
class Lived:
    """How a life went: what was stored before and after it, and how it ended."""

    number: int
    steps: int
    records: int
    before: Stored
    after: Stored
    succeeded: bool
    stopped: str
    """The signal by which it was stopped, if it was."""
    still: bool
    said: tuple[str, ...]
    left: tuple[str, ...]
    asks: str
    """The words that a refusal may name, of all troubles so far."""
    storage_failed: bool
    codes: tuple[int, ...] = ()
    nodes: int = 2


def judged(
    lives: Sequence[Lived],
    lines: Sequence[Line],
    expected: Line | None,
    *,
    shards: bool = False,
    ahead: int = 0,
    kept: bool = True,
    near: float = 0.0,
) -> tuple[Outcome, list[str]]:
    """Return the outcome of a case, with sentences: why it is wrong, or how it refused.

    `expected` are the states at the end of the undisturbed training, from which numbers may be `near` apart;
    None after other arguments: then the records alone tell. With `shards` there are no steps and no state,
    only records on lease, of which a worker that is lost takes as many along as it has read `ahead`. A
    training whose checkpoints are `kept` nowhere leaves none.
    """
    wrong = [sentence for life in lives for sentence in of_a_life(life, own(lines, life.number))]
    wrong += [sentence for a, b in pairwise(lives) for sentence in between(a, b, lines)]
    last = lives[-1]
    if not last.succeeded:
        return (Outcome.WRONG, wrong) if wrong else (Outcome.REFUSED, [refusal(last)])
    if shards:
        lost = sum("begins" in line for line in lines) - last.nodes
        wrong += leased(lines, last.records, lost * ahead)
    else:
        steps = last.steps if expected is not None else max(lineage(lines), default=0)
        wrong += missing(lines, steps)
        wrong += records(lines, {life.records for life in lives})
        wrong += result(own(lines, last.number), expected, near)
        if kept and last.after.newest != steps:
            wrong.append(f"success, and step {last.after.newest} of {steps} is the newest in storage")
    return (Outcome.WRONG, wrong) if wrong else (Outcome.EQUAL, [])


def result(lines: Sequence[Line], expected: Line | None, near: float) -> list[str]:
    """Return what is wrong with the last state of a success."""
    wrong = []
    ends = [line["end"] for line in lines if "end" in line]
    if not ends:
        wrong.append("success, and no worker wrote its result")
    for name, state in sorted((expected or {}).items()):
        far = max((distance(end[name], state) for end in ends), default=0.0)
        if far > near:
            wrong.append(f"{name} differs from the undisturbed training's by {far:.2g}")
    return wrong


def distance(one: Sequence[Any], other: Sequence[Any]) -> float:
    """Return the largest difference of two states: of their numbers; infinite if it is of anything else."""
    if len(one) != len(other):
        return math.inf
    pairs = ((a, b) for a, b in zip(one, other, strict=True) if a != b and not (a != a and b != b))
    numbers = (float, int)
    return max(
        (abs(a - b) if isinstance(a, numbers) and isinstance(b, numbers) else math.inf for a, b in pairs),
        default=0.0,
    )


def of_a_life(life: Lived, lines: Sequence[Line]) -> list[str]:
    """Return what is wrong with one life."""
    begun = [line["begins"] for line in lines if "begins" in line]
    where = f"life {life.number}: "
    wrong = [f"left behind: {each}" for each in life.left]
    if life.still:
        wrong.append("it stood still")
    if life.before.lost and begun:
        wrong.append(f"began at step {min(begun)} although all checkpoints are damaged")
    elif begun and min(begun) < life.before.newest:
        wrong.append(f"began at step {min(begun)} although step {life.before.newest} was stored")
    wrong += [
        f"began at step {line['begins']} after the last step was done"
        for line in lines
        if line.get("begins", life.steps) < life.steps and held_by_another(life, lines, line)
    ]
    if not life.succeeded and not life.stopped and not life.still:
        if life.after.newest < life.before.newest:
            wrong.append(f"refused, and step {life.before.newest} cannot be read any more")
        if not life.asks:
            wrong.append(f"failed although nothing asked for it: {refusal(life)}")
        elif not names_it(life):
            wrong.append(f"failed without a sentence that names {life.asks} and a next step: {refusal(life)}")
    return [where + sentence for sentence in wrong]


def held_by_another(life: Lived, lines: Sequence[Line], begun: Line) -> bool:
    """Whether two workers had done the last step when a process began: a lone one may be lost with it."""
    last = (line for line in lines if line.get("done") == life.steps and line["at"] < begun["at"])
    return len({line.get("pid") for line in last}) > 1


def between(life: Lived, following: Lived, lines: Sequence[Line]) -> list[str]:
    """Return what was lost between two lives: nothing after SIGTERM, if storage was there."""
    if life.stopped != "SIGTERM" or life.storage_failed or following.before.newest < life.after.newest:
        return []
    done = max((line["done"] for line in own(lines, life.number) if "done" in line), default=0)
    if life.after.newest >= done - 1 or life.after.newest == life.before.newest == done:
        return []
    return [
        f"life {life.number}: stopped by SIGTERM after step {done}, and step {life.after.newest} is stored"
    ]


def refusal(life: Lived) -> str:
    """Return the last words of a life that failed."""
    words = [each.strip() for each in life.said if each.strip()]
    return (words[0] if words else f"exit codes {life.codes}, no word")[:300]


def names_it(life: Lived) -> bool:
    """Whether a sentence names what was wrong and a next step."""
    return any(re.search(life.asks, each) and NEXT.search(each) for each in life.said)


def own(lines: Iterable[Line], number: int) -> list[Line]:
    """Return the lines of a life."""
    return [line for line in lines if line["life"] == number]


def lineage(lines: Iterable[Line]) -> dict[int, tuple[int, int]]:
    """Return the life and round of each step of the state that survives.

    A life that begins at a step makes all later ones anew, which may be fewer after other arguments.
    """
    newest: dict[int, tuple[int, int]] = {}
    all_ = sorted(lines, key=lambda line: line["life"])
    for _, life in groupby(all_, key=lambda line: line["life"]):
        said = [*life]
        if begun := [line["begins"] for line in said if "begins" in line]:
            newest = {step: by for step, by in newest.items() if step <= min(begun)}
        for line in said:
            if "done" in line:
                newest[line["done"]] = max(newest.get(line["done"], (0, 0)), (line["life"], line["round"]))
    return newest


def missing(lines: Sequence[Line], steps: int) -> list[str]:
    """Return a sentence if steps are missing in the lineage."""
    gone = sorted(set(range(1, steps + 1)) - lineage(lines).keys())
    return [f"steps {gone[:5]} were never done ({len(gone)} in all)"] if gone else []


def records(lines: Sequence[Line], sizes: set[int]) -> list[str]:
    """Return a sentence for each epoch whose records did not come once each.

    A worker without records of its own may be given another's in the same step, which do not count.
    """
    newest = lineage(lines)
    steps: dict[tuple[int, int], set[int]] = defaultdict(set)
    for line in lines:
        if "records" in line and newest.get(line["step"]) == (line["life"], line["round"]):
            steps[line["epoch"], line["step"]].update(line["records"])
    taken: dict[int, Counter[int]] = defaultdict(Counter)
    for (epoch, _), once_each in steps.items():
        taken[epoch].update(once_each)
    return [sentence for epoch in sorted(taken) for sentence in once(epoch, taken[epoch], sizes)]


def once(epoch: int, times: Counter[int], sizes: set[int]) -> list[str]:
    """Return a sentence if the records of an epoch, one of `sizes`, did not come once each."""
    twice = sum(count > 1 for count in times.values())
    never = min(len(set(range(size)) - times.keys()) for size in sizes if size > max(times))
    return [f"epoch {epoch}: {twice} records came twice, {never} never"] if twice or never else []


def leased(lines: Iterable[Line], size: int, lost: int) -> list[str]:
    """Return a sentence for each epoch whose records did not come once each: those of the largest leases.

    Up to `lost` records may be missing: a worker had read them, and was lost.
    """
    newest: dict[tuple[int, int], int] = {}
    told = [line for line in lines if "record" in line]
    for line in told:
        shard = (line["epoch"], line["shard"])
        newest[shard] = max(newest.get(shard, 0), line["lease"])
    taken: dict[int, Counter[int]] = defaultdict(Counter)
    for line in told:
        if line["lease"] == newest[line["epoch"], line["shard"]]:
            taken[line["epoch"]][line["record"]] += 1
    missing = sum(size - len(times) for times in taken.values())
    doubled = any(count > 1 for times in taken.values() for count in times.values())
    if missing <= lost and not doubled:
        return []
    return [sentence for epoch in sorted(taken) for sentence in once(epoch, taken[epoch], {size})]
