"""The life of the authority behind the webhooks' certificates: what replicas decide, purely.

All replicas share one `Authorities` (in a Secret) and one bundle (what the API server trusts, in places).
Each looks now and then, at moments of its own; wall clocks of two are compared with a margin of `skew` only.
1. A new authority is *next* at first: published beside the current one, which goes on signing.
2. Whoever has seen it in every bundle for `settle`, by its own monotonic clock, makes it *current*.
   The one before is *previous* from then on: trusted, but its key is gone.
3. A leaf ends `leaf_lifetime` after the look that found its issuer to be current, so every leaf of a previous
   authority has ended `retention` after step 2. Then it is forgotten.
4. Bundles never go back: one is written only if it is as it was before the Secret was read (trust.py).
5. A Secret that was deleted or spoiled is made anew from what a replica remembers, if that is fresh: what was
   read longer than `memory` ago others may have forgotten, and be about to take out of the bundles. What is
   in the bundles stays trusted for `retention`: somebody may serve a leaf of it. So does what comes into them
   that long: a replica may still be about to publish what the lost Secret said.
So at each moment, each leaf that has not ended verifies under each bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

Certificate = bytes
"""One certificate, PEM, in the one form that certificates.py gives it: equal bytes are equal certificates."""


@dataclass(frozen=True)
class Policy:
    """How long things last. Raises ValueError where an authority could end before its leaves."""

    authority_lifetime: timedelta = timedelta(days=3650)
    leaf_lifetime: timedelta = timedelta(days=7)
    settle: timedelta = timedelta(minutes=2)
    """For how long a bundle is to be seen before it is relied on: API servers take a moment to heed one."""
    skew: timedelta = timedelta(minutes=5)
    """How far any clock may be from the true time."""
    look: timedelta = timedelta(minutes=1)
    """Between two looks where nothing has changed."""
    poll: timedelta = timedelta(seconds=5)
    """Between two readings of certificate files that others write."""
    storing: timedelta = timedelta(minutes=2)
    """The longest from a decision until it is stored: the client's and the API server's patience."""

    def __post_init__(self) -> None:
        needed = 2 * self.settle + self.retention
        if self.authority_lifetime / 3 < needed:
            raise ValueError(
                f"authority_lifetime {self.authority_lifetime} is too short: a third of it must hold "
                f"{needed}, for a rotation and for the leaves of the authority before"
            )

    @property
    def retention(self) -> timedelta:
        """How long a previous authority is trusted: its last leaf's life, a write's, three clocks' skew."""
        return self.leaf_lifetime + 3 * self.skew + self.storing

    @property
    def memory(self) -> timedelta:
        """For how long what a replica read may be written back: none of it was forgotten meanwhile."""
        return self.leaf_lifetime / 2


@dataclass(frozen=True)
class Authority:
    """A certificate authority with its key, PEM."""

    certificate: Certificate
    key: bytes
    begins: datetime
    expires: datetime

    def is_due(self, now: datetime) -> bool:
        """Whether two thirds of its life are over."""
        return now >= self.begins + (self.expires - self.begins) * 2 / 3


@dataclass(frozen=True)
class Leaf:
    """A serving certificate with its chain and key, PEM, and who signed it."""

    chain: bytes
    key: bytes
    issued: datetime
    expires: datetime
    issuer: Certificate = b""

    def is_due(self, now: datetime) -> bool:
        """Whether two thirds of its life are over."""
        return now >= self.issued + (self.expires - self.issued) * 2 / 3


@dataclass(frozen=True)
class Authorities:
    """What replicas share: who signs, who will, and who did."""

    current: Authority
    next: Authority | None = None
    previous: tuple[Certificate, ...] = ()
    forget_after: datetime | None = None
    """When the last leaf of a previous authority has ended."""
    adopt_until: datetime | None = None
    """Until when what bundles hold beside these is trusted too."""

    @property
    def trusted(self) -> tuple[Certificate, ...]:
        """All that leaves may be of now: current, next, previous."""
        coming = (self.next.certificate,) if self.next else ()
        return self.current.certificate, *coming, *self.previous

    @property
    def bundle(self) -> bytes:
        """What the API server is to trust, PEM."""
        return b"".join(self.trusted)


