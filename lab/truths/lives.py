"""The conditions after a case: by the lines of its workers, the ends of its lives, and the checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from lab.story import Truth
from lab.truths.model import distance
from lab.truths.records import Line, leased, lineage, missing, records

NEXT: Final = re.compile(
    r"\b(give|use|start|free|mount|set|remove|restore|run|keep|try|make|move|delete|pass|put|add|check|wait|see"
    r"|rename|choose|lower|raise|begin|train)\b"
)


class Ending(StrEnum):
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
) -> tuple[Ending, list[str]]:
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
        return (Ending.WRONG, wrong) if wrong else (Ending.REFUSED, [refusal(last)])
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
    return (Ending.WRONG, wrong) if wrong else (Ending.EQUAL, [])


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


def _judged(scene: Any) -> list[str]:
    """Judge a case that was played, and note how it ended."""
    case = scene.case
    alike = not case.changed - {"nodes"}
    ending, sentences = judged(
        scene.lived,
        scene.lines,
        scene.expected if alike else None,
        shards=case.training.shards,
        ahead=case.training.ahead,
        kept=case.place != "nowhere",
        near=case.training.near,
    )
    scene.figures["ending"] = "; ".join((ending, *sentences)) if ending == Ending.REFUSED else ending
    return sentences if ending == Ending.WRONG else []


TRUTHS: Final = (Truth("lives", _judged),)
