"""The state of a worker in shared memory: copied there in a step, found again by whoever comes after it.

The copy is all that training waits for. The agent writes it to storage beside the training, gives it to
another node, and keeps it when the worker dies.
"""

from __future__ import annotations

import logging
import mmap
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, Final, Protocol

import msgspec

from elasticjob.trainer.checkpoint import memory, newest, part, storage
from elasticjob.trainer.checkpoint.agreement import Share
from elasticjob.trainer.checkpoint.choice import Chosen
from elasticjob.trainer.checkpoint.memory import NoRoom, Writer
from elasticjob.trainer.checkpoint.opening import Exchange, Places, Readers
from elasticjob.trainer.checkpoint.part import Head, Save, Shape
from elasticjob.trainer.checkpoint.reading import Reading
from elasticjob.trainer.checkpoint.sources import Source
from elasticjob.trainer.checkpoint.storage import Manifest, Storage, Trouble
from elasticjob.trainer.link.address import SLOT, NoMaster, way_from
from elasticjob.trainer.link.channel import Copied, Hampered

log = logging.getLogger("elasticjob")

MEMORY: Final = "memory://"
"""The place of checkpoints that are kept in the memory of nodes alone."""


class StateParts(Protocol):
    """A state, taken apart: tensors by name, and a rest that refers to them; `ended` as in `part.Head`."""

    ended: int

    def shapes(self) -> Iterable[Shape]:
        """Return what a block has to know of each tensor."""

    def fill(self, block: memoryview, places: Iterable[part.Tensor]) -> None:
        """Copy the tensors to their places in a block; returns when all is there."""

    def encode(self) -> bytes:
        """Return the rest as bytes."""

    def check(self) -> None:
        """Raise TypeError if what was encoded could not be read again."""

    def share(self, rank: int) -> Share:
        """Return which part of the state worker `rank` has, and what of it it writes."""


class Form(Protocol):
    """How a framework's state is taken apart, and read again: by `torch.saving.tensors`, `jax.arrays`."""

    def take(self, state: Any, ended: int = 0) -> StateParts:
        """Take a state apart."""

    def reading(self, source: Source, rank: int, world: int, into: Any) -> Reading:
        """Return how one of a `world` of workers reads a checkpoint; `into` says what it is to become."""

    def pin(self, block: memoryview) -> Callable[[], object]:
        """Prepare a mapped block for copies from a device; returns what undoes that."""


