"""What happens to a training: to a running life, or between two lives. Nothing here is a random kill.

A trouble of a life is a coroutine that waits for its moment and is cancelled with the life; one between lives
changes what is stored, or the arguments. `asks` is what a refusal after it has to name; where it is empty,
the training has no reason to refuse: the trouble passes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol, runtime_checkable

import psutil

from lab.jobs.life.life import Life
from lab.jobs.life.trainings import Arguments
from lab.story import Trouble

PAUSES: Final = (1.0, 20.0)
OUTAGES: Final = (1.0, 40.0)
READS: Final = (2.0, 14.0)
"""Seconds: of a stopped node, of storage that is away, of a slow read."""
AT_START: Final = 0.35
"""How often an outage begins with the life."""
AT_AN_EPOCHS_END: Final = 0.3
"""How often something happens just there."""
LAST: Final = 3
"""How many steps are the last ones."""
STORED: Final = "checkpoint|storage|place|saved"
DATA: Final = "seed|batch|records|data|shuffle|order"

During = Callable[[Life, Random], Coroutine[Any, Any, None]]
Between = Callable[[Path, Random], None]


@dataclass(frozen=True)
class Ordinary:
    """A kind of trouble: what it does `during` a life or `between` two, or which argument it `changes`."""

    name: str
    during: During | None = None
    between: Between | None = None
    changes: str = ""
    asks: str = ""

    @property
    def is_between(self) -> bool:
        """Whether it needs a life before it."""
        return self.during is None


async def pause(life: Life, chance: Random) -> None:
    """Stop all processes of a node for a while."""
    await life.reaches(moment(life, chance))
    agent = life.nodes[chance.choice(sorted(life.nodes))]
    stopped = agent.tree()
    try:
        for each in stopped:
            with suppress(psutil.Error):
                each.suspend()
        with said(life.folder / "slowly", {}):
            await asyncio.sleep(chance.uniform(*PAUSES))
    finally:
        for each in stopped:
            with suppress(psutil.Error):
                each.resume()


def outage(kind: str, *, alone: bool = False) -> During:
    """Return a trouble of storage: of one node alone, or of all."""

    async def trouble(life: Life, chance: Random) -> None:
        at = 0 if chance.random() < AT_START else moment(life, chance)
        node = chance.choice(sorted(life.nodes)) if alone else ""
        lasts = chance.uniform(*OUTAGES)
        await life.reaches(at)
        with said(life.folder / "storage", {"kind": kind, "node": node}):
            await asyncio.sleep(lasts)

    return trouble


def moment(life: Life, chance: Random) -> int:
    """Draw the step after which something happens: often the last one of an epoch."""
    arguments = life.arguments
    if chance.random() < AT_AN_EPOCHS_END:
        return chance.randrange(1, arguments.epochs) * arguments.steps // arguments.epochs
    return chance.randrange(arguments.steps)


@contextmanager
def said(file: Path, value: dict[str, object]) -> Iterator[None]:
    """Tell all processes of the life something, for as long as the block lasts."""
    file.write_text(json.dumps(value))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


async def slow_records(life: Life, chance: Random) -> None:
    """Let a few reads take long, one after another."""
    await life.reaches(moment(life, chance))
    for number in range(chance.randint(1, 4)):
        (life.folder / "slow" / f"{life.number}-{number}").write_text(str(chance.uniform(*READS)))
        await asyncio.sleep(chance.uniform(0, 6))


async def clock_jumps(life: Life, chance: Random) -> None:
    """Let the clocks of all nodes, or of one, jump."""
    await life.reaches(moment(life, chance))
    node = chance.choice(["", *life.nodes])
    ahead = chance.choice([-1, 1]) * 10 ** chance.uniform(1, 6)
    with said(life.folder / "clock", {node: ahead}):
        await asyncio.Event().wait()  # it stays wrong until the life ends


async def last_loss(life: Life, chance: Random) -> None:
    """Lose a worker within the last steps."""
    await life.reaches(life.arguments.steps - chance.randrange(LAST))
    pids = {line["pid"] for line in life.lines if "begins" in line}
    ended = {line["pid"] for line in life.lines if "end" in line}
    running = [pid for pid in sorted(pids - ended) if psutil.pid_exists(pid)]
    if running:
        with suppress(psutil.Error):
            psutil.Process(chance.choice(running)).kill()


def told_to_leave(mark: str) -> During:
    """Return a SIGTERM to a node at the next save or evaluation; it is made again."""

    async def trouble(life: Life, chance: Random) -> None:
        await life.reaches(moment(life, chance))
        await life.marked(mark)
        await asyncio.sleep(chance.uniform(0, 0.05))
        life.leave(chance.choice(sorted(life.nodes)))

    return trouble


def damage_newest(place: Path, chance: Random) -> None:
    """Damage the newest checkpoint."""
    for folder in folders(place)[-1:]:
        spoil(folder, chance)


def damage_all(place: Path, chance: Random) -> None:
    """Damage all checkpoints."""
    for folder in folders(place):
        spoil(folder, chance)


def folders(place: Path) -> list[Path]:
    """Return the checkpoints, the newest last."""
    return sorted(file.parent for file in place.glob("step-*/manifest.json"))


def spoil(folder: Path, chance: Random) -> None:
    """Flip a few bytes of a file of a checkpoint, or cut it off."""
    file = chance.choice(sorted(file for file in folder.iterdir() if file.stat().st_size))
    content = bytearray(file.read_bytes())
    if chance.random() < 0.5:
        del content[chance.randrange(len(content)) :]
    else:
        for _ in range(4):
            content[chance.randrange(len(content))] ^= chance.randrange(1, 256)
    file.write_bytes(content)


def changed(arguments: Arguments, name: str, chance: Random) -> Arguments:
    """Return other arguments."""
    now = getattr(arguments, name)
    others = {
        "seed": [now + 1],
        "batch": [each for each in (4, 8, 10, 16) if each != now],
        "records": [each for each in (160, 180, 240, 320) if each != now],
        "nodes": [3 - now],
    }
    return replace(arguments, **{name: chance.choice(others[name])})


@runtime_checkable
class Troubled(Protocol):
    """A training in lives that can have ordinary trouble."""

    async def befall(self, trouble: Ordinary) -> str:
        """Let it happen; return what it is."""


def _row(trouble: Ordinary) -> Trouble:
    return Trouble(trouble.name, Troubled, lambda scene: scene.befall(trouble))


ALL: Final = (
    Ordinary("pause", pause),
    Ordinary("storage-timeout", outage("timeout"), asks=STORED),
    Ordinary("storage-full", outage("full"), asks=STORED),
    Ordinary("storage-readonly", outage("readonly"), asks=STORED),
    Ordinary("storage-missing", outage("missing", alone=True), asks=STORED),
    Ordinary("storage-slow", outage("slow")),
    Ordinary("slow-records", slow_records),
    Ordinary("clock", clock_jumps),
    Ordinary("last-loss", last_loss),
    Ordinary("term-saving", told_to_leave("saving")),
    Ordinary("term-evaluating", told_to_leave("evaluating")),
    Ordinary("damage-newest", between=damage_newest, asks=STORED),
    Ordinary("damage-all", between=damage_all, asks=STORED),
    Ordinary("other-seed", changes="seed", asks=DATA),
    Ordinary("other-batch", changes="batch", asks=DATA),
    Ordinary("other-records", changes="records", asks=DATA),
    Ordinary("other-nodes", changes="nodes"),
)
NAMED: Final = {each.name: each for each in ALL}
TROUBLES: Final = tuple(map(_row, ALL))
