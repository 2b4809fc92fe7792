"""What an optimizer answers: sizes and resources of roles and of single nodes. Units are in the types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob.api.resources import NOTHING, Resources


@dataclass(frozen=True)
class Group:
    """The nodes of a role: how many, and what each gets. None and absent resources stay as they are."""

    count: int | None = None
    resource: Resources = NOTHING


@dataclass(frozen=True)
class ResourcePlan:
    """What the job should have. What it does not name stays as it is; `reason` is a sentence for people.

    An empty plan changes nothing, and its reason says why. `hold` asks not to grow again for a while, since
    nodes find no machine.
    """

    groups: Mapping[str, Group] = field(default_factory=dict)
    nodes: Mapping[str, Resources] = field(default_factory=dict)
    reason: str = ""
    hold: bool = False

    def __bool__(self) -> bool:
        """Whether the plan asks for anything."""
        return bool(self.groups or self.nodes)

    def __or__(self, other: ResourcePlan) -> ResourcePlan:
        """Return both in one plan; `other` wins. An empty plan gives a reason only if both are empty."""
        groups = dict(self.groups)
        for role, group in other.groups.items():
            before = groups.get(role, Group())
            count = before.count if group.count is None else group.count
            groups[role] = Group(count, before.resource | group.resource)
        nodes = dict(self.nodes)
        for name, resource in other.nodes.items():
            nodes[name] = nodes.get(name, NOTHING) | resource
        told = [plan for plan in (self, other) if plan.reason and (plan or not (self or other))]
        reason = "; ".join(plan.reason for plan in told)
        return ResourcePlan(groups, nodes, reason, self.hold or other.hold)


@dataclass(frozen=True)
class NewNode:
    """A node to make: its name, its place, and what it gets beside its role's template."""

    name: str
    role: str
    index: int
    resource: Resources = NOTHING


@dataclass(frozen=True)
class Change:
    """What a scaler carries out: sizes of roles, and nodes that come, go or move by name.

    `key` is the same for the same change, also after a crash between deciding and acting: a scaler that sees
    it again does nothing.
    """

    key: str
    reason: str
    groups: Mapping[str, Group] = field(default_factory=dict)
    create: tuple[NewNode, ...] = ()
    remove: tuple[str, ...] = ()
    migrate: Mapping[str, Resources] = field(default_factory=dict)
    ps_hosts: tuple[str, ...] = ()
