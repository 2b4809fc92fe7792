"""Histories are drawn, played, judged, and shrunk where something is wrong."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final, Protocol

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Manifest
from lab.simulation.acts import ACTS, Act, Place, draw_job
from lab.simulation.checks import check
from lab.simulation.connection import OPERATOR, Strike, Write
from lab.simulation.faults import FAULTS, Fault
from lab.simulation.history import History, Line, Misspelt, Value
from lab.simulation.normal import unlike, without_numbers
from lab.simulation.promises import EVERY
from lab.simulation.truths import Truth, plans_are_over
from lab.simulation.world import World
from lab.virtual.cluster import MACHINES, TEAM
from lab.virtual.loop import run
from lab.virtual.operator import Crashes

QUIET: Final = 45.0
"""Seconds without a write by us after which a world is at rest: longer than any pause before a retry."""
LONGEST: Final = 600.0
PLAN_PATIENCE: Final = 620.0
"""Seconds after which a plan whose nodes do not come is given up."""
PAUSES: Final = (0.0, 0.02, 0.3, 1.0, 3.0, 8.0)
ROWS: Final[dict[str, Act | Fault]] = {each.name: each for each in (*ACTS, *FAULTS)}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a history: the sentence of the broken truth, "" without one, and its cost."""

    history: History
    wrong: str = ""
    passes: int = 0
    seconds: float = 0.0
    diary: tuple[str, ...] = ()
    objects: Mapping[str, list[Manifest]] | None = None
    """At rest, by resource."""
    written: tuple[Write, ...] = ()
    never: int = 0
    """How many faults of writes befell none."""


# drawing


def draw(seed: int, long: bool = False) -> History:
    """Return the history of a seed: some acts, and some faults."""
    chance = Random(seed)
    jobs, lines, at = dict[str, dict[str, Value]](), list[Line](), 0.0
    first = dict(draw_job(chance, {}))
    jobs[str(first["job"])] = first
    lines.append(Line(0.0, "submit", first))
    acts = chance.randint(30, 40) if long else chance.choice((1, 2, 3, 4, 6, 11))
    for _ in range(acts):
        at += chance.choice(PAUSES) * (20 if long else 1)
        act = _weighed(chance, ACTS)
        if (given := act.draw(chance, jobs)) is not None:
            lines.append(Line(round(min(at, 3000.0 if long else 50.0), 2), act.name, given))
            if act.name == "submit":
                jobs[str(given["job"])] = dict(given)
    for _ in range(chance.randint(4, 10) if long else chance.choice((0, 1, 1, 2, 3))):
        fault = _weighed(chance, FAULTS)
        lines.append(Line(round(chance.uniform(0, at + 3), 2), fault.name, fault.draw(chance)))
    return History(seed, tuple(sorted(lines, key=lambda line: line.at)))


def _weighed(chance: Random, rows: Sequence[Any]) -> Any:
    return chance.choices(rows, [row.weight for row in rows])[0]


# playing


class Stage(Place, Protocol):
    """Where a history is played."""

    history: History
    broken: list[str]

    def strike(self, write: int, strike: Strike, program: str = OPERATOR) -> None:
        """Have something befall the how manyth of a program's writes from now on."""

    @property
    def time(self) -> float: ...

    async def after(self, deed: asyncio.Task[None]) -> None:
        """Wait before the next deed begins."""

    def trouble(self, seconds: float) -> None: ...


def play(
    history: History, truths: Sequence[Truth] = EVERY, *, ends: bool = True, verbose: bool = False
) -> Outcome:
    """Play a history, until all is deleted where it `ends`. Raises Misspelt where a line names no row."""
    for line in history.lines:
        if line.name not in ROWS:
            raise Misspelt(f"{line}: there is no {line.name}: give one of {', '.join(sorted(ROWS))}")
        check(line, ROWS[line.name].do)
    random.seed(history.seed)
    return run(_play(history, tuple(truths), ends, verbose))


async def _play(history: History, truths: tuple[Truth, ...], ends: bool, verbose: bool) -> Outcome:
    world = World.of(history, truths)
    world.verbose = verbose
    wrong, objects = "", None
    with crashes(world):
        world.start()
        try:
            await happens(world)
            heal(world)
            world.kueue_starts()
            world.last = world.time
            await at_rest(world)
            if any(truth.rest is plans_are_over for truth in truths) and [*plans_are_over(world)]:
                await asyncio.sleep(PLAN_PATIENCE)
                await at_rest(world)
            _raise(world, "at rest", truths, lambda truth: truth.rest(world))
            objects = {name: list(found.values()) for name, found in world.server.objects.items()}
            if ends:
                await _look_anew(world)
                await _delete_all(world)
                await at_rest(world)
                _raise(world, "at the end", truths, lambda truth: truth.gone(world))
        except Wrong as error:
            wrong = str(error)
        finally:
            for _, number in world.strikes:
                world.note(f"--- nothing befell write {number}, which never came")
            world.close()
    return Outcome(
        history,
        wrong,
        world.passes,
        world.time,
        tuple(world.diary[-400:]),
        objects,
        tuple(world.written),
        len(world.strikes),
    )


