"""Makes a proposal fit: what the user set wins, then the bounds of role, job, node and cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from elasticjob.api.resources import NOTHING, Amount, Bytes, Cores, Resources
from elasticjob.brain.algorithms.algorithm import Group, Proposal
from elasticjob.brain.history import History, Limits, Role

LEAST: Final = Resources({"cpu": Cores.parse("100m"), "memory": Bytes(64 << 20)})
MOST: Final = Resources({"cpu": Cores(32), "memory": Bytes(64 << 30)})
"""Of a node, where no larger one is known."""


@dataclass(frozen=True)
class Fitting:
    """What of a proposal fits, and what was cut, in words."""

    groups: Mapping[str, Group] = field(default_factory=dict)
    nodes: Mapping[str, Resources] = field(default_factory=dict)
    cuts: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.groups or self.nodes)


def fitted(proposal: Proposal, role_of_nodes: str, history: History, limits: Limits) -> Fitting:
    """Return what of a proposal may be done and changes something; nothing of a role that the user keeps.

    Single nodes in it are of one role.
    """
    cuts: list[str] = []
    groups: dict[str, Group] = {}
    for name, group in proposal.groups.items():
        role = limits.roles.get(name)
        if role is not None and role.auto:
            groups[name] = _group(name, group, role, history, limits, cuts)
    groups = {name: group for name, group in groups.items() if group != Group()}
    groups = _within_total(groups, history, limits, cuts)
    nodes = {}
    free = limits.roles[role_of_nodes].auto
    for name, wanted in proposal.nodes.items() if free else ():
        given = history.nodes.get(name, NOTHING)
        found = _changed(_of_a_node(name, wanted, limits, cuts), given)
        if found and _fits(found, given, history, limits):
            nodes[name] = found
    return Fitting(groups, nodes, tuple(cuts))


def _group(name: str, group: Group, role: Role, history: History, limits: Limits, cuts: list[str]) -> Group:
    now, given = history.counts.get(name), history.resources.get(name, NOTHING)
    free = Resources({key: amount for key, amount in group.resource.items() if key not in role.resource})
    resource = _changed(_of_a_node(name, free, limits, cuts), given)
    if group.count is None or role.count is not None:
        return Group(None, resource)
    room = (limits.room or {}).get(name)
    count = max(group.count, role.least)
    if role.most is not None and count > role.most:
        count = role.most
        cuts.append(f"at most {role.most} of {name}")
    if room is not None and now is not None and count > now + room:
        count = now + room
        cuts.append(f"room for {room} more of {name}")
    count = max(count // role.unit * role.unit, _least(role))
    return Group(None if count == now else count, resource)


def _least(role: Role) -> int:
    """The smallest number of nodes: of whole units."""
    return max(1, -(-role.least // role.unit) * role.unit)


def _of_a_node(name: str, wanted: Resources, limits: Limits, cuts: list[str]) -> Resources:
    """What a node may have: no less than a useful one, no more than the largest machine."""
    most = limits.machine if limits.machine is not None else MOST
    found: dict[str, Amount] = {}
    for key, amount in wanted.items():
        if key not in LEAST:
            continue
        chosen = max(amount, LEAST[key])
        if key in most and most[key].value > 0 and chosen > most[key]:
            chosen = most[key]
            cuts.append(f"{name}: no machine has more than {chosen} of {key}")
        found[key] = chosen
    return Resources(found)


def _changed(wanted: Resources, given: Resources) -> Resources:
    return Resources({key: amount for key, amount in wanted.items() if given.get(key) != amount})


def _within_total(
    groups: Mapping[str, Group], history: History, limits: Limits, cuts: list[str]
) -> dict[str, Group]:
    """What fits into the job's limits: fewer nodes, else the nodes with what they have, else nothing."""
    found: dict[str, Group] = {}
    for name, group in groups.items():
        fitting = (
            each
            for each in _smaller(group, limits.roles[name], history.counts.get(name))
            if not _total({**groups, **found, name: each}, history).over(limits.total)
        )
        chosen = next(fitting, Group())
        if chosen != group:
            cuts.append(f"the limits of the job leave {_said(chosen)} of {name}")
        if chosen != Group():
            found[name] = chosen
    return found


def _smaller(group: Group, role: Role, now: int | None) -> Iterator[Group]:
    """The proposal and what is less, the best first; never fewer nodes than now, unless it says so."""
    floor = _least(role) if group.count is None else min(group.count, max(_least(role), now or 1))
    counts = [None] if group.count is None else range(group.count, floor - 1, -role.unit)
    for resource in (group.resource, NOTHING):
        for count in counts:
            yield Group(None if count == now else count, resource)


def _said(group: Group) -> str:
    return "the number" if group.count is None else str(group.count)


def _total(groups: Mapping[str, Group], history: History) -> Resources:
    """What the job would ask for; a role of which no number is known counts once."""
    total = NOTHING
    for name in {*history.counts, *groups}:
        group = groups.get(name, Group())
        count = group.count if group.count is not None else history.counts.get(name, 1)
        total = total + (history.resources.get(name, NOTHING) | group.resource) * count
    return total


def _fits(wanted: Resources, given: Resources, history: History, limits: Limits) -> bool:
    """Whether one node may have this beside what all others have."""
    more = {key: amount for key, amount in wanted.items() if key in limits.total}
    now = _total({}, history)
    return all(
        now.get(key, type(amount)(0)).value + amount.value - given.get(key, type(amount)(0)).value
        <= limits.total[key].value
        for key, amount in more.items()
    )
