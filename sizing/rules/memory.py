"""How much memory the nodes of a role should have, before one is killed, and once it is known what they need.

    reaches the limit within `Pace.horizon`   → what it will use in four times that, and a reserve; at least
                                                a quarter more, at most twice as much and 8 GiB more
    never used, for `Pace.shrink` long        → the most that was ever used, and a reserve of 15 %, 256 MiB
                                                at least

The trend is the median of the slopes between all points of the last quarter of an hour (Theil-Sen), so that
one evaluation, or a saw-tooth, is none. After a kill: rules/oom.py.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import combinations
from statistics import median
from typing import Final

from elasticjob.api.resources import Resources
from elasticjob.api.sizes.change import Change, Group
from elasticjob.sizing.demand import Demand
from elasticjob.sizing.facts import Facts
from elasticjob.sizing.measures import MIB, mebibytes
from elasticjob.sizing.thresholds import STEP

AHEAD: Final = 4
"""Horizons: for so long the new memory should be enough."""
POINTS: Final = 5
"""Points of a curve from which on it has a trend."""
RESERVE: Final = 1.15
SLACK: Final = 256 * MIB
"""The reserve of a small node: a new worker and the one that it replaces overlap, files are cached."""
WORTH: Final = 1.05
"""Memory is taken only if the nodes have this many times as much as they would get."""


def propose(facts: Facts) -> Change:
    """Return the roles whose memory changes; an empty change if none does."""
    return reduce(Change.__or__, (_of_role(facts, role) for role in facts.roles), Change())


def runs_out(facts: Facts) -> bool:
    """Whether a role will reach its limit soon."""
    given = ((role, facts.resource(role).get("memory")) for role in facts.roles if role in facts.demand)
    return any(_grown(facts, role, facts.demand[role], int(had.value)) for role, had in given if had)


def _of_role(facts: Facts, role: str) -> Change:
    demand, given = facts.demand.get(role), facts.resource(role).get("memory")
    if demand is None or given is None or not given:
        return Change()
    had = int(given.value)
    return _grown(facts, role, demand, had) or _shrunk(facts, role, demand, had)


def _grown(facts: Facts, role: str, demand: Demand, had: int) -> Change:
    slope = trend(facts, demand)
    if slope is None or slope <= 0 or not demand.curve:
        return Change()
    used = demand.curve[-1].memory
    if used + slope * facts.pace.horizon.total_seconds() < had:
        return Change()
    expected = (used + slope * AHEAD * facts.pace.horizon.total_seconds()) * RESERVE
    wanted = mebibytes(min(max(expected, had * 1.25), had * 2, had + STEP))
    minutes = max(0.0, (had - used) / slope / 60)
    reason = (
        f"{role} uses {mebibytes(used)} of {mebibytes(had)} and {mebibytes(slope * 3600)} more each hour, "
        f"so it would be out of memory in {minutes:.0f} min: each gets {wanted}"
    )
    return Change({role: Group(resource=Resources({"memory": wanted}))}, reason=reason)


def _shrunk(facts: Facts, role: str, demand: Demand, had: int) -> Change:
    if not demand.peak or demand.risen is None or facts.now - demand.risen < facts.pace.shrink:
        return Change()
    wanted = mebibytes(max(demand.peak * RESERVE, demand.peak + SLACK))
    if had < wanted.value * Fraction(WORTH):
        return Change()
    minutes = (facts.now - demand.risen).total_seconds() / 60
    used = f"{role} has used {mebibytes(demand.peak)} at most of {mebibytes(had)}"
    reason = f"{used}, for {minutes:.0f} min: each gets {wanted}"
    return Change({role: Group(resource=Resources({"memory": wanted}))}, reason=reason)


def trend(facts: Facts, demand: Demand) -> float | None:
    """Return the bytes a second by which a role's use rises; None if it is not known."""
    points = [point for point in demand.curve if facts.now - point.at <= facts.pace.horizon]
    if len(points) < POINTS:
        return None
    pairs = combinations(points, 2)
    return median((b.memory - a.memory) / (b.at - a.at).total_seconds() for a, b in pairs if b.at > a.at)
