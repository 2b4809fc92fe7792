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
from lab.virtual.master import (
    START,
    Played,
    Step,
    act,
    failure,
    join,
    leave,
    played,
    pod,
    report,
    wait,
    watch,
)

NAMES = [f"node-{index}" for index in range(4)]


def seconds(game: Played) -> dict[str, float]:
    game.tick()
    return {cause: round(amount, 3) for cause, amount in game.job.account.seconds.items() if amount > 1e-6}


@act
def work(game: Played, /, name: str, **spent: float) -> None:
    """A worker reports how long it has been in each phase."""
    times = [spent.get(doing.value, 0.0) for doing in Doing] + [spent.get("saving", 0.0)]
    state = WorkerState(local_rank=0, doing=Doing.COMPUTING, spent=tuple(times))
    life, number = f"{name}-life", game.job.round
    game.ask(Report(node=name, incarnation=life, round=number, workers=(state,)))


@act
def unseen(game: Played, seconds: float) -> None:
    """Time passes, and the master looks at nothing meanwhile."""
    game.now += timedelta(seconds=seconds)


@act
def another_master(game: Played, away: timedelta) -> None:
    """A master that knows nothing of the time for which the last one was away."""
    game.now += away
    game.job = restore(snapshot(game.job), game.job.spec, game.now)


def suspended(game: Played) -> None:
    """The job is suspended for an hour and a minute, of which its last master sees a minute."""
    spec = game.job.spec
    game.tick()
    game.job = game.job.but(spec=spec.but(suspended=True))
    game.wait(60)
    game.now += timedelta(hours=1)
    game.job = restore(snapshot(game.job, game.now - timedelta(hours=1)), spec, game.now)
    game.tick()
    game.see(pod("node-0", uid="another", created=game.now - timedelta(seconds=2)))


ZERO, ONE = NAMES[:2]
PENDS, RUNS = (pod(ZERO, phase) for phase in (Phase.PENDING, Phase.RUNNING))
BOTH = (RUNS, pod(ONE))
FAILED = pod(ZERO, Phase.FAILED, name="first", created=START - timedelta(minutes=5))
AGAIN: dict[str, Any] = {"name": "second", "relaunch": 1, "created": START}
TWICE = (wait(50, ZERO), report(ZERO, 1, 50), wait(50, ZERO), report(ZERO, 1, 100), leave(ZERO, 1))
OF_SERVERS = {"replicas": 1, "sizes": JobFacts(roles={"ps": Role(), "worker": Role()})}
SPENT: dict[str, tuple[int, dict[str, Any], tuple[Step, ...], dict[str, float]]] = {
    "a pod is scheduled, pulled, started and joins": (
        0, {"minimum": 2},
        ((pod(ZERO, Phase.PENDING, placed=False),), wait(4), (PENDS,), wait(3), (RUNS,), wait(2),
         watch(ZERO), join(ZERO), wait(5, ZERO)),
        {"schedule": 4, "pull": 3, "init": 2, "rendezvous": 5}),
    "what workers do divides the time in their world": (
        2, {},
        (work(ZERO), work(ONE), unseen(10), work(ZERO, computing=6, reading=2, outside=2, saving=1),
         work(ONE, computing=8, reducing=2)), {"productive": 17, "data": 2, "checkpoint": 1}),
    "steps that are made again": (
        1, {}, (report(ZERO, 1, 0), *TWICE, join(ZERO, after=1), report(ZERO, 2, 51)),
        {"productive": 50, "recompute": 50}),
    "nodes that are yet to be made count": (
        0, {"minimum": 2, "replicas": 2},
        (wait(3), BOTH, wait(2), (RUNS,), wait(4), (RUNS, pod(ONE, uid="another")), wait(1)),
        {"schedule": 3 * 2 + 4, "init": 2 * 2 + 4 + 1 * 2}),
    "a node whose restarts are spent is waited for no more": (
        2, {"minimum": 1, "replicas": 2}, (failure(ONE), wait(5, ZERO)), {"rendezvous": 5}),
    "before the master came, from the creation of the pods": (
        0, {"maximum": 1, "replicas": 1},
        (wait(2), (pod(ZERO, created=START - timedelta(seconds=4)),), wait(1)),
        {"schedule": 2, "init": 3.5 + 1}),
    "an ended pod that is still listed is no new one": (
        0, {"maximum": 1, "replicas": 1},
        ((FAILED, pod(ZERO, **AGAIN)), watch(ZERO, pod="second"), wait(1, ZERO),
         (FAILED, pod(ZERO, **AGAIN, leaving=True)), wait(1)), {"init": 1, "schedule": 1}),
    "a suspended job has no workers that could lose time": (
        1, {"replicas": 1}, ((RUNS,), wait(3, ZERO), suspended, wait(1)),
        {"productive": 3, "init": 1.5 + 1}),
    **{f"workers go on without their master for {away}, if its clock can be right": (
        1, {}, (wait(3, ZERO), another_master(away), wait(2, ZERO)), {"productive": 3 + more + 2})
       for away, more in ((timedelta(seconds=20), 20), (timedelta(days=-1), 0), (timedelta(days=1), 0))},
    "before the first world, that of all workers of a node": (
        0, {"maximum": 1}, (watch(ZERO), wait(3, ZERO), join(ZERO, slots=4), wait(2, ZERO)),
        {"init": 3 * 4, "productive": 2 * 4}),
    "workers with servers alone, while they run": (
        0, {"maximum": 1, **OF_SERVERS}, ((RUNS,), wait(3)), {"productive": 3}),
}  # fmt: skip


@pytest.mark.parametrize(("nodes", "options", "steps", "spent"), SPENT.values(), ids=SPENT)
def test_each_second_has_its_cause(
    nodes: int, options: dict[str, Any], steps: tuple[Step, ...], spent: dict[str, float]
) -> None:
    game = played(*NAMES[:nodes], **options)
    game.play(Played.tick, *steps)
    assert seconds(game) == spent
    assert goodput.ratio(game.job.account) == pytest.approx(spent.get("productive", 0) / sum(spent.values()))


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
                    game.play(work(about, computing=1))
                case "is deleted":
                    pods.pop(about, None)
                    game.see(*pods.values())
        except RequestError:
            pass
    total = sum(game.job.account.seconds.values())
    assert total == pytest.approx(wall, rel=0.01, abs=1e-6)
    assert set(game.job.account.seconds) <= set(Cause)
