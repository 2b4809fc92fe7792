"""`python -m lab simulate`: what is played, and what is printed of it."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console
from rich.markup import escape

from lab.simulation.crashes import (
    HISTORIES,
    Crash,
    blinded,
    crashes,
    ended,
    held,
    record,
    recorded,
    refused,
    table,
)
from lab.simulation.history import History, Misspelt
from lab.simulation.mutants import Finding
from lab.simulation.play import Outcome, play, play_many, shrink, timed, truth_of
from lab.simulation.promises import EVERY
from lab.simulation.truths import Truth

T = TypeVar("T")
Law = Callable[[str], Iterable[tuple[str, str]]]
"""Yields faults of a history, and what is wrong with each."""
BEFORE: Final = 100
"""Drawn histories that are played before crashes at each write, where the first wrong one is looked for."""
LAWS: Final[Mapping[str, Law]] = {
    "old reads or lost events": blinded,
    "a write that is late": held,
    "a write that is refused": refused,
}
"""Of crashes.py, beside crashes."""
NAMES: Final = re.compile(r"[0-9a-f]{5,}|\b[a-z]+\d+\b|[\d.]+")
"""What differs between two histories that break alike."""
MOST_NAMED: Final = 20


def chosen(only: str) -> tuple[Truth, ...]:
    """Return the truths of names with commas between them, all without. Raises ValueError."""
    if not only:
        return EVERY
    by_name = {truth.name: truth for truth in EVERY}
    names = [name.strip() for name in only.split(",")]
    if unknown := [name for name in names if name not in by_name]:
        raise ValueError(f"there is no truth {', '.join(unknown)}: give some of {', '.join(by_name)}")
    return tuple(by_name[name] for name in names)


def simulate(seed: int, histories: int, truths: Sequence[Truth], to: Console, long: bool) -> int:
    """Play drawn histories, print what is wrong and how it is repeated, and return the exit code."""
    logging.getLogger().setLevel(logging.ERROR)
    tally, began = Tally(), time.monotonic()
    try:
        for outcome, seconds in timed(play_many(range(seed, seed + histories), truths, long)):
            if tally.add(outcome, seconds):
                tell(shrink(outcome, truths), to)
            elif outcome.wrong and tally.wrong < MOST_NAMED:
                to.print(f"seed {outcome.history.seed} is wrong in the same way", highlight=False)
            if tally.played % 500 == 0:
                to.print(f"{tally.played} histories, {tally.wrong} wrong", style="dim", highlight=False)
    finally:  # an interrupted run says what it has seen
        to.print(f"{tally}; {time.monotonic() - began:.0f} s in all", highlight=False, soft_wrap=True)
    return int(tally.wrong > 0)


@dataclass
class Tally:
    """Counts of the histories so far; a pass is one reconcile of one object."""

    played: int = 0
    wrong: int = 0
    passes: int = 0
    faults: int = 0
    never: int = 0
    seconds: float = 0.0
    known: set[str] = field(default_factory=set)

    def add(self, outcome: Outcome, seconds: float) -> bool:
        """Count a history; return whether it is wrong as none before."""
        self.played, self.seconds = self.played + 1, self.seconds + seconds
        self.passes, self.wrong = self.passes + outcome.passes, self.wrong + bool(outcome.wrong)
        of_writes = sum("write" in line.given for line in outcome.history.lines)
        self.faults, self.never = self.faults + of_writes, self.never + outcome.never
        kind = NAMES.sub("#", outcome.wrong)
        is_new = bool(kind) and kind not in self.known
        self.known.add(kind)
        return is_new

    def __str__(self) -> str:
        spent = max(self.seconds, 1e-9)
        return (
            f"{self.played - self.wrong} of {self.played} histories are right; "
            f"{self.faults - self.never} of {self.faults} faults of writes befell one; "
            f"{self.passes} passes in {self.seconds:.0f} CPU s: {self.passes / spent:.0f} passes and "
            f"{self.played / spent:.1f} histories a second"
        )


def find_first(seed: int, histories: int, truths: Sequence[Truth], to: Console) -> int:
    """Play histories until one is wrong: some that are drawn, crashes at each write, then others.

    The last line says which it was, for `--mutants`; the exit code is 1 then.
    """
    logging.getLogger().setLevel(logging.ERROR)
    wrong = islice(_first(seed, histories, truths), histories)
    for number, (name, sentence) in enumerate(wrong, 1):
        if sentence:
            to.print(f"{name}: {sentence}", highlight=False, markup=False, soft_wrap=True)
            print(Finding(truth_of(sentence), name, number), flush=True)
            return 1
    to.print(f"all of {histories} histories are right", highlight=False)
    return 0


def _first(seed: int, histories: int, truths: Sequence[Truth]) -> Iterator[tuple[str, str]]:
    for name in HISTORIES:
        yield name, ended(name)[0]
    for outcome in play_many(range(seed, seed + BEFORE), truths):
        yield f"seed {outcome.history.seed}", outcome.wrong
    drawn = play_many(range(seed + BEFORE, seed + histories), truths)
    laws: tuple[Law, ...] = (_crashed, partial(blinded, few=True), partial(held, few=True), refused)
    crashed, *others = map(_of_all, laws)
    yield from _in_turn((crashed, crashed, *others))
    for outcome in drawn:
        yield f"seed {outcome.history.seed}", outcome.wrong


def _of_all(law: Law) -> Iterator[tuple[str, str]]:
    return _in_turn(_named(name, law) for name in HISTORIES)


def _named(name: str, law: Law) -> Iterator[tuple[str, str]]:
    for what, wrong in law(HISTORIES[name]):
        yield f"{name}, {what}", wrong


def _crashed(text: str) -> Iterator[tuple[str, str]]:
    for each in crashes(text, few=True):
        yield f"crash {each.when} write {each.write.number}", each.wrong


def _in_turn(groups: Iterable[Iterator[T]]) -> Iterator[T]:
    """Yield one of each group, and then again."""
    for row in zip_longest(*groups):
        yield from (each for each in row if each is not None)


def tell(outcome: Outcome, to: Console) -> None:
    """Print a wrong history: what is wrong, and its lines, which repeat it."""
    to.print(f"[red]✗ {escape(outcome.wrong)}[/]", highlight=False, soft_wrap=True)
    to.print(escape(str(outcome.history)), highlight=False, soft_wrap=True)
    to.print("  again: these lines in a file, and python -m lab simulate --story FILE", highlight=False)


def replay(story: Path, truths: Sequence[Truth], to: Console) -> int:
    """Play the history of a file with its diary, and return the exit code. Raises Misspelt, OSError."""
    try:
        history = History.parse(story.read_text())
    except ValueError as error:
        raise Misspelt(f"{story}: {error}") from error
    if not history.lines:
        raise Misspelt(f"{story} has no line, such as: 0 submit job=a strategy=Local workers=2 least=1")
    outcome = play(history, truths, verbose=True)
    for sentence in outcome.diary:
        to.print(escape(sentence), highlight=False, soft_wrap=True)
    if outcome.wrong:
        tell(outcome, to)
    else:
        to.print(f"right: {outcome.passes} passes, {outcome.seconds:.0f} virtual seconds", highlight=False)
    return int(bool(outcome.wrong))


def keep_ends(to: Console) -> int:
    """Record the ends of the histories of crashes.py, and say which are new."""
    before = recorded()
    record()
    for name, found in recorded().items():
        changed = [what for what, digest in found.items() if before.get(name, {}).get(what) != digest]
        if changed:
            to.print(f"{name}: {', '.join(changed)}", highlight=False)
    return 0


def crash_everywhere(to: Console, names: Iterable[str] = HISTORIES) -> int:
    """Play the laws of crashes.py: a crash at each write of its histories, and others; print the table."""
    logging.getLogger().setLevel(logging.ERROR)
    every, others, failed = list[Crash](), Counter[str](), Counter[str]()
    for name in names:
        found = list(crashes(HISTORIES[name]))
        wrong = [each for each in found if each.wrong]
        to.print(f"{name}: {len(found)} crashes, {len(wrong)} wrong", highlight=False)
        for each in wrong:
            write = each.write
            what = f"{each.when} write {write.number}, {write.verb} {write.kind} {write.name}"
            to.print(f"[red]✗ {what}: {escape(each.wrong)}[/]", highlight=False, soft_wrap=True)
        every += found
        for law, played in LAWS.items():
            for fault, sentence in played(HISTORIES[name]):
                others[law] += 1
                failed[law] += bool(sentence)
                if sentence:
                    to.print(f"[red]✗ {fault}: {escape(sentence)}[/]", highlight=False, soft_wrap=True)
    to.print(table(every))
    wrong = [each for each in every if each.wrong]
    to.print(f"{len(every) - len(wrong)} of {len(every)} crashes end as without them", highlight=False)
    for law, many in others.items():
        to.print(f"{many - failed[law]} of {many} histories with {law} are right", highlight=False)
    return int(bool(wrong or failed.total()))
