"""What must hold all the time and at the end, as a list of checks. Each returns sentences."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.request import urlopen

from lab.processes import Process
from lab.programs.control_plane import Installed, Line
from lab.story import Truth

OFTEN: Final = 8
OFTEN_A_MINUTE: Final = 2.0
"""Errors that a program may log about one object: back-off makes them rare."""
MEMORY: Final = 96 * 1024 * 1024
MORE: Final = 0.5
"""Resident memory at the end, beyond that at the beginning: bytes, or a share of it."""
SERIES: Final = 300
"""Series of a program at the end, beyond those at the beginning."""


@dataclass(frozen=True)
class Use:
    """What a program holds."""

    memory: int
    series: int


@dataclass
class Watched:
    """What has been seen of our programs so far."""

    programs: Installed
    minutes: Callable[[], float]
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By program and object."""
    kinds: Counter[str] = field(default_factory=Counter)


def have_ended(seen: Watched) -> list[str]:
    """No program has ended."""
    return [
        f"{each.name} has ended with {each.code}: {' | '.join(each.tail(3)):.1500}"
        for each in seen.programs.all
        if each.code is not None
    ]


def have_logged(seen: Watched) -> list[str]:
    """Each error names its object, and none comes again and again."""
    allowed, wrong = OFTEN + OFTEN_A_MINUTE * seen.minutes(), list[str]()
    for line in seen.programs.errors():
        kind = f"{line.program}: {line.kind}"
        seen.kinds[kind] += 1
        seen.errors[line.program, line.about] += 1
        wrong += judged(line, seen.errors[line.program, line.about], allowed)
    return wrong


def judged(line: Line, count: int, allowed: float) -> list[str]:
    """Return what is wrong with an error that is the `count`th about its object."""
    if not line.about:
        return [f"{line.program} logs an error that names no object: {line.kind} {line.text[-2000:]}"]
    if count == int(allowed) + 1:
        return [f"{line.program} logs more than {allowed:.0f} errors about {line.about}: {line.kind}"]
    return []


async def used(programs: Installed) -> Mapping[str, Use]:
    """Return what each program holds now."""
    there = [each for each in programs.all if each.code is None]
    return {each.name: Use(each.rss, await asyncio.to_thread(series, each)) for each in there}


def series(program: Process) -> int:
    """Return how many series its /metrics has."""
    with urlopen(f"{program.url}/metrics", timeout=60) as answer:
        return sum(not line.startswith(b"#") for line in answer)


def grown(before: Mapping[str, Use], after: Mapping[str, Use], starts: Mapping[str, int]) -> list[str]:
    """Return which programs hold more than they should, of those that have not been started again."""
    wrong = []
    for name in before.keys() & after.keys():
        had, has = before[name], after[name]
        if starts.get(name, 1) == 1 and has.memory > had.memory + max(MEMORY, MORE * had.memory):
            wrong.append(f"{name} holds {has.memory >> 20} MiB, {had.memory >> 20} at the beginning")
        if has.series > had.series + SERIES:
            wrong.append(f"{name} has {has.series} series, {had.series} at the beginning")
    return wrong


TRUTHS: Final = (
    Truth("undisturbed", moments=lambda scene: scene.wrong.values()),
    Truth("bounded", lambda scene: grown(scene.before, scene.after, scene.starts)),
)
