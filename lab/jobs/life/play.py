"""Trainings in one to three lives, of the twelve kinds, and the undisturbed training beside each."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from elasticjob.trainer.checkpoint.sources import InStorage, Slabs
from elasticjob.trainer.checkpoint.storage import Storage
from lab.jobs.life import trainings
from lab.jobs.life.cases import Case, Place, Stop, drawn, training_of
from lab.jobs.life.life import Ended, Life, living
from lab.jobs.life.trainings import Arguments, Training
from lab.jobs.training.warm import Warm, warm_process
from lab.story import Draws, Job, Length, Scene, Story, Weights
from lab.troubles import ordinary
from lab.troubles.faults import SCHEME
from lab.troubles.ordinary import Ordinary
from lab.truths.lives import Lived, Stored
from lab.truths.records import Line

PREFIX: Final = "elasticjob-life-"


class Undisturbed(Exception):
    """A training does not even work when nothing happens to it."""


@dataclass
class Nursery:
    """The warm process, and undisturbed trainings, each of which is played once."""

    warm: Warm
    expected: dict[tuple[str, Arguments], asyncio.Task[Line]] = field(default_factory=dict)

    async def undisturbed(self, training: Training, arguments: Arguments) -> Line:
        key = (training.name, arguments)
        if key not in self.expected:
            self.expected[key] = asyncio.create_task(self._alone(training, arguments))
        try:
            return await self.expected[key]
        except Undisturbed:
            self.expected.pop(key, None)  # the next case tries again
            raise

    async def _alone(self, training: Training, arguments: Arguments) -> Line:
        """Return the last states of a training to which nothing happens."""
        with temporary() as folder:
            async with living(folder, 1, training, arguments, self.warm, str(folder / "saved")) as life:
                ended = await life.play()
            ends: list[Line] = [line["end"] for line in life.lines if "end" in line]
            if not ended.succeeded or any(end != ends[0] for end in ends):
                raise Undisturbed(f"{training.name} alone: {ended.codes}\n{ended.log[-3000:]}")
            return ends[0] if ends else {}


@dataclass
class Lives(Scene):
    """A case, as it is played; `lived` has its lives so far."""

    here: Nursery
    folder: Path
    chance: Random
    case: Case = field(init=False)
    life: Life = field(init=False)
    expected: Line = field(default_factory=dict)
    lived: list[Lived] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    @property
    def saved(self) -> Path:
        """Where checkpoints are."""
        return self.folder / "saved"

    async def befall(self, trouble: Ordinary) -> str:
        """Let a trouble happen to the life that begins, or before it."""
        if trouble.between is not None:
            trouble.between(self.saved, self.chance)
        if trouble.during is not None:
            self.tasks.append(asyncio.create_task(trouble.during(self.life, Random(self.chance.random()))))
        return trouble.name

    async def draws(self, troubles: Weights) -> Draws:
        """Play the lives, and yield the troubles before and in each."""
        rows = {row.name: row for row in troubles}
        case = self.case = drawn(self.story.seed, self.story.number, rows)
        self.figures["case"] = str(case)
        self.expected = await self.here.undisturbed(case.training, case.training.arguments)
        place = {Place.FILES: str(self.saved), Place.OBJECTS: f"{SCHEME}://{self.saved}", Place.NOWHERE: ""}
        asks = dict[str, None]()
        for number, begun in enumerate(case.lives, 1):
            for trouble in begun.before:
                yield rows[trouble.name]
            asks |= dict.fromkeys(each.asks for each in (*begun.before, *begun.during) if each.asks)
            before, arguments = stored(self.saved), begun.arguments
            life = living(self.folder, number, case.training, arguments, self.here.warm, place[case.place])
            async with life as self.life:
                for trouble in begun.during:
                    yield rows[trouble.name]
                ended = await self.ended(begun.stop)
            self.lines += self.life.lines
            (self.folder / f"log-{number}").write_text(ended.log)
            tail = tuple(line for line in ended.log.splitlines() if "rror" in line)[-20:]
            self.lived.append(
                Lived(
                    number=number,
                    steps=arguments.steps,
                    records=arguments.records,
                    before=before,
                    after=stored(self.saved),
                    succeeded=ended.succeeded,
                    stopped=begun.stop.signal.name if begun.stop and ended.stopped else "",
                    still=ended.still,
                    said=(*ended.said, *tail),
                    left=ended.left,
                    asks="|".join(asks),
                    storage_failed=any(each.name.startswith("storage") for each in begun.during),
                    codes=tuple(ended.codes.values()),
                    nodes=arguments.nodes,
                )
            )

    async def ended(self, stop: Stop | None) -> Ended:
        """Play the life to its end, with its troubles and its stop; an error of theirs is raised."""
        if stop is not None:
            self.tasks.append(asyncio.create_task(stopped(self.life, stop.step, stop.signal)))
        playing = asyncio.create_task(self.life.play())
        tasks, self.tasks = self.tasks, []
        pending: set[asyncio.Task[Any]] = {playing, *tasks}
        try:
            while not playing.done():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            return await playing
        finally:
            for task in [*tasks, playing]:
                task.cancel()
            await asyncio.gather(*tasks, playing, return_exceptions=True)


async def stopped(life: Life, step: int, number: signal.Signals) -> None:
    """Stop a life after a step."""
    await life.reaches(step)
    life.stop(number)


def stored(place: Path) -> Stored:
    """Look at what is stored, with the library's own reading, from outside of all trouble."""
    if not place.exists():
        return Stored()
    storage, newest = Storage(str(place)), 0
    for step in storage.steps():
        with suppress(Exception):  # damaged in whatever way
            source = InStorage(storage, storage.manifest(step))
            for head in source.heads:
                deque(source.read(head.part, [Slabs(each, 0, each.size) for each in head.tensors]), 0)
            newest = max(newest, step)
    return Stored(newest, any(place.glob("step-*/manifest.json*")))


@asynccontextmanager
async def nursery(folder: Path, job: Job) -> AsyncIterator[Nursery]:
    """Run a process that has imported what the job's trainings need."""
    kinds = [each for each in trainings.ALL if job.name in ("life", f"life-{each.name}")]
    imports = {module for each in kinds for module in each.imports}
    with warm_process("lab.troubles.installed", *sorted(imports)) as line:
        yield Nursery(Warm(line))


@asynccontextmanager
async def begun(here: Nursery, story: Story) -> AsyncIterator[Lives]:
    """Begin a case."""
    with temporary() as folder:
        chance = Random(f"{story.seed} {story.number} played")
        yield Lives(here, folder, chance, story=story, evidence=(folder,))


@contextmanager
def temporary() -> Iterator[Path]:
    """A folder of one life, which goes though its processes may write still."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def row(name: str, about: str, *kinds: str) -> Job:
    """Return a job of some kinds of trainings."""
    weights, length = dict.fromkeys(ordinary.NAMED, 1), Length(stories=0, minutes=30.0, at_once=2)
    return Job(
        *(name, about, ("warm",), begun, Lives, weights, ("lives",), length),
        suits=lambda seed, number: training_of(seed, number).name in kinds,
    )


JOBS: Final = (
    row("life", "twelve kinds of trainings in up to three lives, in ordinary trouble", *trainings.NAMED),
    *(row(f"life-{name}", f"{name} alone", name) for name in trainings.NAMED),
)
