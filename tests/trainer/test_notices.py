"""What an agent says while nothing happens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elasticjob.api.rpc.nodes import Order, Orders
from elasticjob.api.rpc.rendezvous import Member, Recovery, World
from elasticjob.trainer.agent.group import Group, Life, Terms, Worker
from elasticjob.trainer.agent.notices import Condition, Master, Notices, Stepped, stalls, waits

TERMS = Terms(
    node="b",
    role="worker",
    index=0,
    incarnation="1",
    address="10.0.0.1",
    workers=1,
    max_restarts=3,
    grace=20.0,
)
MEMBERS = tuple(
    Member(node=node, incarnation="1", slots=1, address="10.0.0.9", port=7000, since=1) for node in "ab"
)
WORKER = Worker(slot=0, born=0.0, life=Life.TRAINING, elastic=True, round=2, step_seconds=0.1)
TRAINING = Group(
    terms=TERMS,
    recovery=Recovery.IN_PROCESS,
    workers={0: WORKER},
    world=World(round=2, members=MEMBERS, batch_slots=2),
    seats=(0,),
)
WAITING = Group(terms=TERMS, recovery=Recovery.IN_PROCESS)
MASTER = Master("10.0.0.9:29400", heard=100.0, trouble="Connection refused", patience=900.0)


def slow(seconds: float) -> Group:
    return replace(TRAINING, workers={0: replace(WORKER, step_seconds=seconds)})


@pytest.mark.parametrize(
    ("group", "step", "stopped", "said_after", "sentence"),
    [
        (TRAINING, 47, {}, 10, "rank 1 has made no step for 10 s; its last step was 47"),
        (TRAINING, 47, {0: 101.0}, 11, "rank 1 is stopped (SIGSTOP) for 10 s; its last step was 47"),
        (slow(3.0), 47, {}, 30, "rank 1 has made no step for 30 s; its last step was 47"),
        (TRAINING, 0, {}, 30, "rank 1 has made no step for 30 s"),
    ],
    ids=["hung", "stopped", "slow", "first"],
)
def test_worker_without_a_step_is_named_with_its_rank_and_last_step(
    group: Group, step: int, stopped: dict[int, float], said_after: int, sentence: str
) -> None:
    notices = Notices()
    said: dict[int, str] = {}
    for second in range(60):
        now = 100.0 + second
        for text in notices.due(stalls(group, {0: Stepped(2, step, 100.0)}, stopped, now), now):
            said.setdefault(second, text)
    assert said[min(said)] == sentence
    assert sorted(said) == [each for each in (said_after, said_after + 30) if each < 60]


def test_plain_worker_is_named_when_it_is_stopped() -> None:
    plain = replace(TRAINING, workers={0: replace(WORKER, elastic=False)})
    assert [*stalls(plain, {}, {}, 200.0)] == []
    [found] = stalls(plain, {}, {0: 180.0}, 200.0)
    assert found.sentence == "rank 1 is stopped (SIGSTOP) for 20 s"


@pytest.mark.parametrize(
    ("group", "joined", "now", "sentence"),
    [
        (TRAINING, None, 102.0, None),
        (
            TRAINING,
            None,
            104.0,
            "the master at 10.0.0.9:29400 has not answered for 4 s (Connection refused); "
            "the workers train on; this node gives up in 896 s",
        ),
        (
            WAITING,
            None,
            130.0,
            "the master at 10.0.0.9:29400 has not answered for 30 s (Connection refused); the workers wait; "
            "this node gives up in 870 s",
        ),
        (
            replace(
                WAITING,
                orders=Orders(version=1, order=Order.TRAIN, round=0, reason="1 of at least 2 nodes joined"),
            ),
            90.0,
            101.0,
            "waiting for 11 s at the master at 10.0.0.9:29400: 1 of at least 2 nodes joined; "
            "the job fails after 900 s",
        ),
    ],
    ids=["heard", "trains on", "waits", "nodes"],
)
def test_agent_says_what_it_waits_for(
    group: Group, joined: float | None, now: float, sentence: str | None
) -> None:
    assert [each.sentence for each in waits(group, MASTER, joined, now)] == ([sentence] if sentence else [])


def test_condition_that_has_passed_is_said_again_when_it_returns() -> None:
    notices = Notices()
    again = [Condition("a", 100.0, 3.0, "a lasts")]
    assert notices.due(iter(again), 102.0) == []
    assert notices.due(iter(again), 103.0) == ["a lasts"]
    assert notices.due(iter(again), 104.0) == []
    assert notices.due(iter([]), 105.0) == []
    assert notices.due(iter(again), 106.0) == ["a lasts"]
