"""Each second of each worker goes to one cause, and to the right one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.api.rpc.nodes import Doing, Kept, Report, Usage, WorkerState
from elasticjob.api.sizes.facts import JobFacts
from elasticjob.api.sizes.role import Role
from elasticjob.master.cluster.cluster import training_status
from elasticjob.master.durable.store import restore, snapshot
from elasticjob.master.handlers.nodes import Pod
from elasticjob.master.progress import goodput
from elasticjob.master.progress.goodput import Cause
from elasticjob.master.state.errors import RequestError
from elasticjob.master.state.node import Phase
from lab.virtual.master import START, Played, failure, join, leave, played, pod, report, watch

NAMES = [f"node-{index}" for index in range(4)]


def seconds(game: Played) -> dict[str, float]:
    game.tick()
    return {cause: round(amount, 3) for cause, amount in game.job.account.seconds.items() if amount > 1e-6}


def told(game: Played, name: str, **spent: float) -> None:
    """Let a worker report how long it has been in each phase."""
    times = [spent.get(doing.value, 0.0) for doing in Doing] + [spent.get("saving", 0.0)]
    state = WorkerState(local_rank=0, doing=Doing.COMPUTING, spent=tuple(times))
    life, number = f"{name}-life", game.job.round
    game.ask(Report(node=name, incarnation=life, round=number, workers=(state,)))


def test_a_pod_is_scheduled_pulled_started_and_joins() -> None:
    game = Played(2, 2)
    game.tick()
    game.see(pod("node-0", Phase.PENDING, placed=False))
    game.wait(4)
    game.see(pod("node-0", Phase.PENDING))
    game.wait(3)
    game.see(pod("node-0", Phase.RUNNING))
    game.wait(2)
    game.ask(watch("node-0"), join("node-0"))
    game.wait(5, "node-0")
    assert seconds(game) == {"schedule": 4, "pull": 3, "init": 2, "rendezvous": 5}


def test_what_workers_do_divides_the_time_in_their_world() -> None:
    game = played("node-0", "node-1")
    game.tick()
    for name in game.names():
        told(game, name)
    game.now += timedelta(seconds=10)
    told(game, "node-0", computing=6, reading=2, outside=2, saving=1)
    told(game, "node-1", computing=8, reducing=2)
    assert seconds(game) == {"productive": 17, "data": 2, "checkpoint": 1}


@pytest.mark.parametrize(
    ("ends", "cause"),
    [
        (lambda game: game.ask(leave("node-1", 1)), "rendezvous"),
        (lambda game: game.ask(leave("node-1", 1, planned=True)), "drain"),
        (lambda game: game.ask(join("node-2")), "resize"),
    ],
)
def test_a_change_of_the_world_has_its_cause(ends: Any, cause: str) -> None:
    game = played("node-0", "node-1", maximum=3, replicas=2)
    game.tick()
    game.now += timedelta(seconds=10)
    ends(game)
    game.now += timedelta(seconds=3)
    found = seconds(game)
    assert found["productive"] == 20
    assert found[cause] >= 3


def test_steps_that_are_made_again_were_not_productive() -> None:
    game = played("node-0")
    game.tick()
    for step in (0, 50, 100):
        game.ask(report("node-0", 1, step))
        game.now += timedelta(seconds=50)
    game.now -= timedelta(seconds=50)
    game.ask(leave("node-0", 1), join("node-0", after=1), report("node-0", 2, 51))
    assert seconds(game) == {"productive": 50, "recompute": 50}
    assert goodput.ratio(game.job.account) == 0.5


@pytest.mark.parametrize(
    ("stored", "first", "lost", "kept"),
    [
        (0, 1, 100, 0),
        (80, 81, 20, 80),
        (80, 41, 60, 40),
        (100, 101, 0, 100),
        (0, 126, 0, 100),  # saved as it was suspended: it has read a later one
        (0, 91, 10, 90),
    ],
)
def test_steps_that_a_suspension_has_cost_are_lost_under_the_next_master_too(
    stored: int, first: int, lost: int, kept: int
) -> None:
    """A checkpoint from which the job did not go on is none."""
    game = played("node-0", replicas=1)
    game.tick()
    for step in (0, 50, 100):
        game.ask(msgspec.structs.replace(report("node-0", 1, step), kept=Kept(in_memory=100, stored=stored)))
        game.now += timedelta(seconds=50)
    game.job = goodput.close(game.job, game.now)
    game.now += timedelta(hours=1)
    game.job = restore(snapshot(game.job, game.now), game.job.spec, game.now)
    game.ask(watch("node-0", "second"), join("node-0", "second", after=0))
    game.ask(msgspec.structs.replace(report("node-0", 2, first), incarnation="second"))
    assert (game.job.training.lost, game.job.training.stored) == (lost, kept)
    assert seconds(game).get("recompute", 0) == lost
    status = training_status(game.job)
    assert (status.get("lostSteps", 0), status.get("checkpointStep", 0)) == (lost, kept)


@pytest.mark.parametrize(
    ("stored", "first", "total", "lost", "kept"),
    [
        (32, 32, 32, 0, 32),
        (32, 33, 64, 0, 32),
        (31, 32, 32, 1, 31),
        (32, 32, 64, 1, 31),
        (16, 17, 32, 16, 16),
    ],
)
def test_a_checkpoint_of_the_last_step_that_was_loaded_has_lost_none(
    stored: int, first: int, total: int, lost: int, kept: int
) -> None:
    game = played("node-0", replicas=1)
    told = Kept(in_memory=32, stored=stored)
    for step in (16, 32):
        game.ask(msgspec.structs.replace(report("node-0", 1, step, total_steps=32), kept=told))
    game.ask(watch("node-0", "second"), join("node-0", "second", after=0))
    again = report("node-0", 2, first, total_steps=total)
    game.ask(msgspec.structs.replace(again, incarnation="second"))
    assert (game.job.training.lost, game.job.training.stored) == (lost, kept)


@pytest.mark.parametrize(("alone", "told"), [(False, 32), (True, None)])
def test_a_suspension_keeps_a_copy_in_memory_if_it_is_written(alone: bool, told: int | None) -> None:
    game = played("node-0", replicas=1)
    kept, usage = Kept(in_memory=32, memory_alone=alone), Usage(cpu=1.0, memory=1)
    game.ask(msgspec.structs.replace(report("node-0", 1, 32), kept=kept, usage=usage))
    assert training_status(game.job).get("checkpointMemoryStep") == told


def test_nodes_that_are_yet_to_be_made_count() -> None:
    game = Played(2, 2, replicas=2)
    game.tick()
    game.wait(3)
    game.see(pod("node-0"), pod("node-1"))
    game.wait(2)
    game.see(pod("node-0"))
    game.wait(4)
    game.see(pod("node-0"), pod("node-1", uid="another"))
    game.wait(1)
    assert seconds(game) == {"schedule": 3 * 2 + 4, "init": 2 * 2 + 4 + 1 * 2}


def test_a_node_whose_restarts_are_spent_is_waited_for_no_more() -> None:
    game = played("node-0", "node-1", minimum=1, replicas=2)
    game.tick()
    game.ask(failure("node-1"))
    game.wait(5, "node-0")
    assert seconds(game) == {"rendezvous": 5}


def test_what_happened_before_the_master_came_counts_from_the_creation_of_the_pods() -> None:
    game = Played(1, 1, replicas=1)
    game.tick()
    game.wait(2)
    game.see(pod("node-0", created=START - timedelta(seconds=4)))
    game.wait(1)
    assert seconds(game) == {"schedule": 2, "init": 3.5 + 1}


def test_an_ended_pod_that_is_still_listed_is_no_new_one() -> None:
    game = Played(1, 1, replicas=1)
    long_ago = START - timedelta(minutes=5)
    failed = pod("node-0", Phase.FAILED, name="first", created=long_ago)
    again = pod("node-0", name="second", relaunch=1, created=START)
    game.tick()
    game.see(failed, again)
    game.ask(watch("node-0", pod="second"))
    game.wait(1, "node-0")
    game.see(failed, pod("node-0", name="second", relaunch=1, created=START, leaving=True))
    game.wait(1)
    assert sum(seconds(game).values()) == 2


def test_a_suspended_job_has_no_workers_that_could_lose_time() -> None:
    game = played("node-0", replicas=1)
    game.tick()
    game.see(pod("node-0"))
    game.wait(3, "node-0")
    spec = game.job.spec
    game.tick()
    game.job = game.job.but(spec=spec.but(suspended=True))
    game.wait(60)
    game.job = restore(snapshot(game.job, game.now), spec, game.now + timedelta(hours=1))
    game.now += timedelta(hours=1)
    game.tick()
    game.see(pod("node-0", uid="another", created=game.now - timedelta(seconds=2)))
    game.wait(1)
    assert seconds(game) == {"productive": 3, "init": 1.5 + 1}


@pytest.mark.parametrize(
    ("away", "more"), [(timedelta(seconds=20), 20), (timedelta(days=-1), 0), (timedelta(days=1), 0)]
)
def test_workers_go_on_without_their_master_unless_its_clock_cannot_be_right(
    away: timedelta, more: int
) -> None:
    game = played("node-0")
    game.tick()
    game.wait(3, "node-0")
    game.now += away
    game.job = restore(snapshot(game.job), game.job.spec, game.now)
    game.wait(2, "node-0")
    assert seconds(game) == {"productive": 3 + more + 2}


def test_the_time_before_the_first_world_is_that_of_all_workers_of_a_node() -> None:
    game = Played(1, 1)
    game.tick()
    game.ask(watch("node-0"))
    game.wait(3, "node-0")
    game.ask(join("node-0", slots=4))
    game.wait(2, "node-0")
    assert seconds(game) == {"init": 3 * 4, "productive": 2 * 4}


def test_workers_that_train_with_servers_alone_are_productive_while_they_run() -> None:
    game = Played(1, 1, replicas=1, sizes=JobFacts(roles={"ps": Role(), "worker": Role()}))
    game.tick()
    game.see(pod("node-0"))
    game.wait(3)
    assert seconds(game) == {"productive": 3}


EVENTS = st.one_of(
    st.tuples(st.just("wait"), st.floats(0.1, 20)),
    *(
        st.tuples(st.just(what), st.sampled_from(NAMES))
        for what in ("pending", "runs", "joins", "dies", "leaves", "reports", "is deleted")
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENTS, min_size=5, max_size=60))
def test_all_seconds_together_are_those_of_all_workers(events: list[tuple[str, Any]]) -> None:
    """Random stories of four workers: nothing is counted twice, and nothing is left out."""
    game = Played(1, 4, replicas=4, restart_count=100)
    game.tick()
    wall = 0.0
    pods: dict[str, Pod] = {}
    for what, about in events:
        job = game.job
        try:
            match what:
                case "wait":
                    wall += about * len(NAMES)
                    game.now += timedelta(seconds=about)
                    before, game.job = game.job.verdict, goodput.close(game.job, game.now)
                    if before or game.job.verdict:
                        return
                case "pending":
                    pods[about] = pod(about, Phase.PENDING, placed=False)
                    game.see(*pods.values())
                case "runs":
                    pods[about] = pod(about, Phase.RUNNING)
                    game.see(*pods.values())
                case "joins" if about in pods and pods[about].phase is Phase.RUNNING:
                    game.ask(watch(about, pod=about), join(about, after=job.round))
                case "dies":
                    game.ask(leave(about, job.round))
                case "leaves":
                    game.ask(leave(about, job.round, planned=True))
                case "reports":
                    told(game, about, computing=1)
                case "is deleted":
                    pods.pop(about, None)
                    game.see(*pods.values())
        except RequestError:
            pass
    total = sum(game.job.account.seconds.values())
    assert total == pytest.approx(wall, rel=0.01, abs=1e-6)
    assert set(game.job.account.seconds) <= set(Cause)
