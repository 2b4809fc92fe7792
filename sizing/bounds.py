"""Limits a change to the user's settings, the role's range, free capacity and resourceLimits:

1. The user's settings win: roles with autoScale off, numbers without a range, resources of the template.
2. Amounts of 0, and what is as it should be already, are no changes.
3. A number is one that the role may have (api/sizes/role.py), and grows by no more than the free capacity of
   the cluster, where that is known. A node gets no less than LEAST, and no more than a machine has.
4. The whole job stays in resourceLimits: roles that grow do so by less, else nodes keep what they have. Where
   that is not enough the change is empty.

Master and Brain call this; the operator counts with the same ranges and needs (scaleplan/fold.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from elasticjob.api.resources import Amount, Bytes, Cores, Resources
from elasticjob.api.roles import PS, WORKER
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.need import describe
from elasticjob.sizing.facts import Facts
from elasticjob.sizing.measures import MIB

LEAST: Final = Resources({"cpu": Cores.parse("100m"), "memory": Bytes(64 * MIB)})
MOST: Final = Resources({"cpu": Cores(32), "memory": Bytes(64 << 30)})
"""Of a node, where Brain decides: DLRover's least, 4 cores and 6 GiB, would not fit small machines."""
TRUSTED_PS: Final = Resources({"cpu": Cores(2), "memory": Bytes(1024 * MIB)})
"""Resources of a parameter server's template below this are no wish of the user."""
CLIPPED_COUNTS: Final = {WORKER: 60, PS: 15}


def clip(change: Change) -> Change:
    """Return a change of Brain, a remote peer, within sensible numbers; what is 0 stays unset."""
    groups = {r: Group(_clipped_count(r, g.count), _clip(g.resource)) for r, g in change.groups.items()}
    return replace(change, groups=groups, nodes={n: _clip(r) for n, r in change.nodes.items()})


def bound(facts: Facts, change: Change) -> Change:
    """Return what is left of `change`; if nothing is, an empty change whose reason says why."""
    return within(facts, permit(facts, change)) if change else change


def permit(facts: Facts, change: Change) -> Change:
    """Return what of a change the user, the ranges and the cluster allow, rules 1 to 3."""
    cuts: list[str] = []
    groups = {role: group for role, group in _groups(facts, change, cuts) if group}
    nodes = dict(_nodes(facts, change, cuts))
    why = "; ".join(dict.fromkeys(cuts))
    if not groups and not nodes:
        return Change(reason=f"{change.reason}; {why or 'nothing of it may change, or has to'}")
    return replace(change, groups=groups, nodes=nodes, reason=_join(change.reason, why))


def within(facts: Facts, change: Change) -> Change:
    """Return what of an allowed change fits the limits of the whole job, rule 4."""
    if not change:
        return change
    now, limits = facts.need(), facts.limits
    tries = _Part(change.groups, change.nodes), _Part(dict(_counts(change)), {})
    for kept in tries:
        found = facts.need(kept.groups, kept.nodes).within(limits, now, facts.roles)
        if not (over := found.over(limits, now)):
            return _cut(facts, change, kept, {role: nodes.count for role, nodes in found.roles.items()})
    return Change(reason=f"{change.reason}; but the job would need {describe(over)}")


@dataclass(frozen=True)
class _Part:
    """The part of a change that is tried."""

    groups: Mapping[str, Group]
    nodes: Mapping[str, Resources]


def _counts(change: Change) -> Iterator[tuple[str, Group]]:
    """The numbers of nodes alone, without more for each of them."""
    return ((role, Group(group.count)) for role, group in change.groups.items() if group.count is not None)