@dataclass(frozen=True)
class Kept:
    """The Secret as a look found it. Without `authorities` it is absent, or `spoiled` says what is wrong."""

    authorities: Authorities | None = None
    spoiled: str = ""
    readable: tuple[Certificate, ...] = ()
    """Certificates that a spoiled one still shows."""
    rotate: bool = False
    """Whether somebody asked for a new authority."""
    version: str = ""
    """The Secret's resourceVersion; "" where there is none."""
    shared: bool = True
    """Whether others may serve leaves of it."""


@dataclass(frozen=True)
class Seen:
    """What a replica knows when it decides."""

    kept: Kept
    remembered: Authorities | None
    """What it found at its last look, unless that is long ago (`Policy.memory`)."""
    published: frozenset[Certificate]
    """All certificates of ours that are in any bundle."""
    settled: frozenset[Certificate]
    """Those that it has seen in every bundle for `settle`."""


@dataclass(frozen=True)
class Plan:
    """What the Secret is to hold; a `why` where that is a change."""

    authorities: Authorities
    why: str = ""
    rotate: bool = False
    """Whether the request for a rotation stays: it was not met by this change."""


Make = Callable[[], Authority]


def decide(seen: Seen, now: datetime, make: Make, policy: Policy) -> Plan:
    """Return the plan of the first rule that applies; `make` makes a new authority."""
    for rule in RULES:
        if plan := rule(seen, now, make, policy):
            return plan
    assert seen.kept.authorities is not None, "an absent or spoiled Secret is for the first three rules"
    return Plan(seen.kept.authorities, rotate=seen.kept.rotate)


def restore_the_deleted(seen: Seen, now: datetime, make: Make, policy: Policy) -> Plan | None:
    """Who deletes the Secret wants another authority: begin a rotation from what we remember."""
    kept, remembered = seen.kept, seen.remembered
    if kept.authorities or kept.spoiled or remembered is None:
        return None
    restored = replace(remembered, next=remembered.next or make())
    restored = _anew(restored, seen.published, now, policy)
    return Plan(restored, "the Secret of the webhooks' authority was deleted: restored, and a rotation begun")


def mend_the_spoiled(seen: Seen, now: datetime, make: Make, policy: Policy) -> Plan | None:
    """Write back what we remember."""
    kept, remembered = seen.kept, seen.remembered
    if not kept.spoiled or remembered is None:
        return None
    why = f"the Secret of the webhooks' authority was spoiled and is mended: {kept.spoiled}"
    return Plan(_anew(remembered, {*seen.published, *kept.readable}, now, policy), why)


def make_the_first(seen: Seen, now: datetime, make: Make, policy: Policy) -> Plan | None:
    """Nobody here remembers one. Others may serve leaves of what the bundles or the spoiled Secret show."""
    kept = seen.kept
    if kept.authorities:
        return None
    why = "the webhooks' authority is made"
    if kept.spoiled:
        why = f"the Secret of the webhooks' authority is spoiled, and made anew: {kept.spoiled}"
    if not kept.shared:
        return Plan(Authorities(make()), why)
    return Plan(_anew(Authorities(make()), {*seen.published, *kept.readable}, now, policy), why)


def adopt_what_is_published(seen: Seen, now: datetime, make: Make, policy: Policy) -> Plan | None:
    """The Secret is young: what others publish that knew the one before is trusted as well."""
    held = _held(seen)
    if held.adopt_until is None or now >= held.adopt_until or seen.published <= {*held.trusted}:
        return None
    why = "an authority is in the bundles that the webhooks' Secret does not know: trusted for now"
    return Plan(_trusting(held, seen.published, now, policy), why, rotate=seen.kept.rotate)


def promote_the_next(seen: Seen, now: datetime, make: Make, policy: Policy) -> Plan | None:
    """Sign with the next authority once every bundle has held it for long enough."""
    held = _held(seen)
    if held.next is None or held.next.certificate not in seen.settled:
        return None
    promoted = Authorities(
        held.next,
        previous=(held.current.certificate, *held.previous),
        forget_after=now + policy.retention,
        adopt_until=held.adopt_until,
    )
    why = f"the webhooks' next authority signs from now on; the last is trusted until {promoted.forget_after}"
    return Plan(promoted, why, rotate=seen.kept.rotate)


