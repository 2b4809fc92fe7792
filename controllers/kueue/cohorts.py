"""The tree of cohorts and their queues: how much of a flavour of a resource each may use. Pure.

As Kueue counts it (pkg/cache/scheduler/resource_node.go), for a queue or a cohort:

    quota      = its own nominal quota + what those below it lend
    guaranteed = quota - lendingLimit, without one 0: never lent
    usage      = what it uses; of a cohort, what those below use beyond their guaranteed parts
    available  = at the root: quota - usage
                 below: what is left of the guaranteed part + what its parent has,
                 which is at most quota - guaranteed + borrowingLimit - usage beyond the guaranteed part
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import inf
from typing import Final

Number = Fraction | int | float
Cell = tuple[str, str]
"""A flavour and a resource."""
Amounts = Mapping[Cell, Number]


@dataclass(frozen=True)
class Limits:
    """The quota of a flavour of a resource."""

    nominal: Number = 0
    borrowing: Number = inf
    lending: Number = inf


NOTHING: Final = Limits()


@dataclass(frozen=True)
class Member:
    """A queue or a cohort: the cohort above it, "" for none, and its own quota."""

    name: str
    cohort: str = ""
    limits: Mapping[Cell, Limits] = field(default_factory=dict)


@dataclass(frozen=True)
class Tree:
    """All queues and cohorts, by name. A cohort that is only named has no quota of its own, and no parent."""

    queues: Mapping[str, Member] = field(default_factory=dict)
    cohorts: Mapping[str, Member] = field(default_factory=dict)

    def root(self, member: Member) -> str | None:
        """Return the topmost cohort above a member, "" without one; None where cohorts go in circles."""
        passed: list[str] = []
        while member.cohort:
            if member.cohort in passed:
                return None
            passed.append(member.cohort)
            member = self._cohort(member.cohort)
        return passed[-1] if passed else ""

    def available(self, member: Member, cell: Cell, used: Mapping[str, Amounts]) -> Number:
        """Return how much more a queue or cohort can get; `used` is what each queue uses.

        It has a root: cohorts that go in circles admit nothing.
        """
        quota, usage = self._quota(member, cell), self._usage(member, cell, used)
        if not member.cohort:
            return quota - usage
        guaranteed, limits = self._guarantee(member, cell), member.limits.get(cell, NOTHING)
        most = quota - guaranteed + limits.borrowing - max(0, usage - guaranteed)
        above = self.available(self._cohort(member.cohort), cell, used)
        return max(0, guaranteed - usage) + min(above, most)

    def _quota(self, member: Member, cell: Cell) -> Number:
        lent = (self._quota(each, cell) - self._guarantee(each, cell) for each in self._below(member))
        return member.limits.get(cell, NOTHING).nominal + sum(lent)

    def _guarantee(self, member: Member, cell: Cell) -> Number:
        lending = member.limits.get(cell, NOTHING).lending
        return 0 if lending == inf else max(0, self._quota(member, cell) - lending)

    def _usage(self, member: Member, cell: Cell, used: Mapping[str, Amounts]) -> Number:
        if self.queues.get(member.name) is member:
            return used.get(member.name, {}).get(cell, 0)
        uses = ((self._usage(each, cell, used), self._guarantee(each, cell)) for each in self._below(member))
        return sum(max(0, usage - guaranteed) for usage, guaranteed in uses)

    def _cohort(self, name: str) -> Member:
        return self.cohorts.get(name) or Member(name)

    def _below(self, member: Member) -> Iterator[Member]:
        if self.queues.get(member.name) is not member:
            yield from self._members.get(member.name, ())

    @cached_property
    def _members(self) -> Mapping[str, tuple[Member, ...]]:
        found: dict[str, list[Member]] = {}
        for each in (*self.queues.values(), *self.cohorts.values()):
            if each.cohort:
                found.setdefault(each.cohort, []).append(each)
        return {name: tuple(members) for name, members in found.items()}
