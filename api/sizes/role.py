"""The sizes that a role may have, or a world. All programs, and admission, count with these."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

import msgspec

from elasticjob.api.numbers import Count
from elasticjob.api.resources import Resources

Name = Annotated[str, msgspec.Meta(max_length=253)]
RoleName = Annotated[str, msgspec.Meta(max_length=63)]
Quantities = Annotated[dict[Name, Annotated[str, msgspec.Meta(max_length=64)]], msgspec.Meta(max_length=64)]
"""Amounts as in manifests. Lengths are bounded: Brain reads the requests of all jobs in one thread."""
MOST: Final = 100_000
"""Nodes of a role, in any program."""


class Fact(msgspec.Struct, frozen=True, omit_defaults=True):
    """A frozen value, the same on the wire as in the programs. Unknown fields are ignored."""

    def but(self, **changes: Any) -> Self:
        """Return a copy with `changes`."""
        return msgspec.structs.replace(self, **changes)


class Range(Fact, frozen=True, kw_only=True):
    """The numbers of nodes from `least` to `most` that, with `beside` other nodes, are multiples of `unit`.

    `most` is None where nothing but resourceLimits bounds the number. 0 is allowed where `least` is 0.
    """

    least: Count = 1
    most: Count | None = None
    unit: Annotated[int, msgspec.Meta(ge=1, le=MOST)] = 1
    beside: Count = 0

    @property
    def smallest(self) -> int:
        """The smallest allowed number above 0."""
        return self.up(max(self.least, 1))

    @property
    def lowest(self) -> int:
        """The smallest allowed number; 0 where that is allowed."""
        return self.smallest if self.least else 0

    @property
    def largest(self) -> int | None:
        """The largest allowed number; None without a bound."""
        return None if self.most is None else max(self.down(self.most), self.lowest)

    def up(self, count: int) -> int:
        """Return the next number from `count` up that fits the unit."""
        return count + -(count + self.beside) % self.unit

    def down(self, count: int) -> int:
        """Return the next number from `count` down that fits the unit; 0 where none does."""
        return max(0, count - (count + self.beside) % self.unit)

    def clamp(self, count: int) -> int:
        """Return the allowed number for a request of `count`: the next lower one, else the smallest."""
        found = self.down(count if self.most is None else min(count, self.most))
        if found >= self.smallest:
            return found
        none = not self.least and (count <= 0 or (self.most is not None and self.smallest > self.most))
        return 0 if none else self.smallest

    def allows(self, count: int) -> bool:
        """Whether a request of `count` is within the bounds and holds an allowed number."""
        return self.clamp(count) <= count and (self.most is None or count <= self.most)

    def problem(self, nodes: str) -> str:
        """Return why no number of `nodes` is allowed, "" if one is."""
        if self.most is None or self.smallest <= self.most or not self.most:
            return ""
        if self.unit == 1:
            return f"the minimum of {self.least} {nodes} is more than the maximum, {self.most}"
        beside = f", with {self.beside} beside them," if self.beside else ""
        return f"no multiple of nodeUnit {self.unit} lies from {self.least} to {self.most} {nodes}{beside}"

    def __str__(self) -> str:
        """The bounds, as in a sentence."""
        bounds = (
            f"{self.least} or more"
            if self.most is None
            else f"{self.least} to {self.most}"
            if self.least < self.most
            else f"exactly {self.most}"
        )
        return f"{bounds}{f' by {self.unit}' if self.unit > 1 else ''}"


class Role(Range, frozen=True, kw_only=True):
    """The user's settings of a role; without `count` the optimizer decides the number of nodes.

    `resource` is what the main container of the template asks for, `around` what the rest of the pod does.
    """

    count: Count | None = None
    auto: bool = True
    resource: Quantities = msgspec.field(default_factory=dict)
    around: Quantities = msgspec.field(default_factory=dict)

    @property
    def elastic(self) -> bool:
        """Whether the optimizer may choose the number of nodes: a number that the user set stays."""
        return self.auto and self.count is None

    @property
    def template_resources(self) -> Resources:
        """The resources that the user's template sets."""
        return Resources.parse(self.resource)
