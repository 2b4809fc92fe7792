"""Checkpoints of the store in a folder that all servers share: a file for each partition, and the positions.

    FOLDER/12/00 … 63      the partitions
    FOLDER/12/positions    where the datasets stood; written last, by the first server

A checkpoint is whole if all these files are there. Any number of servers reads it.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from elasticjob.api.rpc.parameters import Kept, Positions
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.store.counted import Counted
from elasticjob.trainer.store.optimizers import Rows
from elasticjob.trainer.store.tables import PARTITIONS, Ids, Part
from elasticjob.trainer.store.wire import Partitions

log = logging.getLogger("elasticjob.store")

POSITIONS: Final = "positions"


class Files:
    """The checkpoints in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, number: int, partitions: Partitions) -> None:
        """Write partitions, each in one go."""
        folder = self.folder / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        for each, counted in partitions.counted.items():
            parts = tuple(_of(part, each) for part in partitions.parts)
            _write(folder / f"{each:02}", msgspec.msgpack.encode(_Saved(parts, counted)))

    def write_positions(self, number: int, positions: Positions) -> None:
        """Write where the datasets stood."""
        folder = self.folder / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / POSITIONS, msgspec.msgpack.encode(Kept(number=number, positions=positions)))

    def read(self, number: int, partitions: Iterable[int]) -> Iterator[Partitions]:
        """Yield the partitions. Raises OSError if one cannot be read."""
        for each in sorted(partitions):
            path = self.folder / str(number) / f"{each:02}"
            try:
                saved = _partition(path.read_bytes())
            except UNREADABLE as error:
                raise OSError(f"{path} is no partition of a checkpoint: {error}") from error
            yield Partitions(saved.parts, {each: saved.counted})

    def newest(self) -> Kept | None:
        """Return the newest whole checkpoint."""
        for number in sorted(self._numbers(), reverse=True):
            folder = self.folder / str(number)
            names = {path.name for path in folder.iterdir()}
            if POSITIONS not in names or any(f"{each:02}" not in names for each in range(PARTITIONS)):
                continue
            try:
                return _kept((folder / POSITIONS).read_bytes())
            except (OSError, *UNREADABLE) as error:
                log.warning("checkpoint %s cannot be read, an older one is looked for: %s", folder, error)
        return None

    def keep(self, number: int) -> None:
        """Delete the checkpoints before this one, but for the last of them, and incomplete ones."""
        before = sorted(each for each in self._numbers() if each < number)
        for each in before[:-1]:
            shutil.rmtree(self.folder / str(each), ignore_errors=True)

    def _numbers(self) -> list[int]:
        with suppress(FileNotFoundError):
            return [int(path.name) for path in self.folder.iterdir() if path.name.isdecimal()]
        return []


def read(folder: Path, table: str, number: int | None = None) -> tuple[Ids, Rows]:
    """Return ids and values of all rows of a table that were updated, in order of ids.

    They are those of the newest checkpoint in the folder, unless a number is given.
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


class _Saved(msgspec.Struct):
    parts: tuple[Part, ...]
    counted: Counted


def _of(part: Part, partition: int) -> Part:
    """Return the rows of one partition."""
    ids = np.frombuffer(part.ids, np.int64)
    chosen = ids % PARTITIONS == partition
    values = np.frombuffer(part.values, np.float32).reshape(len(ids), part.table.dim)[chosen]
    state = np.frombuffer(part.state, np.float32).reshape(len(ids), part.table.state)[chosen]
    return Part(part.table, ids[chosen].tobytes(), values.tobytes(), state.tobytes())


def _write(path: Path, data: bytes) -> None:
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


_partition = msgspec.msgpack.Decoder(_Saved).decode
_kept = msgspec.msgpack.Decoder(Kept).decode
