"""Checkpoints of earlier versions, which are read and removed, and no more written.

FOLDER/12/00 … 63      the partitions
FOLDER/12/positions    where the datasets stood; it was written last
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from elasticjob.api.rpc.parameters import Kept
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.checkpoint.part import Damaged
from elasticjob.trainer.store.applied_updates import AppliedUpdates
from elasticjob.trainer.store.tables import PARTITIONS, Part
from elasticjob.trainer.store.wire import Partitions

log = logging.getLogger("elasticjob.store")

POSITIONS: Final = "positions"
ASIDE: Final = f"{POSITIONS}.damaged"
NAMES: Final = {POSITIONS, *(f"{each:02}" for each in range(PARTITIONS))}
T = TypeVar("T")


class Earlier:
    """The checkpoints in a folder; None has none."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def numbers(self) -> list[int]:
        """Return the numbers of whole checkpoints."""
        return [number for number in self._all() if self._names(number) >= NAMES]

    def aside(self) -> list[int]:
        """Return the numbers of those that were set aside as damaged."""
        return [number for number in self._all() if ASIDE in self._names(number)]

    def read_checkpoint(self, number: int) -> Kept:
        """Return a checkpoint. Damaged if its positions are none."""
        return _decoded(self._of(number) / POSITIONS, _kept)

    def read(self, number: int, partitions: Iterable[int]) -> Iterator[Partitions]:
        """Yield partitions. Damaged if one is none."""
        for each in sorted(partitions):
            saved = _decoded(self._of(number) / f"{each:02}", _partition)
            yield Partitions(saved.parts, {each: saved.counted})

    def set_aside(self, number: int, why: str) -> None:
        """Make a damaged checkpoint not count any more."""
        path = self._of(number) / POSITIONS
        with suppress(FileNotFoundError):  # another server was first
            path.replace(path.with_name(ASIDE))
        log.warning("checkpoint %s is damaged and is not used: %s", path.parent, why)

    def keep(self, number: int, most: int) -> None:
        """Remove the checkpoints before a number, but for the last `most`."""
        kept = [each for each in self.numbers() if each <= number][-most:] if most > 0 else []
        for each in self._all():
            if each < number and each not in kept and self._names(each) <= NAMES | {ASIDE}:
                shutil.rmtree(self._of(each), ignore_errors=True)

    def _names(self, number: int) -> set[str]:
        return {path.name for path in self._of(number).glob("*")}

    def _of(self, number: int) -> Path:
        assert self._folder
        return self._folder / str(number)

    def _all(self) -> list[int]:
        if self._folder is None:
            return []
        with suppress(FileNotFoundError):
            return sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdecimal())
        return []


class _Saved(msgspec.Struct):
    parts: tuple[Part, ...]
    counted: AppliedUpdates


def _decoded(path: Path, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(path.read_bytes())
    except UNREADABLE as error:
        raise Damaged(f"{path} cannot be read: {error}") from error


_partition = msgspec.msgpack.Decoder(_Saved).decode
_kept = msgspec.msgpack.Decoder(Kept).decode
