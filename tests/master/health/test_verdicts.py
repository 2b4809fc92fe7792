"""Ends of jobs: histories, and the verdict that comes with the last thing that happens, not before."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from elasticjob.api.rpc.nodes import Finish, Order
from elasticjob.master.cluster.cluster import spec_of
from elasticjob.master.state.job import End, Limits, Rule
from elasticjob.master.state.node import Phase
from lab.build.jobs import job, role
from lab.virtual.master import (
    Played,
    Step,
    cut,
    failure,
    finish,
    forms,
    hears,
    join,
    leave,
    plain,
    played,
    pod,
    ran,
    report,
    wait,
    watch,
)

Row = tuple[int, dict[str, Any], tuple[Step, ...]]
"""The number of nodes in the first world, bounds of the job, and the steps of its history."""
NODES = [f"node-{index}" for index in range(4)]
ZERO, ONE, TWO, THREE = NODES
RUN = tuple(map(pod, NODES))
DONE = tuple(pod(name, Phase.SUCCEEDED) for name in NODES)
NEXT = (watch(ONE, "second"), join(ONE, "second"))
LEADER = {"leader": ZERO}
LEADER_POLICY = {"successPolicy": "ChiefOrWorker0"}
FAIL = Rule(action="FailJob", codes=(42,))
IGNORE = Rule(action="Ignore", codes=(42,))
UNSAVED = "the checkpoint of step 40 is not in /mnt/run: No space left on device"
ERROR = "worker 0 ended with exit code {}: ValueError: no"
SHORT = {"minimum": 2, "maximum": 2, "replicas": 2}
IN_VAIN = "no world for 900 s: 1 of at least 2 nodes joined (node-1: running, but its agent has not reached"
ON: dict[str, Any] = {"order": Order.TRAIN}
ANEW: dict[str, Any] = {"order": Order.REGROUP}
ENTERED = "the node with the state of round 2 finished after step 9"
ENTERS = (report(ZERO, 1, 9), watch(ONE), plain(ONE), wait(5, ZERO, ONE))
ONE_ENTERS = (*ENTERS, join(ZERO, after=1), forms(ZERO, ONE))
TWO_ENTER = (
    report(ZERO, 1, 9),
    *(request for name in (ONE, TWO) for request in (watch(name), plain(name))),
    wait(5, ZERO, ONE, TWO),
    join(ZERO, after=1),
    finish(ZERO, 2),
    join(ONE, after=2, wait=60.0),
    wait(40, ONE, TWO),  # longer than the last call
)


def taken_for_lost(game: Played) -> None:
    assert not any(node.round for node in game.job.nodes.values())


SUCCEEDED: dict[str, tuple[*Row, str]] = {
    "all have finished": (
        2, {}, (report(ZERO, 1, 40), finish(ZERO, 1), finish(ONE, 1)),
        "all 2 nodes of round 1 finished after step 40"),
    "one that was taken for lost finished alone": (1, {}, (wait(30), taken_for_lost, finish(ZERO, 1)), ""),
    "so did two": (2, {}, (wait(30), taken_for_lost, finish(ZERO, 1), finish(ONE, 1)), ""),
    "pods ended well though nobody said so": (2, {}, ((DONE[0], RUN[1]), DONE[:2]), ""),
    "a member's last words never came": (
        2, {}, (RUN[:2], (RUN[0], DONE[1]), hears(ZERO, **ON), finish(ZERO, 1)), ""),
    "their world was never saved": (
        0, {"replicas": 2}, (DONE[:1], (DONE[0], RUN[1]), DONE[:2]), "all 2 nodes finished"),
    "one that has finished hangs up": (
        2, {}, (finish(ONE, 1), cut(watch(ONE)), hears(ZERO, **ON), finish(ZERO, 1)), ""),
    "one that is lost before its finish is alone then": (
        2, {"minimum": 2},
        (finish(ZERO, 1), cut(watch(ONE)), *NEXT, finish(ONE, 2, "second")), ""),
    **{f"{gone} failed for good before": (
        2, {"replicas": 2}, (failure(gone), join(other, after=1), finish(other, 2)), "")
       for gone, other in ((ZERO, ONE), (ONE, ZERO))},
    "one that was told to go is made again": (
        1, {"replicas": 1},
        (RUN[:1], leave(ZERO, 1, planned=True), DONE[:1],
         (DONE[0], pod(ZERO, name="node-0-1", relaunch=1)), watch(ZERO, "second", pod="node-0-1"),
         join(ZERO, "second"), finish(ZERO, 2, "second")), ""),
    "the leader": (
        3, LEADER, (finish(TWO, 1), finish(ZERO, 1)),
        "the node node-0 (successPolicy ChiefOrWorker0) finished"),
    "who enters meanwhile does not train again": (
        1, {"maximum": 3}, (*ONE_ENTERS, finish(ZERO, 2), hears(ONE, **ON), join(ONE, after=2)), ENTERED),
    **{f"of two that enter, the second is {again.__name__}": (
        1, {"maximum": 3}, (*TWO_ENTER, again(TWO, after=2)), ENTERED) for again in (plain, join)},
    **{f"who waits to enter a world of {first.__name__} does not train": (
        0, {"maximum": 2},
        (watch(ZERO), first(ZERO), *ENTERS, hears(ZERO, **ANEW), finish(ZERO, 1)),
        "the node of round 1 finished after step 9") for first in (plain, join)},
    "newcomers that are gone do not keep it": (
        1, {"maximum": 2}, (*ONE_ENTERS, finish(ZERO, 2), (pod(ONE, Phase.FAILED),)), ""),
}  # fmt: skip
FAILED: dict[str, tuple[*Row, str, str]] = {
    "a result that could not be written": (
        2, {}, (finish(ONE, 1), replace(failure(ZERO, code=74), message=UNSAVED, unsaved=True)),
        "NotSaved", f"node-0: {UNSAVED}"),
    "the last node gives up": (
        1, {}, (failure(ZERO, final=False), failure(ZERO)), "RestartsSpent",
        f"node-0: {ERROR.format(1)}; 0 nodes are left, the job needs 1"),
    "the budget of replaced nodes is spent": (
        0, SHORT | {"restart_count": 1},
        (watch(ZERO), watch(ONE), failure(ONE), failure(ONE), watch(ONE, "second"),
         failure(ONE, life="second")), "RestartsSpent",
        f"node-1: {ERROR.format(1)}; 1 nodes are left, the job needs 2"),
    **{f"the end of {exports} cannot be done again": (
        2, {"replicas": 2}, (failure(other, final=False), finish(other, 1), failure(exports)),
        "RestartsSpent",
        f"{exports}: {ERROR.format(1)}; the others have finished, and its part is missing")
       for exports, other in ((ZERO, ONE), (ONE, ZERO))},
    "too few nodes for too long": (
        0, SHORT, (RUN[:2], watch(ZERO), join(ZERO, wait=2000.0), wait(899.5, ZERO), wait(0.5, ZERO)),
        "TooFewNodes", f"{IN_VAIN} the master)"),
    "pending pods do not count for that": (
        0, SHORT, ((RUN[0], pod(ONE, Phase.PENDING)), watch(ZERO), wait(3600, ZERO), RUN[:2],
                   wait(899.5, ZERO), wait(0.5, ZERO)), "TooFewNodes",
        "no world for 900 s: 0 of at least 2 nodes joined (node-0: its agent is here, its workers are not "
        "ready; node-1: running, but its agent has not reached the master)"),
    "nodes work alone, but not together": (
        0, {"minimum": 2},
        (watch(ZERO), watch(ONE), ran(ZERO), ran(ONE),
         *(ran(name, turn, error="timeout") for turn in (1, 2) for name in (ZERO, ONE))),
        "NodeCheckFailed", "node-0, node-1 work alone, but no two of them together: timeout"),
    "the leader fails for good": (
        3, {"minimum": 1, "replicas": 3, "restart_count": 0, **LEADER}, (failure(ZERO),), "RestartsSpent",
        f"node-0: {ERROR.format(1)}; its success would be the job's (successPolicy ChiefOrWorker0)"),
    **{f"by failurePolicy: {rule.codes}": (
        2, {"rules": (rule,)}, (failure(ONE, code=42, final=False),), "PodFailurePolicy",
        f"node-1: {ERROR.format(42)}; failurePolicy: FailJob")
       for rule in (FAIL, FAIL.but(others=True, codes=(1,)))},
}  # fmt: skip
GOES_ON: dict[str, Row] = {
    "who is gone before the end may come again in a job that has grown": (
        4, {"replicas": 2},  # as declared; a plan wants four
        (RUN, *(finish(name, 1) for name in NODES[1:]), (pod(ZERO, leaving=True), *DONE[1:]), DONE[1:])),
    "a node will be made again": (2, {"replicas": 2}, (RUN[:2], DONE[:1])),
    "a node gives up, and enough are left": (2, {}, (failure(ONE), join(ZERO, after=1))),
    "pods were never made": (0, {"replicas": 2}, (wait(3600),)),
    "the pod of a lost node waits for capacity": (
        2, {"minimum": 2, "replicas": 2, "restart_count": 3},
        (RUN[:2], (RUN[0], pod(ONE, Phase.PENDING, name="node-1-1")), wait(3600, ZERO))),
    "another than the leader fails for good": (
        3, {"minimum": 1, "replicas": 3, "restart_count": 0, **LEADER}, (failure(ONE),)),
    "another code": (2, {"rules": (FAIL,)}, (failure(ONE, final=False),)),
    "a code that is ignored": (2, {"rules": (IGNORE,)}, (failure(ONE, code=42, final=False),)),
    "a kill, which is for the operator to judge": (
        2, {"rules": (Rule(action="FailJob", codes=(137, 143)),)},
        (failure(ONE, code=-9, final=False), failure(ZERO, code=-15, final=False))),
}  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "options", "steps", "end", "reason", "message"),
    [
        *((*row[:3], End.SUCCEEDED, "Finished", row[3]) for row in SUCCEEDED.values()),
        *((*row[:3], End.FAILED, *row[3:]) for row in FAILED.values()),
    ],
    ids=[*SUCCEEDED, *FAILED],
)
def test_the_verdict_comes_with_the_last_word(
    nodes: int, options: dict[str, Any], steps: tuple[Step, ...], end: End, reason: str, message: str
) -> None:
    game = played(*NODES[:nodes], **options)
    game.play(*steps[:-1])
    assert game.ended() is None
    game.play(steps[-1])
    assert (game.verdict.end, game.verdict.reason) == (end, reason)
    assert game.verdict.message == (message or game.verdict.message)
    assert {game.order(name) for name in game.job.nodes} == {Order.STOP}
    if isinstance(steps[-1], Finish):
        game.play(steps[-1])  # its answer was lost


@pytest.mark.parametrize(("nodes", "options", "steps"), GOES_ON.values(), ids=GOES_ON)
def test_nothing_ends_it(nodes: int, options: dict[str, Any], steps: tuple[Step, ...]) -> None:
    game = played(*NODES[:nodes], **options)
    for step in steps:
        game.play(step)
        assert game.ended() is None


@pytest.mark.parametrize(
    ("given", "leader"),
    [
        (job(), ""),
        (job(runPolicy=LEADER_POLICY), "digits-worker-0"),
        (
            job({"chief": role(1), "worker": role(2), "ps": role(1)}, runPolicy=LEADER_POLICY),
            "digits-chief-0",
        ),
    ],
)
def test_whose_success_is_the_jobs(given: object, leader: str) -> None:
    assert spec_of(given, Limits()).leader == leader  # type: ignore[arg-type]  # a table of jobs


def test_ignored_failures_use_no_restart() -> None:
    game = played("node-0", "node-1", minimum=2, replicas=2, restart_count=0, rules=(IGNORE,))
    game.see(pod("node-0"), pod("node-1"))
    game.ask(failure("node-1", code=42))
    node = game.job.nodes["node-1"]
    assert (node.failures, node.excluded, game.ended()) == (0, "", None)