class Flash:
    """The checkpoints of one worker: in the memory of its node, and in `where`.

    Without an agent nobody else could use the memory: then a save writes to storage before it returns.
    """

    def __init__(
        self,
        where: str,
        form: Form,
        *,
        keep: int,
        environment: Mapping[str, str],
        say: Callable[[Copied | Hampered], None],
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}: at least 1 checkpoint has to stay")
        self._form, self._keep, self._say = form, keep, say
        self._storage = None if where == MEMORY else Storage(where)
        self._where = where = self._storage.where if self._storage else where
        self._patience = newest.patience(environment)
        folder = environment.get(memory.FOLDER)
        self._folder = Path(folder) if folder else None
        self._server = environment.get(memory.SERVER, "")
        self._mark = memory.mark_of(where)
        self._block = f"slot-{environment.get(SLOT, '0')}-{self._mark}"
        self._writer = Writer(self._folder, self._block, form.pin) if self._folder else None
        self._first = environment.get(SLOT, "0") == "0"
        self._readable = False  # what is saved can be read again
        self._full = False  # said that there is no room
        self._expects = False
        self.divided = False  # each worker has a part of what was saved last
        self._given: Save | None = None  # the newest that another node is given a copy of
        self._written: Save | None = None  # the newest that goes to storage
        self.is_stored = True  # what was loaded is in storage, not in memory alone
        self.ended = 0  # as in the head of what was loaded
        self._after, self._run = storage.UNKNOWN, secrets.token_hex(6)
        try:
            self._token = way_from(environment).token()
        except NoMaster:
            self._token = ""

    @property
    def where(self) -> str:
        """The place of the checkpoints."""
        return self._where

    def save(
        self,
        state: Any,
        save: Save,
        rank: int,
        *,
        persist: bool,
        exchange: Exchange,
        keeps: bool = True,
        ended: int = 0,
        waits: bool = False,
    ) -> None:
        """Copy the state; with `persist` the agent writes it to storage, too, unless another node `keeps` it.

        Without an agent all workers call this at once, and it returns when the checkpoint is in storage.
        Where each worker has a part, a step is written once: the parts of two saves of it could mix. A save
        that `waits` is left out while a copy of the one before is on its way to another node, so that there
        is always a step of which all parts survive a node; all workers call that at once.
        """
        taken = self._form.take(state, ended)
        place = taken.share(rank)
        place = replace(place, keeps=place.keeps and keeps)
        self.divided = place.parts > 1
        if waits and self.divided and self._folder is not None:
            given = self._given is None or memory.is_given(self._folder, self._block, self._given)
            if any(exchange(b"" if given else b"waits")):
                return
        if not self._copies(place) or (self.divided and save == self._written):
            return
        self._written = save if persist else self._written
        if not self._readable:  # better now than after a crash
            taken.check()
            self._readable = True
        if self._writer is not None:
            self._copy(self._writer, taken, save, place, persist=persist)
        elif persist and self._storage is not None:
            self._write(self._storage, taken, save, place, exchange)

    def expect(self, state: Callable[[], Any], rank: int) -> None:
        """Take memory for saves of such a state, once, beside the training: first saves are mostly that."""
        if self._writer is None or self._expects:
            return
        self._expects, taken = True, self._form.take(state())
        place = taken.share(rank)
        if self._copies(place):
            _, body, at = layout(taken, Save(0, 0), place)
            Thread(target=self._writer.prepare, args=(at + len(body),), daemon=True).start()

    def load(
        self,
        exchange: Exchange,
        rank: int,
        into: Any,
        *,
        readers: Callable[[int], bool] = lambda _: True,
        spares: Sequence[str] = (),
        pause: Callable[[float], None] = time.sleep,
    ) -> tuple[Any, Save] | None:
        """Return the newest state that can be had, and of which checkpoint; None if there never was one.

        All workers call this at once; the state is None for those that are no `readers`. When all can read
        theirs, it is put `into` what the form takes. Names like the patterns `spares` may be there in vain.
        See `newest.py` for what it raises.
        """
        places = Places(
            self._where, self._storage, self._folder, self._mark, self._server, self._token, self._first
        )
        told = Readers(exchange, rank, readers(rank), self._tell_trouble, spares, pause)

        def read(source: Source, world: int) -> Reading:
            found = self._form.reading(source, rank, world, into)
            self.ended = found.ended
            return found

        found: tuple[Any, Chosen] | None = newest.load(places, told, read, self._patience)
        self._after = found[1].save.step if found else 0
        if self._folder is not None and self._first:
            memory.forget(self._folder, self._mark, self._after)
        self.is_stored = found is None or not found[1].holders
        return (found[0], found[1].save) if found else None

    def close(self) -> None:
        """Let go of the memory; what is in it stays."""
        if self._writer is not None:
            self._writer.close()

    def _copies(self, place: Share) -> bool:
        """Whether this worker copies its state, and not the first one of this node, which has the same."""
        return place.parts > 1 or place.keeps or self._first

    def _copy(self, writer: Writer, taken: StateParts, save: Save, place: Share, *, persist: bool) -> None:
        tensors, body, at = layout(taken, save, place)
        try:
            with writer.block(at + len(body)) as block:
                taken.fill(block, tensors)
                size = part.seal(block, body, at)
        except NoRoom as error:
            self._tell_no_room(save, str(error.strerror or error))
            if persist and place.keeps and self._storage is not None:
                self._write_by_itself(self._storage, taken, save, place)
            return
        self._full = False
        copied = self._copied(save, place, size, persist=persist)
        self._given = save if copied.travels else None
        self._say(copied)

    def _copied(self, save: Save, place: Share, size: int, *, persist: bool) -> Copied:
        return Copied(
            block=self._block,
            step=save.step,
            round=save.round,
            part=place.part,
            parts=place.parts,
            keeps=place.keeps,
            persist=persist and place.keeps and self._storage is not None,
            where=os.fsencode(self._where) if self._storage else b"",
            keep=self._keep,
            size=size,
            after=self._after,
            alone=place.alone,
        )

    def _write_by_itself(self, to: Storage, taken: StateParts, save: Save, place: Share) -> None:
        """Write this worker's part to storage while training waits; the agent commits it with the others."""
        try:
            written, _ = write_part(to, taken, save, place)
        except Trouble as trouble:
            problem = storage.printable(
                f"the checkpoint of step {save.step} is not in {self._where}: {trouble}"
            )
            log.warning("%s", problem)
            self._say(Hampered(problem=problem, where=os.fsencode(self._where), step=save.step))
            return
        copied = self._copied(save, place, written.size, persist=True)
        self._say(msgspec.structs.replace(copied, name=written.name, crc=written.crc))

    def _tell_no_room(self, save: Save, why: str) -> None:
        if not self._full:
            log.warning("step %d is not kept in memory: %s", save.step, why)
            problem = f"step {save.step} is not kept in memory, saves wait for storage: {why}"
            self._say(Hampered(problem=problem))
        self._full = True

    def _tell_trouble(self, problem: str) -> None:
        self._say(Hampered(problem=problem))

    def _write(self, to: Storage, taken: StateParts, save: Save, place: Share, exchange: Exchange) -> None:
        written = _encode_written(write_part(to, taken, save, place)) if place.keeps else b""
        all_ = [_decode_written(each) for each in exchange(written) if each]
        if place.keeps and place.part == 0:
            all_.sort(key=lambda each: each[1].part)
            parts = tuple(part for part, _ in all_)
            manifest = Manifest(save.step, save.round, parts, by=self._run, after=self._after)
            if strangers := to.commit(manifest, [head for _, head in all_], self._keep).strangers:
                log.warning("%s", part.beside(storage.printable(self._where), strangers))


Written = tuple[storage.Part, Head]
_encode_written = msgspec.msgpack.Encoder().encode
_decode_written = msgspec.msgpack.Decoder(Written).decode


def write_part(to: Storage, taken: StateParts, save: Save, place: Share) -> Written:
    """Write a part of a state to storage; returns its file and its head."""
    tensors, body, at = layout(taken, save, place)
    block = memoryview(mmap.mmap(-1, at + len(body)))
    taken.fill(block, tensors)
    part.seal(block, body, at)
    return to.write(block)


def layout(taken: StateParts, save: Save, place: Share) -> tuple[tuple[part.Tensor, ...], bytes, int]:
    """Return the places of all tensors in a block, its encoded head, and where that begins."""
    tensors, at = part.place(taken.shapes())
    head = Head(
        step=save.step,
        round=save.round,
        part=place.part,
        parts=place.parts,
        tensors=tensors,
        rest=taken.encode() if place.like == place.part else b"",
        ended=taken.ended,
        writes=place.writes,
        like=place.like,
        ranks=place.ranks,
    )
    return tensors, part.encode(head), at
