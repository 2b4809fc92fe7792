"""Replicas that share the webhooks' authority in a bad world: every leaf verifies under every bundle.

Runs the code of a replica (trust.py) on a model of the API server, one request at a time, in any order. A
replica may stall between two requests for as long as it likes, be restarted, and have a clock that is wrong
by `skew`. A write is on its way for up to `storing`: others may come before it; it may be lost, or its
answer; it may arrive after its sender gave it up. The Secret is deleted and spoiled at any moment.

The model is harder than the truth in one point: a bundle is a set here, so one that is published anew in
another order is no write.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elasticjob.kube.authorities import Authorities, Authority, Certificate, Kept, Leaf, Plan, Policy
from elasticjob.kube.clock import Timer
from elasticjob.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, Unreachable
from elasticjob.kube.trust import Maker, Published, Trust

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy()


class Fate(StrEnum):
    """What becomes of a write."""

    ANSWERED = "answered"
    LOST = "lost on its way"
    UNANSWERED = "done, and its answer lost"
    GIVEN_UP = "given up by its sender while it is on its way"


@dataclass(eq=False)
class Write:
    """A write on its way; `act` is what the server does with it."""

    act: Callable[[], None]
    fate: Fate
    arrives_by: datetime
    error: KubeError | None = None

    def arrive(self) -> None:
        """Have the server act on it."""
        if self.fate is Fate.LOST:
            return
        try:
            self.act()
        except KubeError as error:
            self.error = error

    def answer(self) -> None:
        """What its sender hears, as an exception if it is bad."""
        if self.fate is not Fate.ANSWERED:
            raise Unreachable(self.fate)
        if self.error:
            raise self.error


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

    def replace(self, version: int, bundle: frozenset[Certificate], now: Callable[[], datetime]) -> None:
        """Hold `bundle`, if it still has this version."""
        if version != self.version:
            raise Conflict(409, "Conflict", "somebody wrote in between")
        self.write(bundle, now())

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
    fate: Fate = Fate.ANSWERED
    """Of the next write."""
    under_way: list[Write] = field(default_factory=list)

    @property
    def authorities(self) -> Authorities:
        """What a Secret that is in order holds."""
        assert self.kept.authorities is not None
        return self.kept.authorities

    def later(self, passes: timedelta) -> None:
        """Let time pass; what would be on its way for too long arrives before."""
        for write in [*self.under_way]:
            if write.arrives_by < self.now + passes:
                self.arrive(write)
        self.now += passes

    def arrive(self, write: Write) -> None:
        """Have it be on its way no more."""
        if write in self.under_way:
            self.under_way.remove(write)
            write.arrive()

    async def write(self, act: Callable[[], None]) -> None:
        """Send a write, and wait for its answer."""
        write, self.fate = Write(act, self.fate, self.now + POLICY.storing), Fate.ANSWERED
        self.under_way.append(write)
        await Step()
        if write.fate is not Fate.GIVEN_UP:
            self.arrive(write)
            await Step()
        write.answer()

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
            if known["bundle"] == wanted:
                found.append(Board(known["bundle"], known["version"]))
                continue
            await self.write(partial(place.replace, known["version"], wanted, lambda: self.now))
            found.append(Board(wanted, known["version"] + 1))
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
        await self.world.write(partial(self._store, plan, before))

    def _store(self, plan: Plan, before: Kept) -> None:
        if before.version and not self.world.kept.version:
            raise NotFound(404, "NotFound", "deleted")
        if before.version != self.world.kept.version:
            raise (Conflict if before.version else AlreadyExists)(409, "Conflict", "another was first")
        self.world.kept = Kept(plan.authorities, rotate=plan.rotate, version=str(next(self.world.numbers)))


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

    def look(self) -> None:
        """Have a whole look, or the rest of one."""
        while not self.step():
            pass

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
        replica.look()
    first = world.authorities.current.certificate
    world.later(POLICY.leaf_lifetime * 2 / 3)
    for _ in range(5):  # both places and the Secret are read
        stalling.step()
    world.kept = replace(world.kept, rotate=True, version="asked")
    while first in world.authorities.trusted:
        world.later(timedelta(hours=1))
        other.look()
    stalling.look()
    leaf = stalling.trust.leaf
    assert leaf is not None
    assert leaf.issuer != first or leaf.expires <= world.now


def test_a_leaf_ends_before_its_authority_is_forgotten_though_clocks_and_a_write_conspire() -> None:
    """Who promotes is behind, and its write is slow; who signs meanwhile is ahead, and so is who forgets."""
    world = World()
    behind, ahead = -POLICY.skew, POLICY.skew
    promoting, signing, forgetting = (Replica(world, off, POLICY) for off in (behind, ahead, ahead))
    for replica in (promoting, signing, forgetting):
        replica.look()
    first = world.authorities.current.certificate
    world.later(POLICY.leaf_lifetime * 2 / 3)
    world.kept = replace(world.kept, rotate=True, version="asked")
    promoting.look()
    world.later(POLICY.settle)
    while not world.under_way:
        promoting.step()
    world.later(POLICY.storing)
    signing.look()
    promoting.look()
    assert world.authorities.current.certificate != first
    while first in world.authorities.trusted:
        world.later(timedelta(minutes=1))
        forgetting.look()
    leaf = signing.trust.leaf
    assert leaf is not None
    assert leaf.issuer == first
    assert leaf.expires <= world.now


def test_what_was_read_long_ago_is_not_written_back() -> None:
    """Others may have forgotten it since, and may be about to take it out of the bundles."""
    world = World()
    replica = Replica(world, timedelta(), POLICY)
    replica.look()
    first = world.authorities.current.certificate
    world.later(POLICY.memory)
    world.kept = Kept()
    replica.look()
    assert world.authorities.current.certificate != first
    assert world.authorities.previous == (first,)
    assert replica.ready


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
        self.world.later(passes)

    @rule(rounds=st.integers(1, 4), passes=PASSES)
    def all_look_for_a_while(self, rounds: int, passes: timedelta) -> None:
        for _ in range(rounds):
            for index in range(REPLICAS):
                self.looks(index)
            self.world.later(passes)

    @rule(which=WHICH)
    def restarts(self, which: int) -> None:
        self.replicas[which].end()
        self.replicas[which] = self._new(which)

    @rule(fate=st.sampled_from(Fate))
    def the_next_write_is(self, fate: Fate) -> None:
        self.world.fate = fate

    @precondition(lambda self: self.world.under_way)
    @rule(which=st.integers(0, 99))
    def a_write_arrives(self, which: int) -> None:
        self.world.arrive(self.world.under_way[which % len(self.world.under_way)])

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