def forget_the_previous(seen: Seen, now: datetime, make: Make, policy: Policy) -> Plan | None:
    """Trust an authority no longer when all of its leaves have ended."""
    held = _held(seen)
    if not held.previous or held.forget_after is None or now < held.forget_after:
        return None
    why = "all certificates of the webhooks' former authority have ended: it is trusted no longer"
    return Plan(replace(held, previous=(), forget_after=None), why, rotate=seen.kept.rotate)


def date_the_forgetting(seen: Seen, now: datetime, make: Make, policy: Policy) -> Plan | None:
    """Somebody took the date away: count anew, as if the last leaf had been signed just now."""
    held = _held(seen)
    if not held.previous or held.forget_after is not None:
        return None
    why = "the date was lost after which the webhooks' former authority is trusted no longer: set anew"
    return Plan(replace(held, forget_after=now + policy.retention), why, rotate=seen.kept.rotate)


def begin_a_rotation(seen: Seen, now: datetime, make: Make, policy: Policy) -> Plan | None:
    """Make the next authority when the current one grows old, or when asked to."""
    held = _held(seen)
    if held.next is not None or not (seen.kept.rotate or held.current.is_due(now)):
        return None
    asked = "as asked for" if seen.kept.rotate else "two thirds of the current one's life are over"
    return Plan(replace(held, next=make()), f"the webhooks' next authority is made: {asked}")


RULES = (
    restore_the_deleted,
    mend_the_spoiled,
    make_the_first,
    adopt_what_is_published,
    promote_the_next,
    forget_the_previous,
    date_the_forgetting,
    begin_a_rotation,
)


def reason_to_sign(
    leaf: Leaf | None,
    held: Authorities,
    everywhere: frozenset[Certificate],
    settled: frozenset[Certificate],
    now: datetime,
) -> str:
    """Why a new leaf of the current authority is to be served now; "" where the old one is fine.

    `everywhere` is what all bundles hold. No leaf is served whose issuer they do not; the first is an
    exception, for without any the first calls would fail.
    """
    current = held.current.certificate
    if leaf is None:
        return "the first"
    if current not in everywhere:
        return ""
    if leaf.is_due(now):
        return "two thirds of the old one's life are over"
    if leaf.issuer != current and current in settled:
        return "the authority has changed"
    if leaf.issuer not in everywhere:
        return "the old one's authority is not trusted"
    return ""


Sightings = Mapping[Certificate, float]
"""Since when, on a monotonic clock, each certificate has been in every bundle, as far as we looked."""


def sighted(before: Sightings, everywhere: Iterable[Certificate], monotonic: float) -> Sightings:
    """The sightings after a look that found `everywhere` in all bundles."""
    return {certificate: before.get(certificate, monotonic) for certificate in everywhere}


def settled(sightings: Sightings, monotonic: float, policy: Policy) -> frozenset[Certificate]:
    """What has been in every bundle for long enough to be relied on."""
    enough = policy.settle.total_seconds()
    return frozenset(each for each, since in sightings.items() if monotonic - since >= enough)


def _held(seen: Seen) -> Authorities:
    assert seen.kept.authorities is not None, "the rules before have seen to that"
    return seen.kept.authorities


def _anew(held: Authorities, others: Iterable[Certificate], now: datetime, policy: Policy) -> Authorities:
    """`held`, for a Secret that was lost: whoever may have signed meanwhile is trusted from now on."""
    found = _trusting(held, others, now, policy)
    until = now + policy.retention
    return replace(found, forget_after=until if found.previous else None, adopt_until=until)


def _trusting(held: Authorities, others: Iterable[Certificate], now: datetime, policy: Policy) -> Authorities:
    """`held`, with `others` among the previous ones for as long as a leaf of them may be served."""
    known = set(held.trusted)
    added = tuple(sorted(each for each in set(others) if each not in known))
    if not added:
        return held
    return replace(held, previous=(*held.previous, *added), forget_after=now + policy.retention)
