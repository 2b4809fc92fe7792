"""Who is slow: simulated traces with what real ones have, and the verdicts about them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from random import Random

import pytest
from msgspec.structs import replace

from elasticjob.api.rpc.nodes import Doing, Order, Report, WorkerState
from elasticjob.master.health import watch as health
from elasticjob.master.health.hang import Seen
from elasticjob.master.health.straggler import ratios, share, slow
from elasticjob.master.state.condition import Finding, Kind
from elasticjob.trainer.agent.seeing.health import Sight, Watcher
from elasticjob.trainer.link.pulse import Phase, Pulse
from lab.jobs.training.stepping import Stepping
from lab.virtual.master import START, Played, join, watch


def workers(*seconds: float, best: tuple[float, ...] = (), step: float = 0.0) -> list[Seen]:
    return [
        Seen("n", rank, WorkerState(local_rank=0, doing=Doing.REDUCING, busy=busy, best=usual, usual=step))
        for rank, (busy, usual) in enumerate(zip(seconds, best or seconds, strict=True))
    ]


EACH = "s a step before it waits for the others,"


@pytest.mark.parametrize(
    ("given", "slots", "sentences"),
    [
        (workers(1, 1, 2.5), 3, [f"rank 2 on n is slow: 2.5 {EACH} 2.5 times the median of 1 s"]),
        (workers(1, 1, 1.9), 3, []),
        (workers(1, 1, 4.5), 7, [f"rank 2 on n is slow: 4.5 {EACH} 4.5 times the median of 1 s"]),
        (workers(4.5, 1, 1), 4, []),  # two micro-batches against one
        (workers(11, 1, 1), 4, [f"rank 0 on n is slow: 11 {EACH} 2.2 times the median of 5 s"]),
        (workers(1, 2.5), 2, []),  # with two, the median says nothing
        (
            workers(1, 2.5, best=(1, 1)),
            2,
            [f"rank 1 on n is slow: 2.5 {EACH} 2.5 times its own usual time of 1 s"],
        ),
        (workers(2.5, 2.5, best=(1, 1)), 2, []),  # the work has changed, for all
        (workers(2.5, best=(1,)), 1, []),
        (workers(0.001, 0.001, 0.006), 3, []),  # milliseconds are noise
        (workers(0.01, 0.01, 0.03, step=0.2), 3, []),  # the step takes as long without it
        (
            workers(0.1, 0.1, 0.3, step=0.5),
            3,
            [f"rank 2 on n is slow: 0.3 {EACH} 3.0 times the median of 0.1 s"],
        ),
        (workers(1, 1, 0, 9), 4, []),  # one has had no step yet
    ],
)
def test_who_is_slow(given: list[Seen], slots: int, sentences: list[str]) -> None:
    assert [*slow(ratios(given, slots, {})).values()] == sentences


def test_what_a_straggler_takes_does_not_become_usual() -> None:
    given = workers(1, 2.5, best=(1, 2.5))
    assert slow(ratios(given, 2, {})) == {}
    assert [*slow(ratios(given, 2, {given[1]: 1.0})).values()] == [
        f"rank 1 on n is slow: 2.5 {EACH} 2.5 times its own usual time of 1 s"
    ]


@dataclass(frozen=True)
class Trace:
    """What the workers of a job take for each step, drawn from a seed; in every other one, one is slow."""

    seed: int
    size: int
    slots: int
    step: float
    slow: int | None  # the straggler
    since: int

    @classmethod
    def of(cls, seed: int) -> Trace:
        draw = Random(seed)
        size = draw.choice((2, 3, 4, 6, 8))
        slots = size + draw.randrange(0, 2 * size)
        step = draw.choice((0.05, 0.3, 1.0, 5.0))
        return cls(
            seed, size, slots, step, draw.randrange(size) if seed % 2 else None, draw.randrange(30, 60)
        )

    def busy(self, rank: int, step: int) -> float:
        """Noise, pauses, faster and slower machines, and records that become longer."""
        machine, draw = Random(f"{self.seed} {rank}"), Random(f"{self.seed} {rank} {step}")
        parts = share(self.slots, self.size, rank)
        passes = (3 * parts - 2) / (3 * self.slots / self.size - 2 + 1)
        seconds = self.step * passes * machine.uniform(0.85, 1.2) * draw.lognormvariate(0.0, 0.2)
        if draw.random() < 0.04:
            seconds += draw.uniform(0.5, 4.0) * self.step  # collects garbage, or another job on the machine
        if Random(f"{self.seed} longer").random() < 0.3 and step > 70:
            seconds *= 2.2  # for all
        if rank == self.slow and step >= self.since:
            seconds *= Random(f"{self.seed} slow").uniform(3.0, 5.0)
        return seconds

    def pause(self, rank: int, step: int) -> float:
        """Two minutes of evaluation by all, or of a checkpoint by rank 0, every 25 steps."""
        if step % 25:
            return 0.0
        return 120.0 if Random(f"{self.seed} all").random() < 0.5 or rank == 0 else 0.0


def verdicts(seed: int) -> tuple[Trace, list[tuple[int, str]]]:
    """Return a trace and the findings about it, each with its step."""
    trace = Trace.of(seed)
    run = Stepping(trace.size, trace.busy, trace.pause)
    world = run.game.job.world
    assert world is not None
    run.game.job = run.game.job.but(world=replace(world, batch_slots=trace.slots))
    found: list[tuple[int, str]] = []
    for _ in range(90):
        run.steps(1)
        found += [(run.step, finding.message) for finding in run.findings[len(found) :]]
    return trace, found


def test_stragglers_are_named_within_20_steps_and_nobody_else() -> None:
    right: list[tuple[float, int]] = []
    wrong: list[str] = []
    for seed in range(30):
        trace, found = verdicts(seed)
        mine = [step for step, message in found if message.startswith(f"rank {trace.slow} ")]
        wrong += [f"{trace}: {each}" for each in found if each[0] not in mine]
        right += [(trace.step, step - trace.since) for step in mine[:1]]
    assert not wrong
    assert len(right) == 15
    assert sum(after > 20 for step, after in right if step > 0.1) <= 1
    assert sum(after * step > 2.5 for step, after in right if step <= 0.1) <= 1


def small_model(hours: float, slow: tuple[float, float] | None = None) -> list[Finding]:
    """Return the findings about two workers on a laptop, whose steps take a millisecond.

    Now and then the machine has other work, for up to six seconds, of which one rank is the victim; or rank 1
    is `slow` between two times. There are two looks a second then, else fewer.
    """
    draw, game, names = Random(1), Played(maximum=2), ("node-0", "node-1")
    game.ask(*map(watch, names), *map(join, names))
    job, watchers = game.job, [Watcher() for _ in names]
    now, victim, begins, ends = 0.0, 1, *(slow or (0.0, 0.0))
    while now < hours * 3600:
        if now > ends + 6 and not slow:
            victim, begins = draw.randrange(2), now + draw.expovariate(1 / 40)
            ends = begins + draw.uniform(0.5, 6.0)
        now += 0.5 if begins < now < ends + 6 else 5.0
        at = START + timedelta(seconds=now)
        for rank, (name, watcher) in enumerate(zip(names, watchers, strict=True)):
            busy = 0.001 * draw.lognormvariate(0.0, 0.5)
            busy *= draw.uniform(20.0, 60.0) if rank == victim and begins < now < ends else 1.0
            pulse = Pulse(Phase.COMPUTING, int(now * 100), 1000.0 + now, busy, 1000.0 + now)
            watcher.look({0: 1}, {0: Sight(pulse)}, 1000.0 + now)
            states = watcher.states(1000.0 + now)
            job = health.heard(
                job, Report(node=name, incarnation=f"{name}-life", round=1, workers=states), at
            )
        job = health.look(job, at)
    return [*job.health.findings]


def test_other_work_of_a_machine_makes_no_straggler_of_a_small_model_in_ten_hours() -> None:
    assert small_model(10.0) == []


def test_straggler_has_one_finding_which_is_closed_when_it_is_none_any_more() -> None:
    [found] = small_model(0.2, (300.0, 500.0))
    assert found.message.startswith("rank 1 on node-1 is slow: 0.0")
    assert 320.0 < (found.at - START).total_seconds() < 330.0
    assert found.until is not None
    assert 500.0 < (found.until - START).total_seconds() < 510.0


def test_straggler_is_excluded_if_the_job_is_set_so() -> None:
    run = Stepping(4, lambda rank, step: 1.0 if rank == 2 and step > 20 else 0.3, minimum=3)
    run.game.job = run.game.job.but(spec=run.game.job.spec.but(exclude_stragglers=True))
    run.run(60)
    assert [finding.reason for finding in run.findings] == [Kind.STRAGGLER, Kind.FAULT_NODE]
    assert run.findings[1].message.startswith("node-2 takes part no more: rank 2 on node-2 is slow")
    assert run.orders().order is Order.REGROUP
    assert run.orders().lost == ()
    others = [name for name in run.names if name != "node-2"]
    run.game.ask(*(join(name, after=1) for name in (*others, "node-2")))
    assert run.game.names() == others
    assert run.game.job.nodes["node-2"].joined is None
