"""Nodes that wait too long for a machine ask for less, and get the rest back later.

A node that has waited for `Pace.pending` asks for half of its cores and memory, each only if half is still
more than FLOOR. Nodes with devices (GPUs) wait on: with half of its devices a node would train otherwise.
Once `Pace.restore` has passed, and a machine has that much left, the node gets back what its role has.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from elasticjob.api.resources import Amount, Bytes, Cores, Devices, Resources
from elasticjob.master.scaling.optimizer import Question, Waiting
from elasticjob.master.scaling.plan import ResourcePlan
from elasticjob.master.scaling.samples import MIB

FLOOR: Final = Resources({"cpu": Cores(4), "memory": Bytes(6144 * MIB)})


def plan(question: Question) -> ResourcePlan:
    """Return single nodes with less, or with what they should have; an empty plan if there are none."""
    return _less(question) or _back(question)


def _less(question: Question) -> ResourcePlan:
    late = [w for w in question.waiting if question.now - w.since >= question.pace.pending]
    nodes = {w.name: less for w in late if (less := _halved(w))}
    if not nodes:
        return ResourcePlan()
    minutes = question.pace.pending.total_seconds() / 60
    told = ", ".join(sorted(nodes))
    return ResourcePlan(nodes=nodes, reason=f"{told} found no machine for {minutes:.0f} min: asks for half")


def _halved(waiting: Waiting) -> Resources:
    if any(isinstance(amount, Devices) and amount for amount in waiting.resource.values()):
        return Resources({})
    half = {n: _half(n, a) for n, a in waiting.resource.items() if n in FLOOR}
    return Resources({n: a for n, a in half.items() if a.value > FLOOR[n].value})


def _half(name: str, amount: Amount) -> Amount:
    half = Fraction(amount.value) / 2
    return Bytes(-(-half // MIB) * MIB) if name == "memory" else Cores(-(-half // 1))


def _back(question: Question) -> ResourcePlan:
    due = [n for n, since in question.cuts.items() if question.now - since >= question.pace.restore]
    waits = {w.name for w in question.waiting}
    nodes = {n: r for n in due if n not in waits and (r := _missing(question, n)) and _fits(question, n, r)}
    return (
        ResourcePlan(nodes=nodes, reason=f"there is room for what {', '.join(nodes)} gave up")
        if nodes
        else ResourcePlan()
    )


def _missing(question: Question, node: str) -> Resources:
    role = question.role_of(node)
    if role is None:
        return Resources({})
    now, wanted = question.resource_of(role, node), question.resource(role)
    return Resources({n: a for n, a in wanted.items() if n in FLOOR and n in now and a.value > now[n].value})


def _fits(question: Question, node: str, wanted: Resources) -> bool:
    machine, role = Resources.parse(question.placed.machine), question.role_of(node)
    now = question.resource_of(role, node) if role else Resources({})
    return all(n in machine and machine[n].value >= a.value - now[n].value for n, a in wanted.items())
