"""Hours of virtual time under the rules of memory: no node is killed at a limit that a rule had lowered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elasticjob.api.resources import Bytes
from elasticjob.api.sizes.facts import JobFacts, Mode, Placement, Sample, Stage, Use
from elasticjob.api.sizes.role import Role
from elasticjob.brain.events import Pace as Looks
from elasticjob.brain.events import event_of, is_steady, size_of_verdict
from elasticjob.brain.history import History
from elasticjob.brain.store import LOOK_BACK, RECENT
from elasticjob.sizing import demand
from elasticjob.sizing.algorithm import Decider
from elasticjob.sizing.decide import decide
from elasticjob.sizing.facts import Event, Facts
from elasticjob.sizing.rules.oom import next_memory
from elasticjob.sizing.table import ALGORITHMS
from lab.build.sizing import GIB, MIB, NOW

STEP = timedelta(seconds=15)
JOB = JobFacts(name="j", uid="u", mode=Mode.CLUSTER, roles={"worker": Role(count=1)})
Load = Callable[[float], int]
"""The bytes that a pod uses at a minute."""


@dataclass
class Pod:
    """A pod with a load, whose limit a decider moves; `kills` are those at a limit that had been lowered."""

    load: Load
    limit: int
    given: int = 0
    peak: int = 0
    kills: int = 0
    changes: list[int] = field(default_factory=list)

    def use(self, minute: float) -> Use:
        used = self.load(minute)
        self.peak = max(self.peak, used)
        if used > self.limit:
            self.kills += self.limit < self.given
            self.limit = int((next_memory(Bytes(self.limit)) or Bytes(self.limit)).value)
        self.given = max(self.given, self.limit)
        return Use("j-worker-0", "worker", 1.0, used, 4.0, self.limit, self.peak)

    def placed(self) -> Placement:
        given = {"cpu": "4", "memory": str(self.limit)}
        return Placement(sizes={"worker": 1}, resources={"worker": given})

    def change(self, facts: Facts, event: Event, by: Decider) -> None:
        group = decide(facts, event, by, ALGORITHMS).change.groups.get("worker")
        if group and "memory" in group.resource:
            self.limit = int(group.resource["memory"].value)
            self.changes.append(self.limit)


def under_brain(pod: Pod, minutes: int) -> Pod:
    """Let Brain look at a pod every 30 s, with the newest samples alone, as its database gives them."""
    taken: list[Sample] = []
    last = None
    for tick in range(minutes * 4):
        now = NOW + tick * STEP
        taken.append(Sample(now, 1, 1.0, 8.0, (pod.use(tick / 4),)))
        older = [each for each in taken[:-RECENT] if each.at <= now - LOOK_BACK][-1:]
        samples = (*older, *taken[-RECENT:])
        history = History("u", "j", Stage.RUNNING, samples)
        counts, looks = {"worker": 1}, Looks()
        facts = history.facts(
            JOB,
            pod.placed(),
            now,
            settled=is_steady(samples, counts, looks),
            judged=size_of_verdict(samples, looks),
        )
        if tick % 2 == 0 and (event := event_of(facts, last, looks)):
            before = len(pod.changes)
            pod.change(facts, event, Decider.BRAIN)
            last = now if len(pod.changes) > before else last
    return pod


def under_master(pod: Pod, minutes: int) -> Pod:
    """Let a master look every 30 s, with what nodes have needed since the job began."""
    facts = Facts(replace_mode(JOB), pod.placed(), Stage.RUNNING, NOW)
    for tick in range(minutes * 4):
        now = NOW + tick * STEP
        sample = Sample(now, 1, 1.0, 8.0, (pod.use(tick / 4),))
        needed = demand.need_of(
            facts.demand.get("worker", demand.Demand()), sample, "worker", facts.pace.point
        )
        facts = replace(
            facts,
            now=now,
            placed=pod.placed(),
            samples=(*facts.samples, sample)[-5:],
            demand={"worker": needed},
        )
        if tick % 2 == 0:
            pod.change(facts, Event.IDLE, Decider.MASTER)
    return pod


def replace_mode(job: JobFacts) -> JobFacts:
    return job.but(mode=Mode.SINGLE_JOB)


def steady(minute: float) -> int:
    """The training of the report: workers of 0.5 GiB, beside them the agent, a warm process and files."""
    return int((0.5 + 0.06 + 0.8 + 0.3) * GIB)


@pytest.mark.parametrize("under", [under_brain, under_master])
def test_a_healthy_training_of_16_gib_lives_an_hour(under: Callable[[Pod, int], Pod]) -> None:
    pod = under(Pod(steady, 16 * GIB), 60)
    assert pod.kills == 0
    assert pod.changes  # what was not needed for forty minutes is taken
    assert all(limit > steady(0) + 256 * MIB for limit in pod.changes)


@settings(max_examples=4, deadline=None)
@example(base=1.5, growth=0.0, every=9, extra=6.0, limit=16)
@given(
    base=st.floats(0.3, 8),
    growth=st.floats(0, 0.02),
    every=st.integers(2, 35),
    extra=st.floats(0, 6),
    limit=st.sampled_from([16, 24]),
)
def test_no_rule_takes_what_was_needed(
    base: float, growth: float, every: int, extra: float, limit: int
) -> None:
    """Evaluations every few minutes need more; memory may rise slowly, too."""

    def load(minute: float) -> int:
        at_work = base + growth * minute
        return int((at_work + (extra if minute % every >= every - 0.5 else 0)) * GIB)

    for under in (under_brain, under_master):
        assert under(Pod(load, limit * GIB), 90).kills == 0
