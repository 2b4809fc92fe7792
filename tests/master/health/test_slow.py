"""Workers that are slow and well, for ten hours each: none is killed. Those that hang are found."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import pytest

from elasticjob.api.rpc.nodes import Collective, Report
from elasticjob.cli.standalone.torchrun import Conf
from elasticjob.master.cluster.settings import Settings
from elasticjob.master.health import watch
from elasticjob.master.state.condition import Finding, Kind
from elasticjob.master.state.job import Waits
from elasticjob.trainer.agent.seeing.health import ASLEEP, Sight, Watcher
from elasticjob.trainer.link.pulse import Phase, Pulse
from elasticjob.trainer.link.recorder import Digest
from elasticjob.trainer.usage.cores import Work
from lab.virtual.master import START, Played, join
from lab.virtual.master import watch as beat

HOURS: Final = 10 * 3600.0
OUTSIDE, COMPUTING, REDUCING, READING, WAITING = (Phase(each) for each in range(1, 6))
END: Final = 1e9


class Do(NamedTuple):
    """A worker's doing for some seconds: cpu, read, disk (D), data, runs (without a core), or none.

    How it waits in a collective that only the others have not begun: meets.
    """

    phase: Phase
    seconds: float
    how: str = "none"
    behind: bool = False  # it belongs to the step before, which the others have ended


@dataclass
class Worker:
    """A worker's work so far, and what it does in this step, beginning at `times`."""

    does: tuple[Do, ...] = ()
    times: list[float] = field(default_factory=lambda: [0.0])
    cpu: float = 0.0
    read: int = 0
    till: float = 0.0
    done: int = 0

    def begin(self, at: float, does: tuple[Do, ...]) -> None:
        self.advance(at)
        self.does, self.times = does, list(accumulate((each.seconds for each in does), initial=at))

    def now(self, at: float) -> tuple[Do, float]:
        """What it does, and since when; at the end it reduces."""
        index = bisect_right(self.times, at) - 1
        return (self.does[index] if index < len(self.does) else Do(REDUCING, END)), self.times[index]

    def advance(self, at: float) -> None:
        for (start, end), each in zip(pairwise(self.times), self.does, strict=False):
            seconds = max(0.0, min(at, end) - max(self.till, start))
            self.cpu += seconds * (each.how == "cpu")
            self.read += int(seconds * 1e7) * (each.how == "read")
        self.till = at

    def work(self, at: float) -> Work:
        self.advance(at)
        how = self.now(at)[0].how
        disk, runs, data = (how == each for each in ("disk", "runs", "data"))
        return Work(cpu=self.cpu, read=self.read, storage=disk, runs=runs, data=data)

    def digest(self, at: float, step: int) -> Digest:
        does, since = self.now(at)
        if does.how != "meets":
            return Digest(2, None, (("g", step),))
        known = Collective(group="g", name="all_reduce", seq=step + 1, size=1, since=at - since)
        return Digest(2, known, (("g", step + 1),))


