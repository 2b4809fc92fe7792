"""The resources that nodes of a role have needed: the most of any one node, and a curve of memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.sizes.facts import Sample
from elasticjob.api.sizes.role import Fact

SATED: Final = 0.9
"""Of less than this share of its cores, a node would not use more if it had more."""
RISEN: Final = 1.02
"""A peak so much higher than the one before is a new one."""
POINTS: Final = 30


class Point(Fact, frozen=True, kw_only=True):
    """The most bytes that a node of a role used at a time."""

    at: datetime
    memory: int


class Demand(Fact, frozen=True, kw_only=True):
    """Resources that the nodes of a role have needed: the most of any one node.

    `cores` is the most that was ever used; `sated` says that it was less than what was there, so that more
    cores would not be used. `peak` is the most memory, reached at `risen`; a node that was given more memory
    counts as having needed all that it had before. `curve` is a point a minute, oldest first.
    """

    cores: float = 0.0
    sated: bool = False
    peak: int = 0
    risen: datetime | None = None
    given: int = 0  # bytes, at the newest record
    curve: tuple[Point, ...] = ()

    def shift(self, gap: timedelta) -> Demand:
        """Return it with its times moved by `gap`."""
        curve = tuple(point.but(at=point.at + gap) for point in self.curve)
        return self.but(curve=curve, risen=self.risen and self.risen + gap)


def need_of(demand: Demand, sample: Sample, role: str, every: timedelta) -> Demand:
    """Return what nodes of a role have needed, with what they use now."""
    uses = [use for use in sample.nodes if use.role == role]
    memory, given = max(use.memory for use in uses), max(use.bytes for use in uses)
    highest = max(memory, *(use.peak for use in uses))
    needed = max(highest, demand.given if demand.given and given > demand.given else 0)
    risen = demand.risen is None or needed > demand.peak * RISEN
    busiest = max(uses, key=lambda use: use.cpu)
    sated = any(use.cpu and use.cpu < SATED * use.cores for use in uses)
    return Demand(
        cores=max(demand.cores, busiest.cpu),
        sated=demand.sated or sated,
        peak=max(demand.peak, needed),
        risen=sample.at if risen else demand.risen,
        given=given,
        curve=_curve(demand.curve, Point(at=sample.at, memory=memory), every),
    )


def _curve(curve: tuple[Point, ...], point: Point, every: timedelta) -> tuple[Point, ...]:
    """A point every so often, and the newest."""
    if len(curve) >= 2 and point.at - curve[-2].at < every:
        return (*curve[:-1], point)
    return (*curve, point)[-POINTS:]


def of_samples(samples: Iterable[Sample], every: timedelta) -> Mapping[str, Demand]:
    """Return what nodes of each role have needed, from samples, oldest first."""
    found: dict[str, Demand] = {}
    for sample in samples:
        for role in dict.fromkeys(use.role for use in sample.nodes):
            found[role] = need_of(found.get(role, Demand()), sample, role, every)
    return found
