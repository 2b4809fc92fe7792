"""The stage of Kueue's stories: a control plane, kwok's machines, Kueue, the operator as a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import yaml

from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.views import NAMESPACE, NODE
from lab import programs
from lab.clusters.plane import queues
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.kueue import Kueue
from lab.incumbents.kueue.acts import ANY, Line, act, machine
from lab.incumbents.kueue.explained import EXPLAINED
from lab.incumbents.kueue.record import Record
from lab.incumbents.kueue.side import Side
from lab.incumbents.oracle import INCUMBENT, OURS, Facts, Play, Seen
from lab.incumbents.rest import at_rest
from lab.incumbents.watched import followed

QUIET: Final = 4.0
"""Seconds without a change after which a side is at rest."""
GROWTH: Final = 25.0
"""The same where a job may grow."""
UNLIKE: Final = 30.0
"""Seconds of rest after which two sides that are not alike stay so: growth pauses for 15 s."""


_TOLD: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("stories.yaml").read_text())
SETS: Final[Mapping[str, Sequence[Line]]] = _TOLD.pop("sets")


@dataclass(frozen=True)
class Story:
    """What is there, and what happens: acts in the words of acts.py, some of them at once."""

    acts: Sequence[Line | Sequence[Line]]
    set: Sequence[Line] = ()
    queues: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    quiet: bool = False
    """Whether a job may grow: it pauses for 15 s after it has given something back, and looks every 5 s."""

    @property
    def before(self) -> Iterator[Line]:
        """All that is there at first."""
        for each in self.set:
            yield from SETS.get(each, [each]) if isinstance(each, str) else [each]
        for name, spec in self.queues.items():
            yield {f"make queues {name}": spec}


def words_of(lines: Line | Sequence[Line]) -> str:
    """Return the name of what happens, as facts have it."""
    told = [lines] if isinstance(lines, str | Mapping) else lines
    return "; ".join(each if isinstance(each, str) else next(iter(each)) for each in told)


@asynccontextmanager
async def stage(
    folder: Path, chosen: Mapping[str, Story], settings: Mapping[str, Any]
) -> AsyncIterator[Play]:
    """Set the stage for stories of one configuration of Kueue."""
    with (
        ControlPlane(folder / "plane", scheduler=True, kwok=True) as plane,
        Kueue(plane, folder / "kueue", **{"integrations": ("batch/job",), **settings}) as kueue,
        programs.operator(plane.kubeconfig, folder),
    ):
        async with Client(plane.config()) as client:
            await client.create(queues.RESOURCE_FLAVOR, queues.flavor(ANY))
            for name in ("n1", "n2"):
                await client.create(NODE.untyped(), machine(name, cpu=128))
            record = Record()

            async def play(name: str) -> Seen:
                number = [*chosen].index(name)
                sides = {
                    word: Side(client, f"s{number}{word[0]}", word == OURS, kueue)
                    for word in (INCUMBENT, OURS)
                }
                rows = [each.keys for each in EXPLAINED if fnmatchcase(name, each.stories)]
                return await played(record, sides, chosen[name], rows)

            async with followed(client, record.hears):
                yield play


async def played(record: Record, sides: Mapping[str, Side], story: Story, meant: Sequence[str]) -> Seen:
    """Play a story on both sides at once; what is seen at rest after each act, and after all is deleted.

    `meant`: patterns of the keys in which the sides are not waited for to be alike.
    """
    seen: Seen = {word: {} for word in sides}
    for side in sides.values():
        await side.client.create(NAMESPACE, {"metadata": {"name": side.namespace}})
        for line in story.before:
            await act(side, line)
    for number, lines in enumerate((*story.acts, "end"), 1):
        word = f"{number} {words_of(lines)}"
        for line in [lines] if isinstance(lines, str | Mapping) else lines:
            reasons = await asyncio.gather(*(tried(line, side) for side in sides.values()))
            for key, reason in zip(sides, reasons, strict=True):
                if any(reasons):
                    seen[key] |= {f"{word}: refused": bool(reason), f"{word}: words": reason}

        def look(word: str = word) -> Seen:
            return {key: _at(word, record.facts(side)) for key, side in sides.items()}

        rested = await at_rest(look, quiet=GROWTH if story.quiet else QUIET, unlike=UNLIKE, meant=meant)
        for key, facts in rested.items():
            seen[key] |= facts
    return seen


def _at(word: str, facts: Facts) -> Facts:
    return {f"{word}: {what}": value for what, value in facts.items()}


async def tried(line: Line, side: Side) -> str:
    """Do it; return why the server refuses it, "" if it does not."""
    try:
        await act(side, line)
    except KubeError as error:
        return str(error)
    return ""


STORIES: Final[Mapping[str, Mapping[str, Story]]] = {
    oracle: {name: Story(**each) for name, each in stories.items()} for oracle, stories in _TOLD.items()
}
"""The stories of each configuration of Kueue."""