class Wrong(Exception):
    """Something is not true."""


@contextmanager
def crashes(world: World) -> Iterator[None]:
    """A traceback in a log is wrong, too."""
    handler, root = Crashes(world.breaks), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


async def happens(world: Stage) -> None:
    """Have all happen that a history says, at its time."""
    deeds = list[asyncio.Task[None]]()
    for line in world.history.lines:
        await asyncio.sleep(line.at - world.time)
        _look(world)
        row = ROWS[line.name]
        world.note(f"> {str(line).partition(' ')[2]}")
        if isinstance(row, Act):
            deeds.append(asyncio.create_task(row.do(world, **line.given)))
            await world.after(deeds[-1])
        else:
            row.do(world, **line.given)
            world.trouble(float(line.given.get("seconds") or line.given.get("back") or 0))
    await asyncio.gather(*deeds)
    lasting = (each for each in world.history.lines if each.name == "lose" or not _is_act(each))
    ends = [each.at + float(each.given.get("seconds", 0)) for each in lasting]
    await asyncio.sleep(max(0.0, max(ends, default=0.0) - world.time))


def _is_act(line: Line) -> bool:
    return isinstance(ROWS[line.name], Act)


def _look(world: Stage) -> None:
    if world.broken:
        raise Wrong(f"at {world.broken[0]}")


def _raise(world: World, when: str, truths: Iterable[Truth], judge: Callable[[Truth], Iterable[str]]) -> None:
    _look(world)
    if wrong := [f"{truth.name}: {sentence}" for truth in truths for sentence in judge(truth)]:
        raise Wrong(f"{when}: {'; '.join(wrong)}")


def heal(world: Stage) -> None:
    """Nothing more goes wrong, but for what befalls a write that comes yet."""
    world.note("--- all is well from now on")
    for name in MACHINES:
        world.find(name)
        world.cordon(name, False)


async def at_rest(world: World) -> None:
    """Run on until we write nothing, and nothing else changes either."""
    began = world.time
    while world.time - world.last < QUIET or world.operator is None or world.lags or world.server.away:
        if world.time - began > LONGEST:
            raise Wrong(f"at rest: it never comes to rest: {world.written[-1]}")
        await asyncio.sleep(5)
        _look(world)


async def _look_anew(world: World) -> None:
    """Have another operator look, which has seen nothing of it: there is nothing to do."""
    if world.clock.ahead:  # what is held until a time is done when that has come, or would have
        return
    world.note("--- another operator starts")
    world.changed.clear()
    world.crash()
    await at_rest(world)
    for each in world.changed:
        name = each.object["metadata"]["name"]
        what = "; ".join(unlike(name, without_numbers(each.old), without_numbers(each.new)))
        raise Wrong(f"after a restart: nothing-to-do: the next operator changes {each.resource} {what}")


async def _delete_all(world: World) -> None:
    world.note("--- everything is deleted")
    for look in world.looks:
        look.stop()
    for kind in (ELASTICJOB, DIJOB, TRAININGJOB):
        for name in world.names(kind):
            with suppress(KubeError):
                await world.user.delete(kind, name, TEAM)
    for each in world.foreign():
        world.server.remove(WORKLOAD, each)
    for each in world.server.every(SCALEPLAN):
        if not each["metadata"].get("ownerReferences"):  # of a job that never was
            world.server.remove(SCALEPLAN, each)
    world.last = world.time


# many


def shrink(outcome: Outcome, truths: Sequence[Truth] = EVERY, tries: int = 150) -> Outcome:
    """Return a history with fewer lines and smaller numbers in which the same truth is broken."""
    name, left = truth_of(outcome.wrong), tries
    for ways in (History.shorter, History.simpler):
        again = True
        while again and left:
            again = False
            for candidate in ways(outcome.history):
                left -= 1
                try:
                    found = play(candidate, truths)
                except Misspelt:  # a smaller number that the line does not take
                    continue
                if found.wrong and truth_of(found.wrong) == name:
                    outcome, again = found, True
                    break
                if not left:
                    break
    return outcome


def truth_of(wrong: str) -> str:
    """The name of the truth of a sentence: what stands before its second colon."""
    return ":".join(wrong.split(":")[:2]).partition(": ")[2] or wrong


def play_many(seeds: Iterable[int], truths: Sequence[Truth], long: bool = False) -> Iterator[Outcome]:
    """Yield the outcomes of drawn histories."""
    gc.freeze()
    gc.disable()
    try:
        for number, seed in enumerate(seeds):
            outcome = play(draw(seed, long), truths)
            yield replace(outcome, objects=None, written=())
            if number % 30 == 29:
                gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()


def timed(outcomes: Iterable[Outcome]) -> Iterator[tuple[Outcome, float]]:
    """Yield outcomes with the CPU seconds that each took."""
    began = time.process_time()
    for outcome in outcomes:
        now = time.process_time()
        yield outcome, now - began
        began = now
