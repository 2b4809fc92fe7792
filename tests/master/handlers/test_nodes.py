"""Life and death of nodes, and the verdicts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from elasticjob.api.numbers import UNRANKED
from elasticjob.api.rpc.nodes import Doing, Kept, Order, Progress, Report, Usage, WorkerState
from elasticjob.api.rpc.rendezvous import Join
from elasticjob.api.rpc.shards import Consumer, Dataset, Lease, Open
from elasticjob.master.durable.store import restore, snapshot
from elasticjob.master.handlers import nodes
from elasticjob.master.handlers.nodes import TRANSITIONS
from elasticjob.master.progress import progress
from elasticjob.master.shards import book
from elasticjob.master.state.condition import Kind
from elasticjob.master.state.errors import Refused, Stale
from elasticjob.master.state.job import End
from elasticjob.master.state.node import Phase
from lab.virtual.master import Played, failure, finish, join, leave, plain, played, pod, ran, report, watch

ENDS = (Phase.SUCCEEDED, Phase.FAILED, Phase.DELETED)


@pytest.mark.parametrize(
    ("before", "listed", "after"),
    [
        (Phase.INITIAL, Phase.PENDING, Phase.PENDING),
        (Phase.INITIAL, Phase.SUCCEEDED, Phase.SUCCEEDED),
        (Phase.PENDING, Phase.RUNNING, Phase.RUNNING),
        (Phase.RUNNING, Phase.PENDING, Phase.RUNNING),
        (Phase.RUNNING, Phase.FAILED, Phase.FAILED),
        (Phase.SUCCEEDED, Phase.RUNNING, Phase.SUCCEEDED),
        (Phase.FAILED, Phase.SUCCEEDED, Phase.FAILED),
    ],
)
def test_a_pod_goes_through_its_life_in_one_direction(before: Phase, listed: Phase, after: Phase) -> None:
    game = Played()
    game.see(pod("node-0", before))
    game.see(pod("node-0", listed))
    assert game.job.nodes["node-0"].phase is after


@pytest.mark.parametrize("end", ENDS)
def test_another_pod_of_the_same_place_begins_another_life(end: Phase) -> None:
    game = Played()
    game.see(pod("node-0", end))
    game.see(pod("node-0", Phase.PENDING, name="node-0-1", relaunch=1), pod("node-0", end))
    assert game.job.nodes["node-0"].phase is Phase.PENDING


def test_a_pod_of_the_same_name_is_another_life_by_its_uid() -> None:
    game = Played()
    game.see(pod("node-0", Phase.RUNNING, uid="before"))
    game.see(pod("node-0", Phase.PENDING, uid="after a suspension"))
    assert game.job.nodes["node-0"].phase is Phase.PENDING


def test_every_phase_has_its_row() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert all(row <= set(Phase) for row in TRANSITIONS.values())


def test_a_master_that_was_stopped_takes_its_own_silence_for_nobodys() -> None:
    game = played("node-0", "node-1")
    game.now += timedelta(seconds=60)
    game.job = nodes.overslept(game.job, timedelta(seconds=60))
    game.wait(4)
    assert game.order("node-0") is Order.TRAIN
    game.wait(2, "node-0")
    assert game.orders("node-0").lost == ("node-1",)


def test_a_node_that_the_others_have_left_behind_has_not_finished() -> None:
    game = played("node-0", "node-1")
    game.wait(30, "node-0")
    game.ask(join("node-0", after=1))
    assert (game.names(), game.job.round) == (["node-0"], 2)
    with pytest.raises(Stale, match="round 1 is over for node-1: the job is in round 2"):
        game.ask(finish("node-1", 1))


def test_alarms_are_named_once_those_of_the_last_moment_too() -> None:
    game, alarm = played("node-0"), "the loss of step 40 is nan"
    trouble = Kept(error="the checkpoint of step 30 is not in /mnt/run: No space left on device")
    told = msgspec.structs.replace(report("node-0", 1, 39), kept=trouble, usage=Usage(cpu=1.0, memory=1))
    game.ask(told, told)
    game.ask(msgspec.structs.replace(finish("node-0", 1), progress=Progress(step=40, alarm=alarm)))
    found = [(each.reason, each.message) for each in game.job.health.findings]
    assert found == [(Kind.CHECKPOINT, f"node-0: {trouble.error}"), (Kind.LOSS, alarm)]
    assert {each.until for each in game.job.health.findings} == {None}
    assert game.verdict.end is End.SUCCEEDED


def test_a_worker_whose_grace_was_too_short_is_named_once_and_costs_no_restart() -> None:
    game = played("node-0", "node-1")
    why = "worker 0 was cut off 9.0 s after SIGTERM: give the pod a longer terminationGracePeriodSeconds"
    cut = msgspec.structs.replace(failure("node-1", code=-9, final=False), message=why)
    version = game.job.version
    game.ask(leave("node-1", 1, planned=True), cut, cut)
    assert [(each.reason, each.message) for each in game.job.health.findings] == [
        (Kind.CUT_OFF, f"node-1: {why}")
    ]
    assert (game.job.restarts, game.job.nodes["node-1"].failure) == (0, why)
    assert game.job.version > version
    game.ask(failure("node-0", code=-9, final=False))
    assert (game.job.restarts, len(game.job.health.findings)) == (1, 2)


def test_trouble_with_checkpoints_is_over_when_one_is_stored() -> None:
    game = played("node-0", "node-1")
    for name, kept in (
        ("node-0", Kept(error="full")),
        ("node-1", Kept(error="full")),
        ("node-0", Kept(stored=4)),
    ):
        told = report(name, 1, 4)
        game.ask(msgspec.structs.replace(told, kept=kept, usage=Usage(cpu=1.0, memory=1)))
    findings = game.job.health.findings
    assert [(each.about, each.until) for each in findings] == [("node-0", game.now), ("node-1", None)]


def test_the_peak_of_a_node_is_the_most_that_it_has_reported() -> None:
    game = played("node-0")

    def peak_after(peak: int | None) -> int | None:
        used = Usage(cpu=1.0, memory=5, peak=peak)
        game.ask(msgspec.structs.replace(report("node-0", 1, 39), usage=used))
        return game.job.nodes["node-0"].peak

    # None: an agent that does not know, or of an older release
    assert [peak_after(peak) for peak in (None, 7, 9, 8, None)] == [None, 7, 9, 9, 9]
    game.ask(msgspec.structs.replace(report("node-0", 1, 40), usage=None))
    assert game.job.nodes["node-0"].peak == 9


def test_usage_is_read_by_older_and_newer_masters_and_is_bounded() -> None:
    older = msgspec.defstruct("Usage", [("cpu", float), ("memory", int)])
    sent = msgspec.json.encode(Usage(cpu=1.0, memory=5, peak=7, kernel_peak=9))
    assert msgspec.json.decode(sent, type=older) == older(1.0, 5)
    assert msgspec.json.decode(b'{"cpu": 1.0, "memory": 5}', type=Usage) == Usage(cpu=1.0, memory=5)
    for wrong in ("-1", str(2**60 + 1), "1e30", "NaN"):
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(f'{{"cpu": 1.0, "memory": 5, "peak": {wrong}}}'.encode(), type=Usage)


@pytest.mark.parametrize("enter", [plain, join], ids=["plain", "elastic"])
def test_a_finished_node_has_finished_whatever_becomes_of_its_pod(enter: Callable[..., Join]) -> None:
    game = played("node-0", "node-1", enter=enter, replicas=2)
    game.see(pod("node-0"), pod("node-1"))
    game.ask(finish("node-1", 1))
    game.see(pod("node-0"), pod("node-1", Phase.SUCCEEDED))
    game.see(pod("node-0"))  # a user has deleted it
    game.see(pod("node-0"), pod("node-1", name="node-1-1", uid="new"))
    before = game.job
    told = game.ask(watch("node-1", "second", pod="node-1-1"))
    assert (told.order, told.failed) == (Order.STOP, False)
    assert told.reason == "node-1 has finished: it enters no world any more"
    for request in (enter("node-1", "second"), ran("node-1", life="second")):
        with pytest.raises(Refused, match="node-1 has finished"):
            game.ask(request)
    assert game.job == before
    assert (game.order("node-0"), game.job.health.findings) == (Order.TRAIN, ())
    game.cut(watch("node-1", "second", pod="node-1-1"))
    game.see(pod("node-0"), pod("node-1", Phase.SUCCEEDED, name="node-1-1", uid="new"))
    game.ask(finish("node-0", 1))
    assert game.verdict.end is End.SUCCEEDED


def test_a_finished_node_trains_again_in_a_job_that_was_suspended() -> None:
    game = played("node-0", "node-1", replicas=2)
    game.ask(finish("node-1", 1))
    spec = game.job.spec
    game.job = game.job.but(spec=spec.but(suspended=True))
    game._become(restore(snapshot(game.job, game.now), spec, game.now))
    game.ask(*(watch(name, "second") for name in ("node-0", "node-1")))
    game.ask(*(join(name, "second") for name in ("node-0", "node-1")))
    assert game.names() == ["node-0", "node-1"]


@pytest.mark.parametrize(("replicas", "asked"), [(4, 3), (2, 2)])
def test_a_world_is_possible_of_nodes_that_live_whatever_size_is_asked_for(replicas: int, asked: int) -> None:
    """A node that failed for good was taken off a smaller size, too, for which it is not wanted."""
    names = [f"node-{index}" for index in range(4)]
    game = played(*names, minimum=3, maximum=4, replicas=replicas)
    game.ask(failure("node-3"))
    game.job = game.job.but(spec=game.job.spec.but(replicas=asked))
    game.tick()
    assert game.ended() is None
    game.ask(failure("node-2"))
    assert game.verdict.reason == "RestartsSpent"


def test_a_node_that_failed_for_good_begins_afresh_once_all_its_pods_are_gone() -> None:
    """It was scaled away, and is added again: the operator keeps the last pod of others."""
    game = Played(maximum=2, replicas=2, restart_count=0)
    game.see(pod("node-0"), pod("node-1"))
    game.ask(watch("node-0"), watch("node-1"), failure("node-1"))
    failed = pod("node-1", Phase.FAILED)
    game.see(pod("node-0"), failed)
    assert (game.job.nodes["node-1"].failures, bool(game.job.nodes["node-1"].excluded)) == (1, True)
    game.see(pod("node-0"))
    assert (game.job.nodes["node-1"].failures, game.job.nodes["node-1"].excluded) == (0, "")
    game.see(pod("node-0"), pod("node-1", uid="another"))
    game.ask(watch("node-1", "second"), join("node-0"), join("node-1", "second"))
    assert game.names() == ["node-0", "node-1"]


def test_a_signal_is_named_as_such() -> None:
    game = played("node-0", "node-1")
    game.ask(failure("node-1", code=-9, final=False))
    assert game.job.nodes["node-1"].failure.startswith("worker 0 ended with signal 9")


def test_a_repeated_failure_counts_once() -> None:
    game = played("node-0", "node-1")
    game.ask(failure("node-1", final=False), failure("node-1", final=False))
    assert game.job.restarts == 1


def test_a_node_without_a_world_hears_when_the_job_fails_if_it_does() -> None:
    game = Played(minimum=2, maximum=2, replicas=2)
    game.see(pod("node-0"), pod("node-1"))
    game.ask(watch("node-0"), join("node-0", wait=2000.0))
    game.wait(100, "node-0")
    assert game.orders("node-0").reason == (
        "no world yet: 1 of at least 2 nodes joined; the job fails in 800 s"
    )
    game.ask(watch("node-1"), join("node-1"), watch("node-2"), join("node-2"))
    assert game.orders("node-2").reason == "round 1 trains with 2 nodes, 2 workers"


def test_reports_of_another_round_are_refused() -> None:
    game = played("node-0", "node-1")
    with pytest.raises(Stale, match="round 7 is over for node-0"):
        game.ask(report("node-0", 7, 1))
    with pytest.raises(Stale, match="does not know node-5"):
        game.ask(report("node-5", 1, 1))


def test_speed_and_eta_are_of_this_round() -> None:
    game = played("node-0", "node-1")
    for step in (10, 20, 30):
        game.ask(report("node-0", 1, step, samples=step * 64, total_steps=130))
        game.now += timedelta(seconds=2)
    assert progress.speed(game.job.training) == (5.0, 320.0)
    assert progress.eta(game.job.training) == 20.0
    game.ask(join("node-0", after=1), join("node-1", after=1), report("node-0", 2, 31))
    assert progress.speed(game.job.training) is None


def test_a_late_report_changes_nothing() -> None:
    game = played("node-0", "node-1")
    game.ask(report("node-0", 1, 30), report("node-1", 1, 20))
    assert game.job.training.progress
    assert game.job.training.progress.step == 30


def regrouped(seconds: float, **first: float) -> Played:
    """A world that trained for 100 s, stood for `seconds`, and trains again."""
    game = played("node-0", "node-1")
    game.ask(report("node-0", 1, 0))
    game.now += timedelta(seconds=100)
    game.ask(report("node-0", 1, 100))
    game.ask(leave("node-1", 1), join("node-0", after=1))
    game.now += timedelta(seconds=seconds)
    game.ask(report("node-0", 2, 101, **first))
    return game


def test_what_is_reported_after_the_last_step_is_kept_whoever_speaks_last() -> None:
    game = played("node-0", "node-1")
    game.ask(report("node-0", 1, 30, loss=0.5))
    game.ask(report("node-0", 1, 30, loss=0.5, metrics={"accuracy": 0.9}))
    game.ask(report("node-1", 1, 30, loss=0.5))
    game.ask(report("node-1", 1, 29, metrics={"accuracy": 0.1}))
    assert game.job.training.progress == Progress(step=30, loss=0.5, metrics={"accuracy": 0.9})


def test_a_standstill_is_from_the_loss_to_the_next_progress() -> None:
    training = regrouped(25).job.training
    change = training.changes[-1]
    assert (change.lost, change.step_before, change.step_after) == (("node-1",), 100, 101)
    assert (change.standstill, training.standstill) == (25, 25)
    assert progress.goodput(training) == pytest.approx(100 / 125)
    assert change.reason == "node-1 lost a worker: no reason given"


def test_what_workers_measured_is_preferred_and_the_slowest_counts() -> None:
    game = regrouped(25, standstill=0.5)
    assert game.job.training.changes[-1].standstill == 0.5
    game.ask(report("node-0", 2, 102, standstill=0.75))
    assert game.job.training.changes[-1].standstill == 0.75
    assert game.job.training.standstill == 0.75


def test_steps_that_are_made_twice_do_not_count() -> None:
    game = played("node-0")
    for step in (0, 50, 100):
        game.ask(report("node-0", 1, step))
        game.now += timedelta(seconds=50)
    game.now -= timedelta(seconds=50)
    game.ask(leave("node-0", 1), join("node-0", after=1), report("node-0", 2, 51))
    assert progress.goodput(game.job.training) == 1.0
    assert game.job.training.productive == pytest.approx(50)


def test_the_history_of_changes_is_bounded() -> None:
    game = played("node-0")
    for number in range(1, 80):
        game.ask(join("node-0", after=number))
    assert len(game.job.training.changes) == 64
    assert game.job.training.changes[-1].round == 80


def test_nodes_without_an_index_get_one_in_the_order_of_joining() -> None:
    game = Played(maximum=3)
    names = ("z-0", "m-0", "a-0")
    game.ask(*(watch(name, index=UNRANKED) for name in names))
    game.ask(*(join(name, index=UNRANKED) for name in reversed(names)))
    assert game.names() == list(names)
    game.ask(watch("m-0", "again", index=UNRANKED))
    assert [game.job.nodes[name].index for name in names] == [0, 1, 2]


def failing(*hours: float, **more: Any) -> Played:
    """A job whose node-1 fails for good after so many hours each, and is replaced each time."""
    game = played("node-0", "node-1", replicas=2, restart_count=1, **more)
    for life, each in enumerate(hours, 2):
        game.now += timedelta(hours=each)
        node = game.job.nodes["node-1"]
        game.ask(failure("node-1", life=node.incarnation, number=game.job.round))
        game.ask(watch("node-1", str(life)), watch("node-0", round=game.job.round))
        game.ask(
            *(
                join(name, after=game.job.round, life=game.job.nodes[name].incarnation)
                for name in ("node-1", "node-0")
            )
        )
    return game


def test_node_that_spent_its_restarts_enters_no_world_and_is_told_of() -> None:
    game = failing(1, 1)
    assert game.names() == ["node-0"]
    assert game.job.nodes["node-1"].joined is None
    [finding] = game.found
    assert finding.message == (
        "node-1 takes part no more: it failed 2 times (restartCount 1): "
        "worker 0 ended with exit code 1: ValueError: no"
    )


def test_failures_are_forgiven_after_a_time_without_any() -> None:
    game = failing(1, 3, 3, 3, forgive=timedelta(hours=2))
    assert game.names() == ["node-0", "node-1"]
    assert game.job.nodes["node-1"].failures == 1
    assert Kind.FAULT_NODE not in {each.reason for each in game.job.health.findings}


def test_job_whose_nodes_compute_nothing_for_hours_ends() -> None:
    game = played("node-0", "node-1")
    game.ask(report("node-0", 1, 7))
    usage = Usage(cpu=0.01, memory=1)
    for minute in range(3 * 60):
        game.now += timedelta(minutes=1)
        workers = (WorkerState(local_rank=0, doing=Doing.OUTSIDE, step=7, idle=60.0 * minute),)
        for name in ("node-0", "node-1"):
            game.ask(Report(node=name, incarnation=f"{name}-life", round=1, usage=usage, workers=workers))
            game.job = game.job.put(game.job.nodes[name].but(beat=game.now))
        game.tick()
        if verdict := game.ended():
            break
    assert verdict is not None
    assert verdict.reason == "NothingComputed"
    assert verdict.message == (
        "no node computed for 7200 s, and there was no step for 7260 s; the last one was 7"
    )


@pytest.mark.parametrize(
    "after", [[], [pod("worker-1", Phase.FAILED)]], ids=["its pod was removed", "its pod has ended"]
)
def test_shards_of_a_node_without_an_agent_return_with_its_pod(after: list[nodes.Pod]) -> None:
    game = Played()
    game.see(pod("worker-0"), pod("worker-1"))
    who = Consumer(node="worker-1", worker="0", life=1)
    data = Dataset(name="records", size=100, shard=10)
    game.ask(Open(consumer=who, dataset=data, opening=game.job.shards.mark + 1))
    game.job = game.job.but(shards=book.after_save(game.job.shards, game.job.shards.mark))
    game.ask(Lease(consumer=who, dataset="records"))
    game.see(pod("worker-0"), pod("worker-1"))
    assert game.job.shards.datasets["records"].holding
    game.see(pod("worker-0"), *after)
    assert not game.job.shards.datasets["records"].holding


def test_a_node_that_is_silent_while_its_pod_runs_is_told_until_it_answers() -> None:
    game = played("node-0", "node-1")
    game.see(pod("node-0", Phase.RUNNING), pod("node-1", Phase.RUNNING))
    game.wait(7, "node-0")
    (found,) = game.job.health.findings
    assert (found.reason, found.about, found.until) == (Kind.FAULT_NODE, "node-1", None)
    game.wait(1, "node-0", "node-1")
    assert [each.until is None for each in game.job.health.findings] == [False]
