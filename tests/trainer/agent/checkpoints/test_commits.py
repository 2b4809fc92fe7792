"""The agent's saves: what fails is tried again, and the run ends well only if the last one is written."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from msgspec import structs

from elasticjob.api.rpc.rendezvous import Member, World
from elasticjob.trainer.agent.checkpoints import commits
from elasticjob.trainer.agent.checkpoints.commits import Keeper
from elasticjob.trainer.checkpoint import memory
from elasticjob.trainer.checkpoint.flash import Flash, Place
from elasticjob.trainer.checkpoint.memory import blocks_of
from elasticjob.trainer.checkpoint.part import Save
from elasticjob.trainer.checkpoint.storage import Storage, Trouble
from elasticjob.trainer.link.channel import Copied, Hampered
from elasticjob.trainer.torch.saving import tree
from elasticjob.trainer.torch.saving.tensors import Tensors
from lab.waiting import until

LONG = 60.0
FULL = "/mnt/run: No space left on device"


@asynccontextmanager
async def keeper(folder: Path, name: str = "a") -> AsyncIterator[Keeper]:
    os.makedirs(folder, exist_ok=True)
    kept = Keeper(folder, name, "", "127.0.0.1")
    await kept.open(lambda: None)
    try:
        yield kept
    finally:
        await kept.close()


def copies(folder: Path, place: Path | str, steps: range, keep: int = 2) -> list[Any]:
    """Return what a worker tells its agent of saves after these steps."""
    told: list[Any] = []
    flash = Flash(str(place), Tensors(), keep=keep, environment={memory.FOLDER: str(folder)}, say=told.append)
    for step in steps:
        flash.save({"at": step}, Save(step, 1), 0, persist=True, exchange=lambda data: [data])
    flash.close()
    return told


def hear(kept: Keeper, told: list[Any]) -> None:
    for each in told:
        kept.hear(each)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let so many writes to storage fail; -1 for all."""
    write, left = Storage.write, [0]

    def failing(self: Storage, *given: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise Trouble(FULL)
        return write(self, *given)

    monkeypatch.setattr(Storage, "write", failing)
    monkeypatch.setattr(commits, "AGAIN", 0.001)
    monkeypatch.setattr(commits, "LATEST", 0.001)
    return lambda number: left.__setitem__(0, number)


async def test_what_could_not_be_written_is_tried_again(tmp_path: Path, full: Callable[[int], None]) -> None:
    async with keeper(tmp_path / "memory") as kept:
        full(3)
        hear(kept, copies(tmp_path / "memory", tmp_path / "place", range(5, 6)))
        assert await kept.finish(LONG) == ""
        assert (kept.kept.stored, kept.kept.error) == (5, "")
    assert Storage(str(tmp_path / "place")).steps() == [5]


async def test_last_save_that_fails_is_told(tmp_path: Path, full: Callable[[int], None]) -> None:
    async with keeper(tmp_path / "memory") as kept:
        full(-1)
        hear(kept, copies(tmp_path / "memory", tmp_path / "place", range(5, 9)))
        problem = await kept.finish(0.2)
        assert (
            problem
            == f"the checkpoint of step 8 is not in {tmp_path}/place: /mnt/run: No space left on device"
        )
        assert kept.kept.error == problem
        full(0)
        assert await kept.finish(LONG) == ""
    assert Storage(str(tmp_path / "place")).steps()[-1] == 8


@pytest.mark.parametrize("where", ["constructor", "method"])
async def test_what_a_storage_raises_is_told_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: Callable[[int], None], where: str
) -> None:
    """File systems of others raise what they like, also where they are made."""

    def failing(*_: Any, **__: Any) -> Any:
        raise LookupError("no credentials for bucket train-7")

    raises = {"constructor": (fsspec.core, "url_to_fs"), "method": (LocalFileSystem, "makedirs")}[where]
    async with keeper(tmp_path / "memory") as kept:
        told = copies(tmp_path / "memory", tmp_path / "place", range(5, 6))
        with monkeypatch.context() as broken:
            broken.setattr(*raises, failing)
            hear(kept, told)
            problem = await kept.finish(0.2)
        assert problem.startswith(f"the checkpoint of step 5 is not in {tmp_path}/place: ")
        assert problem.endswith("no credentials for bucket train-7")
        assert await kept.finish(LONG) == ""
    assert Storage(str(tmp_path / "place")).steps() == [5]


async def test_places_have_separate_books(tmp_path: Path) -> None:
    async with keeper(tmp_path / "memory") as kept:
        hear(kept, copies(tmp_path / "memory", tmp_path / "generator", range(5000, 5001)))
        await kept.finish(LONG)
        critic = copies(tmp_path / "memory", tmp_path / "critic", range(1200, 1201))
        hear(kept, [Copied(block=c.block, step=c.step, round=c.round, where=c.where) for c in critic])
        assert await kept.finish(LONG) == ""
    assert Storage(str(tmp_path / "critic")).steps() == [1200]


