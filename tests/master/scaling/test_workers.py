"""The rules of workers, chief and evaluator, a row each."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from elasticjob.api.v1alpha1.priorities import is_high
from elasticjob.master.scaling.workers import (
    Critical,
    Member,
    Members,
    down,
    migrate,
    relaunch,
    scale,
    up,
)
from elasticjob.master.state.node import Phase
from elasticjob.sizing.exits import ExitReason as Reason

NONE = Critical()


def worker(id: int, rank: int | None = None, **more: Any) -> Member:
    rank = id if rank is None else rank
    return Member(role="worker", id=id, rank=rank, **{"phase": Phase.RUNNING, **more})


def of(count: int) -> Members:
    return tuple(worker(number) for number in range(count))


def alive(members: Members) -> list[tuple[int, int]]:
    return sorted((member.id, member.rank) for member in members if member.alive)


@pytest.mark.parametrize(
    ("case", "after", "expected"),
    [
        ("up: new ids, ranks go on", up(of(2), "worker", 2), [(0, 0), (1, 1), (2, 2), (3, 3)]),
        (
            "up fills the ranks that are free",
            up((worker(0), worker(5, 2)), "worker", 2),
            [(0, 0), (5, 2), (6, 1), (7, 3)],
        ),
        ("up: a rank that has ended is held", up((worker(0, phase=Phase.SUCCEEDED),), "worker", 1), [(1, 1)]),
        ("down: the highest rank first", down(of(3), "worker", 2, NONE), [(0, 0)]),
        ("down: never critical ones", down(of(3), "worker", 3, Critical("2:1")), [(2, 2)]),
        (
            "down: a released one is not counted",
            down(down(of(3), "worker", 1, NONE), "worker", 1, NONE),
            [(0, 0)],
        ),
        ("the same size changes nothing", scale(of(3), "worker", 3), [(0, 0), (1, 1), (2, 2)]),
        ("another role is left alone", scale(of(1), "chief", 1), [(0, 0), (0, 0)]),
        ("migrate: a new id, the old rank", migrate(of(2), "worker", 0, {}, NONE), [(1, 1), (2, 0)]),
        (
            "migrate: critical ones are skipped",
            migrate(of(2), "worker", 0, {}, Critical("0:3")),
            [(0, 0), (1, 1)],
        ),
        ("migrate: unknown ones are skipped", migrate(of(2), "worker", 7, {}, NONE), [(0, 0), (1, 1)]),
    ],
)
def test_sizes_and_places(case: str, after: Members, expected: list[tuple[int, int]]) -> None:
    assert alive(after) == expected


def test_a_migrated_node_gets_the_plan_and_keeps_what_it_does_not_name() -> None:
    old = worker(0, resource={"cpu": "2", "memory": "1Gi"}, relaunches=2, avoid=("m1",))
    new = migrate((old,), "worker", 0, {"memory": "4Gi"}, NONE)[-1]
    assert (new.resource, new.relaunches, new.avoid) == ({"cpu": "2", "memory": "4Gi"}, 2, ("m1",))


AGAIN, NEVER = True, False


@pytest.mark.parametrize(
    ("reason", "again", "counts", "avoids"),
    [
        (Reason.SUCCEEDED, NEVER, 0, False),
        (Reason.OOM_KILLED, AGAIN, 1, False),
        (Reason.KILLED, AGAIN, 0, False),
        (Reason.RUN_AGAIN, AGAIN, 0, False),
        (Reason.FATAL_ERROR, NEVER, 0, False),
        (Reason.HARDWARE_ERROR, AGAIN, 1, True),
        (Reason.CRASHED, AGAIN, 1, False),
    ],
)
def test_what_follows_an_end(reason: Reason, again: bool, counts: int, avoids: bool) -> None:
    members = of(2)
    found = relaunch(members, members[0], reason, machine="m1").members
    assert alive(found) == ([(1, 1), (2, 0)] if again else [(1, 1)])
    if again:
        new = found[-1]
        assert (new.relaunches, new.avoid, new.phase) == (counts, ("m1",) if avoids else (), Phase.INITIAL)


FATAL = {"reason": Reason.FATAL_ERROR}


@pytest.mark.parametrize(
    ("case", "ended", "how", "again", "fatal", "says"),
    [
        ("the budget", worker(0, relaunches=2), {}, True, False, "worker 0: Crashed; relaunch 3 of 3"),
        ("is spent", worker(0, relaunches=3), {}, False, False, "Crashed, and its 3 relaunches are spent"),
        ("at most 5", worker(0, relaunches=5), {"budget": 9}, False, False, "and its 5 relaunches are spent"),
        ("kills are free", worker(0, relaunches=3), {"reason": Reason.KILLED}, True, False, "0: Killed"),
        ("critical", worker(0, relaunches=1), {"critical": Critical("0:1")}, False, True, "1 relaunches are"),
        ("a fatal error", worker(0), FATAL, False, False, "FatalError: it would fail again"),
        ("of a critical one", worker(0), FATAL | {"critical": Critical("all")}, False, True, "fail again"),
        ("relaunch_always", worker(0), FATAL | {"always": True}, True, False, "Error; relaunch 1 of 3"),
        ("a released one", worker(0, released=True), {}, False, False, "worker 0 has left"),
        ("a migrated one", worker(0, replaced=True, released=True), {}, False, False, "worker 0 has left"),
    ],
)
def test_relaunches(
    case: str, ended: Member, how: dict[str, Any], again: bool, fatal: bool, says: str
) -> None:
    verdict = relaunch((ended,), ended, **{"reason": Reason.CRASHED, **how})
    assert (bool(alive(verdict.members)), verdict.fatal) == (again, fatal)
    assert says in verdict.sentence


@pytest.mark.parametrize(
    ("critical", "role", "rank", "expected"),
    [
        (Critical(), "worker", 0, False),
        (Critical(servers=True), "worker", 0, True),
        (Critical(servers=True), "worker", 1, False),
        (Critical("none", servers=True), "worker", 0, False),
        (Critical("all"), "worker", 7, True),
        (Critical("0:1, 3:2"), "worker", 3, True),
        (Critical("0:1, 3:2"), "worker", 1, False),
        (Critical("none"), "ps", 4, True),
        (Critical(), "chief", 0, True),
        (Critical(), "evaluator", 0, True),
    ],
)
def test_critical_nodes(critical: Critical, role: str, rank: int, expected: bool) -> None:
    assert critical.holds(Member(role=role, id=9, rank=rank)) is expected


@pytest.mark.parametrize("setting", ["0", "0:", ":1", "a:1", "0:-1", "0:1,", "some"])
def test_a_setting_of_critical_nodes_that_cannot_be_read(setting: str) -> None:
    with pytest.raises(ValueError, match="write id:relaunches,…, all or none"):
        Critical(setting)


@pytest.mark.parametrize(
    ("priority", "count", "high"),
    [
        ("high", 3, 3),
        ("low", 3, 0),
        ("", 3, 0),
        ("0.5", 4, 2),
        ("0.5", 5, 3),
        ("0.1", 10, 1),
        ("1/3", 3, 1),
        ("1", 2, 2),
    ],
)
def test_ranks_below_the_share_are_high(priority: str, count: int, high: int) -> None:
    assert [is_high(priority, rank, count) for rank in range(count)] == [r < high for r in range(count)]


@pytest.mark.parametrize("priority", ["0", "1.1", "-0.5", "most", "1/0", "nan"])
def test_a_priority_out_of_range(priority: str) -> None:
    with pytest.raises(ValueError, match="is no priority"):
        is_high(priority, 0, 2)


class Staffed(RuleBasedStateMachine):
    """Any history of plans and ends."""

    def __init__(self) -> None:
        super().__init__()
        self.members: Members = ()
        self.critical = Critical("0:2")
        self.ids: dict[int, int] = {}

    def become(self, members: Members) -> None:
        new = {member.id: member.rank for member in members} | self.ids
        assert all(new[m.id] == m.rank for m in members), "an id has one place for ever"
        assert len({m.id for m in members}) == len(members)
        self.members, self.ids = members, new

    @rule(count=st.integers(0, 6))
    def scale(self, count: int) -> None:
        held = {m.rank for m in self.members if m.holds_place}
        self.become(scale(self.members, "worker", count, self.critical))
        now = {m.rank for m in self.members if m.holds_place}
        assert now >= held if count >= len(held) else now <= held
        assert len(now) >= min(count, len(now))
        self.become(after := scale(self.members, "worker", max(count, len(now)), self.critical))
        assert len([m for m in after if m.holds_place]) == max(count, len(now))

    @rule(rank=st.integers(0, 6))
    def migrate(self, rank: int) -> None:
        before = {m.rank for m in self.members if m.alive}
        self.become(migrate(self.members, "worker", rank, {"cpu": "2"}, self.critical))
        assert {m.rank for m in self.members if m.alive} == before

    @precondition(lambda self: any(m.phase in ("Initial", "Running") for m in self.members))
    @rule(reason=st.sampled_from(list(Reason)), data=st.data())
    def end(self, reason: Reason, data: st.DataObject) -> None:
        going = [m for m in self.members if m.phase in ("Initial", "Running")]
        ended = data.draw(st.sampled_from(going))
        verdict = relaunch(self.members, ended, reason, critical=self.critical)
        self.become(verdict.members)
        assert verdict.sentence
        assert verdict.fatal <= self.critical.holds(ended)

    @invariant()
    def one_node_holds_each_place(self) -> None:
        held = [m.rank for m in self.members if m.holds_place]
        assert len(set(held)) == len(held)

    @invariant()
    def budgets_are_kept(self) -> None:
        assert all(m.relaunches <= (2 if m.rank == 0 else 3) for m in self.members)


TestStaffed = Staffed.TestCase
