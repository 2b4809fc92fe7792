"""Checkpoints of the store where all servers see them, in the format of `trainer.checkpoint.storage`.

The step is the number of the save, and each partition is a part, with the tensors `<table>/<partition>/ids`,
`…/values` and `…/state`; the rest has the tables and what is counted, that of the first part also where the
datasets stood. Any number of servers reads it. Earlier versions wrote files of their own (`earlier.py`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from elasticjob.api.rpc.parameters import Kept, Positions
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.checkpoint import part as blocks
from elasticjob.trainer.checkpoint import rest as rests
from elasticjob.trainer.checkpoint.arrays import block_of
from elasticjob.trainer.checkpoint.newest import SECONDS, no_more
from elasticjob.trainer.checkpoint.part import Damaged, Head
from elasticjob.trainer.checkpoint.sources import InStorage
from elasticjob.trainer.checkpoint.storage import Manifest, Storage, Trouble, printable
from elasticjob.trainer.checkpoint.storage import Part as File
from elasticjob.trainer.store.applied_updates import AppliedUpdates
from elasticjob.trainer.store.earlier import Earlier
from elasticjob.trainer.store.optimizers import Rows
from elasticjob.trainer.store.tables import PARTITIONS, Ids, Part, Table, ids_in, matrix
from elasticjob.trainer.store.wire import Partitions

ROUND: Final = 0
KEEP: Final = 2
"""Checkpoints that stay: the last one that counts, and the one before it."""


class Rest(msgspec.Struct):
    """The state of a partition beside its rows."""

    tables: tuple[Table, ...]
    counted: AppliedUpdates
    positions: Positions = ()


class Files:
    """The checkpoints in a folder, or at a URL that fsspec knows.

    A part that is missing for `patience` seconds, while the manifest names it, counts as damaged.
    """

    def __init__(
        self,
        where: str | Path,
        *,
        patience: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience, self._clock, self._missing = patience, clock, dict[tuple[int, int], float]()
        self._storage = Storage(os.fspath(where))
        self.where = self._storage.where
        self._earlier = Earlier(None if "://" in self.where else Path(self.where))

    def write(self, number: int, partitions: Partitions, positions: Positions) -> dict[int, File]:
        """Write partitions, each as a part; they are no checkpoint before they are committed."""
        return {
            each: self._write(number, each, partitions.parts, Rest((), counted, positions))
            for each, counted in partitions.counted.items()
        }

    def commit(self, number: int, files: Mapping[int, File]) -> None:
        """Make the checkpoint exist. Trouble if a part of it cannot be seen from here."""
        manifest = Manifest(number, ROUND, tuple(files[each] for each in range(PARTITIONS)))
        try:
            heads = [self._storage.head(number, each) for each in manifest.parts]
        except Trouble as trouble:
            raise Trouble(f"{trouble}: do all servers have one folder?") from trouble
        self._storage.commit(manifest, heads, keep=sys.maxsize)  # until this one counts

    def newest(self) -> Kept | None:
        """Return the newest checkpoint, as far as its head tells; None if there never was one.

        A damaged one is set aside. Damaged if none is left, Newer, or Trouble if storage cannot be read.
        """
        wrong = ""
        for number in sorted({*self._storage.steps(), *self._earlier.numbers()}, reverse=True):
            try:
                return self._kept(number)
            except Damaged as error:
                wrong = wrong or str(error)
                self.set_aside(number, str(error))
        if aside := self._storage.aside():
            raise Damaged(no_more(printable(self.where), aside, wrong))
        return None

    def read(self, number: int, partitions: Iterable[int]) -> Iterator[Partitions]:
        """Yield partitions. Damaged if the bytes of one are wrong, Trouble if it cannot be read."""
        if number in (*self._storage.aside(), *self._earlier.aside()):
            raise Damaged(f"it was set aside: {printable(self.where)}, number {number}")
        if number in self._earlier.numbers():
            yield from self._earlier.read(number, partitions)
            return
        with self._patient(number, -1):
            source = InStorage(self._storage, self._storage.manifest(number))
        for each in sorted(partitions):
            with self._patient(number, each), source.open(each) as block:
                found = partition_in(block, each)
            yield found

    def set_aside(self, number: int, why: str) -> None:
        """Make a damaged checkpoint not count any more."""
        if number in self._earlier.numbers():
            self._earlier.set_aside(number, why)
        else:
            self._storage.set_aside(number, why)

    def keep(self, number: int) -> None:
        """Remove the checkpoints before the one that counts, but for the last, and incomplete ones."""
        self._storage.keep(number, KEEP)
        kept = [each for each in self._storage.steps() if each <= number]
        self._earlier.keep(number, KEEP - len(kept))

    def _kept(self, number: int) -> Kept:
        if number in self._earlier.numbers():
            return self._earlier.read_checkpoint(number)
        with self._patient(number, 0):
            source = InStorage(self._storage, self._storage.manifest(number))
            with source.open(0):  # a part that is not there may be late
                return Kept(number=number, positions=rest_of(source.heads[0]).positions)

    @contextmanager
    def _patient(self, number: int, part: int) -> Iterator[None]:
        """Turn a block's trouble with a part into damage, if it stays missing."""
        try:
            yield
            self._missing.pop((number, part), None)
        except Trouble as trouble:
            since = self._missing.setdefault((number, part), self._clock())
            if not isinstance(trouble.__cause__, FileNotFoundError) or self._clock() - since < self._patience:
                raise
            raise Damaged(f"a part is missing, for {self._patience:.0f} s: {trouble}") from trouble

    def _write(self, number: int, partition: int, parts: Iterable[Part], rest: Rest) -> File:
        of = tuple(part.of(partition) for part in parts)
        arrays = {name: each for part in of for name, each in tensors_by_name(part, partition).items()}
        rest = Rest(tuple(part.table for part in of), rest.counted, () if partition else rest.positions)
        head = Head(step=number, round=ROUND, part=partition, parts=PARTITIONS, rest=rests.encode(rest))
        return self._storage.write(block_of(head, arrays))[0]


