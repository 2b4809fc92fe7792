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
from elasticjob.api.roles import PS
from elasticjob.api.sizes.change import Change, Group
from elasticjob.sizing.demand import Demand
from elasticjob.sizing.facts import Facts
from elasticjob.sizing.measures import cores

BUSY: Final = 0.95
WORTH: Final = 1.2
"""Cores are taken only if the nodes have this many times as many as they would get."""
LEAST: Final = 0.1
MOST: Final = 16.0


def propose(facts: Facts) -> Change | None:
    """Return the roles whose cores change; None while not all nodes train at this size for long enough."""
    if not facts.settled:
        return None
    roles = (role for role in facts.roles if role != PS)
    return reduce(Change.__or__, (_of_role(facts, role) for role in roles), Change())


def _of_role(facts: Facts, role: str) -> Change:
    demand, given = facts.demand.get(role), facts.resource(role).get("cpu")
    if demand is None or not demand.cores or given is None or not given:
        return Change()
    wanted = _target(demand, float(given.value))
    if wanted is None:
        return Change()
    reason = f"a node of {role} uses {demand.cores:.3g} of {given} cores: each gets {wanted}"
    return Change({role: Group(resource=Resources({"cpu": wanted}))}, reason=reason)


def _target(demand: Demand, had: float) -> Cores | None:
    if not demand.sated and demand.cores >= BUSY * had and had < MOST:
        return cores(min(2 * had, MOST))
    enough = cores(max(demand.cores, LEAST))
    return enough if had > WORTH * float(enough.value) else None
