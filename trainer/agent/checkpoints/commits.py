"""What an agent does for checkpoints: it writes to storage what its workers have copied to shared memory.

Each keeper writes the parts of its own workers. The agent of rank 0 waits for all parts of a save, then
commits it: a save that lost a part, or that a newer one has overtaken, never is. Nodes that divide a model
also hold a copy of their neighbour's parts, and every agent serves what its node holds.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec
from msgspec import structs

from elasticjob.api.rpc.address import host_port
from elasticjob.api.rpc.nodes import Kept
from elasticjob.api.rpc.rendezvous import Member, World
from elasticjob.trainer.agent.checkpoints.endpoint import WRITTEN, Endpoint, Written
from elasticjob.trainer.checkpoint import memory, part
from elasticjob.trainer.checkpoint.part import Damaged, Save
from elasticjob.trainer.link.channel import Copied

if TYPE_CHECKING:
    from elasticjob.trainer.checkpoint.storage import Storage

log = logging.getLogger("elasticjob.agent")

CHUNK: Final = 1 << 20
PATIENCE: Final = 600.0  # seconds that the parts of other nodes may take
SILENCE: Final = aiohttp.ClientTimeout(total=None, sock_connect=2.0, sock_read=PATIENCE)


@dataclass
class Gathering:
    """A save whose parts come in; `done` is whether it was committed."""

    written: dict[int, Written] = field(default_factory=dict)
    done: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Keeper:
    """The checkpoints of one node, named `node` and reached at `host`; its blocks are in `folder`."""

    def __init__(self, folder: Path, node: str, token: str, host: str) -> None:
        self.kept = Kept()
        self.port = 0
        self._folder, self._node, self._token, self._host = folder, node, token, host
        self._world: Callable[[], World | None] = lambda: None
        self._newest: dict[str, Copied] = {}  # by block
        self._wanted: dict[str, Copied] = {}  # to be written
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._rounds: dict[str, int] = {}  # of the copy that is being written
        self._giving: asyncio.Task[None] | None = None
        self._gathering: dict[tuple[str, Save], Gathering] = {}
        self._stores: dict[str, Storage] = {}
        self._endpoint = Endpoint(folder, token, self._gather)
        self._session: aiohttp.ClientSession | None = None

    async def open(self, world: Callable[[], World | None]) -> dict[str, str]:
        """Serve this node's memory; return what workers have to know. `world` tells the present one."""
        self._world = world
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._token}"}, timeout=SILENCE, trust_env=False
        )
        self.port = await self._endpoint.open(self._host)
        return {memory.FOLDER: str(self._folder), memory.SERVER: host_port(self._host, self.port)}

    def copied(self, message: Copied) -> None:
        """A worker has copied its state: write it, and give it to the next node, if that is due."""
        self._newest[message.block] = message
        self.kept = structs.replace(self.kept, in_memory=max(self.kept.in_memory, message.step))
        if message.persist:
            self._want(message)
        if message.parts > 1 and (self._giving is None or self._giving.done()):
            self._giving = asyncio.get_running_loop().create_task(self._give())

    async def finish(self, within: float) -> None:
        """Write the newest state in memory, if it is newer than what is written; take `within` seconds."""
        for message in self._newest.values():
            if message.keeps and message.where and message.step > self.kept.stored:
                self._want(message)
        if running := [task for task in self._writing.values() if not task.done()]:
            await asyncio.wait(running, timeout=within)

    async def close(self) -> None:
        """Stop; what is in memory stays there."""
        tasks = [*self._writing.values(), *([self._giving] if self._giving else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        await self._endpoint.close()

    # to storage

    def _want(self, message: Copied) -> None:
        """Write this copy after the one that is being written; one that waits already is overtaken.

        One of an earlier round is given up: its other parts may never come.
        """
        self._wanted[message.block] = message
        running = self._writing.get(message.block)
        if running is not None and self._rounds.get(message.block, 0) < message.round:
            running.cancel()
            running = None
        self._rounds[message.block] = message.round
        if running is None or running.done():
            self._writing[message.block] = asyncio.get_running_loop().create_task(self._write(message.block))

    async def _write(self, block: str) -> None:
        while message := self._wanted.pop(block, None):
            began = time.monotonic()
            try:
                written = await asyncio.to_thread(self._store, message)
                committed = await self._tell(written)
            except Exception as error:  # file systems of others raise what they like
                self._failed(message.step, message.where, error)
                continue
            if committed:
                seconds = time.monotonic() - began
                self.kept = structs.replace(self.kept, stored=message.step, seconds=seconds, error="")

    def _failed(self, step: int, where: str, error: Exception) -> None:
        problem = f"the checkpoint of step {step} is not in {where}: {error!r}"
        log.warning(problem)
        self.kept = structs.replace(self.kept, error=problem[:2048])

    def _store(self, message: Copied) -> Written:
        """Write a worker's newest block as a part. Damaged if it is another save's by now."""
        save = Save(message.step, message.round)
        for held in memory.held(self._folder):
            if held.path.stem == message.block and held.head.save == save:
                with memory.reading(held.path) as block:
                    stored = self._storage(message.where).write(held.head, block)
                return Written(
                    where=message.where,
                    keep=message.keep,
                    step=save.step,
                    round=save.round,
                    part=held.head.part,
                    parts=held.head.parts,
                    name=stored.name,
                    size=stored.size,
                    crc=stored.crc,
                )
        raise Damaged("a newer step has overwritten it in memory")

    def _storage(self, where: str) -> Storage:
        """Return the storage; fsspec is loaded when it is first needed, for agents start in no time."""
        from elasticjob.trainer.checkpoint.storage import Storage

        return self._stores.setdefault(where, Storage(where))

    async def _tell(self, written: Written) -> bool:
        """Tell the agent of rank 0, which commits; return whether it did."""
        world = self._world()
        if world is None or world.members[0].node == self._node:
            return await self._gather(written)
        assert self._session is not None
        body = msgspec.json.encode(written)
        async with self._session.post(f"{url_of(world.members[0])}{WRITTEN}", data=body) as answer:
            answer.raise_for_status()
            return msgspec.json.decode(await answer.read(), type=bool)

    async def _gather(self, written: Written) -> bool:
        """Wait for the other parts of a save, and commit it with the last one."""
        key = written.where, written.save
        for (where, save), older in self._gathering.items():
            if where == written.where and overtaken(save, written.save) and not older.done.done():
                older.done.set_result(False)
        gathering = self._gathering.setdefault(key, Gathering())
        gathering.written[written.part] = written
        if len(gathering.written) == written.parts and not gathering.done.done():
            try:
                await asyncio.to_thread(self._commit, gathering.written)
            except Exception as error:  # as above
                self._failed(written.step, written.where, error)
                gathering.done.set_result(False)
            else:
                if (
                    written.step != self.kept.stored
                ):  # the last step may be saved again, with what came after it
                    log.info("the checkpoint of step %d is in %s", written.step, written.where)
                gathering.done.set_result(True)
        try:
            async with asyncio.timeout(PATIENCE):
                return await asyncio.shield(gathering.done)
        finally:
            self._gathering = {k: each for k, each in self._gathering.items() if not each.done.done()}

    def _commit(self, written: dict[int, Written]) -> None:
        from elasticjob.trainer.checkpoint.storage import Manifest, Part

        first = written[0]
        parts = tuple(Part(each.name, each.size, each.crc) for _, each in sorted(written.items()))
        self._storage(first.where).commit(Manifest(first.step, first.round, parts), first.keep)

    # to the next node

    async def _give(self) -> None:
        """Give the newest blocks of this node's workers to the next node of the world, until it has them."""
        given: dict[str, Copied] = {}
        while todo := [each for name, each in self._newest.items() if given.get(name) != each]:
            world = self._world()
            to = next_to(world, self._node) if world else None
            if to is None or not to.files:
                return
            for message in todo:
                given[message.block] = message
                try:
                    await self._put(to, message)
                except (OSError, Damaged, aiohttp.ClientError, TimeoutError) as error:
                    log.info("%s has no copy of step %d: %s", to.node, message.step, error)

    async def _put(self, to: Member, message: Copied) -> None:
        assert self._session is not None
        save, mark = Save(message.step, message.round), message.block.rpartition("-")[2]
        for held in await asyncio.to_thread(memory.held, self._folder, mark):
            if held.path.stem == message.block and held.head.save == save:
                with memory.reading(held.path) as block:
                    url = f"{url_of(to)}{memory.path_of(mark, save, message.part)}"
                    size = {"Content-Length": str(len(block))}
                    async with self._session.put(url, data=chunks(block), headers=size) as answer:
                        answer.raise_for_status()


def overtaken(save: Save, by: Save) -> bool:
    """Whether a save will never be whole: all nodes have gone on to another, in this round or a later one."""
    return (save.round, save.step) < (by.round, by.step)


def next_to(world: World, node: str) -> Member | None:
    """Return the node that holds the copies of `node`: the one after it; None without another."""
    names = [member.node for member in world.members]
    if world.next is not None:
        return world.next
    if len(names) < 2 or node not in names:
        return None
    return world.members[(names.index(node) + 1) % len(names)]


def url_of(member: Member) -> str:
    """Return the address of a node's agent."""
    return f"http://{host_port(member.address, member.files)}"


def shared_memory(environment: Mapping[str, str]) -> Path:
    """Return where blocks are: $ELASTICJOB_MEMORY, or /dev/shm, or where temporary files are."""
    place = Path(environment.get(memory.FOLDER) or "/dev/shm")
    return place if place.is_dir() else Path(tempfile.gettempdir())


def spill(folder: Path, beside: Path) -> None:
    """Let blocks that do not fit into `folder` go to a folder in `beside`."""
    link, place = folder / memory.SPILL, beside / memory.SPILL
    place.mkdir()
    link.symlink_to(place)


async def chunks(block: memoryview) -> AsyncIterator[bytes]:
    """Yield the bytes of a block."""
    size = part.size_of(block)
    for at in range(0, size, CHUNK):
        yield bytes(block[at : at + CHUNK])