class Life:
    """Two workers that step together; time passes faster where nothing happens."""

    def __init__(self, usual: float = 0.5, wait: float = 0.0) -> None:
        game = Played(maximum=2)
        game.ask(*(beat(name) for name in ("node-0", "node-1")))
        game.ask(*(join(name) for name in ("node-0", "node-1")))
        self.job, self.usual, self.now, self.step, self.ended = game.job, usual, 1000.0, 0, 0.0
        self.workers = (Worker(), Worker())
        self.asked: set[int] = set()
        self.watchers = [
            Watcher(lambda pid: self.workers[pid - 1].work(self.now), partial(self.ask, rank), END)
            for rank in range(2)
        ]
        self.stopped: set[int] = set()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.job.health.findings

    @property
    def hangs(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.reason is Kind.HANG]

    def take(self, *does: tuple[Do, ...], rest: float = 0.0, gap: float = 1.0) -> None:
        """Take a step in which the ranks do that first; `rest` is for the collective, `gap` between looks."""
        began = self.now
        for worker, each in zip(self.workers, does, strict=True):
            worker.begin(began, (*each, Do(COMPUTING, self.usual, "cpu")))
        end = max(worker.times[-1] for worker in self.workers) + rest + 0.01
        while self.now + gap < end and not self.hangs:
            self.look(self.now + gap)
            gap = gap if self.now - began < 12 + 3 * self.usual else min(gap * 1.5, 60.0)
        if not self.hangs:
            self.step, self.ended = self.step + 1, end
            self.look(end)

    def ask(self, rank: int, slot: int) -> None:
        self.asked.add(rank)

    def many(self, steps: int) -> None:
        for _ in range(steps):
            self.take((), ())

    def look(self, now: float, *, paused: Collection[int] = ()) -> None:
        """Let agents look and report, and the master judge; paused machines do nothing, 2 is the master's."""
        self.now = now
        at = START + timedelta(seconds=now - 1000.0)
        for rank, (worker, watcher) in enumerate(zip(self.workers, self.watchers, strict=True)):
            if rank in paused:
                continue
            (phase, _, _, behind), since = worker.now(now)
            if self.ended == now:
                phase, since = OUTSIDE, now
            reduced = self.ended - self.usual * behind
            pulse = Pulse(phase, self.step - behind, since, self.usual, reduced)
            work = worker.work(now)
            answers = {0: worker.digest(now, self.step)} if rank in self.asked - self.stopped else {}
            self.asked.discard(rank)
            watcher.look({0: 1}, {0: Sight(pulse, rank in self.stopped, work.cpu, rank + 1)}, now, answers)
            states = watcher.states(now)
            report = Report(node=f"node-{rank}", incarnation=f"node-{rank}-life", round=1, workers=states)
            if 2 not in paused:
                self.job = watch.heard(self.job, report, at)
        if 2 not in paused:
            self.job = watch.look(self.job, at)


def both(*does: Do) -> tuple[tuple[Do, ...], tuple[Do, ...]]:
    return does, does


def met(phase: Phase, *does: Do) -> tuple[tuple[Do, ...], tuple[Do, ...]]:
    """One does that, the other waits for it in a collective."""
    return (Do(phase, sum(each.seconds for each in does), "meets"),), does


def one(*does: Do) -> tuple[tuple[Do, ...], tuple[Do, ...]]:
    return (), does


