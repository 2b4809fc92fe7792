"""`python -m lab simulate`: what is played, and what is printed of it."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from lab.simulation.crashes import HISTORIES, Crash, blinded, crashes, table
from lab.simulation.history import History
from lab.simulation.mutants import Finding
from lab.simulation.play import Outcome, play, play_many, shrink, timed, truth_of
from lab.simulation.truths import TRUTHS, Truth

BEFORE: Final = 300
"""Drawn histories that are played before crashes at each write, where the first wrong one is looked for."""
NAMES: Final = re.compile(r"[0-9a-f]{5,}|\b[a-z]+\d+\b|[\d.]+")
"""What differs between two histories that break alike."""


def chosen(only: str) -> tuple[Truth, ...]:
    """Return the truths of names with commas between them; all without. Raises ValueError for another name."""
    if not only:
        return TRUTHS
    by_name = {truth.name: truth for truth in TRUTHS}
    names = [name.strip() for name in only.split(",")]
    if unknown := [name for name in names if name not in by_name]:
        raise ValueError(f"there is no truth {', '.join(unknown)}: give some of {', '.join(by_name)}")
    return tuple(by_name[name] for name in names)


def simulate(seed: int, histories: int, truths: Sequence[Truth], to: Console, long: bool) -> int:
    """Play drawn histories, print what is wrong and how it is repeated, and return the exit code."""
    logging.getLogger().setLevel(logging.ERROR)
    alike, passes, cpu, played = Counter[str](), 0, 0.0, 0
    began = time.monotonic()
    for outcome, seconds in timed(play_many(range(seed, seed + histories), truths, long)):
        passes, cpu, played = passes + outcome.passes, cpu + seconds, played + 1
        if outcome.wrong:
            kind = NAMES.sub("#", outcome.wrong)
            alike[kind] += 1
            if alike[kind] == 1:
                tell(shrink(outcome, truths), to)
            elif alike[kind] < 5:
                to.print(f"seed {outcome.history.seed}: alike", highlight=False)
        if played % 500 == 0:
            to.print(f"{played} histories, {alike.total()} wrong", style="dim", highlight=False)
    to.print(
        f"{played - alike.total()} of {played} histories are right; {passes} passes in {cpu:.0f} CPU seconds: "
        f"{passes / max(cpu, 1e-9):.0f} passes and {played / max(cpu, 1e-9):.1f} histories a second; "
        f"{time.monotonic() - began:.0f} s in all",
        highlight=False,
        soft_wrap=True,
    )
    return int(bool(alike))


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
    return 0


def _first(seed: int, histories: int, truths: Sequence[Truth]) -> Iterator[tuple[str, str]]:
    for outcome in play_many(range(seed, seed + BEFORE), truths):
        yield f"seed {outcome.history.seed}", outcome.wrong
    for name, text in HISTORIES.items():
        try:
            for each in crashes(text):
                yield f"{name}, crash {each.when} write {each.write.number}", each.wrong
        except ValueError as error:
            yield name, str(error)
    for name, text in HISTORIES.items():
        for fault, wrong in blinded(text):
            yield f"{name}, {fault}", wrong
    for outcome in play_many(range(seed + BEFORE, seed + histories), truths):
        yield f"seed {outcome.history.seed}", outcome.wrong


def tell(outcome: Outcome, to: Console) -> None:
    """Print a wrong history: what is wrong, and its lines, which repeat it."""
    to.print(f"[red]✗ {escape(outcome.wrong)}[/]", highlight=False, soft_wrap=True)
    to.print(escape(str(outcome.history)), highlight=False, soft_wrap=True)
    to.print("  again: these lines in a file, and python -m lab simulate --story FILE", highlight=False)


def replay(story: Path, truths: Sequence[Truth], to: Console) -> int:
    """Play the history of a file with its diary, and return the exit code. Raises Misspelt, OSError."""
    outcome = play(History.parse(story.read_text()), truths, verbose=True)
    for sentence in outcome.diary:
        to.print(escape(sentence), highlight=False, soft_wrap=True)
    if outcome.wrong:
        tell(outcome, to)
    else:
        to.print(f"right: {outcome.passes} passes, {outcome.seconds:.0f} virtual seconds", highlight=False)
    return int(bool(outcome.wrong))


def crash_everywhere(to: Console, names: Iterable[str] = HISTORIES) -> int:
    """Crash before and after each write of the histories of crashes.py; print the table."""
    logging.getLogger().setLevel(logging.ERROR)
    every, blind, failed = list[Crash](), 0, 0
    for name in names:
        found = list(crashes(HISTORIES[name]))
        wrong = [each for each in found if each.wrong]
        to.print(f"{name}: {len(found)} crashes, {len(wrong)} wrong", highlight=False)
        for each in wrong:
            what = f"{each.when} write {each.write.number}, {each.write.verb} {each.write.kind} {each.write.name}"
            to.print(f"[red]✗ {what}: {escape(each.wrong)}[/]", highlight=False, soft_wrap=True)
        every += found
        for fault, sentence in blinded(HISTORIES[name]):
            blind += 1
            if sentence:
                failed += 1
                to.print(f"[red]✗ {fault}: {escape(sentence)}[/]", highlight=False, soft_wrap=True)
    to.print(table(every))
    to.print(f"{blind - failed} of {blind} histories with old reads are right", highlight=False)
    wrong = [each for each in every if each.wrong]
    to.print(f"{len(every) - len(wrong)} of {len(every)} crashes end as without them", highlight=False)
    return int(bool(wrong or failed))
