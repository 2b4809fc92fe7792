"""The agent's saves: what fails is tried again, and the run ends well only if the last one is written."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any

import aiohttp
import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from msgspec import structs

from elasticjob.api.rpc.rendezvous import Member, World
from elasticjob.trainer.agent.checkpoints import commits, copies
from elasticjob.trainer.agent.checkpoints.commits import Keeper
from elasticjob.trainer.agent.checkpoints.copies import Offer
from elasticjob.trainer.checkpoint import memory
from elasticjob.trainer.checkpoint.agreement import Share
from elasticjob.trainer.checkpoint.flash import Flash
from elasticjob.trainer.checkpoint.memory import blocks_of
from elasticjob.trainer.checkpoint.part import Save
from elasticjob.trainer.checkpoint.storage import Storage, Trouble
from elasticjob.trainer.link.channel import Hampered
from elasticjob.trainer.torch.saving import tree
from elasticjob.trainer.torch.saving.tensors import Tensors
from lab.waiting import until

LONG = 60.0
FULL = "/mnt/run: No space left on device"


@dataclass
class Node:
    """An agent, and the worker beside it, which has part `rank` of a model that is stored in `place`."""

    keeper: Keeper
    memory: Path
    place: Path
    rank: int = 0

    def copies(self, *steps: int) -> list[Any]:
        """Let the worker copy its part after these steps; return what it tells its agent."""
        told: list[Any] = []
        environment = {memory.FOLDER: str(self.memory)}
        flash = Flash(str(self.place), Tensors(), keep=2, environment=environment, say=told.append)
        for step in steps:
            flash.save({"at": step}, Save(step, 1), self.rank, persist=True, exchange=lambda data: [data])
        flash.close()
        return told

    def hear(self, told: list[Any]) -> None:
        for each in told:
            self.keeper.hear(each)

    def saves(self, *steps: int) -> list[Any]:
        """Let the worker copy its part, and the agent hear of that; return what it heard."""
        told = self.copies(*steps)
        self.hear(told)
        return told

    async def finish(self, seconds: float = LONG) -> str:
        """Return what the last save lacks when the run ends."""
        return await self.keeper.finish(seconds)

    @property
    def error(self) -> str:
        """What the agent reports of its saves."""
        return self.keeper.kept.error

    @property
    def steps(self) -> list[int]:
        """The steps that are stored."""
        return Storage(str(self.place)).steps()


@asynccontextmanager
async def node(folder: Path, name: str = "a", rank: int = 0) -> AsyncIterator[Node]:
    os.makedirs(folder / name, exist_ok=True)
    keeper = Keeper(folder / name, name, "", "127.0.0.1")
    await keeper.open(lambda: None)
    try:
        yield Node(keeper, folder / name, folder / "place", rank)
    finally:
        await keeper.close()


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[Node]:
    """The only node of a training."""
    async with node(tmp_path) as found:
        yield found


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let so many writes to storage, or commits, fail; -1 for all."""
    left = {"write": 0, "commit": 0}

    def troubled(name: str) -> Callable[..., Any]:
        method = getattr(Storage, name)

        def fails(self: Storage, *given: Any) -> Any:
            if left[name]:
                left[name] -= 1
                raise Trouble(FULL)
            return method(self, *given)

        return fails

    for name in left:
        monkeypatch.setattr(Storage, name, troubled(name))
    monkeypatch.setattr(commits, "AGAIN", 0.001)
    monkeypatch.setattr(commits, "LATEST", 0.001)
    return lambda number, name="write": left.__setitem__(name, number)


@pytest.mark.parametrize("what", ["write", "commit"])
async def test_what_could_not_be_written_is_tried_again(
    alone: Node, failing: Callable[..., None], what: str
) -> None:
    failing(3, what)
    alone.saves(5)
    async with asyncio.timeout(LONG):
        assert await alone.finish() == ""
    assert (alone.keeper.kept.stored, alone.error) == (5, "")
    assert alone.steps == [5]


async def test_last_save_that_fails_is_told(alone: Node, failing: Callable[..., None]) -> None:
    failing(-1)
    alone.saves(5, 6, 7, 8)
    problem = await alone.finish(0.2)
    assert problem == alone.error == f"the checkpoint of step 8 is not in {alone.place}: {FULL}"
    failing(0)
    assert await alone.finish() == ""
    assert alone.steps[-1] == 8


@pytest.mark.parametrize("where", ["constructor", "method"])
async def test_what_a_storage_raises_is_told_in_its_own_words(
    alone: Node, monkeypatch: pytest.MonkeyPatch, failing: Callable[..., None], where: str
) -> None:
    """File systems of others raise what they like, also where they are made."""

    def raises(*_: Any, **__: Any) -> Any:
        raise LookupError("no credentials for bucket train-7")

    of, name = {"constructor": (fsspec.core, "url_to_fs"), "method": (LocalFileSystem, "makedirs")}[where]
    told = alone.copies(5)
    with monkeypatch.context() as broken:
        broken.setattr(of, name, raises)
        alone.hear(told)
        problem = await alone.finish(0.2)
    assert problem.startswith(f"the checkpoint of step 5 is not in {alone.place}: ")
    assert problem.endswith("no credentials for bucket train-7")
    assert await alone.finish() == ""
    assert alone.steps == [5]