SLOW: Final = {
    "records after 5 s": one(Do(READING, 5)),
    "records after 14 s": one(Do(READING, 14)),
    "records after a minute": one(Do(READING, 60)),
    "cold object storage": one(Do(READING, 540)),
    "cold object storage for all": both(Do(READING, 540)),
    "a large shard from a file server": one(Do(READING, 300, "disk")),
    "a large shard from the network": one(Do(READING, 300, "read")),
    "an epoch's first batch": one(Do(READING, 45, "cpu")),
    "an epoch's first batch with a new index": one(Do(READING, 400, "cpu")),
    "a DataLoader that starts anew": one(Do(READING, 20), Do(READING, 10, "cpu"), Do(READING, 20)),
    "a retry of a request": one(Do(READING, 60), Do(READING, 1, "read"), Do(READING, 60)),
    "page cache misses": one(Do(COMPUTING, 30, "disk")),
    "a mapped file on a file server": one(Do(COMPUTING, 300, "disk")),
    "swap": one(*[Do(COMPUTING, 5, "disk"), Do(COMPUTING, 1, "cpu")] * 20),
    "its own reading in the step": one(Do(COMPUTING, 120, "read")),
    "a DataLoader of its own in the step": one(Do(COMPUTING, 60, "data")),
    "a response over HTTP": one(Do(COMPUTING, 0.2, "cpu"), Do(COMPUTING, 300, "data")),
    "compilation at step 1000": one(Do(COMPUTING, 180, "cpu")),
    "compilation at step 1000 by all": both(Do(COMPUTING, 500, "cpu")),
    "compilation with pauses": one(*[Do(COMPUTING, 4, "cpu"), Do(COMPUTING, 1)] * 30),
    "compilation of the backward pass": one(Do(COMPUTING, 1, "cpu"), Do(REDUCING, 180, "cpu")),
    "compilation of the backward pass by all": both(Do(COMPUTING, 1, "cpu"), Do(REDUCING, 500, "cpu")),
    "an import in a step": one(Do(COMPUTING, 20, "disk"), Do(COMPUTING, 20, "cpu")),
    "no core": one(Do(COMPUTING, 40, "runs")),
    "a step twenty times as long": one(Do(COMPUTING, 10, "cpu")),
    "a step of a second without the processor": one(Do(COMPUTING, 3)),
    "evaluation by all": both(Do(OUTSIDE, 1500, "cpu")),
    "evaluation by one for hours": one(Do(OUTSIDE, 10_000, "cpu")),
    "evaluation that waits for records": one(Do(OUTSIDE, 1200)),
    "evaluation on the GPU alone": one(Do(OUTSIDE, 1700)),
    "evaluation in parts": one(*[Do(OUTSIDE, 1200), Do(OUTSIDE, 2, "cpu")] * 4),
    "a checkpoint to a slow disk": one(Do(OUTSIDE, 600, "disk")),
    "a checkpoint to object storage": both(Do(OUTSIDE, 1500)),
    "a checkpoint, then records": one(Do(OUTSIDE, 300), Do(READING, 300)),
    "a tracker that does not answer": one(Do(OUTSIDE, 60)),
    "an optimizer's step": one(Do(COMPUTING, 120, "cpu", behind=True)),
    "an optimizer's state on disk": one(Do(REDUCING, 120, "disk", behind=True)),
    "an optimizer that compiles": one(Do(REDUCING, 300, "cpu", behind=True)),
    "a slow network": both(),
    "a divided model that compiles": met(COMPUTING, Do(COMPUTING, 500, "cpu")),
    "a divided model that reads": met(COMPUTING, Do(COMPUTING, 300, "disk")),
    "a divided model whose backward pass compiles": met(REDUCING, Do(REDUCING, 500, "cpu")),
    "evaluation for which others wait in a collective": met(OUTSIDE, Do(OUTSIDE, 10_000, "cpu")),
    "steps of different lengths": one(Do(COMPUTING, 3.9, "cpu")),
}
FIRST: Final = {
    "compilation at step 1": one(Do(COMPUTING, 2400, "cpu")),
    "compilation at step 1 by all": both(Do(COMPUTING, 2400, "cpu")),
    "a download before step 1": one(Do(COMPUTING, 1700)),
    "the first batch of all": both(Do(READING, 1700)),
    "the first collective": both(Do(WAITING, 1200)),
}


@pytest.mark.parametrize("name", [*SLOW, *FIRST])
def test_slow_worker_is_not_killed_in_ten_hours(name: str) -> None:
    life = Life(usual=len(name) % 3 + 0.1)
    if name in FIRST:
        life.take(*FIRST[name])
    while life.now < 1000 + HOURS:
        life.many(8)
        life.take(*SLOW.get(name, both()), rest=50.0 * (name == "a slow network"))
        assert life.hangs == []
        life.now = life.ended = life.now + 7200
    assert life.step > 15


@pytest.mark.parametrize("phase", [OUTSIDE, READING, COMPUTING, REDUCING])
@pytest.mark.parametrize("paused", [{0}, {1}, {2}, {0, 1}, {0, 1, 2}], ids=str)
@pytest.mark.parametrize("who", [one, both])
def test_machine_that_was_paused_for_an_hour_does_not_hang(
    phase: Phase, paused: set[int], who: Callable[..., tuple[tuple[Do, ...], tuple[Do, ...]]]
) -> None:
    life = Life()
    for watcher in life.watchers:
        watcher.asleep = ASLEEP
    life.many(9)
    began = life.now
    for worker, does in zip(life.workers, who(Do(phase, 3601), Do(COMPUTING, 3, "cpu")), strict=True):
        worker.begin(began, does)
    for seconds in range(3600):
        if seconds < 2 or (paused != {0, 1, 2} and seconds % 1200 < 3):
            life.look(began + seconds, paused=paused if seconds >= 2 else ())
    if 2 in paused:
        life.job = watch.look(life.job, START + timedelta(seconds=began + 3600 - 1000))
    for tenth in range(30):
        life.look(began + 3600 + tenth / 10)
    assert life.hangs == []


