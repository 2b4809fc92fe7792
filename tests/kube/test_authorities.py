"""The authority's life: the rules one by one, then any number of replicas at any moments of their looks.

The second half runs the code of a replica (trust.py) on a model of the API server, one request at a time, in
any order. After each step: every leaf in service that has not ended verifies under every bundle.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elasticjob.kube.authorities import (
    Authorities,
    Authority,
    Certificate,
    Kept,
    Leaf,
    Plan,
    Policy,
    Seen,
    decide,
    reason_to_sign,
    settled,
    sighted,
)
from elasticjob.kube.clock import Timer
from elasticjob.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from elasticjob.kube.trust import Maker, Published, Trust

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
POLICY = Policy()
NOTHING = frozenset[Certificate]()
YOUNG = NOW + POLICY.retention


def ca(name: str, begins: datetime = NOW) -> Authority:
    return Authority(name.encode(), b"key of " + name.encode(), begins, begins + POLICY.authority_lifetime)


def certificates(*names: str) -> frozenset[Certificate]:
    return frozenset(name.encode() for name in names)


def decided(seen: Seen, now: datetime = NOW) -> Plan:
    return decide(seen, now, lambda: ca("new", now), POLICY)


def seen(
    held: Authorities | None = None,
    remembered: Authorities | None = None,
    published: frozenset[Certificate] = NOTHING,
    settled: frozenset[Certificate] = NOTHING,
    **kept: Any,
) -> Seen:
    return Seen(Kept(held, **kept), remembered, published, settled)


ONE = Authorities(ca("one"))
TURNING = Authorities(ca("one"), ca("two"))
TURNED = Authorities(ca("two"), previous=(b"one",), forget_after=NOW + POLICY.retention)


def test_where_there_is_none_one_is_made() -> None:
    plan = decided(seen())
    assert plan.authorities == Authorities(ca("new"), adopt_until=YOUNG)
    assert plan.why == "the webhooks' authority is made"


def test_what_bundles_hold_stays_trusted_when_the_secret_is_new() -> None:
    """Others may serve leaves of it."""
    plan = decided(seen(published=certificates("lost")))
    assert plan.authorities == Authorities(ca("new"), None, (b"lost",), YOUNG, YOUNG)


def test_what_comes_into_the_bundles_of_a_young_secret_is_trusted_too() -> None:
    """A replica may still have been about to publish what the Secret before said."""
    young = replace(ONE, adopt_until=YOUNG)
    plan = decided(seen(young, published=certificates("one", "lost")), NOW + DAY)
    assert plan.authorities == replace(young, previous=(b"lost",), forget_after=YOUNG + DAY)
    assert decided(seen(ONE, published=certificates("one", "lost")), NOW + DAY) == Plan(ONE)
    assert decided(seen(young, published=certificates("one", "lost")), YOUNG) == Plan(young)


def test_what_bundles_hold_of_a_process_that_shares_nothing_is_of_one_that_has_gone() -> None:
    assert decided(seen(published=certificates("lost"), shared=False)).authorities == Authorities(ca("new"))


def test_nothing_changes_for_long() -> None:
    assert decided(seen(ONE), NOW + 6 * 365 * DAY) == Plan(ONE)
    assert decided(seen(TURNING, settled=certificates("one"))) == Plan(TURNING)
    assert decided(seen(TURNED), NOW + POLICY.retention - DAY) == Plan(TURNED)


def test_two_thirds_of_a_life_begin_a_rotation() -> None:
    plan = decided(seen(ONE), NOW + 7 * 365 * DAY)
    assert plan.authorities == replace(ONE, next=ca("new", NOW + 7 * 365 * DAY))


def test_a_rotation_that_is_asked_for_begins_once() -> None:
    plan = decided(seen(ONE, rotate=True))
    assert (plan.authorities, plan.rotate) == (replace(ONE, next=ca("new")), False)
    waiting = decided(seen(TURNING, rotate=True))
    assert (waiting.authorities, waiting.why, waiting.rotate) == (TURNING, "", True)
    promoted = decided(seen(TURNING, rotate=True, settled=certificates("one", "two")))
    assert (promoted.authorities, promoted.rotate) == (TURNED, True)


def test_the_next_signs_once_it_has_been_seen_in_every_bundle_for_long_enough() -> None:
    assert decided(seen(TURNING, settled=certificates("one", "two"))).authorities == TURNED


def test_the_key_of_a_previous_authority_is_gone() -> None:
    assert b"key of one" not in repr(TURNED).encode()


def test_the_previous_is_forgotten_when_its_last_leaf_has_ended() -> None:
    plan = decided(seen(TURNED), NOW + POLICY.retention)
    assert plan.authorities == Authorities(ca("two"))


def test_a_date_that_was_lost_is_set_anew_and_nothing_forgotten() -> None:
    plan = decided(seen(replace(TURNED, forget_after=None)), NOW + DAY)
    assert plan.authorities == replace(TURNED, forget_after=NOW + DAY + POLICY.retention)


def test_a_deleted_secret_is_restored_and_a_rotation_begun() -> None:
    plan = decided(seen(remembered=ONE, published=certificates("one", "of another replica")))
    assert plan.authorities == Authorities(ca("one"), ca("new"), (b"of another replica",), YOUNG, YOUNG)


def test_a_deletion_in_mid_rotation_goes_on_with_it() -> None:
    assert decided(seen(remembered=TURNING, published=certificates("one", "two"))).authorities == replace(
        TURNING, adopt_until=YOUNG
    )


def test_a_spoiled_secret_is_mended_from_memory() -> None:
    plan = decided(seen(remembered=ONE, spoiled="the key is not that of the certificate", version="4"))
    assert plan.authorities == replace(ONE, adopt_until=YOUNG)
    assert plan.why.endswith("was spoiled and is mended: the key is not that of the certificate")


def test_a_spoiled_secret_that_nobody_remembers_is_made_anew_trusting_what_can_be_read() -> None:
    plan = decided(seen(spoiled="half a key", readable=(b"one",), published=certificates("zero")))
    assert plan.authorities == Authorities(ca("new"), None, (b"one", b"zero"), YOUNG, YOUNG)


LEAF = Leaf(b"", b"", NOW, NOW + POLICY.leaf_lifetime, b"one")


@pytest.mark.parametrize(
    ("leaf", "held", "everywhere", "reliable", "at", "why"),
    [
        (None, ONE, "", "", NOW, "the first"),
        (LEAF, ONE, "one", "one", NOW, ""),
        (LEAF, ONE, "one", "one", NOW + 5 * DAY, "two thirds of the old one's life are over"),
        (LEAF, ONE, "", "", NOW + 5 * DAY, ""),
        (LEAF, TURNED, "one two", "", NOW, ""),
        (LEAF, TURNED, "one two", "", NOW + 5 * DAY, "two thirds of the old one's life are over"),
        (LEAF, TURNED, "one two", "two", NOW, "the authority has changed"),
        (LEAF, TURNED, "two", "", NOW, "the old one's authority is not trusted"),
        (LEAF, TURNED, "one", "", NOW, ""),
    ],
)
def test_a_leaf_is_replaced_by_one_that_is_trusted(
    leaf: Leaf | None, held: Authorities, everywhere: str, reliable: str, at: datetime, why: str
) -> None:
    found = reason_to_sign(leaf, held, certificates(*everywhere.split()), certificates(*reliable.split()), at)
    assert found == why


def test_what_disappears_from_a_bundle_has_to_settle_again() -> None:
    first = sighted({}, [b"one"], 10.0)
    both = sighted(first, [b"one", b"two"], 100.0)
    assert settled(both, 130.0, POLICY) == certificates("one")
    assert settled(sighted(sighted(both, [b"one"], 131.0), [b"one", b"two"], 132.0), 230.0, POLICY) == {
        b"one"
    }


def test_an_authority_has_to_outlive_its_leaves() -> None:
    with pytest.raises(ValueError, match="authority_lifetime 10 days, 0:00:00 is too short"):
        Policy(authority_lifetime=10 * DAY)


# Replicas


class Step:
    """One request on its way."""

    def __await__(self) -> Generator[None]:
        yield


@dataclass
class Moment:
    """A replica's clock: true time, and how far it is off."""

    world: World
    off: timedelta

    def now(self) -> datetime:
        return self.world.now + self.off

    def monotonic(self) -> float:
        return (self.world.now - NOW).total_seconds()

    def call_later(self, seconds: float, call: Any) -> Timer:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


