"""What Prometheus would read of a played history, each virtual minute, in promtool's notation of series.

What programs serve is read, and targets have the labels of the monitors in config/prometheus.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from prometheus_client.core import Metric

from elasticjob.api.v1alpha1.common import LABEL_JOB, LABEL_ROLE
from elasticjob.controllers.parts.names import MASTER
from elasticjob.kube.objects.views import POD
from lab.simulation.history import History
from lab.simulation.play import crashes, happens
from lab.simulation.reading import labels_of, uid_of
from lab.simulation.world import World
from lab.virtual.cluster import TEAM
from lab.virtual.loop import START, run

MINUTE: Final = 60.0
TIMESTAMP: Final = "_timestamp_seconds"
Labels = Mapping[str, str]
Target = tuple[Labels, Iterable[Metric] | None]
"""The labels of a target, and what it serves; None: it does not answer."""


@dataclass
class Scrapes:
    """The samples of the metrics that are wanted, by series and minute."""

    wanted: Collection[str]
    minutes: int = 0
    _samples: dict[str, dict[int, float]] = field(default_factory=dict)

    def take(self, targets: Iterable[Target]) -> None:
        """Read all targets once."""
        for labels, served in targets:
            self._note("up", labels, served is not None)
            for sample in (each for metric in served or () for each in metric.samples):
                if sample.name in self.wanted:
                    since = START.timestamp() if sample.name.endswith(TIMESTAMP) else 0.0
                    self._note(sample.name, {**sample.labels, **labels}, sample.value - since)
        self.minutes += 1

    def series(self) -> dict[str, str]:
        """Return the values of each series; its time begins at 0."""
        return {name: _written(found, self.minutes) for name, found in self._samples.items()}

    def _note(self, name: str, labels: Labels, value: float) -> None:
        pairs = ",".join(f'{key}="{each}"' for key, each in sorted(labels.items()))
        self._samples.setdefault(f"{name}{{{pairs}}}", {})[self.minutes] = round(value, 3)


def play(
    text: str, minutes: int, wanted: Collection[str], away: Collection[str] = ()
) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the series of a history, and what broke; of `away` no program can be reached."""
    history = History.parse(text)
    random.seed(history.seed)
    return run(_play(history, minutes, wanted, away))


async def _play(
    history: History, minutes: int, wanted: Collection[str], away: Collection[str]
) -> tuple[Mapping[str, str], Sequence[str]]:
    world, scrapes = World.of(history, ()), Scrapes(wanted)
    world.measured = True
    with crashes(world):
        world.start()
        deeds = asyncio.create_task(happens(world))
        for _ in range(minutes):
            scrapes.take(targets(world, away))
            await asyncio.sleep(MINUTE)
        deeds.cancel()
        world.close()
    return scrapes.series(), world.broken


def targets(world: World, away: Collection[str] = ()) -> Iterator[Target]:
    """Yield each program that Prometheus finds."""
    operator, brain = world.operator, world.records is not None
    if operator:
        operator.counters.uses_brain(brain)
    yield _ours("operator"), operator.metrics.registry.collect() if operator else None
    yield _ours("di-server"), None if "di-server" in away else ()
    if brain:
        yield _ours("brain"), () if world.brain else None
    for pod in world.server.every(POD):
        labels, job = labels_of(pod), labels_of(pod).get(LABEL_JOB, "")
        uid, master = world.masters.get(job, ("", None))
        if labels.get(LABEL_ROLE) == MASTER and pod["status"]["phase"] == "Running" and uid == uid_of(pod):
            about = {"namespace": TEAM, "job": job, "pod": pod["metadata"]["name"]}
            yield {"component": "elasticjob-master", **about}, master.scraped() if master else None


def _ours(name: str) -> Labels:
    return {"component": f"elasticjob-{name}", "namespace": "elasticjob-system"}


def _written(samples: Mapping[int, float], minutes: int) -> str:
    """Return samples as promtool reads them: what stops is stale at once."""
    last, words = None, list[str]()
    for minute in range(minutes):
        value = samples.get(minute)
        words.append("_" if value is None and last is None else "stale" if value is None else f"{value:.15g}")
        last = value
    return " ".join(_repeated(word, len([*same])) for word, same in groupby(words))


def _repeated(word: str, times: int) -> str:
    if word == "_":
        return f"_x{times}"
    return word if times == 1 else f"{word}x{times - 1}"
