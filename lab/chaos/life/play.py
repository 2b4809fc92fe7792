"""Plays a case: its lives, what is stored before and after each, and the undisturbed training."""

from __future__ import annotations

import asyncio
import shutil
import signal
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from elasticjob.trainer.checkpoint.storage import Storage
from lab.chaos.life.cases import Begun, Case, Place
from lab.chaos.life.faults import SCHEME
from lab.chaos.life.job import Ended, Life, living
from lab.chaos.life.oracle import Lived, Outcome, Stored, judged
from lab.chaos.life.report import Tried
from lab.chaos.life.trainings import Arguments, Training
from lab.jobs.training.warm import Warm
from lab.truths.records import Line

PREFIX: Final = "elasticjob-life-"


class Undisturbed(Exception):
    """A training does not even work when nothing happens to it."""


class Player:
    """Plays cases; undisturbed trainings are played once."""

    def __init__(self, warm: Warm, seed: int, keep: Path | None) -> None:
        self._warm, self._seed, self._keep = warm, seed, keep
        self._expected: dict[tuple[str, Arguments], asyncio.Task[Line]] = {}

    async def play(self, case: Case) -> Tried:
        """Play a case and judge it."""
        began = time.monotonic()
        try:
            expected = await self._undisturbed(case.training, case.training.arguments)
        except Undisturbed as error:
            return Tried(case, Outcome.WRONG, (str(error),), time.monotonic() - began)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            outcome, why = await self._played(case, folder, expected)
            if self._keep and outcome == Outcome.WRONG:
                await asyncio.to_thread(copy, folder, self._keep / str(case.number))
        except Exception:  # a fault of the soak's own ends this case, not the others
            outcome, why = Outcome.WRONG, [f"the soak itself failed: {traceback.format_exc()}"]
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return Tried(case, outcome, tuple(why), time.monotonic() - began)

    async def _played(self, case: Case, folder: Path, expected: Line) -> tuple[Outcome, list[str]]:
        saved = folder / "saved"
        place = {Place.FILES: str(saved), Place.OBJECTS: f"{SCHEME}://{saved}", Place.NOWHERE: ""}[case.place]
        chance = Random(f"{self._seed} {case.number} played")
        lived, lines, asks = [], list[Line](), dict[str, None]()
        storage = False
        for number, begun in enumerate(case.lives, 1):
            for trouble in begun.before:
                if trouble.between is not None:
                    trouble.between(folder / "saved", chance)
            asks |= dict.fromkeys(each.asks for each in (*begun.before, *begun.during) if each.asks)
            storage = any(each.name.startswith("storage") for each in begun.during)
            before = stored(folder / "saved")
            async with living(folder, number, case.training, begun.arguments, self._warm, place) as life:
                ended = await troubled(life, begun, chance)
            lines += life.lines
            (folder / f"log-{number}").write_text(ended.log)
            lived.append(
                summary(life, ended, before, stored(folder / "saved"), begun, "|".join(asks), storage)
            )
        alike = not case.changed - {"nodes"}
        return judged(
            lived,
            lines,
            expected if alike else None,
            shards=case.training.shards,
            ahead=case.training.ahead,
            kept=bool(place),
            near=case.training.near,
        )

    async def _undisturbed(self, training: Training, arguments: Arguments) -> Line:
        key = (training.name, arguments)
        if key not in self._expected:
            self._expected[key] = asyncio.create_task(self._alone(training, arguments))
        try:
            return await self._expected[key]
        except Undisturbed:
            self._expected.pop(key, None)  # the next case tries again
            raise

    async def _alone(self, training: Training, arguments: Arguments) -> Line:
        """Return the last states of a training to which nothing happens."""
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            async with living(folder, 1, training, arguments, self._warm, str(folder / "saved")) as life:
                ended = await life.play()
            ends: list[Line] = [line["end"] for line in life.lines if "end" in line]
            if not ended.succeeded or any(end != ends[0] for end in ends):
                raise Undisturbed(f"{training.name} alone: {ended.codes}\n{ended.log[-3000:]}")
            return ends[0] if ends else {}
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def copy(folder: Path, to: Path) -> None:
    """Keep what is left of a case, but for its memory."""
    ignored = shutil.ignore_patterns("memory", "tmp")
    shutil.copytree(folder, to, symlinks=True, ignore=ignored, dirs_exist_ok=True)


async def troubled(life: Life, begun: Begun, chance: Random) -> Ended:
    """Play a life with its troubles, and its stop."""
    tasks = [
        asyncio.create_task(each.during(life, Random(chance.random())))
        for each in begun.during
        if each.during is not None
    ]
    if begun.stop is not None:
        tasks.append(asyncio.create_task(stop(life, begun.stop.step, begun.stop.signal)))
    playing = asyncio.create_task(life.play())
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


async def stop(life: Life, step: int, number: signal.Signals) -> None:
    """Stop a life after a step."""
    await life.reaches(step)
    life.stop(number)


def summary(
    life: Life, ended: Ended, before: Stored, after: Stored, begun: Begun, asks: str, storage: bool
) -> Lived:
    """Return what the oracle has to know of a life."""
    tail = tuple(line for line in ended.log.splitlines() if "rror" in line)[-20:]
    return Lived(
        number=life.number,
        steps=begun.arguments.steps,
        records=begun.arguments.records,
        before=before,
        after=after,
        succeeded=ended.succeeded,
        stopped=begun.stop.signal.name if begun.stop and ended.stopped else "",
        still=ended.still,
        said=(*ended.said, *tail),
        left=ended.left,
        asks=asks,
        storage_failed=storage,
        codes=tuple(ended.codes.values()),
        nodes=begun.arguments.nodes,
    )


def stored(place: Path) -> Stored:
    """Look at what is stored, with the library's own reading, from outside of all trouble."""
    if not place.exists():
        return Stored()
    storage, newest = Storage(str(place)), 0
    for step in storage.steps():
        with suppress(Exception):  # damaged in whatever way
            for part in storage.manifest(step).parts:
                for _ in storage.chunks(step, part):
                    pass
            newest = max(newest, step)
    return Stored(newest, any(place.glob("step-*/manifest.json*")))
