"""successPolicy and failurePolicy, as the master keeps them."""

from __future__ import annotations

import pytest

from elasticjob.master.cluster.cluster import spec_of
from elasticjob.master.state.job import End, Limits, Rule
from lab.build.jobs import job, role
from lab.virtual.master import failure, finish, played, pod

LEADER = {"successPolicy": "ChiefOrWorker0"}


@pytest.mark.parametrize(
    ("given", "leader"),
    [
        (job(), ""),
        (job(runPolicy=LEADER), "digits-worker-0"),
        (job({"chief": role(1), "worker": role(2), "ps": role(1)}, runPolicy=LEADER), "digits-chief-0"),
    ],
)
def test_whose_success_is_the_jobs(given: object, leader: str) -> None:
    assert spec_of(given, Limits()).leader == leader  # type: ignore[arg-type]  # a table of jobs


def test_the_leaders_success_ends_the_job_and_no_others() -> None:
    game = played("node-0", "node-1", "node-2", leader="node-0")
    game.ask(finish("node-2", 1))
    assert game.ended() is None
    game.ask(finish("node-0", 1))
    verdict = game.verdict
    assert (verdict.end, verdict.message) == (
        End.SUCCEEDED,
        "the node node-0 (successPolicy ChiefOrWorker0) finished",
    )


@pytest.mark.parametrize(("lost", "failed"), [("node-0", True), ("node-1", False)])
def test_the_leaders_failure_for_good_ends_the_job_and_no_others(lost: str, *, failed: bool) -> None:
    game = played("node-0", "node-1", "node-2", minimum=1, replicas=3, restart_count=0, leader="node-0")
    game.ask(failure(lost))
    verdict = game.ended()
    assert (verdict is not None) is failed
    if verdict:
        assert (verdict.end, verdict.reason) == (End.FAILED, "RestartsSpent")


FAIL = Rule(action="FailJob", codes=(42,))
IGNORE = Rule(action="Ignore", codes=(42,))


@pytest.mark.parametrize(
    ("rule", "code", "failed"),
    [(FAIL, 42, True), (FAIL, 1, False), (FAIL.but(others=True, codes=(1,)), 42, True), (IGNORE, 42, False)],
)
def test_a_failure_with_which_the_job_fails(rule: Rule, code: int, *, failed: bool) -> None:
    game = played("node-0", "node-1", rules=(rule,))
    game.ask(failure("node-1", code=code, final=False))
    verdict = game.ended()
    assert (verdict is not None) is failed
    if verdict:
        assert (verdict.end, verdict.reason) == (End.FAILED, "PodFailurePolicy")
        assert verdict.message == (
            "node-1: worker 0 ended with exit code 42: ValueError: no; failurePolicy: FailJob"
        )


def test_a_worker_that_is_killed_is_for_the_operator_to_judge() -> None:
    game = played("node-0", "node-1", rules=(Rule(action="FailJob", codes=(137, 143)),))
    game.ask(failure("node-1", code=-9, final=False), failure("node-0", code=-15, final=False))
    assert game.ended() is None


def test_ignored_failures_use_no_restart() -> None:
    game = played("node-0", "node-1", minimum=2, replicas=2, restart_count=0, rules=(IGNORE,))
    game.see(pod("node-0"), pod("node-1"))
    game.ask(failure("node-1", code=42))
    node = game.job.nodes["node-1"]
    assert (node.failures, node.excluded, game.ended()) == (0, "", None)