async def test_places_have_separate_books(alone: Node, tmp_path: Path) -> None:
    critic = replace(alone, place=tmp_path / "critic")
    alone.saves(5000)
    await alone.finish()
    critic.hear([structs.replace(each, persist=False) for each in critic.copies(1200)])
    assert await critic.finish() == ""
    assert critic.steps == [1200]


@pytest.mark.parametrize("fails", [False, True])
async def test_without_room_in_memory_the_worker_writes_itself(
    alone: Node, monkeypatch: pytest.MonkeyPatch, failing: Callable[..., None], fails: bool
) -> None:
    def no_room(*_: Any) -> None:
        raise memory.NoRoom(28, "no memory for a checkpoint of 4155 bytes")

    monkeypatch.setattr(memory, "_reserve", no_room)
    failing(-1 if fails else 0)
    told = alone.saves(5, 6)
    hampered = next(each for each in told if isinstance(each, Hampered))
    assert "no memory for a checkpoint" in hampered.problem
    assert ("the checkpoint of step 6 is not in" in await alone.finish()) == fails
    assert alone.steps[-1:] == ([] if fails else [6])


async def test_offers_that_nobody_makes_are_refused(alone: Node) -> None:
    good = Offer(server="127.0.0.1:1", mark="0" * 8, step=1, round=1, part=0, slot=0, size=9999)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{alone.keeper.port}") as session:
        for wrong in ({"mark": "../../et"}, {"slot": -1}, {"size": 10}, {"step": None}):
            body = json.dumps({**structs.asdict(good), **wrong})
            async with session.post("/v1/offers", data=body) as answer:
                assert answer.status == 400


async def test_what_the_others_have_gone_beyond_is_not_missing(
    tmp_path: Path, failing: Callable[..., None]
) -> None:
    """A node that was the first one could not write its save; the next one has committed a later one."""
    failing(-1)
    async with node(tmp_path, "a") as old, node(tmp_path, "b") as new:
        old.saves(5)
        assert "step 5 is not in" in await old.finish(0.2)
        failing(0)
        new.saves(7)
        assert await new.finish() == ""
        failing(-1)
        assert await old.finish() == ""
        assert old.error == ""
        assert old.steps[-1] == 7


async def test_another_training_in_the_place_is_told_for_as_long_as_it_is_there(alone: Node) -> None:
    stranger = Flash(str(alone.place), Tensors(), keep=2, environment={}, say=lambda _: None)
    stranger.save({}, Save(6, 1), 0, persist=True, exchange=lambda data: [data])
    alone.hear([structs.replace(each, after=0) for each in alone.copies(4)])
    assert await alone.finish() == ""
    assert "another training writes to" in alone.error
    assert alone.steps == [4, 6]


async def test_checkpoints_that_are_taken_away_are_told(alone: Node) -> None:
    """As by a mount that is lost: what follows goes to the disk below it."""
    alone.saves(4)
    assert (await alone.finish(), alone.error) == ("", "")
    shutil.rmtree(alone.place)
    alone.saves(5)
    assert await alone.finish() == ""
    assert "step 4 was in" in alone.error
    alone.saves(6)
    assert (await alone.finish(), alone.error) == ("", "")


@dataclass
class Nodes:
    """Two nodes whose workers have a part of a model each; the agent of "a" commits."""

    a: Node
    b: Node
    lost: tuple[str, ...] = ()

    async def finish(self) -> list[str]:
        """Return what the last save of each lacks when the run ends."""
        return list(await asyncio.gather(self.a.finish(), self.b.finish()))


@pytest.fixture
async def nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: Callable[..., None]
) -> AsyncIterator[Nodes]:
    monkeypatch.setattr(tree, "share_of", lambda _, rank: Share(rank, 2))
    async with node(tmp_path, "a") as a, node(tmp_path, "b", rank=1) as b:
        both = Nodes(a, b)
        members = tuple(
            Member(node=name, incarnation="1", slots=1, address="127.0.0.1", port=1, since=1, files=port)
            for name, port in (("a", a.keeper.port), ("b", b.keeper.port))
        )
        for each in (a.keeper, b.keeper):
            monkeypatch.setattr(each, "_world", lambda: World(round=1, members=members, batch_slots=2))
            monkeypatch.setattr(each, "_lost", lambda: both.lost)
        yield both


async def test_a_last_step_that_is_due_too_is_one_save(nodes: Nodes) -> None:
    """The second of two would wait for ever where another node has overtaken the first by it."""
    assert [each.step for each in nodes.a.saves(5, 10, 10)] == [5, 10]
    nodes.b.saves(5, 10, 10)
    assert await nodes.finish() == ["", ""]
    assert nodes.a.steps == [10]


