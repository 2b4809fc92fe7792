"""Which orphans are deleted, and when.

The garbage collector misses an owner that is deleted and created again under its name while the collector's
watch is away: the objects of the former life stay, and keep their names. The rules:

    an orphan is in the way of a new job's object            → ask the server about its owner now
    no orphan has gone for 30 s                              → ask about every owner
    the server has the owner, with the uid that was named    → nothing is deleted
    the server has no such object, or one of another uid     → delete its objects, uncached ones first
    something could not be read or deleted                   → ask about its owner again after 30 s

Uncached objects go first, since after a restart only the cached ones lead to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from elasticjob.controllers.parts.owners import Ownership
from elasticjob.kube.objects.views import OwnerReference

PATIENCE: Final = timedelta(seconds=30)
"""How long the garbage collector may take for one object; mostly it takes a moment."""


@dataclass(frozen=True)
class Leftovers:
    """The orphans of a job, and those of them that a new object of the job waits for."""

    orphans: tuple[Ownership, ...] = ()
    urgent: tuple[Ownership, ...] = ()


@dataclass(frozen=True)
class Memory:
    """Since when none of `count` orphans has gone, and owners whose objects could not all be deleted."""

    since: datetime
    count: int = 0
    unfinished: frozenset[OwnerReference] = frozenset()


@dataclass(frozen=True)
class Step:
    """Owners to ask the server about, what to remember (None: nothing), and when to look again."""

    owners: tuple[OwnerReference, ...] = ()
    memory: Memory | None = None
    again_in: timedelta | None = None


@dataclass(frozen=True)
class Answer:
    """Whether an owner is gone, and its objects that no cache shows; `complete`: everything could be read."""

    owner: OwnerReference
    gone: bool = False
    hidden: tuple[Ownership, ...] = ()
    complete: bool = True


@dataclass(frozen=True)
class Removal:
    """The objects of one owner that is gone, in the order in which they are deleted."""

    owner: OwnerReference
    hidden: tuple[Ownership, ...]
    shown: tuple[Ownership, ...]

    @property
    def sentence(self) -> str:
        """The log line."""
        count = len(self.hidden) + len(self.shown)
        return (
            f"deleting {count} objects of {self.owner.kind} {self.owner.name} ({self.owner.uid}): it is gone"
        )


def due(left: Leftovers, memory: Memory | None, now: datetime) -> Step:
    """Return which owners to ask about now: of urgent orphans, and of all when the collector had its time."""
    if not left.orphans and not (memory and memory.unfinished):
        return Step()
    memory = memory or Memory(now, len(left.orphans))
    progress = len(left.orphans) < memory.count
    since = now if progress else min(memory.since, now)  # the clock may have been set back
    patient = now < since + PATIENCE
    asked = [each.owner for each in (left.urgent if patient else left.orphans)]
    owners = dict.fromkeys([*asked, *(() if patient else memory.unfinished)])
    again_in = since + PATIENCE - now if patient else PATIENCE
    since = since if patient else now
    return Step(tuple(owners), Memory(since, len(left.orphans), memory.unfinished), again_in)


def removals(left: Leftovers, answers: Iterable[Answer]) -> tuple[Removal, ...]:
    """Return what to delete, by owner, now that the server has told which owners are gone."""
    return tuple(_removal(left, answer) for answer in answers if answer.gone)


def remember_failures(
    memory: Memory, asked: Iterable[OwnerReference], failed: Iterable[OwnerReference]
) -> Memory:
    """Return `memory` after a pass that asked about some owners and failed with some of them."""
    return replace(memory, unfinished=memory.unfinished.difference(asked).union(failed))


def _removal(left: Leftovers, answer: Answer) -> Removal:
    hidden = {each.uid for each in answer.hidden}
    shown = (each for each in left.orphans if each.owner == answer.owner and each.uid not in hidden)
    return Removal(answer.owner, answer.hidden, tuple(shown))
