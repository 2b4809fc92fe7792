"""The rules of a Lease (client-go's) as a pure state machine; election.py performs its steps.

Rules
- A record is judged by what *I* saw: it expires when it has not changed for its duration by *my* monotonic
  clock. The times that stand in it are for people and are never compared with anything.
- I lead from the *start* of the write that won to a renew deadline after the *start* of my last write that
  was answered. A write without an answer counts for other candidates, which wait longer, not for me.
- Others begin to wait no sooner than that write began, and wait longer than a renew deadline: never two lead.
- Each write is for one version of the Lease: the second writer gets a conflict and reads again.
- A record without a holder was released: it is free at once. So is one that carries my own name.
- Whose duration? The record's own. Its holder promised to end before *that* is over: a challenger with a
  shorter duration of its own (a rolling upgrade) must not cut it short, one with a longer need not wait.
- A Lease that was deleted is not free while the record that I saw last is still good: its holder, who does
  not know yet, still leads. (A process that never saw it takes it at once: delete it only without a leader.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from math import ceil, inf, isfinite
from typing import Final

from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Lease, LeaseSpec

JITTER: Final = 1.2
"""A standby retries after its retry period plus up to JITTER times that, at random."""
RELEASED_FOR: Final = 1
"""The duration in a released record, in seconds: the least that the API allows."""

TICK: Final = timedelta(microseconds=1)
"""The least increment of renewTime: a record equal to an earlier one would not be seen as a change,
and others would take the lease of a leader whose clock on the wall stands still or steps back."""


@dataclass(frozen=True)
class Terms:
    """How long a record is good, how long its holder tries to renew it, and how often one tries.

    Raises ValueError unless lease > renew > 1.2 × retry > 0. What is between lease and renew is the margin in
    which writes that a leader has sent may still arrive.
    """

    lease: timedelta = timedelta(seconds=15)
    renew: timedelta = timedelta(seconds=10)
    retry: timedelta = timedelta(seconds=2)

    def __post_init__(self) -> None:
        if not self.lease > self.renew > JITTER * self.retry > timedelta():
            named = " > ".join(f"{_seconds(length)}" for length in (self.lease, self.renew, self.retry))
            raise ValueError(f"{named}: write lease > renew > {JITTER} × retry > 0, such as 15, 10 and 2 s")

    @property
    def written(self) -> int:
        """The duration as it stands in the record: whole seconds, never less than what is meant."""
        return ceil(self.lease.total_seconds())

    @property
    def margin(self) -> timedelta:
        """The time between the end of a leader's writes and the first of its successor's."""
        return self.lease - self.renew


@dataclass(frozen=True)
class Look:
    """Read the Lease; then `looked`, or `failed`."""


@dataclass(frozen=True)
class Write:
    """Write this spec if the Lease still has this version ("": create it); then `wrote` or `failed`."""

    spec: Manifest
    version: str


@dataclass(frozen=True)
class Wait:
    """Do nothing for some seconds, then ask again."""

    seconds: float


@dataclass(frozen=True)
class Lost:
    """I led, and may not any more: nothing comes after this."""

    why: str


Step = Look | Write | Wait | Lost


class Basis(Enum):
    """The record on which the next write is based."""

    NOTHING = auto()
    MY_WRITE = auto()
    MY_LOOK = auto()


@dataclass(frozen=True)
class Candidate:
    """A candidate: its observations, and their times by its own clock. `me` is unique to one process."""

    me: str
    terms: Terms = Terms()
    record: LeaseSpec | None = None
    """As I saw it last, None if I never did."""
    version: str = ""
    """Of the Lease, "" where there is none."""
    changed: float = -inf
    """When I saw the record change last."""
    confirmed: float | None = None
    """When my last answered write began; None: I do not lead."""
    basis: Basis = Basis.NOTHING
    due: float = -inf
    """When to try next."""

    @property
    def leads(self) -> bool:
        """Whether I won; `deadline` says until when that holds."""
        return self.confirmed is not None

    @property
    def deadline(self) -> float:
        """When I stop to lead unless a write that begins before is answered."""
        return -inf if self.confirmed is None else self.confirmed + self.terms.renew.total_seconds()

    @property
    def holder(self) -> str:
        """The leader, as last seen."""
        return self.record.holder_identity if self.record else ""

    @property
    def expires(self) -> float:
        """When the record seen last expires, unless it changes."""
        if self.record is None or self.holder in ("", self.me):
            return -inf
        return self.changed + float(self.record.lease_duration_seconds or self.terms.written)

    def next(self, now: float, wall: datetime) -> Step:
        """The next step; `now` is the monotonic clock, `wall` the time to write for people."""
        if self.leads and self.basis is Basis.MY_LOOK and self.holder != self.me:
            return Lost(
                f"the lease is held by {self.holder!r} now" if self.holder else "the lease was released"
            )
        if self.leads and now >= self.deadline:
            return Lost(f"the lease could not be renewed within {_seconds(self.terms.renew)}")
        if now < self.due:
            return Wait((min(self.due, self.deadline) if self.leads else self.due) - now)
        if self.basis is Basis.NOTHING:
            return Look()
        return Write(self._mine(wall), self.version)

    def after_read(self, lease: Lease | None, now: float, chance: float) -> Candidate:
        """The state after a read; None: there is no Lease. `chance` is in [0, 1)."""
        seen = self._seen(lease, now)
        if seen.leads or now >= seen.expires:
            return replace(seen, basis=Basis.MY_LOOK, due=now)
        pause = self.terms.retry.total_seconds() * (1 + JITTER * chance)
        return replace(seen, basis=Basis.NOTHING, due=min(now + pause, seen.expires))

    def wrote(self, lease: Lease, began: float, now: float) -> Candidate:
        """The state after a write that succeeded: this candidate leads, counted from when the write began.

        Unless the answer came too late to make any use of it, and I did not lead before.
        """
        known = replace(self, record=lease.spec, version=lease.metadata.resource_version, changed=now)
        won = replace(
            known, confirmed=began, basis=Basis.MY_WRITE, due=began + self.terms.retry.total_seconds()
        )
        if self.leads or now < won.deadline:
            return won
        return replace(known, basis=Basis.NOTHING, due=now)

    def after_failure(self, now: float, chance: float, *, conflict: bool = False) -> Candidate:
        """The state after a request that was refused or not answered: nothing to base a write on.

        The pause counts from when the request was due: one that hung for longer is tried again at once. So is
        what was in `conflict` with something that I had not looked at.
        """
        if conflict and self.basis is Basis.MY_WRITE:
            return replace(self, basis=Basis.NOTHING, due=now)
        pause = self.terms.retry.total_seconds() * (1 if self.leads else 1 + JITTER * chance)
        tried = self.due if isfinite(self.due) else now
        return replace(self, basis=Basis.NOTHING, due=max(now, tried + pause))

    def release(self, wall: datetime) -> Write | None:
        """How to give the lease away, so that another may take it at once; None where it is not mine to give.

        Only for a leader that will never write again, nor has a write under way.
        """
        if not self.leads or self.basis is Basis.NOTHING or self.record is None or self.holder != self.me:
            return None
        return Write(_spec("", RELEASED_FOR, wall, wall, self.record.lease_transitions), self.version)

    def _seen(self, lease: Lease | None, now: float) -> Candidate:
        if lease is None:
            return replace(self, version="")
        known = replace(self, version=lease.metadata.resource_version)
        return known if lease.spec == self.record else replace(known, record=lease.spec, changed=now)

    def _mine(self, wall: datetime) -> Manifest:
        old, duration = self.record, self.terms.written
        if old is None:
            return _spec(self.me, duration, wall, wall, 0)
        if old.holder_identity != self.me:
            return _spec(self.me, duration, wall, wall, old.lease_transitions + 1)
        renewed = max(wall, old.renew_time + TICK) if old.renew_time else wall
        return _spec(self.me, duration, old.acquire_time or wall, renewed, old.lease_transitions)


def _spec(holder: str, duration: int, acquired: datetime, renewed: datetime, transitions: int) -> Manifest:
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration,
        "acquireTime": micro_time(acquired),
        "renewTime": micro_time(renewed),
        "leaseTransitions": transitions,
    }


def micro_time(at: datetime) -> str:
    """The form of metav1.MicroTime: UTC, six digits of a second, `Z`."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():g} s"
