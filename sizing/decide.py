"""From facts to a change: algorithms are asked in order, and each number has one author. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from elasticjob.api.resources import Resources
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.facts import Mode, Stage
from elasticjob.sizing.algorithm import Algorithm, Decider
from elasticjob.sizing.bounds import permit, within
from elasticjob.sizing.facts import Event, Facts


@dataclass(frozen=True)
class Decision:
    """The change, and the algorithms that were asked without effect, some with the reason."""

    change: Change
    without: tuple[str, ...] = ()


def decide(facts: Facts, event: Event, by: Decider, algorithms: Sequence[Algorithm]) -> Decision:
    """Return what the first proposals that fit say; an empty change has the reason why nothing changes."""
    if facts.job.mode is Mode.MANUAL and facts.stage is not Stage.CREATE:
        return Decision(Change(reason="optimizeMode is manual"))
    found, claimed = Change(), Change()
    none, reasons = list[str](), list[str]()
    for each in algorithms:
        if not each.is_asked(event, facts, by):
            continue
        proposal = each.propose(facts)
        if not proposal:
            none.append(each.name)
            reasons += [proposal.reason] if proposal is not None and proposal.reason else []
            continue
        own = _rest(proposal, claimed)
        claimed |= proposal
        fits = permit(facts, own) if own else Change(reason=proposal.reason)
        if not fits:
            none.append(f"{each.name} ({fits.reason})")
            reasons.append(fits.reason)
            continue
        found |= replace(fits, algorithm=each.name)
        if each.alone:
            break
    change = within(facts, found)
    if not change and not change.reason:
        change = Change(reason="; ".join(dict.fromkeys(reasons)) or "nothing has to change")
    return Decision(change, tuple(none))


def _rest(proposal: Change, claimed: Change) -> Change:
    """The part of a proposal that no earlier one has named."""
    groups = {}
    for role, group in proposal.groups.items():
        before = claimed.groups.get(role, Group())
        count = group.count if before.count is None else None
        if left := Group(count, _without(group.resource, before.resource)):
            groups[role] = left
    nodes = {n: _without(r, claimed.nodes.get(n, Resources({}))) for n, r in proposal.nodes.items()}
    return replace(proposal, groups=groups, nodes={n: r for n, r in nodes.items() if r})


def _without(resource: Resources, claimed: Resources) -> Resources:
    return Resources({name: amount for name, amount in resource.items() if name not in claimed})