HUNG: Final = {
    "stopped": (one(Do(COMPUTING, END, "cpu")), "it is stopped (SIGSTOP) for "),
    "stopped while it evaluates": (one(Do(OUTSIDE, END)), "it is stopped (SIGSTOP) for "),
    "a lock": (one(Do(COMPUTING, END)), "it neither computes nor reads in its step for "),
    "a lock after work": (one(Do(COMPUTING, 0.9, "cpu"), Do(COMPUTING, END)), "it neither computes nor "),
    "a lock in a divided model": (
        met(COMPUTING, Do(COMPUTING, END)),
        "it neither computes nor reads in its ",
    ),
    "a lock in its backward pass": (
        met(REDUCING, Do(REDUCING, END)),
        "it neither computes nor reads in its ",
    ),
    "stopped in a divided model": (met(COMPUTING, Do(COMPUTING, END)), "it is stopped (SIGSTOP) for "),
    "stopped between two steps": (met(OUTSIDE, Do(OUTSIDE, END)), "it is stopped (SIGSTOP) for "),
    "a step behind": (one(Do(REDUCING, END, behind=True)), "it reduces for "),
}
LATER: Final = {
    "records that never come": (one(Do(READING, END)), 600, "it waits for its records for "),
    "a file server that is gone": (one(Do(COMPUTING, END, "disk")), 600, "it waits for storage for "),
    "a response that never comes": (one(Do(COMPUTING, END, "data")), 600, "it waits for data in its step"),
    "an endless loop in a divided model": (
        met(COMPUTING, Do(COMPUTING, END, "cpu")), 600, "it computes in its step for "),
    "an endless loop": (one(Do(COMPUTING, END, "cpu")), 600, "it computes in its step for "),
    "an evaluation that stands still": (one(Do(OUTSIDE, END)), 1800, "nor reads between two steps"),
    "a collective": (both(Do(COMPUTING, 1, "cpu"), Do(REDUCING, END)), 60, "hang in a collective"),
    "a collective that spins": (both(Do(REDUCING, END, "cpu")), 600, "hang in a collective"),
}  # fmt: skip


@pytest.mark.parametrize("usual", [0.1, 2.0, 20.0])
@pytest.mark.parametrize("name", HUNG)
def test_hang_is_found_within_five_seconds_beyond_three_steps(name: str, usual: float) -> None:
    life, (does, sentence) = Life(usual), HUNG[name]
    life.many(9)
    life.stopped |= {1} if "stopped" in name else set()
    life.take(*does, gap=0.2)
    [hang] = life.hangs
    assert sentence in hang.message
    assert 4 < life.now - life.ended <= 5 + 3 * (usual + 0.01)


@pytest.mark.parametrize("name", LATER)
def test_worker_that_may_only_be_slow_is_named_long_before_it_is_killed(name: str) -> None:
    life, (does, bound, sentence) = Life(), LATER[name]
    life.many(9)
    life.take(*does)
    [hang] = life.hangs
    assert sentence in hang.message
    assert bound < life.now - life.ended < 1.2 * bound + 30
    late = [each for each in life.findings if each.reason is Kind.LATE]
    assert len(late) == ("collective" not in name)
    assert all((hang.at - each.at).total_seconds() > bound / 2 for each in late)
    assert all(each.message.endswith(f"; it is killed after {bound} s") for each in late)


def test_bounds_are_the_same_for_a_run_and_for_a_master() -> None:
    run = {name: timedelta(seconds=getattr(Conf(), f"hang_{name}")) for name in Waits.__struct_fields__}
    assert Waits(**run) == Waits() == Settings().limits.waits
    assert Settings(hang_reading="900").limits.waits.reading == timedelta(minutes=15)
