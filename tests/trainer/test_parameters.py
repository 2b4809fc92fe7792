"""Servers and workers of a real master: changes, saves and losses, as the library goes through them."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from elasticjob.api.rpc.parameters import Kept, Phase, Plane, Positions, ServerAt
from elasticjob.trainer.link.address import Way
from elasticjob.trainer.parameters import Following, Move, Serving
from elasticjob.trainer.shards import Dataset, Shards
from lab.jobs.training.consumers import MASTER, Consumed, consuming
from lab.waiting import PATIENCE, wait_until

DATA = Dataset(name="records", size=100, shard=10)


@dataclass
class Noted:
    """Values and checkpoints that only note what they are told."""

    moves: list[Move] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)
    copied: list[int] = field(default_factory=list)
    written: dict[int, int] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)

    def take_over(self, move: Move) -> None:
        self.moves.append(move)

    def use(self, version: int, servers: tuple[str, ...]) -> None:
        self.uses.append(version)

    def newest(self) -> Kept | None:
        return None

    def copy(self, number: int) -> None:
        self.copied.append(number)

    def write(self, number: int, positions: Positions, place: int, servers: int) -> None:
        self.written[number] = sum(each.applied for each in positions)

    def keep(self, number: int) -> None:
        self.kept.append(number)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Consumed]:
    """A job with a master alone."""
    with consuming(tmp_path, DATA, []) as job:
        yield job


def test_a_server_is_used_again_after_a_change_that_it_did_not_see(job: Consumed) -> None:
    """Its values may have been read for that change, since when it takes no updates."""
    values = Noted()
    with Serving("10.0.0.1:1", values, index=0, way=job.way("w-0")) as serving:
        wait_until(lambda: values.uses == [1])
        serving._offered = 0  # as if the offer of before had been another
        serving._seen = ""
        wait_until(lambda: values.uses == [1, 1])


def test_a_server_that_missed_a_change_uses_its_values_before_it_copies_them(tmp_path: Path) -> None:
    """Polls are not told of each phase: a save may be the first that a server hears of a version."""
    values, order = Noted(), list[str]()
    serving = Serving(
        "10.0.0.1:1", values, checkpoints=values, index=0, way=Way(address="", token_file="", node="")
    )
    values.__dict__ |= {
        "use": lambda version, _: order.append(f"use {version}"),
        "copy": lambda number: order.append(f"copy {number}"),
    }
    server = ServerAt(index=0, incarnation=serving.incarnation, address="10.0.0.1:1")

    class Master:
        async def call(self, _: object) -> Plane:
            return Plane(phase=Phase.SAVE, version=3, servers=(server,), saves=4)

    asyncio.run(serving._turn(Master()))  # type: ignore[arg-type]  # all that a turn asks of it
    assert order == ["use 3", "copy 4"]


def test_a_server_waits_for_storage_up_to_a_bound_and_for_others_without_one() -> None:
    values, seconds = Noted(), iter([0.0, 0.0, 119.0, 120.0, 0.0, 0.0, 500.0])
    way = Way(address="", token_file="", node="")
    serving = Serving("10.0.0.1:1", values, index=0, way=way, clock=lambda: next(seconds))
    serving.ended.set()  # no pauses

    def take_over(move: Move) -> None:
        raise OSError("no answer")

    values.__dict__["take_over"] = take_over
    stored = Move(version=3, since=1, before=("a:1",), after=("b:1",), me=0, restores=2)
    serving._take_over(stored)
    assert serving._error.endswith("not there yet, again soon: no answer")
    serving._take_over(stored)
    with pytest.raises(OSError, match="no answer"):
        serving._take_over(stored)
    for _ in range(2):
        serving._take_over(Move(version=3, since=1, before=("a:1",), after=("b:1",), me=0))


def test_a_server_that_ends_leaves_no_write_behind(job: Consumed, caplog: pytest.LogCaptureFixture) -> None:
    values, over, before = Noted(), threading.Event(), set(threading.enumerate())
    values.__dict__["write"] = lambda *_: over.wait(PATIENCE)
    way = job.way("w-0")
    serving = Serving("10.0.0.1:1", values, checkpoints=values, index=0, way=way)
    with serving, Following(way=way) as worker:
        worker.at_boundary(PATIENCE)
        worker.save()
        wait_until(lambda: worker.changing)
        worker.at_boundary(PATIENCE)
        wait_until(lambda: serving._writing is not None)
    serving._writing = None
    over.set()
    wait_until(lambda: set(threading.enumerate()) <= before)
    gc.collect()
    assert "Task was destroyed" not in caplog.text


def test_an_error_of_a_server_ends_its_process(job: Consumed) -> None:
    values = Noted()
    values.__dict__["take_over"] = lambda _: [][0]
    with Serving("10.0.0.1:1", values, index=0, way=job.way("w-0")) as serving, pytest.raises(IndexError):
        serving.wait()


def test_workers_prepare_stop_for_saves_and_go_back_when_values_are_lost(job: Consumed) -> None:
    prepared: dict[int, int] = {}
    abandoned, way = threading.Event(), job.way("w-0")
    first, second, third = Noted(), Noted(), Noted()

    def prepare(version: int, addresses: tuple[str, ...]) -> None:
        prepared[version] = len(addresses)

    def serving(values: Noted, place: int) -> Serving:
        return Serving(f"10.0.0.{place}:1", values, checkpoints=values, index=place, way=way)

    with (
        serving(first, 0),
        Shards(DATA, way=way) as shards,
        Following(
            prepare=prepare, finish=lambda _: None, flush=shards.flush, abandon=abandoned.set, way=way
        ) as worker,
    ):
        assert worker.at_boundary(PATIENCE)

        def attend() -> bool:
            return worker.at_boundary(PATIENCE) or True

        with serving(second, 1):
            wait_until(lambda: worker.changing)
            assert worker.at_boundary(PATIENCE)
            assert prepared == {worker.version: 2}
            applied = next(iter(shards))
            shards.done(applied)
            worker.save()
            wait_until(lambda: worker.changing)
            assert not worker.at_boundary(PATIENCE)
            wait_until(lambda: worker.last_checkpoint > 0)
            assert not abandoned.is_set()
            assert first.written == second.written == {worker.last_checkpoint: 10}
            assert worker.is_chief
            kept = worker.last_checkpoint
            assert worker.is_saved(worker.restored, attend, lambda: False)
            assert worker.last_checkpoint == kept
            assert worker.is_saved(worker.restored, attend, lambda: True)
            assert worker.last_checkpoint > kept
            again = shards.next()
            assert again
            shards.done(again)
            shards.flush()
        wait_until(lambda: worker.changing)
        assert abandoned.wait(PATIENCE), "a step may wait for the server that was lost"
        before = worker.restored
        assert worker.at_boundary(PATIENCE)
        assert worker.restored > before
        assert first.moves[-1].restores == worker.last_checkpoint
        wait_until(lambda: first.uses[-1] == worker.version)
        assert job.status()["datasets"][0]["records"] == 10
        job.kill(MASTER)
        with serving(third, 1):
            wait_until(lambda: worker.changing)
            assert worker.at_boundary(PATIENCE)
            assert third.moves[-1].restores is None
        assert not worker.is_saved(before, attend, lambda: True)
