"""Checkpoints of an agent: it writes to storage what its workers have copied to shared memory.

Each keeper writes the parts of its own workers, and tells the agent of rank 0, which commits a save when it
knows all of its parts: one that lost a part, or that a newer one has overtaken, never is. A keeper may be
answered "not yet", and asks again. An answer may be lost, and the agent of rank 0 may have ended: then the
manifests in storage say whether the step is committed. Parts of a world that lost a node may never come:
that is told at once, and others have a minute to commit the step without it.
Nodes that divide a model also hold copies of their neighbour's parts (`copies.py`), and every agent serves
what its node holds.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec
from msgspec import structs

from elasticjob.api.rpc.address import host_port
from elasticjob.api.rpc.message import decode_as
from elasticjob.api.rpc.nodes import Kept
from elasticjob.api.rpc.rendezvous import Member, World
from elasticjob.trainer.agent.checkpoints.copies import Copies, Offer, Taken
from elasticjob.trainer.agent.checkpoints.endpoint import OFFERS, TAKEN, WRITTEN, Endpoint, Written
from elasticjob.trainer.checkpoint import memory, part
from elasticjob.trainer.checkpoint.part import Damaged, Head, Save, beside
from elasticjob.trainer.link.channel import Copied, Hampered

if TYPE_CHECKING:
    from elasticjob.trainer.checkpoint.storage import Part, Storage

log = logging.getLogger("elasticjob.agent")

NONE: Final = Save(-1, -1)
NOT_YET: Final = 20.0  # seconds after which an agent that asks for a commit hears that parts are missing
GONE: Final = 60.0  # seconds in which others may commit a step of which a part never comes
AGAIN: Final = 1.0  # seconds from a write that failed to the next try, at first
TELLING: Final = 5  # tries to tell a slow node that its copy is here
LATEST: Final = 30.0  # the same after many tries
STALLED: Final = 10.0  # seconds in which another node takes none of the bytes that it is sent
SILENCE: Final = aiohttp.ClientTimeout(total=None, sock_connect=2.0, sock_read=NOT_YET + STALLED)


class Gone(OSError):
    """A part of a save, or the agent that commits it, is gone with its node."""


@dataclass
class Gathering:
    """A save whose parts come in; `done` is whether it was committed, by a task of its own."""

    written: dict[int, Written] = field(default_factory=dict)
    committing: asyncio.Task[None] | None = None
    done: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Keeper:
    """The checkpoints of one node, named `node` and reached at `host`; its blocks are in `folder`."""

    def __init__(self, folder: Path, node: str, token: str, host: str) -> None:
        self.kept = Kept()
        self.port = 0
        self._folder, self._node, self._token, self._host = folder, node, token, host
        self._run = hashlib.sha256(token.encode()).hexdigest()[:12]
        self._world: Callable[[], World | None] = lambda: None
        self._lost: Callable[[], Sequence[str]] = tuple
        self._newest: dict[str, Copied] = {}  # by block
        self._wanted: dict[str, Copied] = {}  # to be written
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._rounds: dict[str, int] = {}  # of the copy that is being written
        self._offered: dict[str, Copied] = {}  # by block: the newest that the next node knows of
        self._giving: asyncio.Task[None] | None = None
        self._gathering: dict[tuple[bytes, Save], Gathering] = {}
        self._committed: dict[bytes, Save] = {}  # by place: the newest of several parts
        self._stores: dict[bytes, Storage] = {}
        self._stored: dict[bytes, int] = {}  # by place: the newest step that is known to be committed there
        self._strange: dict[bytes, str] = {}  # by place: what was seen there
        self._unwritten: dict[bytes, tuple[int, str]] = {}  # by place: the last step that failed, and why
        self._news = asyncio.Event()
        self._copies = Copies(folder, token, self._say_taken)
        self._endpoint = Endpoint(folder, token, self._gather, self._copies.hear, self._hear_taken)
        self._session: aiohttp.ClientSession | None = None

    async def open(
        self, world: Callable[[], World | None], lost: Callable[[], Sequence[str]] = tuple
    ) -> dict[str, str]:
        """Serve this node's memory; return what workers have to know.

        `world` tells the present one, `lost` the nodes that have left it unplanned.
        """
        self._world, self._lost = world, lost
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._token}"}, timeout=SILENCE, trust_env=False
        )
        self.port = await self._endpoint.open(self._host)
        return {memory.FOLDER: str(self._folder), memory.SERVER: host_port(self._host, self.port)}

    def hear(self, message: Copied | Hampered) -> None:
        """Take in what a worker says: it has copied its state, or cannot read or write checkpoints."""
        if isinstance(message, Copied):
            self._hear_of_a_copy(message)
            return
        if message.step:
            self._unwritten[message.where] = message.step, message.problem
        self.kept = structs.replace(self.kept, error=message.problem[:2048])

    def _hear_of_a_copy(self, message: Copied) -> None:
        """Write a copy of the state, and give it to the next node, if that is due."""
        self._newest[message.block] = message
        self.kept = structs.replace(self.kept, memory_alone=not message.where)
        if message.persist:
            self._want(message)
        if not message.travels:
            self._say_in_memory(message.step)
        elif self._giving is None or self._giving.done():
            self._giving = asyncio.get_running_loop().create_task(self._give())

    async def finish(self, within: float) -> str:
        """Write the newest state in memory where it is newer than what is written; take `within` seconds.

        Returns in a sentence what is not in storage after that, empty if all is.
        """
        present = max((each.round for each in self._newest.values()), default=0)
        last = [each for each in self._newest.values() if each.keeps and each.where and each.round == present]
        for message in last:
            if message.step > self._stored.get(message.where, -1):
                self._want(message)
        until = time.monotonic() + within
        if running := [task for task in self._writing.values() if not task.done()]:
            await asyncio.wait(running, timeout=within)
        while (owed := self._owes(present)) and (left := until - time.monotonic()) > 0:
            await asyncio.wait(owed, timeout=min(left, NOT_YET))
        for message in last:
            if message.step > self._stored.get(message.where, -1):
                _, why = self._unwritten.get(message.where, (0, ""))
                return why or sentence_of(message.step, message.where, "storage did not answer")
        for where, (step, why) in self._unwritten.items():
            if step > self._stored.get(where, -1):
                return why
        return ""

    def _owes(self, present: int) -> list[asyncio.Future[bool]]:
        """Return the saves of which other nodes have told a part here, and have no answer yet."""
        if self._lost():
            return []
        all_ = self._gathering.items()
        return [each.done for (_, save), each in all_ if save.round >= present and not each.done.done()]

    async def close(self) -> None:
        """Stop; what is in memory stays there."""
        committing = [each.committing for each in self._gathering.values()]
        tasks = [each for each in (*self._writing.values(), self._giving, *committing) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._copies.close()
        if self._session is not None:
            await self._session.close()
        await self._endpoint.close()

    # to storage

    def _want(self, message: Copied) -> None:
        """Write this copy after the one that is being written; one that waits already is overtaken.

        One of an earlier round is given up: its other parts may never come.
        """
        self._wanted[message.block] = message
        self._news.set()
        running = self._writing.get(message.block)
        if running is not None and self._rounds.get(message.block, 0) < message.round:
            running.cancel()
            running = None
        self._rounds[message.block] = message.round
        if running is None or running.done():
            self._writing[message.block] = asyncio.get_running_loop().create_task(self._write(message.block))

    async def _write(self, block: str) -> None:
        """Write what is wanted; what fails is tried again, until a newer save overtakes it.

        So it is until its last try if another part of it never comes.
        """
        while message := self._wanted.pop(block, None):
            pause, gone_at = AGAIN, None
            while (problem := await self._problem_with(message)) and block not in self._wanted:
                now = time.monotonic()
                gone_at = (gone_at or now) if isinstance(problem, Gone) else None
                if gone_at is not None and now >= gone_at + GONE:
                    break
                self._news.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._news.wait()
                pause, message = min(2 * pause, LATEST), self._newest_like(message)

    async def _problem_with(self, message: Copied) -> Exception | None:
        """Write a save and have it committed; return what prevented that, and may not at another try."""
        began = time.monotonic()
        try:
            committed = await self._tell(await asyncio.to_thread(self._store, message))
        except Exception as error:  # file systems of others raise what they like
            if await self._is_overtaken(message):
                return None
            self._failed(message, error)
            return error
        if committed:
            self._stored[message.where] = message.step
            self._unwritten.pop(message.where, None)
            seconds = time.monotonic() - began
            problem = self._strange.get(message.where, "")[:2048]
            self.kept = structs.replace(self.kept, stored=message.step, seconds=seconds, error=problem)
        return None

    async def _is_overtaken(self, message: Copied) -> bool:
        """Whether this run has committed a later step by now: other nodes went on, and may have ended.

        So they may after the same step of which this node has a part: there is one commit for all parts.
        """
        try:
            newest = await asyncio.to_thread(lambda: self._storage(message.where).newest_of(self._run))
        except Exception:  # as above; what the write has raised is told
            return False
        if newest < message.step or (newest == message.step and message.parts == 1):
            return False
        self._stored[message.where] = newest
        self._unwritten.pop(message.where, None)
        self.kept = structs.replace(self.kept, stored=newest, error="")
        return True

    def _newest_like(self, message: Copied) -> Copied:
        """Return what to write at another try: memory may hold a newer step by now.

        A part of several is written with the others of its step, or not at all.
        """
        newest = self._newest[message.block]
        same = newest.where == message.where and newest.keeps and newest.parts == 1
        return newest if same else message

    def _failed(self, message: Copied, error: Exception) -> None:
        problem = sentence_of(message.step, message.where, str(error) or repr(error))
        if self.kept.error != problem[:2048]:
            log.warning(problem)
        self._unwritten[message.where] = message.step, problem
        self.kept = structs.replace(self.kept, error=problem[:2048])

    def _store(self, message: Copied) -> Written:
        """Write a worker's newest block, unless it has done so. Damaged if it is another save's by now."""
        from elasticjob.trainer.checkpoint.storage import Part

        save, storage = Save(message.step, message.round), self._storage(message.where)
        if message.name:
            written = Part(message.name, message.size, message.crc)
            return part_of(message, written, storage.head(message.step, written))
        for held in memory.blocks_of(self._folder):
            if held.path.stem == message.block and held.head.save == save:
                with memory.reading(held.path) as block:
                    return part_of(message, *storage.write(block))
        raise Damaged("a newer step has overwritten it in memory")

    def _storage(self, where: bytes) -> Storage:
        """Return the storage; fsspec is loaded when it is first needed, for agents start in no time."""
        from elasticjob.trainer.checkpoint.storage import Storage

        return self._stores.setdefault(where, Storage(os.fsdecode(where)))

    async def _tell(self, written: Written) -> bool:
        """Tell the agent of rank 0, which commits; return whether it did. Gone if that will never be."""
        while True:
            world = self._world()
            first = None if world is None else world.members[0]
            if first is None or first.node == self._node:
                committed = await self._gather(written)
            else:
                committed = await self._ask(first, written)
            if committed is not None:
                return committed
            if lost := self._lost():
                raise Gone(f"its world has lost {', '.join(lost)}, and parts of it that were not written")

    async def _ask(self, first: Member, written: Written) -> bool | None:
        """Tell another node's agent of a part; return what it knows of the save."""
        assert self._session is not None
        body = msgspec.json.encode(written)
        try:
            async with self._session.post(f"{url_of(first)}{WRITTEN}", data=body) as answer:
                if not answer.ok:
                    raise OSError(f"{first.node}: {(await answer.text())[:1000]}")
                return None if answer.status == 204 else decode_as(await answer.read(), bool)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Gone(
                f"{first.node}, which commits it, cannot be reached: {str(error) or 'timeout'}"
            ) from error

    async def _gather(self, written: Written) -> bool | None:
        """Take in a part; commit its save with the last one. Return whether it is; None: not known yet."""
        newest = self._committed.get(written.where)
        if newest is not None and written.parts > 1 and not is_hopeless(newest, written.save):
            return newest == written.save  # an answer was lost
        for (where, save), older in self._gathering.items():
            if where == written.where and is_hopeless(save, written.save) and not older.done.done():
                older.done.set_result(False)
        self._gathering = {k: each for k, each in self._gathering.items() if not each.done.done()}
        gathering = self._gathering.setdefault((written.where, written.save), Gathering())
        gathering.written[written.part] = written
        if len(gathering.written) == written.parts and gathering.committing is None:
            gathering.committing = asyncio.create_task(self._commit_all(written, gathering))
        await asyncio.wait({gathering.done}, timeout=NOT_YET)
        return gathering.done.result() if gathering.done.done() else None

    async def _commit_all(self, written: Written, gathering: Gathering) -> None:
        """Commit a save of which all parts are written."""
        try:
            strange = await asyncio.to_thread(self._commit, gathering.written)
        except Exception as error:  # as above; each node tries again
            if not gathering.done.done():
                gathering.done.set_exception(error)
                gathering.done.exception()
            return
        self._say_committed(written, strange)
        if is_hopeless(self._committed.get(written.where, NONE), written.save):
            self._committed[written.where] = written.save
        if not gathering.done.done():
            gathering.done.set_result(True)

    def _say_committed(self, written: Written, strange: str) -> None:
        """Log what was committed, and what is strange in its place, once for as long as it is."""
        if written.step != self._stored.get(written.where):  # the last one may be saved again, with scores
            log.info("the checkpoint of step %d is in %s", written.step, printable(written.where))
        known = self._strange.get(written.where, "")
        self._strange[written.where] = strange and (known or strange)
        if strange and not known:
            log.warning("%s", strange)

    def _commit(self, written: dict[int, Written]) -> str:
        """Commit a save; return in a sentence what is strange in its place, empty if nothing is."""
        from elasticjob.trainer.checkpoint.storage import Manifest, Part

        first, each_ = written[0], [each for _, each in sorted(written.items())]
        storage, before = self._storage(first.where), self._stored.get(first.where, -1)
        parts = tuple(Part(each.name, each.size, each.crc) for each in each_)
        manifest = Manifest(first.step, first.round, parts, by=self._run, after=first.after)
        done = storage.commit(manifest, [part.decode(each.head) for each in each_], first.keep)
        if done.strangers:
            return beside(printable(first.where), done.strangers)
        return lost(before, first.where) if done.before < before else ""

    # to the next node

    async def _give(self) -> None:
        """Offer the newest blocks of this node's workers to the next node of the world."""
        newest = self._newest
        while todo := [
            each for name, each in newest.items() if each.travels and self._offered.get(name) != each
        ]:
            world = self._world()
            to = next_to(world, self._node) if world else None
            for message in todo:
                self._offered[message.block] = message
                save = Save(message.step, message.round)
                if to is None or not to.files:
                    self._say_given(message.block, save)  # nobody is there to wait for
                    continue
                try:
                    await self._offer(to, message)
                except Exception as error:  # a copy less is no reason to give the next one up
                    log.warning("%s has no copy of step %d: %r", to.node, message.step, error)
                    self._say_given(message.block, save)

    async def _say_taken(self, taken: Taken) -> None:
        """Tell the node that has offered it what became of a copy; its next save waits for that."""
        assert self._session is not None
        url, body = f"http://{taken.offer.server}{TAKEN}", msgspec.json.encode(taken)
        for _ in range(TELLING):
            try:
                async with self._session.post(url, data=body) as answer:
                    await answer.read()
                return
            except TimeoutError:
                continue
            except aiohttp.ClientError:  # it is gone
                return

    def _hear_taken(self, taken: Taken) -> None:
        """Let the worker go on to its next save: a copy of its last one is at the next node, or cannot be."""
        offer = taken.offer
        if taken.problem:
            log.warning("the next node has no copy of step %d: %s", offer.step, taken.problem)
        self._say_given(f"slot-{offer.slot}-{offer.mark}", Save(offer.step, offer.round))

    def _say_given(self, block: str, save: Save) -> None:
        """Say that the next node has a copy of a block, or cannot have one: it is as safe as it gets."""
        memory.say_given(self._folder, block, save)
        self._say_in_memory(save.step)

    def _say_in_memory(self, step: int) -> None:
        self.kept = structs.replace(self.kept, in_memory=max(self.kept.in_memory, step))

    async def _offer(self, to: Member, message: Copied) -> None:
        assert self._session is not None
        _, slot, mark = message.block.split("-")
        offer = Offer(
            server=host_port(self._host, self.port),
            mark=mark,
            step=message.step,
            round=message.round,
            part=message.part,
            slot=int(slot),
            size=message.size,
        )
        async with self._session.post(f"{url_of(to)}{OFFERS}", data=msgspec.json.encode(offer)) as answer:
            answer.raise_for_status()


def part_of(message: Copied, file: Part, head: Head) -> Written:
    """Return the part of a save that a worker or its agent has written."""
    return Written(
        where=message.where,
        keep=message.keep,
        step=message.step,
        round=message.round,
        part=message.part,
        parts=message.parts,
        name=file.name,
        size=file.size,
        crc=file.crc,
        after=message.after,
        head=part.encode(head),
    )


def sentence_of(step: int, where: bytes, why: str) -> str:
    """Return in a sentence that a checkpoint is not written."""
    return f"the checkpoint of step {step} is not in {printable(where)}: {why}"


def lost(step: int, where: bytes) -> str:
    """Return in a sentence that checkpoints of this run were taken away."""
    return (
        f"the checkpoint of step {step} was in {printable(where)}, and is not any more: see that its file "
        "system is mounted, if nobody has removed it"
    )


def printable(where: bytes) -> str:
    """Return a place as a text that can be sent."""
    return where.decode("utf-8", "backslashreplace")


def is_hopeless(save: Save, by: Save) -> bool:
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
