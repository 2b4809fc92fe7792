"""A stored checkpoint as plain state, without the script that made it: every tensor whole, on the CPU.

state = read("/mnt/run")                      # of the newest checkpoint
model.load_state_dict(state["model"])
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elasticjob.trainer.checkpoint import part as blocks
from elasticjob.trainer.checkpoint import rest, rows
from elasticjob.trainer.checkpoint.part import Damaged
from elasticjob.trainer.checkpoint.sources import InStorage
from elasticjob.trainer.checkpoint.storage import Manifest, Storage
from elasticjob.trainer.torch.saving.reshard import Piece, pieces_of, tensor_in
from elasticjob.trainer.torch.saving.tree import decode, together

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
        self.manifest = manifest
        self._source = InStorage(storage, manifest.save)
        self.heads = [self._source.head(number) for number in range(self._source.parts)]
        plain = rest.is_plain(self.heads[0].rest)
        self._rest = (rest.decode if plain else decode)(self.heads[0].rest)
        if rows.is_store(self._rest):
            self._rest, self.heads = rows.of_tables(self.heads)
        self._pieces = pieces_of(self.heads)

    def described(self) -> Any:
        """Return the state with a `Described` in the place of each tensor."""
        return together(self._rest, self._described)

    def state(self, room: Room) -> Any:
        """Return the state, all bytes checked; its tensors are in memory that `room` gives."""
        blocks_ = [self._block(number, room) for number in range(len(self.heads))]
        return together(self._rest, lambda name: self._whole(name, blocks_, room))

    def _block(self, number: int, room: Room) -> memoryview:
        """Return the bytes of a part. Damaged if they are not those of the manifest."""
        block = room(self.manifest.parts[number].size)
        self._source.fill(number, block)
        return block

    def _described(self, name: str) -> Any:
        one = next(iter(self._pieces_of(name).values())).tensor
        return Described(one.dtype, one.whole or one.shape)

    def _pieces_of(self, name: str) -> dict[tuple[int, ...], Piece]:
        if name not in self._pieces:
            raise Damaged(f"step {self.manifest.step} names the tensor {name}, and no part has it")
        return self._pieces[name]

    def _whole(self, name: str, parts: Sequence[memoryview], room: Room) -> Tensor:
        """Return a tensor, put together from its pieces if there are several."""
        pieces, described = self._pieces_of(name), self._described(name)
        has = sum(prod(piece.tensor.shape) for piece in pieces.values())
        if has != prod(described.shape):
            raise Damaged(f"the parts of step {self.manifest.step} have {has} of {described.shape} of {name}")
        if len(pieces) == 1:
            (piece,) = pieces.values()
            return tensor_in(parts[piece.part], piece.tensor)
        space = blocks.Tensor(name, described.dtype, described.shape, 0, described.size)
        whole = tensor_in(room(described.size), space)
        for offset, piece in pieces.items():
            target = whole
            for axis, (begin, length) in enumerate(zip(offset, piece.tensor.shape, strict=True)):
                target = target.narrow(axis, begin, length)
            target.copy_(tensor_in(parts[piece.part], piece.tensor))
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
