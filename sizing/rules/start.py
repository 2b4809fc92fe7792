"""The first plan of a job: for roles without a number of nodes, before anything is known of them.

    cores and memory of each node  = a fifth of resourceLimits, rounded up, at most 16 cores and 8192 MiB;
                                     without limits 1 core and 8000 MiB
                                     never more than its share of what the limits leave, or than a machine has
    number of nodes                = the role's minimum

What a template asks for stays, and a role with `replicas` keeps its number: it starts before any plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import ceil
from typing import Final

from elasticjob.api.resources import NOTHING, Amount, Bytes, Cores, Resources, unit
from elasticjob.api.roles import EVALUATOR, WORKER
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.facts import Mode
from elasticjob.sizing.bounds import LEAST
from elasticjob.sizing.facts import Facts
from elasticjob.sizing.measures import MIB

SHARE: Final = 5
MOST: Final = Resources({"cpu": Cores(16), "memory": Bytes(8192 * MIB)})
DEFAULT: Final = Resources({"cpu": Cores(1), "memory": Bytes(8000 * MIB)})
EVALUATES: Final = Resources({"cpu": Cores(2), "memory": Bytes(1024 * MIB)})
"""An evaluator that would get less gets what a worker does."""


def open_roles(facts: Facts) -> tuple[str, ...]:
    """Return the roles that wait for a plan to have any nodes."""
    roles = facts.roles.items()
    return tuple(r for r, role in roles if role.count is None and r not in facts.placed.sizes)


def propose(facts: Facts) -> Change:
    """Return what the undecided roles start with."""
    counts = {role: facts.roles[role].smallest for role in open_roles(facts)}
    if not counts:
        return Change(reason="every role has a size")
    if facts.job.mode is Mode.MANUAL:
        sizes = dict.fromkeys(counts, NOTHING)
    else:
        sizes = {role: _resource(facts, role, counts) for role in counts}
    if small := [(r, n) for r, s in sizes.items() for n in s if s[n].value < LEAST[n].value]:
        role, name = small[0]
        return Change(
            reason=f"{_count(counts)} do not fit: a node of {role} would get {sizes[role][name]} {name}, "
            f"and needs {LEAST[name]} at least; raise spec.resourceLimits"
        )
    groups = {role: Group(count, sizes[role]) for role, count in counts.items()}
    told = "; ".join(f"{role}: {_describe(size)}" for role, size in sizes.items() if size)
    reason = f"replicas is not set: the job starts with {_count(counts)}, its minimum"
    return Change(groups, reason=f"{reason}; {told}, {_source(facts)}" if told else reason)


def _resource(facts: Facts, role: str, counts: Mapping[str, int]) -> Resources:
    """The resources of each node of a role that its template does not ask for."""
    given = facts.roles[role].template_resources
    found = Resources({n: _amount(facts, n, counts) for n in DEFAULT if n not in given})
    if role == EVALUATOR and WORKER in facts.roles and _is_short(found):
        worker = facts.roles[WORKER].template_resources
        of_worker = Resources({n: a for n, a in worker.items() if n in found})
        return found.most(of_worker)
    return found


def _is_short(found: Resources) -> bool:
    return any(found[name].value < EVALUATES[name].value for name in found)


def _amount(facts: Facts, name: str, counts: Mapping[str, int]) -> Amount:
    amount = DEFAULT[name].value
    if (limit := facts.limits.get(name)) is not None:
        step = MIB if name == "memory" else 1
        amount = min(ceil(limit.value / SHARE / step) * step, MOST[name].value)
        amount = min(amount, _share(facts, name, counts, limit))
    if facts.machine is not None and name in facts.machine:
        amount = min(amount, facts.machine[name].value)
    return unit(name)(_round_down(name, amount))


def _share(facts: Facts, name: str, counts: Mapping[str, int], limit: Amount) -> Fraction | int:
    """The share of the limit for each node whose size is not set, once the others have theirs."""
    taken, nodes = Fraction(0), 0
    for role, settings in facts.roles.items():
        count, size = counts.get(role, facts.count(role)), facts.resource(role)
        if name in (around := Resources.parse(settings.around)):
            taken += Fraction(around[name].value) * count
        if role in counts and name not in size:
            nodes += count
        elif name in size:
            taken += Fraction(size[name].value) * count
    return (limit.value - taken) / max(nodes, 1)


def _round_down(name: str, amount: Fraction | int) -> Fraction | int:
    """Rounded down to a MiB, or to a hundredth of a core."""
    if name == "memory":
        return amount // MIB * MIB
    return Fraction(int(amount * 100), 100)


def _count(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {role}" for role, count in sorted(counts.items()))


def _describe(size: Resources) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in _in_order(size))


def _in_order(size: Resources) -> Iterable[tuple[str, Amount]]:
    return sorted(size.items())


def _source(facts: Facts) -> str:
    limits = ", ".join(f"{n} {a}" for n, a in sorted(facts.job.limits.items()) if n in DEFAULT)
    source = f"a fifth of resourceLimits ({limits})" if limits else "the default without resourceLimits"
    return f"{source}, on machines with {_describe(facts.machine)} left" if facts.machine else source
