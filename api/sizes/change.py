"""A change of a job's sizes: the answer of every optimizer, and the contents of a ScalePlan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticjob.api.resources import NOTHING, Resources

LONGEST = 1024
"""Characters of a reason in a ScalePlan."""


@dataclass(frozen=True)
class Group:
    """The nodes of a role: how many, and what each gets. None and absent resources stay as they are."""

    count: int | None = None
    resource: Resources = NOTHING

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return self.count is not None or bool(self.resource)

    def manifest(self) -> dict[str, Any]:
        """Return the group as in a ScalePlan."""
        count = {} if self.count is None else {"replicas": self.count}
        return count | ({"resource": self.resource.manifest()} if self.resource else {})


@dataclass(frozen=True)
class Change:
    """New sizes and resources of roles and of single nodes, with the reason in a sentence.

    Roles, nodes and resources that it does not name stay as they are. An empty change has the reason why.
    `hold` asks not to grow again for a while, since nodes find no machine.
    """

    groups: Mapping[str, Group] = field(default_factory=dict)
    nodes: Mapping[str, Resources] = field(default_factory=dict)
    reason: str = ""
    hold: bool = False
    algorithm: str = ""

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return bool(self.groups or self.nodes)

    def __or__(self, other: Change) -> Change:
        """Return both in one; `other` wins. An empty one gives a reason only if both are empty."""
        groups = dict(self.groups)
        for role, group in other.groups.items():
            before = groups.get(role, Group())
            count = before.count if group.count is None else group.count
            groups[role] = Group(count, before.resource | group.resource)
        nodes = dict(self.nodes)
        for name, resource in other.nodes.items():
            nodes[name] = nodes.get(name, NOTHING) | resource
        told = [each for each in (self, other) if each.reason and (each or not (self or other))]
        reason = "; ".join(each.reason for each in told)
        names = " ".join(each.algorithm for each in (self, other) if each.algorithm)
        return Change(groups, nodes, reason, self.hold or other.hold, names)

    def manifest(self) -> dict[str, Any]:
        """Return the spec of its ScalePlan."""
        by = f"{self.algorithm}: " if self.algorithm else ""
        return {
            "replicaResourceSpecs": {role: group.manifest() for role, group in self.groups.items()},
            "migratePods": [{"name": n, "resource": r.manifest()} for n, r in self.nodes.items()],
            "reason": f"{by}{self.reason}"[:LONGEST],
        }