def _cut(facts: Facts, change: Change, kept: _Part, counts: Mapping[str, int]) -> Change:
    """The change with the sizes that fit, and the sentence about what was cut."""
    groups, cuts = {}, []
    for role, group in change.groups.items():
        tried = kept.groups.get(role, Group())
        count = None if tried.count is None else counts[role]
        if role in facts.placed.sizes and count == facts.count(role):
            count = None
        found = replace(tried, count=count)
        if found != group:
            left = facts.count(role) if count is None else count
            cuts.append(f"resourceLimits leave {left} of {role}{'' if found.resource else ' as they are'}")
        if found:
            groups[role] = found
    reason = _join(change.reason, "; ".join(cuts))
    if not groups and not kept.nodes:
        return Change(reason=reason)
    return replace(change, groups=groups, nodes=kept.nodes, reason=reason)


def _groups(facts: Facts, change: Change, cuts: list[str]) -> Iterator[tuple[str, Group]]:
    for role, group in change.groups.items():
        settings = facts.roles.get(role)
        if settings is None:
            cuts.append(f"there is no role {role}")
        elif not settings.auto:
            cuts.append(f"{role} has autoScale: false")
        else:
            wanted = _of_a_node(facts, role, facts.resource(role), _free(facts, role, group.resource), cuts)
            yield role, Group(_count(facts, role, group.count, cuts), _change(wanted, facts.resource(role)))


def _nodes(facts: Facts, change: Change, cuts: list[str]) -> Iterator[tuple[str, Resources]]:
    for name, resource in change.nodes.items():
        role = facts.role_of(name)
        if role is None or not facts.roles[role].auto:
            continue
        now = facts.resource_of(role, name)
        waits = any(each.name == name for each in facts.waiting) or name in facts.cuts
        wanted = resource if waits else _free(facts, role, resource)
        if changed := _change(_of_a_node(facts, name, now, wanted, cuts), now):
            yield name, changed


def _count(facts: Facts, role: str, count: int | None, cuts: list[str]) -> int | None:
    """A number that the role may have; None for no change."""
    settings, now = facts.roles[role], facts.count(role)
    undecided = role not in facts.placed.sizes and settings.count is None
    if count is None or not settings.elastic:
        return None
    room = (facts.placed.room or {}).get(role)
    fits = count if room is None or undecided else min(count, max(now + room, now))
    found = settings.clamp(max(fits, settings.smallest))
    if settings.most is not None and found > settings.most:
        return None
    if found != count:
        free = f", room for {room} more" if fits != count else ""
        cuts.append(f"{found} of {role} is what bounds and room allow ({settings}{free})")
    return found if undecided or found != now else None


def _free(facts: Facts, role: str, resource: Resources) -> Resources:
    """The resources that are not the user's: a role's that has placed ones of a plan may change again."""
    given = facts.roles[role].template_resources
    if role == PS:
        trusted = {n: a for n, a in given.items() if n not in TRUSTED_PS or a.value >= TRUSTED_PS[n].value}
        given = Resources(trusted)
    return Resources({name: amount for name, amount in resource.items() if name not in given})


def _of_a_node(facts: Facts, who: str, now: Resources, wanted: Resources, cuts: list[str]) -> Resources:
    """The allowed amounts of a node: useful ones, up to its present ones and what a machine has left."""
    found: dict[str, Amount] = {}
    for name, amount in wanted.items():
        chosen = max(amount, LEAST[name]) if name in LEAST and amount else amount
        if facts.machine is not None and facts.machine.get(name):
            most = facts.machine[name] + now.get(name, type(amount)(0))
            if chosen > most:
                chosen = most
                cuts.append(f"{who}: no machine has more than {most} of {name}")
        found[name] = chosen
    return Resources(found)


def _change(wanted: Resources, now: Resources) -> Resources:
    return Resources({n: a for n, a in wanted.items() if a.value > 0 and (n not in now or now[n] != a)})


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _clip(resource: Resources) -> Resources:
    found = {
        n: min(max(a, LEAST[n]), MOST[n]) if n in LEAST else a for n, a in resource.items() if a.value > 0
    }
    return Resources(found)


def _clipped_count(role: str, count: int | None) -> int | None:
    return min(count, CLIPPED_COUNTS.get(role, count)) if count else None
