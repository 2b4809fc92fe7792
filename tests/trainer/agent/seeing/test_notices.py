"""What an agent says while nothing happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from elasticjob.api.rpc.nodes import Collective, Doing, Order, Orders, WorkerState
from elasticjob.api.rpc.rendezvous import Recovery
from elasticjob.trainer.agent.group import Group, Life, Worker
from elasticjob.trainer.agent.seeing.notices import Condition, Master, Notices, stalls, waits
from tests.trainer.agent.test_decide import TERMS, formed

WORKER = Worker(slot=0, born=0.0, life=Life.TRAINING, elastic=True, round=2, step_seconds=0.1)
TRAINING = Group(
    terms=replace(TERMS, node="b"),
    recovery=Recovery.IN_PROCESS,
    workers={0: WORKER},
    world=formed(2, "a", "b").world,
    seats=(0,),
)
WAITING = Group(terms=TERMS, recovery=Recovery.IN_PROCESS)
MASTER = Master("10.0.0.9:29400", heard=100.0, trouble="Connection refused", patience=900.0)


WAITS = WorkerState(local_rank=0, doing=Doing.REDUCING, step=47, since=0.0, idle=0.0, usual=0.1)
STOPPED = structs.replace(WAITS, stopped=1.0)
SLOW = structs.replace(WAITS, usual=3.0, doing=Doing.COMPUTING)
FIRST = structs.replace(WAITS, step=0, idle=None, usual=0.0, doing=Doing.READING)
PLAIN = WorkerState(local_rank=0, doing=Doing.STARTING)
AWAY = structs.replace(WAITS, doing=Doing.OUTSIDE)


def later(state: WorkerState, seconds: float) -> WorkerState:
    """The same worker after so long without any change."""
    idle = None if state.idle is None else state.idle + seconds
    stopped = state.stopped + seconds if state.stopped else 0.0
    return structs.replace(state, since=state.since + seconds, idle=idle, stopped=stopped)


@pytest.mark.parametrize(
    ("state", "said_after", "sentence"),
    [
        (
            WAITS,
            10,
            "rank 1 has made no step for 10 s: it waits for the others for 10 s; its last step was 47",
        ),
        (
            structs.replace(WAITS, since=-9.5),  # what it does at 10 s began a moment before
            10,
            "rank 1 has made no step for 10 s; its last step was 47",
        ),
        (
            structs.replace(SLOW, collective=Collective(group="mesh_tp", name="all_reduce")),
            30,
            "rank 1 has made no step for 30 s: it waits for the others in all_reduce of mesh_tp for 30 s; "
            "its last step was 47",
        ),
        (STOPPED, 9, "rank 1 is stopped (SIGSTOP) for 10 s; its last step was 47"),
        (SLOW, 30, "rank 1 has made no step for 30 s: it computes for 30 s; its last step was 47"),
        (FIRST, 30, "rank 1 has made no step for 30 s: it waits for its records for 30 s"),
        (structs.replace(PLAIN, stopped=1.0), 9, "rank 1 is stopped (SIGSTOP) for 10 s"),
        (PLAIN, None, ""),
        (AWAY, None, ""),
    ],
    ids=[
        "waits",
        "just waits",
        "in a collective",
        "stopped",
        "slow",
        "first",
        "plain stopped",
        "plain",
        "evaluates",
    ],
)
def test_worker_without_a_step_is_named_with_its_rank_and_last_step(
    state: WorkerState, said_after: int | None, sentence: str
) -> None:
    notices = Notices()
    said: dict[int, str] = {}
    for second in range(60):
        for text in notices.due(stalls(TRAINING, [later(state, second)], 100.0 + second), 100.0 + second):
            said.setdefault(second, text)
    assert said.get(said_after or 0, "") == sentence
    assert sorted(said) == (
        [] if said_after is None else [said_after + more for more in (0, 30) if said_after + more < 60]
    )


@pytest.mark.parametrize(
    ("group", "joined", "now", "sentence"),
    [
        (TRAINING, None, 102.0, None),
        (TRAINING, None, 104.0,
         "the master at 10.0.0.9:29400 has not answered for 4 s (Connection refused); "
         "the workers train on; this node gives up in 896 s"),
        (WAITING, None, 130.0,
         "the master at 10.0.0.9:29400 has not answered for 30 s (Connection refused); the workers wait; "
         "this node gives up in 870 s"),
        (replace(WAITING,
                             orders=Orders(version=1, order=Order.TRAIN, round=0,
                                           reason="1 of at least 2 nodes joined")), 90.0, 101.0,
         "joined 10.0.0.9:29400; 1 of at least 2 nodes joined"),
        (WAITING, 70.0, 101.0,
         "waiting for 31 s at the master at 10.0.0.9:29400: the other nodes have not joined"),
        (replace(TRAINING, workers={}), 90.0, 101.0,
         "waiting for 11 s at the master at 10.0.0.9:29400: the other nodes have not joined"),
    ],
    ids=["heard", "trains on", "waits", "joined", "nodes", "lost its world"],
)  # fmt: skip
def test_agent_says_what_it_waits_for(
    group: Group, joined: float | None, now: float, sentence: str | None
) -> None:
    assert [each.sentence for each in waits(group, MASTER, joined, now)] == ([sentence] if sentence else [])


@pytest.mark.parametrize(("group", "at"), [(WAITING, [1, 31]), (replace(TRAINING, workers={}), [4, 34])])
def test_a_node_says_soon_that_it_has_joined(group: Group, at: list[int]) -> None:
    notices, heard = Notices(), replace(MASTER, heard=1000.0)
    assert [s for s in range(60) if notices.due(waits(group, heard, 100.0, 100.0 + s), 100.0 + s)] == at


def test_condition_that_has_passed_is_said_again_when_it_returns() -> None:
    notices = Notices()
    again = [Condition("a", 100.0, 3.0, "a lasts")]
    assert notices.due(iter(again), 102.0) == []
    assert notices.due(iter(again), 103.0) == ["a lasts"]
    assert notices.due(iter(again), 104.0) == []
    assert notices.due(iter([]), 105.0) == []
    assert notices.due(iter(again), 106.0) == ["a lasts"]
