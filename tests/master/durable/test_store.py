"""A new master goes on where the last one was."""

from __future__ import annotations

import asyncio
import gzip
import random
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from elasticjob.api.rpc.nodes import Order
from elasticjob.api.rpc.rendezvous import Member, World
from elasticjob.kube.clock import VirtualClock
from elasticjob.master.durable.store import File, Nowhere, SnapshotError, restore, snapshot
from elasticjob.master.progress.progress import eta, goodput, speed
from elasticjob.master.serving.server import Master
from elasticjob.master.state.job import Job, Limits, Spec
from elasticjob.master.state.node import Node, Phase
from elasticjob.master.state.roster import Roster
from elasticjob.master.state.training import Account, Change, Training
from lab.virtual.master import START, Played, finish, join, leave, played, report, watch


def succeeded_by(old: Played, skew: timedelta = timedelta(0)) -> Played:
    """The same agents under a new master, whose clock is ahead by `skew`."""
    return Played.of(snapshot(old.job, old.now), skew)


async def test_a_file_keeps_the_last_whole_snapshot(tmp_path: Path) -> None:
    store = File(tmp_path / "state" / "job.json")
    assert await store.load() is None
    await store.save(b"one")
    await store.save(b"two")
    assert await store.load() == b"two"
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["job.json"]


def test_without_a_snapshot_a_job_begins() -> None:
    spec, begun = Spec(job="digits"), Account(at=START, since=START)
    assert restore(None, spec, START) == Job(spec=spec, gathering=START, account=begun)


def test_the_world_trains_on_under_a_new_master() -> None:
    old = played("node-0", "node-1", maximum=3)
    old.ask(report("node-0", 1, 12))
    game = succeeded_by(old)
    for name in ("node-0", "node-1"):
        assert game.ask(watch(name, round=1, seen=old.job.version)).order is Order.TRAIN
    game.wait(20, "node-0", "node-1")
    game.ask(report("node-0", 1, 13))
    assert (game.job.round, game.job.running) == (1, old.job.world)


def test_rounds_and_the_lineage_go_on() -> None:
    old = played("node-1", "node-2", maximum=3)
    game = succeeded_by(old)
    game.ask(watch("node-0"), join("node-0"), join("node-2", after=1), join("node-1", after=1))
    assert (game.job.round, game.names()) == (2, ["node-1", "node-2", "node-0"])


@pytest.mark.parametrize(
    ("limits", "patience"),
    [(Limits(), 15), (Limits(silence=timedelta(seconds=60)), 60)],
    ids=["the time of a takeover", "a more patient job"],
)
def test_a_member_that_does_not_come_is_lost_in_time(limits: Limits, patience: int) -> None:
    game = succeeded_by(played("node-0", "node-1", limits=limits))
    game.wait(patience - 1, "node-0")
    assert game.order("node-0") is Order.TRAIN
    game.wait(2, "node-0")
    assert game.orders("node-0").lost == ("node-1",)


def test_a_world_that_was_never_saved_is_brought_by_its_members() -> None:
    """They abort its collectives: another member may be lost, and nobody would come to a step boundary."""
    old = played("node-0", "node-1")
    game = succeeded_by(old)
    for name in ("node-0", "node-1"):
        orders = game.ask(watch(name, round=4, seen=9))
        assert (orders.order, orders.round, orders.lost) == (Order.REGROUP, 4, (name,))
    game.ask(join("node-0", after=4), join("node-1", after=4))
    assert (game.job.round, game.names()) == (5, ["node-0", "node-1"])


def test_versions_go_on_even_if_they_were_not_saved() -> None:
    game = succeeded_by(played("node-0"))
    orders = game.ask(watch("node-0", round=1, seen=99))
    assert orders.version == 100


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_progress_does_not_depend_on_the_clock_of_the_next_master(hours: int) -> None:
    old = played("node-0")
    train(old, range(10))
    game = succeeded_by(old, timedelta(hours=hours))
    train(game, range(10, 15))
    training = game.job.training
    assert speed(training) == (1.0, 1.0)
    assert (eta(training), training.productive, goodput(training)) == (86.0, 14.0, 1.0)


def test_a_standstill_does_not_depend_on_the_clock_of_the_next_master() -> None:
    old = played("node-0", "node-1", minimum=1)
    train(old, range(3))
    old.ask(leave("node-1", 1))
    old.wait(4, "node-0")
    game = succeeded_by(old, timedelta(hours=1))
    game.ask(join("node-0", after=1))
    game.wait(31, "node-0")
    game.ask(report("node-0", 2, 3))
    assert game.job.training.standstill == 35.0


