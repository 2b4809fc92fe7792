"""A stored checkpoint as plain state, without the script that made it: every tensor whole, on the CPU.

state = read("/mnt/run")                      # of the newest checkpoint
model.load_state_dict(state["model"])
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from elasticjob.trainer.checkpoint import reading, rest, rows
from elasticjob.trainer.checkpoint.part import Damaged
from elasticjob.trainer.checkpoint.pieces import whole_of
from elasticjob.trainer.checkpoint.sources import InStorage
from elasticjob.trainer.checkpoint.storage import Manifest, Storage
from elasticjob.trainer.torch.saving.tensors import fill
from elasticjob.trainer.torch.saving.tree import decode, together, view

Room = Callable[[int], memoryview]
"""Returns memory for so many bytes, which may be a file's."""


class NoCheckpoint(LookupError):
    """There is no checkpoint in a place, or not the one that was asked for."""


@dataclass(frozen=True)
class Described:
    """Type and shape of a tensor, before its bytes are read."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its size in bytes."""
        kind: torch.dtype = getattr(torch, self.dtype)
        return prod(self.shape) * kind.itemsize


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
        self._rest = rest.merged([decode(each) for each in reading.rests(self.heads, 0, 0)])
        if rows.is_store(self._rest):
            self._rest, self.heads = rows.of_tables(self.heads)
        self._wholes = reading.wholes(self.heads)
        together(self._rest, self._described)

    def described(self) -> Any:
        """Return the state with a `Described` in the place of each tensor."""
        return together(self._rest, self._described)

    def state(self, room: Room) -> Any:
        """Return the state, all bytes checked; its tensors are in memory that `room` gives."""
        shapes = {name: self._described(name) for name in self._wholes}
        tensors = {
            name: view(room(each.size)[: each.size], each.dtype, each.shape) for name, each in shapes.items()
        }
        boxes = {name: ((0,) * len(each.shape), each.shape) for name, each in shapes.items()}
        with self._storage.pinned(self.manifest.step):
            fill(tensors, self._source, reading.plan(self.heads, self._source, boxes, 0))
        return together(self._rest, tensors.__getitem__)

    def verify(self) -> None:
        """Read all bytes. Damaged if they are not those that were written."""
        for head in self._source.heads:
            with self._source.open(head.part):
                pass

    def _described(self, name: str) -> Any:
        if name not in self._wholes:
            raise Damaged(f"step {self.manifest.step} names the tensor {name}, and no part has it")
        return Described(self._wholes[name].dtype, whole_of(self._wholes[name]))


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
