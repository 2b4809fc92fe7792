"""What several workers of a node need of a part: the first one reads it, all take it from this node's memory.

A part has small pieces, which stay together, and others. Each kind has a file, and one that says whether it
is whole, under a lock: workers wait for each other's reads, and for nothing else. The last one removes both.
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

from elasticjob.trainer.checkpoint.part import SMALL, Head
from elasticjob.trainer.checkpoint.reading import Plan
from elasticjob.trainer.checkpoint.sources import Slab, Slabs, Source, slabs_in

NAME: Final = "read-"
Key = tuple[int, bool]
"""A part, and whether its small pieces are meant, or the others."""


class There(msgspec.Struct):
    """Whether all is there, and how many workers have gone through it."""

    whole: bool = False
    gone: int = 0


_decode = msgspec.msgpack.Decoder(There).decode  # made here: see `part.decode`


def keys_of(plan: Plan) -> set[Key]:
    """Return what a worker reads of which parts."""
    return {(part, each.tensor.size < SMALL) for part, wanted in plan.parts.items() for each in wanted}


def groups(
    head: Head, wanted: Sequence[Slabs], sharers: Mapping[Key, int]
) -> Iterator[tuple[Key | None, list[Slabs], list[Slabs]]]:
    """Yield what is read for all that share a key, and what this worker wants of it; then the rest."""
    alone: list[Slabs] = []
    for small in (True, False):
        mine = [each for each in wanted if (each.tensor.size < SMALL) is small]
        if mine and (head.part, small) in sharers:
            all_ = [Slabs(each, 0, each.size) for each in head.tensors if (each.size < SMALL) is small]
            yield (head.part, small), all_, mine
        else:
            alone += mine
    if alone:
        yield None, alone, alone


class Shared:
    """A source of which so many workers of a node share some parts."""

    def __init__(self, source: Source, folder: Path | None, sharers: Mapping[Key, int]) -> None:
        self.heads: Sequence[Head] = source.heads
        self._source, self._folder = source, folder
        near = source.is_near
        self._sharers = {key: n for key, n in sharers.items() if folder is not None and not near(key[0])}
        self._left = set(self._sharers)

    def __enter__(self) -> Shared:
        return self

    def __exit__(self, *error: object) -> None:
        """Leave what was not read, so that its files go."""
        for key in sorted(self._left):
            with self._file(key) as (_, left):
                left.gone += 1

    def is_near(self, number: int) -> bool:
        """Whether a part is in this node's memory."""
        return self._source.is_near(number)

    def open(self, number: int) -> AbstractContextManager[memoryview]:
        """Lend the whole block of a part."""
        return self._source.open(number)

    def read(self, number: int, wanted: Sequence[Slabs]) -> Iterator[Slab]:
        """Yield what is wanted of a part."""
        for key, all_, mine in groups(self.heads[number], wanted, self._sharers):
            if key is None:
                yield from self._source.read(number, all_)
            else:
                yield from slabs_in(self._together(key, all_), mine)

    def _together(self, key: Key, all_: Sequence[Slabs]) -> memoryview:
        """Return the bytes that all share, at their places in the part."""
        with self._file(key) as (fd, there):
            for slab in self._source.read(key[0], all_) if not there.whole else ():
                os.pwrite(fd, slab.bytes_, slab.tensor.at + slab.row * slab.tensor.row)
            there.whole = True
            there.gone += 1
            self._left.discard(key)
            return memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_COPY))

    @contextmanager
    def _file(self, key: Key) -> Iterator[tuple[int, There]]:
        """Lend a file, and what is in it, to one worker at a time."""
        assert self._folder is not None
        save, (number, small) = self.heads[0].save, key
        path = self._folder / f"{NAME}{save.step}-{save.round}-{number}-{small:d}"
        note = path.with_suffix(".there")
        fd = os.open(note, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        data = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            found = os.pread(fd, os.fstat(fd).st_size, 0)
            there = _decode(found) if found else There()
            yield data, there
            encoded = msgspec.msgpack.encode(there)
            os.ftruncate(fd, 0)
            os.pwrite(fd, encoded, 0)
            if there.gone >= self._sharers[key]:
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