def train(game: Played, steps: range) -> None:
    """One step a second, of 100."""
    for step in steps:
        game.ask(report("node-0", 1, step, samples=step, total_steps=100))
        game.wait(1, "node-0")


def test_a_verdict_is_kept() -> None:
    old = played("node-0")
    old.ask(finish("node-0", 1))
    assert succeeded_by(old).job.verdict == old.job.verdict


async def test_a_successor_of_a_master_that_had_its_verdict_ends_too() -> None:
    old = played("node-0")
    old.ask(finish("node-0", 1))
    async with Master(succeeded_by(old).job, "secret", Nowhere(), clock=VirtualClock()) as master:
        assert master.ended.is_set()


def test_metrics_that_are_no_numbers_survive_a_master() -> None:
    old = played("node-0")
    old.ask(report("node-0", 1, 3, loss=float("nan"), metrics={"accuracy": float("nan")}))
    progress = succeeded_by(old).job.training.progress
    assert progress is not None
    assert (progress.step, progress.loss, progress.metrics) == (3, None, {"accuracy": None})


def test_a_snapshot_that_cannot_be_read_says_what_to_do() -> None:
    with pytest.raises(SnapshotError, match=r"snapshot of job digits .* delete it"):
        restore(b"{", Spec(job="digits"), START)


def test_a_snapshot_of_the_form_before_is_read() -> None:
    old = played("node-0", "node-1", maximum=3)
    old.ask(report("node-0", 1, 12))
    before = msgspec.json.encode(old.job, enc_hook=dict)
    assert b'"nodes":{"node-0":{' in before
    assert restore(before, old.job.spec, old.now) == restore(snapshot(old.job), old.job.spec, old.now)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"form": 3}, "it has form 3, and this master reads up to 2"),
        ({"rows": 5}, "column name has 2 rows, not 5"),
        ({"nodes": {"name": ["a", "a"]}}, "two nodes have the same name"),
        ({"places": [7, 8]}, "out of range"),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_refused(change: dict[str, object], why: str) -> None:
    given = msgspec.json.decode(snapshot(played("node-0", "node-1").job))
    with pytest.raises(SnapshotError, match=why):
        restore(msgspec.json.encode(given | change), Spec(job="digits"), START)


def test_ten_thousand_nodes_fit_where_the_api_server_takes_a_mebibyte() -> None:
    many, chance = 10_000, random.Random(1)
    names = [f"a-job-with-a-name-of-forty-letters-worker-{index}" for index in range(many)]
    lives = [f"{chance.getrandbits(128):032x}" for _ in names]
    nodes = Roster(
        Node(
            name=name,
            index=index,
            phase=Phase.RUNNING,
            pod=f"{name}-1",
            pods=(f"{name}-1",),
            uid=str(UUID(int=chance.getrandbits(128))),
            incarnation=lives[index],
            retired=tuple(f"{chance.getrandbits(128):032x}" for _ in range(16)),
            beat=START + timedelta(milliseconds=index),
            round=3,
            failure=f"worker {index % 8} ended with exit code 1: {'x' * 2000}",
        )
        for index, name in enumerate(names)
    )
    members = tuple(
        Member(node=name, incarnation=life, slots=8, address=f"10.0.{k >> 8}.{k & 255}", port=k, since=1)
        for k, (name, life) in enumerate(zip(names, lives, strict=True))
    )
    change = Change(round=1, reason="lost", formed=START, nodes=many, workers=many, lost=tuple(names[:4]))
    world = World(round=3, members=members, batch_slots=80_000)
    training = Training(changes=(change,) * 64)
    job = Job(spec=Spec(job="digits"), nodes=nodes, round=3, world=world, training=training)
    data = snapshot(job, START)
    assert len(gzip.compress(data, 6)) < 1024 * 1024
    found = restore(data, job.spec, START)
    assert (found.world, [*found.nodes]) == (world, names)
    assert found.nodes[names[-1]].retired == nodes[names[-1]].retired[-1:]


async def test_a_save_that_was_given_up_does_not_get_in_the_way_of_the_next(tmp_path: Path) -> None:
    store = File(tmp_path / "job.json")
    for _ in range(5):
        first = asyncio.create_task(store.save(b"old" * 4_000_000))
        await asyncio.sleep(0)
        first.cancel()
        await store.save(b"new")
        assert await store.load() == b"new"
