"""How many cores the nodes of a role should have, where the user does not say.

    it uses nearly all of what it has, and has never left any    → twice as many
    it has many more than any node ever used                     → the most that one used

What was used in small worlds counts, too: in larger ones nodes wait for each other, but compute as fast.
Parameter servers are sized with the number of workers (servers.py).
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from elasticjob.api.resources import Cores, Resources
from elasticjob.api.v1alpha1.common import PS
from elasticjob.master.scaling.optimizer import Question
from elasticjob.master.scaling.plan import Group, ResourcePlan
from elasticjob.master.scaling.samples import cores
from elasticjob.master.state.scaling import Demand

BUSY: Final = 0.95
WORTH: Final = 1.2
"""Cores are taken only if the nodes have this many times as many as they would get."""
LEAST: Final = 0.1
MOST: Final = 16.0


def plan(question: Question) -> ResourcePlan:
    """Return the roles whose cores change; an empty plan if none does."""
    roles = (role for role in question.wish.roles if role != PS)
    return reduce(ResourcePlan.__or__, (_of_role(question, role) for role in roles), ResourcePlan())


def _of_role(question: Question, role: str) -> ResourcePlan:
    demand, given = question.demand.get(role), question.resource(role).get("cpu")
    if demand is None or not demand.cores or given is None or not given:
        return ResourcePlan()
    wanted = _wanted(demand, float(given.value))
    if wanted is None:
        return ResourcePlan()
    reason = f"a node of {role} uses {demand.cores:.3g} of {given} cores: each gets {wanted}"
    return ResourcePlan({role: Group(resource=Resources({"cpu": wanted}))}, reason=reason)


def _wanted(demand: Demand, had: float) -> Cores | None:
    if not demand.sated and demand.cores >= BUSY * had and had < MOST:
        return cores(min(2 * had, MOST))
    enough = cores(max(demand.cores, LEAST))
    return enough if had > WORTH * float(enough.value) else None
