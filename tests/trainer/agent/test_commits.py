"""The agent's saves: what fails is tried again, and the run ends well only if the last one is written."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec import structs

from elasticjob.trainer.agent.checkpoints import commits
from elasticjob.trainer.agent.checkpoints.commits import Keeper
from elasticjob.trainer.checkpoint import memory
from elasticjob.trainer.checkpoint.memory import held
from elasticjob.trainer.checkpoint.part import Save
from elasticjob.trainer.checkpoint.storage import Storage, Trouble
from elasticjob.trainer.link.channel import Copied, Hampered
from elasticjob.trainer.torch.saving.flash import Flash

LONG = 60.0
FULL = "/mnt/run: No space left on device"


@asynccontextmanager
async def keeper(folder: Path) -> AsyncIterator[Keeper]:
    os.makedirs(folder, exist_ok=True)
    kept = Keeper(folder, "a", "", "127.0.0.1")
    await kept.open(lambda: None)
    try:
        yield kept
    finally:
        await kept.close()


def copies(folder: Path, place: Path | str, steps: range, keep: int = 2) -> list[Any]:
    """Return what a worker tells its agent of saves after these steps."""
    told: list[Any] = []
    flash = Flash(str(place), keep=keep, environment={memory.FOLDER: str(folder)}, say=told.append)
    for step in steps:
        flash.save({"at": step}, Save(step, 1), 0, persist=True, exchange=lambda data: [data])
    flash.close()
    return told


def hear(kept: Keeper, told: list[Any]) -> None:
    for each in told:
        kept.copied(each) if isinstance(each, Copied) else kept.hampered(each)


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
                    block = next(each for each in held(tmp_path / "giver") if each.head.step == step)
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
    flash = Flash("memory://", keep=1, environment=environment, say=lambda _: None)
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
        stranger = Flash(str(tmp_path / "place"), keep=2, environment={}, say=lambda _: None)
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
