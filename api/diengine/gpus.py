"""How the GPUs of one logic learner are split over pods. Pure: equal machines and numbers, equal split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

MOST: Final = 1024
"""GPUs of one pod, and of one learner unless a setting says otherwise: each has a port of its own."""


class TooManyPods(ValueError):
    """A learner would be split over `count` pods, more than it may have."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} pods")
        self.count = count


@dataclass(frozen=True)
class Machine:
    """The GPUs of a machine: all of them, and those that are free for a learner (0: it may not run there)."""

    total: int
    free: int


@dataclass(frozen=True)
class Split:
    """The GPUs of each pod, in order; `missing` says what the cluster lacks for them now, or ""."""

    pods: tuple[int, ...]
    missing: str = ""


def majority(machines: Iterable[Machine]) -> int:
    """Return the number of GPUs that most machines have.

    Of two such numbers the larger counts; if most machines have none, the largest number of any.
    """
    counted = Counter(machine.total for machine in machines)
    if not counted:
        return 0
    common = max(counted, key=lambda total: (counted[total], total))
    return common or max(counted)


def split_of_release(gpus: int, majority: int) -> tuple[int, ...]:
    """Return the split of DI Orchestrator 0.2.2: full pods of `majority` GPUs, then the rest."""
    if majority == 0 or gpus <= majority:
        return (gpus,)
    full, rest = divmod(gpus, majority)
    return (*(majority,) * full, *((rest,) if rest else ()))


def split(gpus: int, machines: Sequence[Machine], most: int = MOST) -> Split:
    """Return the split of DI Orchestrator where it fits the free GPUs; else the fewest pods that fit.

    If nothing fits, it is DI Orchestrator's again: its pods wait until there is room. Raises TooManyPods for
    more than `most` pods; no more than that, or than there are machines, are ever computed.
    """
    common = majority(machines)
    count = -(-gpus // common) if common else 1
    first = split_of_release(gpus, common) if count <= most else ()
    if first and fits(first, machines):
        return Split(first)
    fewest, left = list[int](), gpus
    for free in sorted((machine.free for machine in machines), reverse=True):
        if not left or not free:
            break
        fewest.append(min(left, free))
        left -= fewest[-1]
    if not left and len(fewest) <= most:
        return Split(tuple(fewest))
    if not first:
        raise TooManyPods(count if left else min(count, len(fewest)))
    return Split(first, f"{gpus} GPUs are wanted, and {sum(each.free for each in machines)} are free")


def fits(pods: Iterable[int], machines: Sequence[Machine]) -> bool:
    """Whether machines have room for pods of these numbers of GPUs."""
    return place(pods, machines) is not None


def place(pods: Iterable[int], machines: Sequence[Machine]) -> list[Machine] | None:
    """Return the machines with such pods, the largest where least stays free; None if they do not fit."""
    left = list(machines)
    for wanted in sorted(pods, reverse=True):
        room = [index for index, machine in enumerate(left) if machine.free >= wanted]
        if not room:
            return None
        best = min(room, key=lambda index: left[index].free)
        left[best] = replace(left[best], free=left[best].free - wanted)
    return left