async def test_a_part_whose_answer_was_lost_is_answered_again(nodes: Nodes) -> None:
    nodes.a.saves(10)
    told = nodes.b.saves(10)
    assert await nodes.finish() == ["", ""]
    nodes.b.hear(told)
    async with asyncio.timeout(LONG):
        assert await nodes.b.finish(LONG * 10) == ""


async def test_a_node_that_stays_sees_what_one_that_left_has_committed(nodes: Nodes) -> None:
    nodes.a.saves(10)
    nodes.b.saves(10)
    assert await nodes.a.finish() == ""
    await nodes.a.keeper.close()
    nodes.b.keeper._stored.clear()  # it has not heard of it
    async with asyncio.timeout(LONG):
        assert await nodes.b.finish(LONG * 10) == ""
    assert nodes.b.keeper.kept.stored == 10


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
    left = nodes.a if stays == "a" else nodes.b
    left.saves(10)
    if stays == "a":
        nodes.lost = ("b",)
    else:
        await nodes.a.keeper.close()
    async with asyncio.timeout(LONG):
        problem = await left.finish(LONG * 10)
    assert problem.startswith(f"the checkpoint of step 10 is not in {left.place}: {why}")


async def test_an_agent_that_commits_does_not_leave_before_it_has_answered(nodes: Nodes) -> None:
    """Here it has no part of its own that it would wait for."""

    async def leave() -> list[int]:
        await nodes.a.finish()
        return nodes.a.steps

    nodes.b.saves(10)
    await until(lambda: nodes.a.keeper._gathering, "the part of b")
    leaving = asyncio.create_task(leave())
    await asyncio.sleep(0)  # it has begun
    nodes.a.saves(10)
    assert (await leaving, await nodes.b.finish()) == ([10], "")


async def test_a_save_waits_until_the_copy_of_the_one_before_is_there(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, told = {memory.FOLDER: str(nodes.a.memory)}, list[Any]()
    flash = Flash("memory://", Tensors(), keep=1, environment=environment, say=told.append)

    def save(step: int, by_another: bytes = b"") -> int:
        both = partial(lambda other, data: [data, other], by_another)
        flash.save({"at": step}, Save(step, 1), 0, persist=False, exchange=both, waits=True)
        return int(told[-1].step)

    assert [save(1), save(2), save(3)] == [1, 1, 1]
    nodes.a.hear(told)
    await until(partial(has, nodes.b.memory, (1, 0, "copy-0")))
    await until(lambda: memory.is_given(nodes.a.memory, told[0].block, Save(1, 1)))
    assert [save(4, b"waits"), save(5), save(6)] == [1, 5, 5]
    monkeypatch.setattr(nodes.a.keeper, "_world", lambda: None)
    nodes.a.hear(told[-1:])
    await until(lambda: save(7) == 7)
    flash.close()


async def test_copies_survive_a_process_that_ends_or_gets_no_time(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def copy(step: int) -> None:
        nodes.a.hear(copied(nodes.a.memory, 0, 0, step))
        await until(partial(has, nodes.b.memory, (step, 0, "copy-0")))

    await copy(1)
    taker = nodes.b.keeper._copies
    assert taker._process is not None
    taker._process.kill()
    await copy(2)
    waited = count()
    monkeypatch.setattr(copies, "LOOK", 0.0)
    monkeypatch.setattr(copies, "delay", lambda _: 10.0 * next(waited))
    await copy(3)
    assert taker._behind == []


async def test_shifts_of_ranks_leave_no_more_copies(nodes: Nodes) -> None:
    """A node with two workers gives its parts, whose numbers follow the ranks, to the next one."""
    memory_of_b = nodes.b.memory
    for step, (first, slot) in enumerate(product((0, 2, 4, 6), (0, 1, 0, 1)), 1):
        number = first + slot
        nodes.a.hear(copied(nodes.a.memory, slot, number, step))
        await until(partial(has, memory_of_b, (step, number, f"copy-{slot}")))
    assert len(list(memory_of_b.iterdir())) == 4


def has(folder: Path, wanted: tuple[int, int, str]) -> bool:
    """Whether a node has a whole block of this step, part and beginning of its name."""
    return any((b.head.step, b.head.part, b.path.name[:6]) == wanted for b in blocks_of(folder))


def copied(folder: Path, slot: int, number: int, step: int) -> list[Any]:
    """Let worker `slot` of a node copy its part of the state; return what it tells its agent."""
    told: list[Any] = []
    environment = {memory.FOLDER: str(folder), "ELASTICJOB_SLOT": str(slot)}
    flash = Flash("memory://", Tensors(), keep=1, environment=environment, say=told.append)
    flash.save({"at": step}, Save(step, 1), number, persist=False, exchange=lambda data: [data])
    flash.close()
    return told