@dataclass
class Board:
    """One place: what its bundle holds; None where it holds no webhook, so that nobody is called."""

    bundle: frozenset[Certificate] | None = None
    version: int = 0
    past: list[tuple[datetime, frozenset[Certificate] | None]] = field(default_factory=list)

    def write(self, bundle: frozenset[Certificate] | None, now: datetime) -> None:
        self.past.append((now, self.bundle))
        self.bundle = bundle
        self.version += 1


@dataclass
class World:
    """The API server: the Secret, two places, and the time."""

    now: datetime = NOW
    kept: Kept = field(default_factory=Kept)
    places: list[Board] = field(default_factory=lambda: [Board(), Board()])
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    async def read(self) -> Published:
        found: list[Board] = []
        for place in self.places:
            await Step()
            found.append(replace(place, past=[]))
        await Step()
        return _published(found)

    async def publish(self, bundle: bytes | None, before: Published) -> Published:
        assert bundle is not None
        wanted = frozenset(bundle.splitlines(keepends=True))
        found = []
        for place, known in zip(self.places, before.places, strict=True):
            if known["bundle"] != wanted:
                await Step()
                if place.version != known["version"]:
                    raise Conflict(409, "Conflict", "somebody wrote in between")
                place.write(wanted, self.now)
                known = {"bundle": wanted, "version": place.version}
            found.append(Board(known["bundle"], known["version"]))
        await Step()
        return _published(found)


