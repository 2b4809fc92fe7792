"""When an optimizer is asked, what is remembered, and that a restart does not ask twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from elasticjob.api.rpc.nodes import Usage
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.facts import JobFacts, Mode, Stage
from elasticjob.api.sizes.role import Role
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.objects.kinds import Key
from elasticjob.master.scalers.scaleplan import manifest
from elasticjob.master.scaling import stages
from elasticjob.master.scaling.observed import placed_of
from elasticjob.master.state.job import Job, Spec
from elasticjob.master.state.node import Node, Phase
from elasticjob.master.state.roster import Roster
from elasticjob.master.state.scaling import Scaling, Target
from elasticjob.sizing.demand import Demand, need_of
from elasticjob.sizing.facts import Facts
from lab.build.sizing import GIB, NOW, samples, use

ELASTIC = JobFacts(name="digits", uid="1", mode=Mode.SINGLE_JOB, roles={"worker": Role(least=1, most=8)})
MARK = ELASTIC.mark
GROW = Change({"worker": Group(2)}, reason="two are tried")
SETTLED = Scaling(
    placed=Target(sizes={"worker": 1}, begun=True),
    stage=Stage.RUNNING,
    records=samples((1, 10)),
    since=NOW - timedelta(minutes=2),
)


GROWS = Target(sizes={"worker": 2})


@dataclass
class Master:
    """Asks, answers with `plan`, and tells what is carried out."""

    job: Job
    now: datetime = NOW
    made: list[str] = field(default_factory=list)

    def question(self, seconds: float, plan: Change = GROW) -> Facts:
        """The question that is asked in this time."""
        found = self.pass_(seconds, plan)
        assert found is not None
        return found

    def pass_(self, seconds: float, plan: Change = GROW) -> Facts | None:
        """Let time pass, second by second, until a question is asked."""
        for _ in range(int(seconds)):
            self.now += timedelta(seconds=1)
            if facts := stages.question(self.job, self.now):
                allowed = stages.permit(self.job, facts, plan)
                if allowed:
                    self.made.append(stages.name_of(self.job, facts))
                self.job = stages.after_answer(self.job, facts, allowed, self.now)
                return facts
        return None


def master(scaling: Scaling = SETTLED, sizes: JobFacts = ELASTIC, **more: Any) -> Master:
    return Master(Job(spec=Spec(job="digits", sizes=sizes), scaling=scaling, **more))


OURS, THEIRS = (Target(sizes={"worker": 2}, open=(name,)) for name in (f"digits-auto-{MARK}-1", "x"))
ASKED: dict[str, tuple[Scaling, JobFacts, bool]] = {
    "runs": (SETTLED, ELASTIC, True),
    "a plan is open": (SETTLED.but(placed=Target(open=("x",))), ELASTIC, False),
    "ours, and a node is missing": (SETTLED.but(placed=OURS, planned=NOW), ELASTIC, True),
    "theirs": (SETTLED.but(placed=THEIRS, planned=NOW), ELASTIC, False),
    "manual": (SETTLED, ELASTIC.but(mode=Mode.MANUAL), False),
    "no records": (SETTLED.but(records=()), ELASTIC, False),
    "start": (Scaling(), ELASTIC, True),
    "manual start": (Scaling(), ELASTIC.but(mode=Mode.MANUAL), True),
    "begun": (Scaling(placed=Target(begun=True)), ELASTIC, False),
    "sized": (Scaling(), ELASTIC.but(roles={"worker": Role(count=2)}), False),
}


@pytest.mark.parametrize(("scaling", "sizes", "asked"), ASKED.values(), ids=ASKED)
def test_when_it_is_asked(scaling: Scaling, sizes: JobFacts, asked: bool) -> None:
    assert (stages.question(master(scaling, sizes).job, NOW) is not None) is asked


def test_the_first_plan_has_a_name_that_is_the_same_whoever_makes_it() -> None:
    first, second = master(Scaling()), master(Scaling())
    for each in (first, second):
        each.question(10)
    assert first.made == second.made == [f"digits-start-{MARK}"]
    assert first.job.scaling.stage is Stage.WORKER_INITIAL


def test_a_plan_is_followed_by_a_pause_and_the_next_has_the_next_number() -> None:
    played = master()
    played.pass_(1)
    assert played.job.scaling.planned == played.now
    began = played.now
    placed = played.job.scaling.placed.but(sizes={"worker": 2})
    played.job = played.job.but(scaling=played.job.scaling.but(placed=placed, judged=2))
    assert not played.question(100, Change({"worker": Group(3)}, reason="three")).settled
    assert played.now - began == played.job.spec.limits.pace.ask
    assert played.made == [f"digits-auto-{MARK}-1", f"digits-auto-{MARK}-2"]


def test_a_plan_that_had_no_effect_is_not_made_again() -> None:
    played = master()
    for _ in range(20):
        played.pass_(100)
    assert len(played.made) == 1
    assert "did not allow just that before" in played.job.scaling.reason


def test_a_master_that_takes_over_without_the_snapshot_goes_on_from_the_plans() -> None:
    written = [SCALEPLAN.convert(manifest(Key("ml", "digits"), key, GROW)) for key in NAMES]
    placed = placed_of(None, written, "digits", MARK)
    assert (placed.begun, placed.number, set(placed.open)) == (True, 7, set(NAMES))
    played = master(SETTLED.but(placed=placed.but(open=(), sizes={"worker": 1}, planned=NOW)))
    assert not played.question(1).settled
    assert played.made[0] == f"digits-auto-{MARK}-8"


NAMES = (f"digits-start-{MARK}", f"digits-auto-{MARK}-3", f"digits-auto-{MARK}-7", "digits-auto-2-9", "mine")


def test_a_growth_without_machines_is_not_tried_again_for_longer_and_longer() -> None:
    played, waits = master(), []
    for count in (2, 3, 4):
        played.pass_(100, Change({"worker": Group(count)}, reason="no machine", hold=True))
        assert played.job.scaling.held is not None
        waits.append(played.job.scaling.held - played.now)
    assert waits == [timedelta(minutes=minutes) for minutes in (5, 10, 20)]


def test_a_restored_job_has_its_times_moved() -> None:
    gap = timedelta(hours=3)
    before = SETTLED.but(demand={"worker": Demand(risen=NOW)}, cuts={"a": NOW}, planned=NOW)
    after = before.shift(gap)
    later = NOW + gap
    assert (after.planned, after.cuts, after.demand["worker"].risen) == (later, {"a": later}, later)
    assert [b.at - a.at for a, b in zip(before.records, after.records, strict=True)] == [gap] * 3
    assert after.held is None


def test_what_nodes_need_is_the_most_of_any_one_ever() -> None:
    first = need_of(Demand(), samples((2, 1), uses=USES)[0], "worker", timedelta(minutes=1))
    assert (first.cores, first.sated, first.peak) == (3, True, 2 * GIB)
    more = tuple(node.but(memory=GIB, cpu=3.9, bytes=8 * GIB) for node in USES)
    then = need_of(first, samples((2, 1), uses=more)[0], "worker", timedelta(minutes=1))
    assert (then.cores, then.sated, then.peak, then.given) == (3.9, True, 4 * GIB, 8 * GIB)


USES = tuple(
    node.but(bytes=4 * GIB) for node in (use("worker", cpu=3, of=4, memory=2), use("worker", 1, cpu=2, of=4))
)


def test_nodes_that_wait_for_a_machine_are_told() -> None:
    pends = Node(name="digits-worker-1", role="worker", phase=Phase.PENDING, pends=NOW, resource={"cpu": "2"})
    runs = Node(name="digits-worker-0", role="worker", phase=Phase.RUNNING, usage=Usage(cpu=1, memory=1))
    [waits] = master(nodes=Roster([pends, runs])).question(1).waiting
    assert (waits.name, waits.since, waits.resource.manifest()) == ("digits-worker-1", NOW, {"cpu": "2"})
