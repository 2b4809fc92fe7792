"""Workers, chief and evaluator: which nodes come, go, move and are replaced. Pure.

    up        new ids, and the lowest ranks that are free
    down      the highest ranks go first, critical ones never
    migrate   a new id with the old rank and the planned resources; critical and unknown names are skipped
    relaunch  a new id with the old rank, as CONSEQUENCES (sizing/exits.py) says by how the node ended
    end       a role is over when none of its nodes runs, and none of high priority waits

The ScalePlan scaler leaves all this to the operator, and so does the Pods scaler; processes of one machine
follow these rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from elasticjob.api.roles import CHIEF, EVALUATOR, PS, WORKER
from elasticjob.api.v1alpha1.elasticjob import RestartPolicy
from elasticjob.master.state.node import Phase
from elasticjob.master.state.value import Value
from elasticjob.sizing.exits import CONSEQUENCES, ExitReason

ALIVE: Final = (Phase.INITIAL, Phase.PENDING, Phase.RUNNING)
MOST_RELAUNCHES: Final = 5
"""The largest budget of one node."""


class Member(Value, frozen=True):
    """A node: `id` is new with each life, `rank` is its place in the role.

    `relaunches` are those that used the budget; a `released` node is to go, and none takes its place.
    `avoid` are machines on which an earlier life of the place met broken hardware.
    """

    role: str
    id: int
    rank: int
    phase: Phase = Phase.INITIAL
    relaunches: int = 0
    released: bool = False
    replaced: bool = False
    resource: dict[str, str] = msgspec.field(default_factory=dict)
    avoid: tuple[str, ...] = ()

    @property
    def holds_place(self) -> bool:
        """Whether it holds a place: it runs, or will, or has ended without a successor."""
        return not self.released and not self.replaced

    @property
    def alive(self) -> bool:
        """Whether it runs or will."""
        return self.holds_place and self.phase in ALIVE


Members = tuple[Member, ...]


def scale(members: Members, role: str, count: int, critical: Critical | None = None) -> Members:
    """Return the nodes after a role got another size: up or down. Places that have ended count."""
    places = sum(member.role == role and member.holds_place for member in members)
    if count >= places:
        return up(members, role, count - places)
    return down(members, role, places - count, critical or Critical())


def up(members: Members, role: str, more: int, resource: Mapping[str, str] | None = None) -> Members:
    """Return the nodes with `more` of a role: new ids, the lowest ranks that no node holds."""
    held = {member.rank for member in members if member.role == role and member.holds_place}
    free = (rank for rank in range(len(held) + more) if rank not in held)
    return (*members, *_born(members, role, [next(free) for _ in range(more)], resource or {}))


def down(members: Members, role: str, fewer: int, critical: Critical) -> Members:
    """Return the nodes with `fewer` of a role released: the highest ranks, never critical ones."""
    going = [member for member in _alive(members, role) if not critical.holds(member)][::-1][:fewer]
    return _change(members, (member.but(released=True) for member in going))


def migrate(
    members: Members, role: str, rank: int, resource: Mapping[str, str], critical: Critical
) -> Members:
    """Return the nodes with a place moved: the old life is released, a new one has the planned resources.

    Critical and unknown nodes stay as they are.
    """
    old = next((m for m in _alive(members, role) if m.rank == rank and not critical.holds(m)), None)
    if old is None:
        return members
    (new,) = _born(members, role, [rank], old.resource | dict(resource))
    new = new.but(relaunches=old.relaunches, avoid=old.avoid)
    return (*_change(members, [old.but(released=True, replaced=True)]), new)


@dataclass(frozen=True)
class Verdict:
    """The nodes after one of them ended, and in a sentence what follows; `fatal` fails the job."""

    members: Members
    sentence: str
    fatal: bool = False


def relaunch(
    members: Members,
    ended: Member,
    reason: ExitReason,
    *,
    budget: int = 3,
    critical: Critical | None = None,
    always: bool = False,
    machine: str = "",
) -> Verdict:
    """Return the nodes after `ended` has ended. `always`: after fatal errors, too (relaunch_always)."""
    consequence, held = CONSEQUENCES[reason], critical or Critical()
    policy = RestartPolicy.ON_FAILURE if always else RestartPolicy.EXIT_CODE
    phase = Phase.SUCCEEDED if reason is ExitReason.SUCCEEDED else Phase.FAILED
    after = ended.but(phase=phase)
    members = _change(members, [after])
    name = f"{ended.role} {ended.rank}"
    if ended.replaced or ended.released:
        return Verdict(members, f"{name} has left")
    if reason is ExitReason.SUCCEEDED:
        return Verdict(members, f"{name} has succeeded")
    fatal = held.holds(ended)
    if policy not in consequence.relaunch_under:
        return Verdict(members, f"{name}: {reason}: it would fail again", fatal)
    most = min(held.budget(ended, budget), MOST_RELAUNCHES)
    spent = ended.relaunches + consequence.counts
    if spent > most:
        return Verdict(members, f"{name}: {reason}, and its {most} relaunches are spent", fatal)
    (new,) = _born(members, ended.role, [ended.rank], ended.resource)
    away = (machine,) if consequence.elsewhere and machine and machine not in ended.avoid else ()
    new = new.but(relaunches=spent, avoid=(*ended.avoid, *away))
    members = (*_change(members, [after.but(replaced=True)]), new)
    counted = f"; relaunch {spent} of {most}" if consequence.counts else ""
    return Verdict(members, f"{name}: {reason}{counted}")


@dataclass(frozen=True)
class Critical:
    """Which nodes the job cannot do without: a setting "id:relaunches,…" | all | none for workers.

    All parameter servers, chief and evaluator are, and worker 0 beside parameter servers.
    """

    setting: str = ""
    servers: bool = False  # the job trains with parameter servers

    def __post_init__(self) -> None:
        _ = self._budgets  # a setting that cannot be read is an error at once

    def holds(self, member: Member) -> bool:
        """Whether a node is critical."""
        if member.role in (PS, CHIEF, EVALUATOR):
            return True
        if member.role != WORKER or self.setting == "none":
            return False
        if self.setting == "all":
            return True
        return member.rank in self._budgets if self.setting else self.servers and member.rank == 0

    def budget(self, member: Member, usual: int) -> int:
        """Return how often a node may be relaunched."""
        return self._budgets.get(member.rank, usual) if member.role == WORKER else usual

    @property
    def _budgets(self) -> Mapping[int, int]:
        if self.setting in ("", "all", "none"):
            return {}
        return dict(_budget(part) for part in self.setting.split(","))


def _budget(part: str) -> tuple[int, int]:
    rank, _, relaunches = part.strip().partition(":")
    if not (rank.isdecimal() and relaunches.isdecimal()):
        raise ValueError(f"{part!r} names no critical worker: write id:relaunches,…, all or none")
    return int(rank), int(relaunches)


def _alive(members: Members, role: str) -> list[Member]:
    found = [member for member in members if member.role == role and member.alive]
    return sorted(found, key=lambda member: member.rank)


def _born(members: Members, role: str, ranks: Iterable[int], resource: Mapping[str, str]) -> Iterator[Member]:
    first = 1 + max((member.id for member in members if member.role == role), default=-1)
    for number, rank in enumerate(ranks):
        yield Member(role=role, id=first + number, rank=rank, resource=dict(resource))


def _change(members: Members, changes: Iterable[Member]) -> Members:
    new = {(member.role, member.id): member for member in changes}
    return tuple(new.get((member.role, member.id), member) for member in members)