@pytest.mark.parametrize("fails", [False, True])
async def test_without_room_in_memory_the_worker_writes_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: Callable[[int], None], fails: bool
) -> None:
    def no_room(*_: Any) -> None:
        raise memory.NoRoom(28, "no memory for a checkpoint of 4155 bytes")

    monkeypatch.setattr(memory, "_reserve", no_room)
    async with keeper(tmp_path / "memory") as kept:
        full(-1 if fails else 0)
        told = copies(tmp_path / "memory", tmp_path / "place", range(5, 7))
        assert (
            "no memory for a checkpoint" in next(each for each in told if isinstance(each, Hampered)).problem
        )
        hear(kept, told)
        problem = await kept.finish(LONG)
    assert Storage(str(tmp_path / "place")).steps()[-1:] == ([] if fails else [6])
    assert ("the checkpoint of step 6 is not in" in problem) == fails


async def test_shifts_of_ranks_leave_no_more_copies(tmp_path: Path) -> None:
    """A node with two workers gives its parts, whose numbers follow the ranks, to the next one."""
    async with keeper(tmp_path / "next") as kept, aiohttp.ClientSession() as session:
        for first in (0, 2, 4, 6):
            for slot in (0, 1):
                for step in (first, first + 1):
                    flash_copy(tmp_path / "giver", slot, step)
                    block = next(each for each in blocks_of(tmp_path / "giver") if each.head.step == step)
                    with memory.reading(block.path) as found:
                        save, mark = Save(step, 1), memory.mark_of("memory://")
                        path = f"{memory.path_of(mark, save, first + slot)}?slot={slot}"
                        url = f"http://127.0.0.1:{kept.port}{path}"
                        async with session.put(url, data=bytes(found)) as answer:
                            assert answer.status == 204
        assert len(list((tmp_path / "next").iterdir())) == 4
        async with session.put(f"http://127.0.0.1:{kept.port}{path[:-1]}x", data=bytes(9999)) as answer:
            assert answer.status == 400


def flash_copy(folder: Path, slot: int, step: int) -> None:
    folder.mkdir(exist_ok=True)
    environment = {memory.FOLDER: str(folder), "LOCAL_RANK": str(slot), "ELASTICJOB_SLOT": str(slot)}
    flash = Flash("memory://", Tensors(), keep=1, environment=environment, say=lambda _: None)
    flash.save({"at": step}, Save(step, 1), 0, persist=False, exchange=lambda data: [data])
    flash.close()


async def test_commit_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: Callable[[int], None]
) -> None:
    commit, left = Storage.commit, [2]

    def failing(self: Storage, *given: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise Trouble("/mnt/run: Connection timed out")
        return commit(self, *given)

    monkeypatch.setattr(Storage, "commit", failing)
    async with keeper(tmp_path / "memory") as kept:
        hear(kept, copies(tmp_path / "memory", tmp_path / "place", range(5, 6)))
        async with asyncio.timeout(LONG):
            assert await kept.finish(LONG) == ""
    assert Storage(str(tmp_path / "place")).steps() == [5]


async def test_what_the_others_have_gone_beyond_is_not_missing(
    tmp_path: Path, full: Callable[[int], None]
) -> None:
    """A node that was the first one could not write its save; the next one has committed a later one."""
    full(-1)
    async with keeper(tmp_path / "a") as old, keeper(tmp_path / "b") as new:
        hear(old, copies(tmp_path / "a", tmp_path / "place", range(5, 6)))
        assert "step 5 is not in" in await old.finish(0.2)
        full(0)
        later = copies(tmp_path / "b", tmp_path / "place", range(7, 8))
        hear(new, later)
        assert await new.finish(LONG) == ""
        full(-1)
        assert await old.finish(LONG) == ""
        assert old.kept.error == ""
    assert Storage(str(tmp_path / "place")).steps()[-1] == 7


async def test_another_training_in_the_place_is_told_for_as_long_as_it_is_there(tmp_path: Path) -> None:
    async with keeper(tmp_path / "memory") as kept:
        stranger = Flash(str(tmp_path / "place"), Tensors(), keep=2, environment={}, say=lambda _: None)
        stranger.save({}, Save(6, 1), 0, persist=True, exchange=lambda data: [data])
        told = copies(tmp_path / "memory", tmp_path / "place", range(4, 5))
        hear(kept, [structs.replace(each, after=0) for each in told])
        assert await kept.finish(LONG) == ""
        assert "another training writes to" in kept.kept.error
    assert Storage(str(tmp_path / "place")).steps() == [4, 6]


async def test_checkpoints_that_are_taken_away_are_told(tmp_path: Path) -> None:
    """As by a mount that is lost: what follows goes to the disk below it."""
    async with keeper(tmp_path / "memory") as kept:
        hear(kept, copies(tmp_path / "memory", tmp_path / "place", range(4, 5)))
        assert (await kept.finish(LONG), kept.kept.error) == ("", "")
        shutil.rmtree(tmp_path / "place")
        hear(kept, copies(tmp_path / "memory", tmp_path / "place", range(5, 6)))
        assert await kept.finish(LONG) == ""
        assert "step 4 was in" in kept.kept.error
        hear(kept, copies(tmp_path / "memory", tmp_path / "place", range(6, 7)))
        assert (await kept.finish(LONG), kept.kept.error) == ("", "")


@dataclass
class Nodes:
    """Two nodes whose workers have a part of a model each; the agent of "a" commits."""

    folder: Path
    a: Keeper
    b: Keeper
    lost: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return str(self.folder / "place")

    def copied(self, node: str, *steps: int) -> list[Any]:
        """Let the worker of a node copy its part after these steps; return what its agent heard."""
        kept, told = getattr(self, node), list[Any]()
        environment = {memory.FOLDER: str(self.folder / node)}
        flash = Flash(self.place, Tensors(), keep=2, environment=environment, say=told.append)
        for step in steps:
            flash.save({"at": step}, Save(step, 1), int(node == "b"), persist=True, exchange=lambda _: [])
        flash.close()
        hear(kept, told)
        return told


@pytest.fixture
async def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Nodes]:
    monkeypatch.setattr(tree, "place_of", lambda _, rank: Place(rank, 2))
    monkeypatch.setattr(commits, "AGAIN", 0.001)
    monkeypatch.setattr(commits, "LATEST", 0.001)
    async with keeper(tmp_path / "a", "a") as a, keeper(tmp_path / "b", "b") as b:
        both = Nodes(tmp_path, a, b)
        members = tuple(
            Member(node=name, incarnation="1", slots=1, address="127.0.0.1", port=1, since=1, files=kept.port)
            for name, kept in (("a", a), ("b", b))
        )
        for each in (a, b):
            monkeypatch.setattr(each, "_world", lambda: World(round=1, members=members, batch_slots=2))
            monkeypatch.setattr(each, "_lost", lambda: both.lost)
        yield both


