"""The resources that a job needs, and the largest sizes with which it stays within its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from elasticjob.api.resources import NOTHING, Excess, Resources
from elasticjob.api.sizes.role import Range


@dataclass(frozen=True)
class Nodes:
    """The nodes of a role: how many, what each needs, and what single nodes among them need instead."""

    count: int = 0
    each: Resources = NOTHING
    singles: tuple[Resources, ...] = ()

    @cached_property
    def total(self) -> Resources:
        """The sum of all nodes."""
        singles = self.singles[: self.count]
        return sum(singles, self.each * (self.count - len(singles)))


@dataclass(frozen=True)
class Need:
    """All nodes of a job, by role."""

    roles: Mapping[str, Nodes] = field(default_factory=dict)

    @cached_property
    def total(self) -> Resources:
        """The sum of all roles."""
        return sum((nodes.total for nodes in self.roles.values()), NOTHING)

    def over(self, limits: Resources, now: Need | None = None) -> tuple[Excess, ...]:
        """Return the excess over `limits`. A job that is beyond them `now` may need as much as now."""
        before = now.total if now else NOTHING
        excess = self.total.over(limits)
        return tuple(e for e in excess if e.name not in before or e.wanted.value > before[e.name].value)

    def within(self, limits: Resources, now: Need, ranges: Mapping[str, Range]) -> Need:
        """Return this need with smaller sizes, where roles grow, until it is not over `limits`.

        A role stays at the size that it has now, and at its minimum. Still `over` if that is not enough.
        """
        found = self
        for role, nodes in self.roles.items():
            if not found.over(limits, now):
                return found
            before = now.roles.get(role, Nodes()).count
            least = max(ranges[role].lowest, ranges[role].down(min(before, nodes.count)))
            found = found._lower(role, least, limits, now, ranges)
        return found

    def _lower(
        self, role: str, least: int, limits: Resources, now: Need, ranges: Mapping[str, Range]
    ) -> Need:
        """The need with the largest size of a role, from `least` to the present one, that fits."""
        count, range_ = self.roles[role].count, ranges[role]
        fits, fails = least, count
        while fits < fails:
            middle = range_.down((fits + fails) // 2)
            if middle <= fits:
                middle = range_.up(fits + 1)
                if middle >= fails:
                    break
            if self._resize(role, middle).over(limits, now):
                fails = middle
            else:
                fits = middle
        return self._resize(role, fits) if fits < count else self

    def _resize(self, role: str, count: int) -> Need:
        return Need({**self.roles, role: replace(self.roles[role], count=count)})


def describe(over: tuple[Excess, ...]) -> str:
    """Return in words what is over limits."""
    return ", ".join(f"{excess.wanted} {excess.name} of {excess.limit}" for excess in over)
