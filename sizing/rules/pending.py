"""Nodes that wait too long for a machine ask for less, and get the rest back later.

A node that has waited for `Pace.pending` asks for half of its cores and memory, each only if half is still
more than FLOOR. Nodes with devices (GPUs) wait on: with half of its devices a node would train otherwise.
Once `Pace.restore` has passed, and a machine has that much left, the node gets back what its role has.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from elasticjob.api.resources import Amount, Bytes, Cores, Devices, Resources
from elasticjob.api.sizes.change import Change
from elasticjob.sizing.facts import Facts, Waiting
from elasticjob.sizing.measures import MIB

FLOOR: Final = Resources({"cpu": Cores(4), "memory": Bytes(6144 * MIB)})


def propose(facts: Facts) -> Change | None:
    """Return single nodes with less, or with what they should have; None if there are none."""
    return _less(facts) or _back(facts)


def _less(facts: Facts) -> Change | None:
    late = [w for w in facts.waiting if facts.now - w.since >= facts.pace.pending]
    nodes = {w.name: less for w in late if (less := _halve(w))}
    if not nodes:
        return None
    minutes = facts.pace.pending.total_seconds() / 60
    told = ", ".join(sorted(nodes))
    return Change(nodes=nodes, reason=f"{told} found no machine for {minutes:.0f} min: asks for half")


def _halve(waiting: Waiting) -> Resources:
    if any(isinstance(amount, Devices) and amount for amount in waiting.resource.values()):
        return Resources({})
    half = {n: _half(n, a) for n, a in waiting.resource.items() if n in FLOOR}
    return Resources({n: a for n, a in half.items() if a.value > FLOOR[n].value})


def _half(name: str, amount: Amount) -> Amount:
    half = Fraction(amount.value) / 2
    return Bytes(-(-half // MIB) * MIB) if name == "memory" else Cores(-(-half // 1))


def _back(facts: Facts) -> Change | None:
    due = [n for n, since in facts.cuts.items() if facts.now - since >= facts.pace.restore]
    waits = {w.name for w in facts.waiting}
    nodes = {n: r for n in due if n not in waits and (r := _missing(facts, n)) and _fits(facts, n, r)}
    if not nodes:
        return None
    return Change(nodes=nodes, reason=f"there is room for what {', '.join(nodes)} gave up")


def _missing(facts: Facts, node: str) -> Resources:
    role = facts.role_of(node)
    if role is None:
        return Resources({})
    now, wanted = facts.resource_of(role, node), facts.resource(role)
    return Resources({n: a for n, a in wanted.items() if n in FLOOR and n in now and a.value > now[n].value})


def _fits(facts: Facts, node: str, wanted: Resources) -> bool:
    machine, role = facts.machine or Resources({}), facts.role_of(node)
    now = facts.resource_of(role, node) if role else Resources({})
    return all(n in machine and machine[n].value >= a.value - now[n].value for n, a in wanted.items())