async def test_a_last_step_that_is_due_too_is_one_save(nodes: Nodes) -> None:
    """The second of two would wait for ever where another node has overtaken the first by it."""
    assert [each.step for each in nodes.copied("a", 5, 10, 10)] == [5, 10]
    nodes.copied("b", 5, 10, 10)
    assert not any(await asyncio.gather(nodes.a.finish(LONG), nodes.b.finish(LONG)))
    assert Storage(nodes.place).steps() == [10]


async def test_a_part_whose_answer_was_lost_is_answered_again(nodes: Nodes) -> None:
    nodes.copied("a", 10)
    told = nodes.copied("b", 10)
    assert not any(await asyncio.gather(nodes.a.finish(LONG), nodes.b.finish(LONG)))
    hear(nodes.b, told)
    async with asyncio.timeout(LONG):
        assert await nodes.b.finish(LONG * 10) == ""


async def test_a_node_that_stays_sees_what_one_that_left_has_committed(nodes: Nodes) -> None:
    nodes.copied("a", 10)
    nodes.copied("b", 10)
    assert await nodes.a.finish(LONG) == ""
    await nodes.a.close()
    nodes.b._stored.clear()  # it has not heard of it
    async with asyncio.timeout(LONG):
        assert await nodes.b.finish(LONG * 10) == ""
    assert nodes.b.kept.stored == 10


@pytest.mark.parametrize(
    ("stays", "why"),
    [
        ("a", "its world has lost b, and parts of it that were not written"),
        ("b", "a, which commits it, cannot be reached: Cannot connect to host"),
    ],
)
async def test_a_part_that_never_comes_is_told_and_not_waited_for(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, stays: str, why: str
) -> None:
    monkeypatch.setattr(commits, "GONE", 0.1)
    monkeypatch.setattr(commits, "NOT_YET", 0.05)
    nodes.copied(stays, 10)
    if stays == "a":
        nodes.lost = ("b",)
    else:
        await nodes.a.close()
    async with asyncio.timeout(LONG):
        problem = await getattr(nodes, stays).finish(LONG * 10)
    assert problem.startswith(f"the checkpoint of step 10 is not in {nodes.place}: {why}")


async def test_an_agent_that_commits_does_not_leave_before_it_has_answered(nodes: Nodes) -> None:
    """Here it has no part of its own that it would wait for."""

    async def leave() -> list[int]:
        await nodes.a.finish(LONG)
        return Storage(nodes.place).steps()

    nodes.copied("b", 10)

    await until(lambda: nodes.a._gathering, "the part of b")
    leaving = asyncio.create_task(leave())
    await asyncio.sleep(0)  # it has begun
    nodes.copied("a", 10)
    assert (await leaving, await nodes.b.finish(LONG)) == ([10], "")