@dataclass
class Shared:
    """The vault, as one replica sees it."""

    world: World

    async def kept(self) -> Kept:
        await Step()
        found = self.world.kept
        await Step()
        return found

    async def keep(self, plan: Plan, before: Kept) -> None:
        """At once: a request is given up long before the margins of the dates in it are over."""
        if before.version and not self.world.kept.version:
            raise NotFound(404, "NotFound", "deleted")
        if before.version != self.world.kept.version:
            raise (Conflict if before.version else AlreadyExists)(409, "Conflict", "another was first")
        self.world.kept = Kept(plan.authorities, rotate=plan.rotate, version=str(next(self.world.numbers)))
        await Step()


def _published(found: list[Board]) -> Published:
    holding = tuple(place.bundle for place in found if place.bundle is not None)
    return Published(
        tuple({"bundle": each.bundle, "version": each.version} for each in found), (b"",), holding
    )


class Replica:
    """One process: its looks are driven step by step."""

    def __init__(self, world: World, off: timedelta, policy: Policy) -> None:
        self.world = world
        clock = Moment(world, off)
        maker = Maker(self._authority, self._leaf, lambda _: True)
        self.trust = Trust(Shared(world), world, maker, lambda _: None, clock=clock, policy=policy)
        self.policy = policy
        self.ready = False
        self._look: Coroutine[Any, Any, str | None] | None = None

    def step(self) -> bool:
        """Send or receive one request; whether the look is over with it."""
        self._look = self._look or self.trust.look()
        try:
            self._look.send(None)
        except StopIteration as end:
            self.ready = end.value is None
        except KubeError:
            pass
        else:
            return False
        self._look = None
        return True

    @property
    def looking(self) -> bool:
        """Whether it is in the middle of a look."""
        return self._look is not None

    def end(self) -> None:
        if self._look:
            self._look.close()

    def _authority(self, now: datetime) -> Authority:
        name = f"ca-{next(self.world.numbers)}\n".encode()
        return Authority(name, b"", now, now + self.policy.authority_lifetime)

    def _leaf(self, authority: Authority, now: datetime) -> Leaf:
        expires = min(now + self.policy.leaf_lifetime, authority.expires)
        return Leaf(b"", b"", now, expires, authority.certificate)


def test_a_leaf_s_life_counts_from_the_look_that_found_its_issuer() -> None:
    """A replica that stalls before it signs must not serve what was forgotten meanwhile."""
    world = World()
    stalling, other = (Replica(world, timedelta(), POLICY) for _ in range(2))
    for replica in (other, stalling):
        while not replica.step():
            pass
    first = world.kept.authorities
    assert first is not None
    world.now += POLICY.leaf_lifetime * 2 / 3
    for _ in range(5):  # both places and the Secret are read
        stalling.step()
    world.kept = replace(world.kept, rotate=True, version="asked")
    while world.kept.authorities and first.current.certificate in world.kept.authorities.trusted:
        world.now += timedelta(hours=1)
        while not other.step():
            pass
    while not stalling.step():
        pass
    leaf = stalling.trust.leaf
    assert leaf is not None
    assert leaf.issuer != first.current.certificate or leaf.expires <= world.now


