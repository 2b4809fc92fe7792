"""From an event to a decision: algorithms are asked in order, and each role has one author. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from elasticjob.api.resources import Resources
from elasticjob.brain.algorithms import ALGORITHMS
from elasticjob.brain.algorithms.algorithm import Algorithm, Group
from elasticjob.brain.algorithms.bounds import fitted
from elasticjob.brain.history import Event, History, Limits


@dataclass(frozen=True)
class Decision:
    """What a job should have, who decided it, and from what. If nothing changes, `reason` says why."""

    event: Event
    algorithm: str = ""
    reason: str = ""
    groups: Mapping[str, Group] = field(default_factory=dict)
    nodes: Mapping[str, Resources] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return bool(self.groups or self.nodes)


def decide(
    event: Event,
    history: History,
    limits: Limits,
    now: datetime,
    algorithms: Sequence[Algorithm] = ALGORITHMS,
) -> Decision:
    """Return what the first proposals that fit say, each of the roles that no earlier one has decided."""
    groups: dict[str, Group] = {}
    nodes: dict[str, Resources] = {}
    authors, told, none = list[str](), list[str](), list[str]()
    decided = set[str]()
    for each in algorithms:
        if each.role in decided or not _is_asked(each, event, history, limits):
            continue
        if (proposal := each.propose(history, limits, now)) is None:
            none.append(each.name)
            continue
        found = fitted(proposal, each.role, history, limits)
        why = "; ".join((proposal.reason, *found.cuts))
        decided.add(each.role)
        if not found:
            none.append(f"{each.name} ({why})")
            continue
        groups |= found.groups
        nodes |= found.nodes
        authors.append(each.name)
        told.append(why)
    reason = "; ".join(told) or f"nothing to change: asked {', '.join(none) or 'no algorithm'}"
    inputs = {**_inputs(history), "without a proposal": none}
    return Decision(event, " ".join(authors), reason, groups, nodes, inputs)


def _is_asked(each: Algorithm, event: Event, history: History, limits: Limits) -> bool:
    roles = limits.roles
    there = each.role in roles and (not each.beside or each.beside in roles)
    return there and event in each.events and history.stage in each.stages


def _inputs(history: History) -> dict[str, Any]:
    """The numbers that a person needs to follow the decision."""
    last = history.samples[-1] if history.samples else None
    return {
        "samples": len(history.samples),
        "jobs like it": [past.name for past in history.past],
        "killed": [[node.name, node.bytes] for node in history.killed],
        "counts": dict(history.counts),
        "resources": {role: given.manifest() for role, given in history.resources.items()},
        "workers": last.workers if last else None,
        "steps": last.steps if last else None,
        "uses": [[use.name, round(use.cpu, 3), use.memory] for use in last.nodes[:64]] if last else [],
        "settled": history.settled,
    }
