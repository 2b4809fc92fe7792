"""A story: a job on a cluster, troubles that befall it, and truths about it at each moment and at the end.

Rows make a story: JOBS and CLUSTERS (lab/jobs), TROUBLES, TRUTHS. What is drawn depends on the seed and the
story's number alone, so that a story is repeated by them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Look = Callable[[Any], None]
Draws = AsyncGenerator["Trouble", None]
Weights = Mapping["Trouble", int]
Say = Callable[[str], None]
NOT_KEPT = shutil.ignore_patterns("memory", "tmp")


@dataclass(frozen=True)
class Trouble:
    """`act` does something to a scene of the class `needs`, heals it where it does not heal by itself, and
    returns a sentence, "" where there was nothing to trouble."""

    name: str
    needs: type
    act: Callable[[Any], Awaitable[str]]
    clusters: tuple[str, ...] = ()
    """Those that have what it acts on; none: all of the job's."""


@dataclass(frozen=True)
class Truth:
    """Sentences about what is wrong with a scene: `moments` at each of its moments, the last included, and
    `end` when it is over."""

    name: str
    end: Callable[[Any], Iterable[str]] = lambda scene: ()
    moments: Callable[[Any], Iterable[str]] = lambda scene: ()


@dataclass(frozen=True)
class Length:
    """How many stories there are from the `first` on, how many troubles in one, and minutes; 0: no limit."""

    stories: int = 1
    troubles: int = 0
    minutes: float = 0.0
    size: int = 0
    """How many jobs, of those that are many."""
    first: int = 0
    at_once: int = 1


@dataclass(frozen=True)
class Story:
    """What one story is drawn from; `look` is called at each of its moments, `say` shows progress."""

    seed: int
    number: int
    length: Length
    say: Say
    keep: Path | None = None
    look: Look = lambda scene: None

    def chance(self) -> Random:
        """Return what a story is drawn by; the first one of a seed by that alone."""
        return Random(f"{self.seed}/{self.number}" if self.number else self.seed)


@dataclass(kw_only=True)
class Scene(ABC):
    """A job that runs, for those who trouble it and judge it."""

    story: Story
    figures: dict[str, object] = field(default_factory=dict)
    """Columns of the table at the end."""
    befell: int = 0
    """How many troubles have had something to trouble."""
    evidence: tuple[Path, ...] = ()
    """Files and folders that are kept where something is wrong."""
    began: float = field(default_factory=time.monotonic)
    """Since when its minutes are counted."""

    def goes_on(self, troubles: int) -> bool:
        """Whether another trouble is wanted after so many."""
        most, minutes = self.story.length.troubles, self.story.length.minutes
        late = minutes and time.monotonic() - self.began > 60 * minutes
        return not late and (troubles < most or not most)

    @abstractmethod
    def draws(self, troubles: Weights) -> Draws:
        """Yield troubles, each at its moment."""

    async def finish(self) -> None:  # noqa: B027  # most jobs have more to do
        """Bring the job to its end, and note what truths have to know."""


@dataclass(frozen=True)
class Job:
    """`opens` begins a story on a cluster that is one of `clusters`, the first is the usual one.

    `troubles` are drawn with their weights, in their order. They and the truths are names.
    """

    name: str
    about: str
    clusters: tuple[str, ...]
    opens: Callable[[Any, Story], AbstractAsyncContextManager[Scene]]
    scene: type
    troubles: Mapping[str, int]
    truths: tuple[str, ...]
    length: Length = Length()
    suits: Callable[[int, int], bool] = lambda seed, number: True
    """Whether the story of a seed and a number is one of its own."""


@dataclass
class Outcome:
    """What came of one story; `wrong` has a sentence for each violation."""

    job: str
    number: int
    troubles: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, None] = field(default_factory=dict)
    figures: dict[str, object] = field(default_factory=dict)
    seconds: float = 0.0

    def __str__(self) -> str:
        figures = (f"{name} {value}" for name, value in self.figures.items())
        return f"{self.job} {self.number}: {verdict(self)}, {', '.join((f'{self.seconds:.1f} s', *figures))}"


Cluster = Callable[[Path, Job], AbstractAsyncContextManager[Any]]


async def play(
    seed: int,
    cluster: Cluster,
    job: Job,
    troubles: Weights,
    truths: Sequence[Truth],
    length: Length,
    say: Say,
    keep: Path | None,
    outcomes: list[Outcome],
) -> None:
    """Play the stories of a job in one cluster, in order or some at once.

    `outcomes` gets each story as it begins, so that an interrupted run has them, too.
    What killed programs leave in the folder of temporary files goes with them.
    """
    with (
        tempfile.TemporaryDirectory(prefix=f"lab-{job.name}-", ignore_cleanup_errors=True) as folder,
        tempfile.TemporaryDirectory(prefix="lab-tmp-", ignore_cleanup_errors=True) as own,
        patch.dict(os.environ, TMPDIR=own),
    ):
        async with cluster(Path(folder), job) as place:
            numbers = _numbers(length, lambda number: job.suits(seed, number))

            async def in_turn() -> None:
                for number in numbers:
                    outcome = Outcome(job.name, number)
                    story = Story(seed, number, length, say, keep)
                    outcomes.append(outcome)
                    await tell(job, place, story, troubles, truths, outcome)

            async with asyncio.TaskGroup() as tasks:
                for _ in range(length.at_once):
                    tasks.create_task(in_turn())