REPLICAS = 3
OFF = (timedelta(), POLICY.skew, -POLICY.skew)
PASSES = st.sampled_from(
    [
        timedelta(seconds=1),
        timedelta(seconds=59),
        POLICY.settle,
        timedelta(hours=9),
        POLICY.leaf_lifetime / 3,
        POLICY.leaf_lifetime,
        POLICY.retention,
    ]
)
WHICH = st.integers(0, REPLICAS - 1)


class Rotation(RuleBasedStateMachine):
    """Replicas that look, rotate, restart and stall, with configurations deleted under them."""

    lag = POLICY.settle
    """For how long the API server may go on with a bundle after another was written."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.replicas = [self._new(index) for index in range(REPLICAS)]

    def _new(self, index: int) -> Replica:
        return Replica(self.world, OFF[index], POLICY)

    @rule(which=WHICH, steps=st.integers(1, 8))
    def requests(self, which: int, steps: int) -> None:
        for _ in range(steps):
            self.replicas[which].step()
            self.holds()

    @rule(which=WHICH)
    def looks(self, which: int) -> None:
        while not self.replicas[which].step():
            self.holds()

    @rule(passes=PASSES)
    def time_passes(self, passes: timedelta) -> None:
        self.pass_time(passes)

    def pass_time(self, passes: timedelta) -> None:
        self.world.now += passes

    @rule(rounds=st.integers(1, 4), passes=PASSES)
    def all_look_for_a_while(self, rounds: int, passes: timedelta) -> None:
        for _ in range(rounds):
            for index in range(REPLICAS):
                self.looks(index)
            self.pass_time(passes)

    @rule(which=WHICH)
    def restarts(self, which: int) -> None:
        self.replicas[which].end()
        self.replicas[which] = self._new(which)

    @precondition(lambda self: self.world.kept.version)
    @rule()
    def somebody_asks_for_a_rotation(self) -> None:
        self.world.kept = replace(self.world.kept, rotate=True, version=str(next(self.world.numbers)))

    @rule(which=st.integers(0, 1))
    def a_configuration_is_deleted(self, which: int) -> None:
        self.world.places[which].write(None, self.world.now)

    @invariant()
    def holds(self) -> None:
        for replica in self.replicas:
            leaf = replica.trust.leaf
            if replica.ready and leaf and self.world.now < leaf.expires:
                for place in self.world.places:
                    for bundle in self._heeded(place):
                        assert leaf.issuer in bundle

    def _heeded(self, place: Board) -> list[frozenset[Certificate]]:
        """The bundle, and those that API servers may still go by."""
        since = self.world.now - self.lag
        late = [bundle for until, bundle in place.past if until > since]
        return [bundle for bundle in (*late, place.bundle) if bundle is not None]

    def teardown(self) -> None:
        for replica in getattr(self, "replicas", ()):
            replica.end()


class Faults(Rotation):
    """The same, with the Secret deleted and spoiled; here an API server heeds a bundle at once."""

    lag = timedelta()

    def pass_time(self, passes: timedelta) -> None:
        """Nobody stalls in mid-look for long: of a Secret that is lost meanwhile, no margin would be left."""
        for index, replica in enumerate(self.replicas):
            if replica.looking:
                self.looks(index)
        super().pass_time(passes)

    @rule()
    def the_secret_is_deleted(self) -> None:
        self.world.kept = Kept()

    @precondition(lambda self: self.world.kept.authorities)
    @rule(shows=st.booleans())
    def the_secret_is_spoiled(self, shows: bool) -> None:
        held = self.world.kept.authorities
        readable = held.trusted if held and shows else ()
        self.world.kept = Kept(None, "spoiled", readable, version=str(next(self.world.numbers)))

    @precondition(lambda self: False)
    @rule(which=st.integers(0, 1))
    def a_configuration_is_deleted(self, which: int) -> None:
        """Together with the Secret it would take all knowledge of what is trusted."""


Rotation.TestCase.settings = Faults.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestRotation = Rotation.TestCase
TestFaults = Faults.TestCase
