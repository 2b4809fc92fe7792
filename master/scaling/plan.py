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

    An empty plan changes nothing, and its reason says why.
    """

    groups: Mapping[str, Group] = field(default_factory=dict)
    nodes: Mapping[str, Resources] = field(default_factory=dict)
    reason: str = ""

    def __bool__(self) -> bool:
        """Whether the plan asks for anything."""
        return bool(self.groups or self.nodes)


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