class Commits:
    """The parts of the newest save that servers have written: committed once all of them are there."""

    def __init__(self, files: Files) -> None:
        self._files, self._lock = files, threading.Lock()
        self._number, self._written, self._exists = 0, dict[int, File](), False

    def add(self, number: int, files: Mapping[int, File]) -> str:
        """Note parts; return why the checkpoint does not exist yet, "" if it does. Trouble as of a commit."""
        with self._lock:
            if number < self._number:
                return f"checkpoint {self._number} is written now"
            if number > self._number:
                self._number, self._written, self._exists = number, {}, False
            self._written |= files
            if missing := PARTITIONS - len(self._written):
                return f"{missing} of its {PARTITIONS} parts are not written yet"
            if not self._exists:
                self._files.commit(number, self._written)
                self._exists = True
            return ""


def read(folder: str | Path, table: str, number: int | None = None) -> tuple[Ids, Rows]:
    """Return ids and values of all rows of a table that were updated, in order of ids.

    They are those of the newest checkpoint in the folder or at the URL, unless a number is given.
    """
    files = Files(folder)
    if number is None:
        kept = files.newest()
        if kept is None:
            raise FileNotFoundError(f"{folder} has no whole checkpoint of a store")
        number = kept.number
    parts = [
        part
        for partitions in files.read(number, range(PARTITIONS))
        for part in partitions.parts
        if part.table.name == table
    ]
    if not parts:
        raise KeyError(f"checkpoint {number} in {folder} has no table {table}")
    ids = np.frombuffer(b"".join(part.ids for part in parts), np.int64)
    values = np.frombuffer(b"".join(part.values for part in parts), np.float32)
    order = np.argsort(ids)
    return ids[order], values.reshape(-1, parts[0].table.dim)[order]


def tensors_by_name(part: Part, partition: int) -> dict[str, Ids | Rows]:
    """Return the tensors of a table's partition by their names."""
    ids = ids_in(part.ids)
    return {
        name_of(part.table, partition, "ids"): ids,
        name_of(part.table, partition, "values"): matrix(part.values, len(ids), part.table.dim),
        name_of(part.table, partition, "state"): matrix(part.state, len(ids), part.table.state),
    }


def name_of(table: Table, partition: int, what: str) -> str:
    """Return the name of a tensor in a part."""
    return f"{table.name}/{partition}/{what}"


def partition_in(block: memoryview, partition: int) -> Partitions:
    """Return the partition in a part. Damaged if it is none."""
    head = blocks.head_in(block)
    rest, places = rest_of(head), {each.name: each for each in head.tensors}

    def bytes_of(table: Table, what: str) -> bytes:
        if (tensor := places.get(name_of(table, partition, what))) is None:
            raise Damaged(f"part {partition} has no tensor {name_of(table, partition, what)}")
        return bytes(block[tensor.at : tensor.at + tensor.size])

    parts = tuple(
        Part(each, bytes_of(each, "ids"), bytes_of(each, "values"), bytes_of(each, "state"))
        for each in rest.tables
    )
    return Partitions(parts, {partition: rest.counted})


def rest_of(head: Head) -> Rest:
    """Return the state beside the rows. Damaged if it is none: another program has written the part."""
    try:
        return msgspec.convert(rests.decode(head.rest), Rest)
    except UNREADABLE as error:
        raise Damaged(f"part {head.part} of step {head.step} is none of a store: {error}") from error
