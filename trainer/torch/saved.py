"""A stored checkpoint as plain state, without the script that made it: every tensor whole, on the CPU.

state = read("/mnt/run")                      # of the newest checkpoint
model.load_state_dict(state["model"])
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Final

import torch

from elasticjob.trainer.checkpoint import reading, rest, rows
from elasticjob.trainer.checkpoint.part import Damaged, Head, Tensor
from elasticjob.trainer.checkpoint.pieces import all_of, box_of, by_name, listed, whole_of
from elasticjob.trainer.checkpoint.sources import InStorage, Source
from elasticjob.trainer.checkpoint.storage import Manifest, Storage, Trouble
from elasticjob.trainer.torch.saving.tensors import fill
from elasticjob.trainer.torch.saving.tree import decode, together, view

Room = Callable[[int], memoryview]
"""Returns memory for so many bytes, which may be a file's."""
ROOM: Final = 1 << 28  # bytes of tensors that are read at once


class NoCheckpoint(LookupError):
    """There is no checkpoint in a place, or not the one that was asked for."""


@dataclass(frozen=True)
class Described:
    """Type and shape of a tensor, before its bytes are read; its name, and in how many pieces it is."""

    dtype: str
    shape: tuple[int, ...]
    name: str = field(default="", compare=False)
    pieces: int = field(default=1, compare=False)

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return prod(self.shape) * self.kind.itemsize

    @property
    def kind(self) -> torch.dtype:
        """Its type as torch has it."""
        found: torch.dtype = getattr(torch, self.dtype)
        return found


class ForEach(dict[int, Any]):
    """What each worker had for itself, by rank (`Local`)."""

    def copy(self) -> ForEach:
        """Return one of the same kind."""
        return ForEach(self)


def read(where: str | os.PathLike[str], step: int | None = None) -> Any:
    """Return the state in the checkpoint of `step`, the newest one by default.

    Raises NoCheckpoint if there is none, Damaged if its bytes are not what was written, and OSError if they
    cannot be read.
    """
    return Saved(*found(os.fspath(where), step)).state(in_memory)


def found(where: str, step: int | None = None) -> tuple[Storage, Manifest]:
    """Return a place, and the manifest of one checkpoint in it."""
    storage = place(where)
    steps = storage.steps()
    if not steps:
        aside = ", ".join(map(str, storage.aside()))
        raise NoCheckpoint(
            f"there is no checkpoint in {where}" + (f"; set aside as damaged: step {aside}" if aside else "")
        )
    if step is not None and step not in steps:
        raise NoCheckpoint(f"there is no step {step} in {where}; there are {', '.join(map(str, steps))}")
    return storage, storage.manifest(steps[-1] if step is None else step)


def place(where: str) -> Storage:
    """Return a place with checkpoints. NoCheckpoint if it is a folder that does not exist."""
    if where == "memory://":
        raise NoCheckpoint("memory:// keeps checkpoints in the memory of a running job's nodes alone")
    if "://" not in where and not Path(where).is_dir():
        raise NoCheckpoint(f"there is no folder {where}")
    return Storage(where)


class Saved:
    """One checkpoint in storage; its heads are read at once, its tensors later."""

    def __init__(self, storage: Storage, manifest: Manifest) -> None:
        self.manifest, self._storage = manifest, storage
        self._source = InStorage(storage, manifest)
        self.heads = self._source.heads
        self._rest = with_locals([decode(each) for each in reading.rests(self.heads, 0, 0)])
        if rows.is_store(self._rest):
            self._rest, self.heads = rows.of_tables(self.heads)
        self._pieces = by_name(self.heads)
        together(self._rest, self._described)

    def described(self) -> Any:
        """Return the state with a `Described` in the place of each tensor."""
        return together(self._rest, self._described)

    def state(self, room: Room) -> Any:
        """Return the state, all bytes checked; its tensors are in memory that `room` gives."""
        with self.pinned():
            return together(self._rest, self.tensors(self._pieces, room).__getitem__)

    def pinned(self) -> AbstractContextManager[None]:
        """Keep the checkpoint from being removed while it is read."""
        return self._storage.pinned(self.manifest.step)

    def tensors(self, names: Iterable[str], room: Room) -> dict[str, torch.Tensor]:
        """Return some tensors, checked, in memory that `room` gives."""
        return tensors(self._source, self.heads, {name: self._described(name) for name in names}, room)

    def verify(self) -> None:
        """Read all bytes. Damaged if they are not those that were written, Trouble for what is not there."""
        for head in self._source.heads:
            try:
                with self._source.open(head.part):
                    pass
            except Trouble as trouble:
                there = listed([rest.printed(each.name) for each in head.tensors])
                raise Trouble(f"{trouble}; it has {there}") from trouble

    def _described(self, name: str) -> Any:
        if name not in self._pieces:
            raise Damaged(f"step {self.manifest.step} names the tensor {name}, and no part has it")
        return described(name, [each for _, each in self._pieces[name]])


def described(name: str, pieces: Sequence[Tensor]) -> Described:
    """Return what the pieces of a tensor tell of it."""
    return Described(pieces[0].dtype, whole_of(pieces[0]), name, len({*map(box_of, pieces)}))


def tensors(
    source: Source, heads: Sequence[Head], of: Mapping[str, Described], room: Room
) -> dict[str, torch.Tensor]:
    """Return whole tensors of a source, which has checked them."""
    found = {name: view(room(each.size)[: each.size], each.dtype, each.shape) for name, each in of.items()}
    boxes = {name: all_of(each.shape) for name, each in of.items()}
    fill(found, source, reading.plan(heads, source, boxes, 0))
    return found


def groups(sizes: Mapping[str, int], most: int) -> list[list[str]]:
    """Return names in groups, in their order, of at most so many bytes but for single ones."""
    found: list[list[str]] = [[]]
    left = most
    for name, size in sizes.items():
        if size > left and found[-1]:
            found.append([])
            left = most
        found[-1].append(name)
        left -= size
    return found


def with_locals(rests: Sequence[Any]) -> Any:
    """Return the rests of all parts as one, in which each entry that each worker had for itself is told."""
    whole = rest.merged(rests)
    for name, each in whole.items() if isinstance(whole, Mapping) and len(rests) > 1 else ():
        inner = [one.get(name, ()) for one in rests]
        if isinstance(each, dict) and {*each} == {*range(len(each))} and max(map(len, inner)) < 2:
            whole[name] = ForEach(each)
    return whole


def in_memory(size: int) -> memoryview:
    """Return memory of this process."""
    return memoryview(mmap.mmap(-1, max(1, size)))[:size]


def on_disk(folder: Path) -> Room:
    """Return what gives memory of an unnamed file in `folder`: a state may be larger than the memory."""

    def room(size: int) -> memoryview:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, max(1, size))  # a full disk would be a SIGBUS later
            return memoryview(mmap.mmap(file.fileno(), max(1, size)))[:size]

    return room
