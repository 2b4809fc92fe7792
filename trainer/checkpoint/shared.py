"""Slabs that several workers of a node need: the first one reads them, all take them from this node's memory.

Each part has a file with the slabs that are there, and one that says which, under a lock: workers wait for
each other's reads, and for nothing else. The last one to go through a part removes both.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from elasticjob.trainer.checkpoint.part import Head
from elasticjob.trainer.checkpoint.sources import Slab, Slabs, Source

NAME: Final = "read-"


class There(msgspec.Struct):
    """What is there of a part: the places of slabs, and how many workers have gone through it."""

    slabs: set[int] = msgspec.field(default_factory=set)
    gone: int = 0


class Shared:
    """A source of which parts are shared by so many workers of a node: `sharers`, by part."""

    def __init__(self, source: Source, folder: Path | None, sharers: Mapping[int, int]) -> None:
        self.heads: Sequence[Head] = source.heads
        self._source, self._folder = source, folder
        self._sharers = sharers if folder is not None else {}
        self._left = set(self._sharers)

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the parts that were not read, so that their files go."""
        for number in sorted(self._left):
            with self._part(number) as (_, left):
                left.gone += 1

    def is_near(self, number: int) -> bool:
        """Whether a part is in this node's memory."""
        return self._source.is_near(number)

    def open(self, number: int) -> AbstractContextManager[memoryview]:
        """Lend the whole block of a part."""
        return self._source.open(number)

    def read(self, number: int, wanted: Sequence[Slabs]) -> Iterator[Slab]:
        """Yield what is wanted of a part."""
        if number not in self._left:
            yield from self._source.read(number, wanted)
            return
        with self._part(number) as (fd, there):
            for slab in self._source.read(number, without(wanted, there.slabs)):
                place = slab.tensor.at + slab.row * slab.tensor.row
                os.pwrite(fd, slab.bytes_, place)
                there.slabs.add(place)
            os.ftruncate(fd, max(1, os.fstat(fd).st_size))
            mapped = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_COPY))
            self._left.discard(number)
            there.gone += 1
        for each in wanted:
            tensor = each.tensor
            for slab_number, at, until in each.each():
                yield Slab(tensor, slab_number * tensor.rows, mapped[tensor.at + at : tensor.at + until])

    @contextmanager
    def _part(self, number: int) -> Iterator[tuple[int, There]]:
        """Lend the file of a part, and what is in it, to one worker at a time."""
        assert self._folder is not None
        save = self.heads[0].save
        path = self._folder / f"{NAME}{save.step}-{save.round}-{number}"
        note = path.with_suffix(".there")
        fd = os.open(note, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        data = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            found = os.pread(fd, os.fstat(fd).st_size, 0)
            there = msgspec.msgpack.decode(found, type=There) if found else There()
            yield data, there
            encoded = msgspec.msgpack.encode(there)
            os.ftruncate(fd, 0)
            os.pwrite(fd, encoded, 0)
            if there.gone >= self._sharers[number]:
                for each in (path, note):
                    with suppress(FileNotFoundError):
                        each.unlink()
        finally:
            os.close(data)
            os.close(fd)


def tidy(folder: Path) -> None:
    """Remove what readers have left that were killed."""
    for each in folder.glob(f"{NAME}*"):
        each.unlink(missing_ok=True)


def without(wanted: Sequence[Slabs], there: set[int]) -> list[Slabs]:
    """Return what is left of what is wanted, each slab by itself."""
    return [
        Slabs(each.tensor, at, until)
        for each in wanted
        for _, at, until in each.each()
        if each.tensor.at + at not in there
    ]
