"""A case of the soak: a training, how its lives follow one another, and their troubles; drawn from a seed."""

from __future__ import annotations

import signal
from collections.abc import Container, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from lab.jobs.life import trainings
from lab.jobs.life.trainings import Arguments, Training
from lab.troubles import ordinary as troubles
from lab.troubles.ordinary import Ordinary

AT_AN_EPOCHS_END: Final = 0.3
GRACEFULLY: Final = 0.6
"""How often a life is stopped just there, and by SIGTERM."""
PLACES: Final = (0.5, 0.35, 0.15)
"""How often checkpoints are files, objects, or, in a training of one life that needs none, nowhere."""


class Place(StrEnum):
    """Where a training keeps its checkpoints."""

    FILES = "files"
    OBJECTS = "objects"
    NOWHERE = "nowhere"


@dataclass(frozen=True)
class Stop:
    """How a life ends before its training does: at which step, and by which signal."""

    step: int
    signal: signal.Signals


@dataclass(frozen=True)
class Begun:
    """A life: its arguments, the troubles before and in it, and its stop, if it is not the last."""

    arguments: Arguments
    before: tuple[Ordinary, ...]
    during: tuple[Ordinary, ...]
    stop: Stop | None


@dataclass(frozen=True)
class Case:
    """A training in one to three lives."""

    number: int
    training: Training
    lives: tuple[Begun, ...]
    place: Place

    @property
    def troubles(self) -> list[str]:
        """The names of all troubles, in order."""
        return [each.name for life in self.lives for each in (*life.before, *life.during)]

    @property
    def changed(self) -> set[str]:
        """Which arguments differ between lives."""
        return {each.changes for life in self.lives for each in life.before if each.changes}

    def __str__(self) -> str:
        lives = []
        for life in self.lives:
            stop = f"{life.stop.signal.name} at {life.stop.step}" if life.stop else ""
            lives.append(
                " ".join(filter(None, (*(each.name for each in (*life.before, *life.during)), stop)))
            )
        where = "" if self.place == Place.FILES else f" ({self.place})"
        return f"{self.training.name}{where}: " + " | ".join(each or "-" for each in lives)


def training_of(seed: int, number: int) -> Training:
    """Return a training; each block of as many cases as there are trainings has every one of them."""
    many = len(trainings.ALL)
    block = [*trainings.ALL]
    Random(f"{seed} {number // many}").shuffle(block)
    return block[number % many]


def drawn(seed: int, number: int, among: Container[str] = troubles.NAMED) -> Case:
    """Return a case, with one to three troubles."""
    training, chance = training_of(seed, number), Random(f"{seed} {number} case")
    possible = [each for each in troubles.ALL if each.name in among and suits(each, training)]
    picked = chance.sample(possible, min(chance.randint(1, 3), len(possible)))
    least = 2 if any(each.is_between for each in picked) else 1
    many = chance.randint(least, training.most)
    (place,) = chance.choices([*Place], PLACES)
    if place == Place.NOWHERE and (many > 1 or training.changes != trainings.ELASTIC):
        place = Place.FILES
    return Case(number, training, lives(training, picked, many, chance), place)


def suits(trouble: Ordinary, training: Training) -> bool:
    """Whether a trouble means anything to a training."""
    if trouble.name in training.without or (trouble.is_between and training.most < 2):
        return False
    return not trouble.changes or trouble.changes in training.changes


def lives(training: Training, picked: Sequence[Ordinary], many: int, chance: Random) -> tuple[Begun, ...]:
    """Deal troubles to lives; other arguments hold for one life, the next has the first ones again."""
    first = training.arguments
    dealt: list[list[Ordinary]] = [[] for _ in range(many)]
    for trouble in picked:
        dealt[chance.randrange(1, many) if trouble.is_between else chance.randrange(many)].append(trouble)
    all_ = []
    for index, own in enumerate(dealt):
        arguments = first
        for trouble in own:
            if trouble.changes:
                arguments = troubles.changed(arguments, trouble.changes, chance)
        before = tuple(each for each in own if each.is_between)
        during = tuple(each for each in own if not each.is_between)
        stop = stopped(first, index, many, chance) if index < many - 1 else None
        all_.append(Begun(arguments, before, during, stop))
    return tuple(all_)


def stopped(arguments: Arguments, index: int, many: int, chance: Random) -> Stop:
    """Draw the end of a life: later ones are stopped at later steps."""
    low, high = (arguments.steps * (index + each) // many for each in (0, 1))
    step = chance.randrange(low + 2, high)
    epoch = arguments.steps // arguments.epochs
    if chance.random() < AT_AN_EPOCHS_END:
        step = max(1, round(step / epoch)) * epoch
    return Stop(step, signal.SIGTERM if chance.random() < GRACEFULLY else signal.SIGKILL)
