"""Who hangs, in virtual time: agents look at pages, the master judges."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from elasticjob.api.rpc.nodes import Collective, Doing, Order, WorkerState
from elasticjob.master.health.hang import Seen, find
from elasticjob.master.state.condition import Kind
from elasticjob.master.state.job import Limits
from lab.jobs.training.stepping import REDUCE, Stepping

STEP = 0.5


def steady(rank: int, step: int) -> float:
    return STEP


def stuck(rank: int, since: int, usual: float = STEP, worker: int = 1) -> float:
    return math.inf if rank == worker and since > 8 else usual


def state(doing: Doing, since: float, **more: float) -> WorkerState:
    given = {"step": 47, "idle": since, "usual": 1.0, **more}
    return WorkerState(local_rank=0, doing=doing, since=since, **given)  # type: ignore[arg-type]


WAITS = state(Doing.REDUCING, 9.0)
COMPUTES = state(Doing.COMPUTING, 9.0)
STOPPED = state(Doing.COMPUTING, 9.0, stopped=9.0)
OUTSIDE = state(Doing.OUTSIDE, 9.0)


def inside(seq: int, name: str = "all_reduce", size: int = 8, since: float = 8.5) -> dict[str, Any]:
    """In a collective of a group of all, wherever that is."""
    known = Collective(group="mesh_tp 1", name=name, seq=seq, size=size, since=since)
    return {"collective": known, "collectives": (("mesh_tp 1", seq),)}


def before(seq: int) -> dict[str, Any]:
    """In no collective, after so many."""
    return {"collectives": (("mesh_tp 1", seq),)}


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        ([WAITS, COMPUTES],
         "rank 1 on b hangs: no step for 9.0 s (usual 1 s); it neither computes nor reads in its step for "
         "9.0 s while 1 other waits for it; its last step was 47"),
        ([WAITS, STOPPED, WAITS],
         "rank 1 on b hangs: no step for 9.0 s (usual 1 s); it is stopped (SIGSTOP) for 9.0 s while "
         "2 others wait for it; its last step was 47"),
        ([replace(WAITS, step=48), replace(WAITS, step=48), WAITS],
         "rank 2 on c hangs: no step for 9.0 s (usual 1 s); it reduces for 9.0 s while 2 others wait for "
         "it; its last step was 47"),
        ([WAITS, state(Doing.READING, 609.0), COMPUTES],
         "rank 1 on b and 1 more hangs: no step for 9.0 s (usual 1 s); it waits for its records for "
         "609.0 s while 1 other waits for it; its last step was 47"),
        ([replace(WAITS, idle=None, usual=0.0), replace(STOPPED, idle=None, usual=0.0, step=0)],
         "rank 1 on b hangs: it is stopped (SIGSTOP) for 9.0 s while 1 other waits for it"),
        ([WAITS, replace(OUTSIDE, stopped=9.0)],
         "rank 1 on b hangs: no step for 9.0 s (usual 1 s); it is stopped (SIGSTOP) for 9.0 s while "
         "1 other waits for it; its last step was 47"),
        ([replace(WAITS, since=99.0, idle=99.0)] * 3,
         "all 3 workers hang in a collective: no step for 99 s (usual 1 s), and each waits for the "
         "others; rank 2 on c, the youngest, is restarted"),
        ([replace(COMPUTES, **inside(7)), replace(COMPUTES, **before(6))],
         "rank 1 on b hangs: no step for 9.0 s (usual 1 s); it neither computes nor reads in its step for "
         "9.0 s while 1 other waits for it in all_reduce of mesh_tp 1; its last step was 47"),
        ([replace(COMPUTES, **inside(7)), replace(STOPPED, **before(7)), replace(WAITS, **inside(7))],
         "rank 1 on b hangs: no step for 9.0 s (usual 1 s); it is stopped (SIGSTOP) for 9.0 s while "
         "2 others wait for it in all_reduce of mesh_tp 1; its last step was 47"),
        ([replace(WAITS, **inside(7)), replace(WAITS, **before(6))],
         "rank 1 on b hangs: no step for 9.0 s (usual 1 s); it neither computes nor reads in its step for "
         "9.0 s while 1 other waits for it in all_reduce of mesh_tp 1; its last step was 47"),
        ([replace(OUTSIDE, **inside(7)), replace(OUTSIDE, stopped=9.0)],
         "rank 1 on b hangs: no step for 9.0 s (usual 1 s); it is stopped (SIGSTOP) for 9.0 s while "
         "1 other waits for it in all_reduce of mesh_tp 1; its last step was 47"),
        ([replace(COMPUTES, **inside(7)), replace(WAITS, **inside(7, "all_gather", 0))],
         "all 2 workers hang in a collective: no step for 9 s (usual 1 s), and rank 0 is in all_reduce "
         "of 8 numbers and rank 1 in all_gather, each as number 7 of mesh_tp 1: the script makes them "
         "differ, which no restart mends; rank 1 on b, the youngest, is restarted"),
        ([replace(WAITS, since=99.0, idle=99.0, cores=1.0, **inside(7, since=99.0))] * 2,
         "all 2 workers hang in a collective: no step for 99 s (usual 1 s), and each waits for the "
         "others in all_reduce of mesh_tp 1; rank 1 on b, the youngest, is restarted"),
        ([replace(COMPUTES, **inside(7)), replace(COMPUTES, cores=1.0)], None),  # it may only be slow
        ([replace(OUTSIDE, **inside(7)), OUTSIDE], None),
        ([replace(COMPUTES, **inside(7)), replace(COMPUTES, **inside(3))], None),  # each waits for the other
        ([replace(WAITS, **inside(7)), replace(WAITS, **before(7))], None),
        ([replace(WAITS, **inside(7)), WAITS], None),
        ([replace(COMPUTES, **inside(7, since=1.0)), COMPUTES], None),
        ([WAITS, WAITS], None),
        ([COMPUTES, COMPUTES], None),
        ([STOPPED], None),
        ([WAITS, OUTSIDE], None),
        ([WAITS, COMPUTES, OUTSIDE], None),
        ([WAITS, STOPPED, OUTSIDE], None),
        ([WAITS, replace(STOPPED, stopped=1.0)], None),
        ([WAITS, replace(COMPUTES, since=1.0)], None),
        ([replace(WAITS, since=1.0), COMPUTES], None),
        ([WAITS, replace(COMPUTES, idle=None)], None),
        ([replace(WAITS, idle=6.9), COMPUTES], None),
        ([WAITS, state(Doing.STARTING, 9.0)], None),
        ([replace(WAITS, usual=0.0), replace(COMPUTES, usual=0.0)], None),
    ],
)  # fmt: skip
def test_who_hangs(states: list[WorkerState], sentence: str | None) -> None:
    found = find(
        [Seen(name, rank, each) for rank, (name, each) in enumerate(zip("abcd", states, strict=False))],
        Limits(),
    )
    assert (found and found.sentence) == sentence


@given(
    st.lists(
        st.builds(
            WorkerState,
            local_rank=st.just(0),
            doing=st.sampled_from(Doing),
            step=st.integers(5, 6),
            since=st.floats(0, 200),
            idle=st.none() | st.floats(0, 200),
            usual=st.sampled_from([0.0, 1.0]),
            stopped=st.sampled_from([0.0, 1.0, 100.0]),
        ),
        max_size=4,
    )
)
@settings(max_examples=150, deadline=None)
def test_nobody_is_blamed_for_whom_nobody_waits_or_while_another_evaluates(states: list[WorkerState]) -> None:
    workers = [Seen("n", rank, each) for rank, each in enumerate(states)]
    found = find(workers, Limits())
    if found is None:
        return
    assert any(worker.waits for worker in workers)
    assert not any(each.doing in (Doing.OUTSIDE, Doing.ENDED) and not each.stopped for each in states)
    assert all(worker.since > 4.0 for worker in found.workers)
    assert (
        all(each.idle is None or each.idle > 7.0 or not each.usual for each in states)
        or found.workers[0].is_stopped
    )


@pytest.mark.parametrize("usual", [0.02, 0.5, 3.0, 20.0])
@pytest.mark.parametrize("kind", ["stuck", "stopped"])
def test_hang_is_noticed_within_five_seconds_beyond_three_steps(usual: float, kind: str) -> None:
    run = Stepping(4, lambda rank, step: stuck(rank, step, usual) if kind == "stuck" else usual)
    run.run(9 * (usual + REDUCE))
    if kind == "stopped":
        run.stop(1)
    began = run.now if kind == "stopped" else run.ended
    run.run(60 + 10 * usual)
    [finding] = run.findings
    assert finding.reason is Kind.HANG
    assert finding.message.startswith("rank 1 on node-1 hangs")
    assert 4.0 < run.now - began <= 5.0 + 3 * (usual + REDUCE)


def hanging() -> Stepping:
    """A job whose rank 1 has just been found to hang."""
    run = Stepping(3, lambda rank, step: stuck(rank, step))
    run.run(60)
    assert run.findings
    return run


def test_hung_worker_is_killed_when_all_stacks_are_written() -> None:
    run = hanging()
    hang = run.orders().hang
    assert hang is not None
    assert not hang.kill
    for rank in range(3):
        run.report(rank, stacks=hang.number)
        run.game.tick()
        now = run.orders().hang
        assert now is not None
        assert now.kill == (rank == 2)
    assert [place.node for place in hang.workers] == ["node-1"]


def test_agent_that_writes_no_stacks_delays_the_kill_by_seconds_only() -> None:
    run = hanging()
    began = run.now
    while not ((hang := run.orders().hang) and hang.kill):
        run.at(run.now + 0.1)
    assert run.now - began < 5


def test_node_of_a_worker_that_cannot_be_killed_is_given_up() -> None:
    run = hanging()
    run.run(30, alone=False)
    assert run.orders().order is Order.REGROUP
    assert run.orders().lost == ("node-1",)
