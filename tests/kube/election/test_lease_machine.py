"""Candidates for one Lease in a bad world, minutes of it in milliseconds: never do two lead.

Every candidate has a monotonic clock of its own, which began elsewhere and goes a little too fast or too
slow, and a clock on the wall that shows anything or stands still. A request may reach the server at any
time after it was sent, even when its sender has given it up, and its answer may be late or lost. Processes
stop for a while, as by SIGSTOP, at any time; end without a word; stop in order. Networks are good and bad
by turns. The Lease is annotated by others, but deleted by nobody: whoever does that takes the matter into
his own hands.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.kube.election.lease import Candidate, Look, Lost, Terms, Wait, Write
from elasticjob.kube.objects.views import LEASE, Lease

WALL = datetime(2026, 1, 1, tzinfo=UTC)
TERMS = (Terms(), Terms(timedelta(seconds=30), timedelta(seconds=20), timedelta(seconds=3)))
PROCESSES = 3
LENGTH = 300.0


@dataclass
class Server:
    """Keeps one Lease, as the API server does: one write per version; a write of the same is none."""

    spec: dict[str, Any] | None = None
    version: int = 0

    def lease(self) -> Lease | None:
        if self.spec is None:
            return None
        metadata = {"name": "l", "resourceVersion": str(self.version)}
        return LEASE.convert({"metadata": metadata, "spec": self.spec})

    def perform(self, step: Look | Write) -> Lease | Exception | None:
        if isinstance(step, Look):
            return self.lease()
        if step.version != (str(self.version) if self.spec else ""):
            return RuntimeError("conflict")
        if step.spec != self.spec:
            self.spec, self.version = dict(step.spec), self.version + 1
        return self.lease()


@dataclass
class Process:
    """One candidate and its clock."""

    candidate: Candidate
    offset: float
    rate: float
    bad: bool = False
    stopped: float = 0.0
    """Until when it does nothing, whatever happens."""
    ended: bool = False

    def now(self, time: float) -> float:
        return self.offset + time * self.rate

    def believes(self, time: float) -> bool:
        """Whether it would write now."""
        return not self.ended and self.candidate.leads and self.now(time) < self.candidate.deadline

    def receive(self, step: Look | Write, answer: Lease | Exception | None, began: float, now: float) -> None:
        """Take over the answer to a request."""
        if isinstance(answer, Exception):
            self.candidate = self.candidate.after_failure(now, 0.5, conflict=True)
        elif isinstance(step, Look):
            self.candidate = self.candidate.after_read(answer, now, 0.5)
        else:
            assert answer is not None
            self.candidate = self.candidate.wrote(answer, began, now)


@dataclass
class World:
    """What happens when."""

    chance: Random
    time: float = 0.0
    server: Server = field(default_factory=Server)
    processes: list[Process] = field(default_factory=list)
    leaders: list[str] = field(default_factory=list)
    agenda: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    order: itertools.count[int] = field(default_factory=itertools.count)

    def run(self, until: float) -> None:
        """Let everything happen up to then, looking for two leaders after each thing that does."""
        while self.agenda and self.agenda[0][0] <= until:
            self.time, _, happens = heapq.heappop(self.agenda)
            happens()
            leading = [process.candidate.me for process in self.processes if process.believes(self.time)]
            assert len(leading) <= 1, f"{leading} lead at {self.time}"
            self.leaders += [name for name in leading if self.leaders[-1:] != [name]]

    def after(self, seconds: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self.agenda, (self.time + seconds, next(self.order), happens))

    def join(self) -> None:
        """A new process stands for election."""
        candidate = Candidate(f"p{len(self.processes)}", self.chance.choice((TERMS[0], *TERMS)))
        process = Process(candidate, self.chance.uniform(-1e6, 1e6), self.chance.uniform(0.95, 1.05))
        self.processes.append(process)
        self.soon(process, 0, lambda: self.work(process))

    def soon(self, process: Process, seconds: float, happens: Callable[[], None]) -> None:
        """Have something happen to a process, unless it has ended by then; later if it is stopped."""

        def when_awake() -> None:
            if process.stopped > self.time:
                self.after(process.stopped - self.time, when_awake)
            elif not process.ended:
                happens()

        self.after(seconds, when_awake)

    def work(self, process: Process) -> None:
        """Take the next step of a process."""
        if self._ends(process) or self._stops(process):
            return
        now = process.now(self.time)
        match process.candidate.next(now, self._wall()):
            case Wait(seconds):
                assert seconds >= 0
                self.soon(process, seconds / process.rate, lambda: self.work(process))
            case Lost():
                self._end(process)
            case Look() | Write() as step:
                self.ask(process, step, now)

    def ask(self, process: Process, step: Look | Write, began: float) -> None:
        """Send a request; it may arrive, and be answered, when nobody waits for it any more."""
        there, back, over = self._delay(process), self._delay(process), False

        def arrives() -> None:
            answer = self.server.perform(step)
            self.soon(process, back, lambda: answered(answer))

        def answered(answer: Lease | Exception | None) -> None:
            nonlocal over
            if not over:
                over = True
                process.receive(step, answer, began, process.now(self.time))
                self.work(process)

        def gives_up() -> None:
            nonlocal over
            if not over:
                over = True
                process.candidate = process.candidate.after_failure(process.now(self.time), 0.5)
                self.work(process)

        if self.chance.random() < 0.03:
            process.stopped = self.time + self.chance.uniform(0, 25)
        self.after(there, arrives)
        patience = process.candidate.terms.renew.total_seconds() / 2
        self.soon(process, patience / process.rate, gives_up)

    def _stops(self, process: Process) -> bool:
        """Whether the process is stopped just before its next step."""
        if self.chance.random() >= 0.03:
            return False
        self.soon(process, self.chance.uniform(0, 25), lambda: self.work(process))
        return True

    def _ends(self, process: Process) -> bool:
        """Whether the process ends here: killed, or in order, with a release that may be late too."""
        draw = self.chance.random()
        if draw < 0.01 and (step := process.candidate.release(self._wall())):
            self.after(self._delay(process), lambda: self._performed(step))
        if draw < 0.015:
            self._end(process)
        return draw < 0.015

    def _performed(self, step: Write) -> None:
        self.server.perform(step)

    def _end(self, process: Process) -> None:
        process.ended = True
        self.after(self.chance.uniform(0, 20), self.join)

    def _wall(self) -> datetime:
        return WALL + timedelta(seconds=self.chance.choice((0, 0, self.chance.uniform(-3600, 3600))))

    def _delay(self, process: Process) -> float:
        """How long a request or its answer is under way; beyond all time for one that is lost."""
        if self.chance.random() < 0.05:
            process.bad = not process.bad
        if self.chance.random() < 0.02 and self.server.spec:
            self.server.version += 1  # somebody annotates the Lease
        if process.bad and self.chance.random() < 0.4:
            return 2 * LENGTH
        return self.chance.choice((0.01, 0.01, 0.5, self.chance.uniform(0, 20 if process.bad else 5)))


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32))
def test_never_two_lead(seed: int) -> None:
    bad_world(seed)


def bad_world(seed: int) -> World:
    """Return a world at its end."""
    world = World(Random(seed))
    for _ in range(PROCESSES):
        world.join()
    world.run(LENGTH)
    return world


def test_a_bad_world_has_leaders_at_all() -> None:
    """The property above is not true for lack of leaders."""
    worlds = [bad_world(seed) for seed in range(15)]
    assert all(world.leaders for world in worlds)
    assert sum(len(world.leaders) for world in worlds) > 50
