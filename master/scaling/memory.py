"""How much memory the nodes of a role should have, before one is killed, and once it is known what they need.

    reaches the limit within `Pace.horizon`   → what it will use in four times that, and a reserve; at least
                                                a quarter more, at most twice as much and 8 GiB more
    never used, for `Pace.shrink` long        → the most that was ever used, and a reserve

The trend is the median of the slopes between all points of the last quarter of an hour (Theil-Sen), so that
one evaluation, or a saw-tooth, is none. After a kill: controllers/nodes/out_of_memory.py.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import combinations
from math import ceil
from statistics import median
from typing import Final

from elasticjob.api.resources import Bytes, Resources
from elasticjob.master.scaling.optimizer import Question
from elasticjob.master.scaling.plan import Group, ResourcePlan
from elasticjob.master.scaling.samples import GIB, MIB, mebibytes
from elasticjob.master.state.scaling import Demand

AHEAD: Final = 4
"""Horizons: for so long the new memory should be enough."""
POINTS: Final = 5
"""Points of a curve from which on it has a trend."""
RESERVE: Final = 1.15
WORTH: Final = 1.05
"""Memory is taken only if the nodes have this many times as much as they would get."""


def plan(question: Question) -> ResourcePlan:
    """Return the roles whose memory changes; an empty plan if none does."""
    return reduce(
        ResourcePlan.__or__, (_of_role(question, role) for role in question.wish.roles), ResourcePlan()
    )


def _of_role(question: Question, role: str) -> ResourcePlan:
    demand, given = question.demand.get(role), question.resource(role).get("memory")
    if demand is None or given is None or not given:
        return ResourcePlan()
    had = int(given.value)
    return _grown(question, role, demand, had) or _shrunk(question, role, demand, had)


def _grown(question: Question, role: str, demand: Demand, had: int) -> ResourcePlan:
    slope = trend(question, demand)
    if slope is None or slope <= 0 or not demand.curve:
        return ResourcePlan()
    used = demand.curve[-1].memory
    if used + slope * question.pace.horizon.total_seconds() < had:
        return ResourcePlan()
    expected = (used + slope * AHEAD * question.pace.horizon.total_seconds()) * RESERVE
    wanted = mebibytes(min(max(expected, had * 1.25), had * 2, had + 8 * GIB))
    minutes = max(0.0, (had - used) / slope / 60)
    reason = (
        f"{role} uses {_told(used)} of {_told(had)} and {_told(slope * 3600)} more each hour, so it would be "
        f"out of memory in {minutes:.0f} min: each gets {wanted}"
    )
    return ResourcePlan({role: Group(resource=Resources({"memory": wanted}))}, reason=reason)


def _shrunk(question: Question, role: str, demand: Demand, had: int) -> ResourcePlan:
    if demand.risen is None or question.now - demand.risen < question.pace.shrink:
        return ResourcePlan()
    wanted = mebibytes(demand.peak * RESERVE)
    if had < wanted.value * Fraction(WORTH):
        return ResourcePlan()
    minutes = (question.now - demand.risen).total_seconds() / 60
    used = f"{role} has used {_told(demand.peak)} at most of {_told(had)}"
    reason = f"{used}, for {minutes:.0f} min: each gets {wanted}"
    return ResourcePlan({role: Group(resource=Resources({"memory": wanted}))}, reason=reason)


def trend(question: Question, demand: Demand) -> float | None:
    """Return the bytes a second by which a role's use rises; None if it is not known."""
    points = [point for point in demand.curve if question.now - point.at <= question.pace.horizon]
    if len(points) < POINTS:
        return None
    pairs = combinations(points, 2)
    return median((b.memory - a.memory) / (b.at - a.at).total_seconds() for a, b in pairs if b.at > a.at)


def _told(amount: float) -> str:
    return str(Bytes(ceil(amount / MIB) * MIB))