async def tell(
    job: Job, place: Any, story: Story, troubles: Weights, truths: Sequence[Truth], outcome: Outcome
) -> None:
    """Play one story; a fault of its own ends it, and not the others."""
    began, kept = time.monotonic(), story.keep and story.keep / f"{job.name}-{story.number}"
    if kept:
        shutil.rmtree(kept, ignore_errors=True)  # of an earlier run

    def look(scene: Scene) -> None:
        outcome.wrong |= {printable(each): None for truth in truths for each in truth.moments(scene)}

    try:
        async with job.opens(place, replace(story, look=look)) as scene:
            outcome.figures, broke = scene.figures, True
            try:
                async with aclosing(scene.draws(troubles)) as draws:
                    async for trouble in draws:
                        if sentence := await trouble.act(scene):
                            scene.befell += 1
                            outcome.troubles[trouble.name] += 1
                            story.say(f"    {time.monotonic() - began:6.1f} s  {printable(sentence)}")
                        else:
                            outcome.troubles[f"{trouble.name} in vain"] += 1
                await scene.finish()
                look(scene)
                outcome.wrong |= {printable(each): None for truth in truths for each in truth.end(scene)}
                broke = False
            finally:
                if kept and (broke or outcome.wrong):
                    keep_evidence(scene.evidence, kept)
    except Exception:  # reported with all that is known of it
        outcome.wrong[f"the story broke: {traceback.format_exc()}"] = None
    except BaseException:
        outcome.wrong["it was interrupted"] = None
        raise
    finally:
        if kept and outcome.wrong:
            kept.mkdir(parents=True, exist_ok=True)
            (kept / "wrong.txt").write_text("\n".join(outcome.wrong) + "\n")
        outcome.seconds = time.monotonic() - began
        story.say(str(outcome))


def keep_evidence(evidence: Iterable[Path], folder: Path) -> None:
    """Copy what shows how something came to be wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in evidence:
        with suppress(FileNotFoundError, shutil.Error):
            if each.is_dir():
                shutil.copytree(each, folder / each.name, symlinks=True, ignore=NOT_KEPT, dirs_exist_ok=True)
            else:
                shutil.copy(each, folder)


def _numbers(length: Length, suits: Callable[[int], bool]) -> Iterator[int]:
    """Yield the numbers of the job's stories until there are enough, or the minutes are over."""
    until = time.monotonic() + 60 * length.minutes
    numbers = filter(suits, count(length.first))
    for number in islice(numbers, length.stories) if length.stories else numbers:
        if not length.stories and time.monotonic() > until:
            return
        yield number


# what is shown


def printable(text: str) -> str:
    """Return text without what terminals take for more than letters."""
    return "".join(each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text)


def verdict(outcome: Outcome) -> str:
    """Return "ok", or what is wrong."""
    return "; ".join(outcome.wrong) or "ok"


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return a row for each story; of one story alone, a row for each figure."""
    names = list(dict.fromkeys(name for outcome in outcomes for name in outcome.figures))
    if len(outcomes) == 1:
        alone = Table(box=None, header_style="dim", show_header=False)
        happened = ", ".join(f"{many} {name}" for name, many in outcomes[0].troubles.most_common())
        for name, value in (("troubles", happened), *outcomes[0].figures.items()):
            alone.add_row(name, escape(str(value)))
        return alone
    whole = Table("story", "troubles", "seconds", *names, "outcome", box=None, header_style="dim")
    for each in outcomes:
        happened = ", ".join(f"{many} {name}" for name, many in each.troubles.items())
        cells = (escape(str(each.figures.get(name, "–"))) for name in names)
        outcome = f"[red]{escape(verdict(each))}[/]" if each.wrong else "ok"
        whole.add_row(f"{each.job} {each.number}", happened, f"{each.seconds:.1f}", *cells, outcome)
    return whole


def report(
    outcomes: Sequence[Outcome], again: Callable[[Outcome], str], keep: Path | None, to: Console
) -> int:
    """Print what came of all stories, and how each wrong one is repeated; return the exit code."""
    to.print(table(outcomes))
    wrong = [each for each in outcomes if each.wrong]
    for each in wrong:
        for sentence in each.wrong:
            to.print(f"✗ {sentence}", style="red", highlight=False, markup=False, soft_wrap=True)
        to.print(f"  again: {again(each)}", highlight=False, markup=False, soft_wrap=True)
    kept = f"; evidence in {keep.resolve()}" if wrong and keep else ""
    to.print(
        f"{len(outcomes) - len(wrong)} of {len(outcomes)} stories ended as they should{kept}", soft_wrap=True
    )
    return 1 if wrong or not outcomes else 0
