"""The first plan of a job: for roles without a number of nodes, before anything is known of them.

    cores and memory of each node  = a fifth of resourceLimits, rounded up, at most 16 cores and 8192 MiB;
                                     without limits 1 core and 8000 MiB
                                     never more than its share of what the limits leave, or than a machine has
    number of nodes                = the role's minimum

What a template asks for stays, and a role with `replicas` keeps its number: it starts before any plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Final

from elasticjob.api.resources import NOTHING, Amount, Bytes, Cores, Resources, unit
from elasticjob.api.v1alpha1.common import EVALUATOR, PS, WORKER
from elasticjob.master.scaling.optimizer import Question
from elasticjob.master.scaling.plan import Group, ResourcePlan
from elasticjob.master.scaling.samples import MIB
from elasticjob.master.state.scaling import Mode

SHARE: Final = 5
MOST: Final = Resources({"cpu": Cores(16), "memory": Bytes(8192 * MIB)})
DEFAULT: Final = Resources({"cpu": Cores(1), "memory": Bytes(8000 * MIB)})
LEAST: Final = Resources({"cpu": Cores(Fraction(1, 10)), "memory": Bytes(64 * MIB)})
"""With less than this, no node is started."""
EVALUATES: Final = Resources({"cpu": Cores(2), "memory": Bytes(1024 * MIB)})
"""An evaluator that would get less gets what a worker does."""
DEFAULT_COUNTS: Final = {WORKER: 2, PS: 1}


def undecided(question: Question) -> tuple[str, ...]:
    """Return the roles that wait for a plan to have any nodes."""
    roles = question.wish.roles.items()
    return tuple(r for r, role in roles if role.count is None and r not in question.placed.sizes)


def plan(question: Question) -> ResourcePlan:
    """Return what the undecided roles start with."""
    counts = {role: question.wish.roles[role].smallest for role in undecided(question)}
    return _planned(question, counts, "its minimum")


def default(question: Question) -> ResourcePlan:
    """Return the fixed start of a job of which nothing is known: 2 workers, 1 parameter server."""
    counts = {r: max(question.wish.roles[r].smallest, DEFAULT_COUNTS.get(r, 1)) for r in undecided(question)}
    return _planned(replace(question, wish=question.wish.but(limits={})), counts, "the default")


def _planned(question: Question, counts: Mapping[str, int], why: str) -> ResourcePlan:
    if not counts:
        return ResourcePlan(reason="every role has a size")
    if question.wish.mode is Mode.MANUAL:
        sizes = dict.fromkeys(counts, NOTHING)
    else:
        sizes = {role: _resource(question, role, counts) for role in counts}
    if small := [(r, n) for r, s in sizes.items() for n in s if s[n].value < LEAST[n].value]:
        role, name = small[0]
        return ResourcePlan(
            reason=f"{_counted(counts)} do not fit: a node of {role} would get {sizes[role][name]} {name}, "
            f"and needs {LEAST[name]} at least; raise spec.resourceLimits"
        )
    groups = {role: Group(count, sizes[role]) for role, count in counts.items()}
    told = "; ".join(f"{role}: {_told(size)}" for role, size in sizes.items() if size)
    reason = f"replicas is not set: the job starts with {_counted(counts)}, {why}"
    return ResourcePlan(groups, reason=f"{reason}; {told}, {_source(question)}" if told else reason)


def _resource(question: Question, role: str, counts: Mapping[str, int]) -> Resources:
    """What each node of a role gets of the resources that its template does not ask for."""
    given = Resources.parse(question.wish.roles[role].resource)
    found = Resources({n: _amount(question, n, counts) for n in DEFAULT if n not in given})
    if role == EVALUATOR and WORKER in question.wish.roles and _is_short(found):
        worker = Resources.parse(question.wish.roles[WORKER].resource)
        of_worker = Resources({n: a for n, a in worker.items() if n in found})
        return found.most(of_worker)
    return found


def _is_short(found: Resources) -> bool:
    return any(found[name].value < EVALUATES[name].value for name in found)


def _amount(question: Question, name: str, counts: Mapping[str, int]) -> Amount:
    amount = DEFAULT[name].value
    if (limit := question.limits.get(name)) is not None:
        step = MIB if name == "memory" else 1
        amount = min(ceil(limit.value / SHARE / step) * step, MOST[name].value)
        amount = min(amount, _left(question, name, counts, limit))
    machine = Resources.parse(question.placed.machine)
    if name in machine:
        amount = min(amount, machine[name].value)
    return unit(name)(_rounded(name, amount))


def _left(question: Question, name: str, counts: Mapping[str, int], limit: Amount) -> Fraction | int:
    """What the limit leaves for each node whose size is not set, once the others have theirs."""
    taken, nodes = Fraction(0), 0
    for role in question.wish.roles:
        count, size = counts.get(role, question.count(role)), question.resource(role)
        if role in counts and name not in size:
            nodes += count
        elif name in size:
            taken += Fraction(size[name].value) * count
    return (limit.value - taken) / max(nodes, 1)


def _rounded(name: str, amount: Fraction | int) -> Fraction | int:
    """Rounded down to a MiB, or to a hundredth of a core."""
    if name == "memory":
        return amount // MIB * MIB
    return Fraction(int(amount * 100), 100)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {role}" for role, count in sorted(counts.items()))


def _told(size: Resources) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in _in_order(size))


def _in_order(size: Resources) -> Iterable[tuple[str, Amount]]:
    return sorted(size.items())


def _source(question: Question) -> str:
    limits = ", ".join(f"{n} {a}" for n, a in sorted(question.wish.limits.items()) if n in DEFAULT)
    source = f"a fifth of resourceLimits ({limits})" if limits else "the default without resourceLimits"
    machine = question.placed.machine
    return f"{source}, on machines with {_told(Resources.parse(machine))} left" if machine else source
