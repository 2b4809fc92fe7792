"""Candidates for one Lease, with arbitrary delays, pauses, clocks and lost answers: never do two lead.

Time is real time in tenths of a second; each candidate has a monotonic clock of its own that began elsewhere
and goes a little too fast or too slow, and a clock on the wall that shows anything or stands still. A request
may reach the server at any time after it was sent, even when its sender has given it up, and its answer may be
lost. A candidate that is not asked for its next step is a process that is stopped. The lease is deleted by
nobody: whoever does that takes the matter into his own hands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elasticjob.kube.lease import Candidate, Look, Lost, Terms, Wait, Write
from elasticjob.kube.objects import LEASE, Lease

WALL = datetime(2026, 1, 1, tzinfo=UTC)
WALLS = st.one_of(st.just(WALL), st.integers(-7200, 7200).map(lambda s: WALL + timedelta(seconds=s)))
CHANCES = st.floats(0, 1, exclude_max=True)
SECONDS = [
    st.just(Terms()),
    st.just(Terms(timedelta(seconds=30), timedelta(seconds=20), timedelta(seconds=3))),
]
LONGEST = 6
"""How many candidates there are at most, one after the other."""


@dataclass
class Request:
    """Under way to the server, or with its answer."""

    sender: int
    step: Look | Write
    began: float
    answer: Lease | Exception | None = None
    arrived: bool = False
    awaited: bool = True


@dataclass
class Process:
    """One candidate and its clock."""

    candidate: Candidate
    offset: float
    rate: float
    waits_for: Request | None = None
    ended: bool = False

    def now(self, time: float) -> float:
        return self.offset + time * self.rate

    def believes(self, time: float) -> bool:
        """Whether it would write now."""
        return not self.ended and self.candidate.leads and self.now(time) < self.candidate.deadline


@dataclass
class Server:
    """Keeps one Lease, as the API server does: one write per version; a write of the same is none."""

    spec: dict[str, Any] | None = None
    version: int = 0

    def lease(self) -> Lease | None:
        if self.spec is None:
            return None
        return LEASE.convert(
            {"metadata": {"name": "l", "resourceVersion": str(self.version)}, "spec": self.spec}
        )

    def perform(self, step: Look | Write) -> Lease | Exception | None:
        if isinstance(step, Look):
            return self.lease()
        if step.version != (str(self.version) if self.spec else ""):
            return RuntimeError("conflict")
        if step.spec != self.spec:
            self.spec, self.version = dict(step.spec), self.version + 1
        return self.lease()


@dataclass
class World:
    time: float = 0.0
    server: Server = field(default_factory=Server)
    processes: list[Process] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)


class Candidates(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize()
    def begin(self) -> None:
        self._new(Terms(), 0.0, 1.0)
        self._new(Terms(), 1000.0, 1.0)

    @precondition(lambda self: len(self.world.processes) < LONGEST)
    @rule(terms=st.one_of(SECONDS), offset=st.floats(-1e6, 1e6), rate=st.floats(0.95, 1.05))
    def join(self, terms: Terms, offset: float, rate: float) -> None:
        self._new(terms, offset, rate)

    def _new(self, terms: Terms, offset: float, rate: float) -> None:
        name = f"p{len(self.world.processes)}"
        self.world.processes.append(Process(Candidate(name, terms), offset, rate))

    @rule(tenths=st.integers(1, 30))
    def time_passes(self, tenths: int) -> None:
        self.world.time += tenths / 10

    @rule(seconds=st.integers(4, 40))
    def much_time_passes(self, seconds: int) -> None:
        self.world.time += seconds

    @rule(which=st.integers(0, LONGEST), wall=WALLS)
    def a_process_takes_its_next_step(self, which: int, wall: datetime) -> None:
        process = self._process(which)
        if process.ended or process.waits_for:
            return
        now = process.now(self.world.time)
        match process.candidate.next(now, wall):
            case Wait(seconds):
                assert seconds >= 0
            case Lost():
                process.ended = True
            case Look() | Write() as step:
                process.waits_for = Request(which % len(self.world.processes), step, now)
                self.world.requests.append(process.waits_for)

    @rule(which=st.integers(0, 20))
    def a_request_arrives(self, which: int) -> None:
        under_way = [request for request in self.world.requests if not request.arrived]
        if under_way:
            request = under_way[which % len(under_way)]
            request.answer, request.arrived = self.world.server.perform(request.step), True

    @rule(which=st.integers(0, LONGEST), chance=CHANCES)
    def an_answer_arrives(self, which: int, chance: float) -> None:
        process = self._process(which)
        request = process.waits_for
        if request is None or not request.arrived or process.ended:
            return
        process.waits_for = None
        process.candidate = self._told(process, request, process.now(self.world.time), chance)

    @rule(which=st.integers(0, LONGEST), chance=CHANCES)
    def a_request_is_given_up(self, which: int, chance: float) -> None:
        process = self._process(which)
        if process.waits_for is not None:
            process.waits_for = None
            process.candidate = process.candidate.failed(process.now(self.world.time), chance)

    @rule(which=st.integers(0, LONGEST), wall=WALLS)
    def a_leader_stops_in_order(self, which: int, wall: datetime) -> None:
        process = self._process(which)
        if process.ended or process.waits_for or not (step := process.candidate.release(wall)):
            return
        process.ended = True
        self.world.requests.append(Request(which, step, 0, awaited=False))

    @precondition(lambda self: self.world.server.spec is not None)
    @rule()
    def somebody_annotates_the_lease(self) -> None:
        self.world.server.version += 1

    @invariant()
    def never_two_lead(self) -> None:
        leaders = [
            process.candidate.me for process in self.world.processes if process.believes(self.world.time)
        ]
        assert len(leaders) <= 1, f"{leaders} lead at {self.world.time}"

    def _process(self, which: int) -> Process:
        return self.world.processes[which % len(self.world.processes)]

    def _told(self, process: Process, request: Request, now: float, chance: float) -> Candidate:
        candidate = process.candidate
        if isinstance(request.answer, Exception):
            return candidate.failed(now, chance, conflict=True)
        if isinstance(request.step, Look):
            return candidate.looked(request.answer, now, chance)
        assert request.answer is not None
        return candidate.wrote(request.answer, request.began, now)


Candidates.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestCandidates = Candidates.TestCase


def test_one_of_three_leads_soon_and_another_soon_after_it_is_gone() -> None:
    """The same world without faults: a leader is found, keeps the lease, and is replaced in time."""
    world, chances = World(), iter(range(1, 10_000))
    world.processes = [Process(Candidate(f"p{n}"), n * 1000.0, 1.0) for n in range(3)]
    leaders: list[str] = []
    while world.time < 120:
        world.time = round(world.time + 0.1, 1)
        for process in world.processes:
            _runs(world, process, next(chances) * 0.61803 % 1)
        leading = [p.candidate.me for p in world.processes if p.believes(world.time)]
        leaders += [name for name in leading if leaders[-1:] != [name]]
        if world.time == 60:
            next(p for p in world.processes if p.candidate.me == leaders[0]).ended = True
    assert len(leaders) == 2
    assert leaders[0] != leaders[1]
    assert world.server.spec is not None
    assert world.server.spec["leaseTransitions"] == 1


def _runs(world: World, process: Process, chance: float) -> None:
    """Take steps until it waits; every request is answered at once."""
    while not process.ended:
        now = process.now(world.time)
        step = process.candidate.next(now, WALL)
        if not isinstance(step, Look | Write):
            return
        answer = world.server.perform(step)
        candidate = process.candidate
        if isinstance(answer, Exception):
            process.candidate = candidate.failed(now, chance, conflict=True)
        elif isinstance(step, Look):
            process.candidate = candidate.looked(answer, now, chance)
        else:
            assert answer is not None
            process.candidate = candidate.wrote(answer, now, now)
