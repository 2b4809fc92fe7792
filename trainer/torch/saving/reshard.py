"""Tensors from the parts of a checkpoint, for any number of workers, by torch.distributed.checkpoint."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import metadata as told
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from elasticjob.trainer.checkpoint import part as blocks
from elasticjob.trainer.checkpoint.part import Damaged, Head

Open = Callable[[int], AbstractContextManager[memoryview]]
"""Lends the block of a part, by its number."""


@dataclass(frozen=True)
class Piece:
    """The location of a slice of a tensor: its part, and the offset in it."""

    part: int
    tensor: blocks.Tensor


def pieces_of(heads: Iterable[Head]) -> dict[str, dict[tuple[int, ...], Piece]]:
    """Return the pieces of all tensors by name, each by where it begins in its tensor."""
    pieces: dict[str, dict[tuple[int, ...], Piece]] = defaultdict(dict)
    for head in heads:
        for each in head.tensors:
            offset = each.offset or (0,) * len(each.shape)
            pieces[each.name].setdefault(offset, Piece(head.part, each))
    return pieces


class Parts(StorageReader):
    """A checkpoint as torch.distributed.checkpoint reads it: planned by the heads, then part after part."""

    def __init__(self, heads: Iterable[Head], open_: Open) -> None:
        self._open, self._pieces = open_, pieces_of(heads)

    def read_metadata(self, *_: Any, **__: Any) -> told.Metadata:
        """Return what tensors there are."""
        return told.Metadata({name: _describe(pieces) for name, pieces in self._pieces.items()})

    def set_up_storage_reader(self, *_: Any, **__: Any) -> None:
        """Do nothing: all is known."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Copy all pieces to where the plan wants them, each part opened once."""
        wanted = defaultdict(list)
        for item in plan.items:
            offset = tuple(item.storage_index.offset or ())
            wanted[self._pieces[item.storage_index.fqn][offset].part].append((item, offset))
        for number, items in sorted(wanted.items()):
            with self._open(number) as block:
                for item, offset in items:
                    self._copy(block, item, self._pieces[item.storage_index.fqn][offset], planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @staticmethod
    def _copy(block: memoryview, item: ReadItem, piece: Piece, planner: LoadPlanner) -> None:
        """Copy what the plan wants of a piece; no tensor of the block outlives this call."""
        found = tensor_in(block, piece.tensor)
        for axis, (begin, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            found = found.narrow(axis, begin, length)
        planner.resolve_tensor(item).detach().copy_(found)

    def reset(self, *_: Any, **__: Any) -> None:
        """Do nothing: a reader reads one checkpoint."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Refuse: it is made from heads, not from an id."""
        return False


def read(heads: Iterable[Head], open_: Open, into: dict[str, Tensor]) -> None:
    """Fill the tensors `into`, whole ones or DTensors, from the parts of a checkpoint."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # as asked: each reads by itself
        load(into, storage_reader=Parts(heads, open_), no_dist=True)


def tensor_in(block: memoryview, where: blocks.Tensor) -> Tensor:
    """Return a tensor that shares the memory of its block."""
    if where.at + where.size > len(block):
        raise Damaged(f"{where.name} would end at {where.at + where.size} of {len(block)} bytes")
    kind = getattr(torch, where.dtype)
    if not where.size:
        return torch.empty(where.shape, dtype=kind)
    bytes_ = torch.frombuffer(block, dtype=torch.uint8, count=where.size, offset=where.at)
    return bytes_.view(kind).view(where.shape)


def _describe(pieces: Mapping[tuple[int, ...], Piece]) -> told.TensorStorageMetadata:
    one = next(iter(pieces.values())).tensor
    chunks = [
        told.ChunkStorageMetadata(torch.Size(offset), torch.Size(piece.tensor.shape))
        for offset, piece in pieces.items()
    ]
    kind = told.TensorProperties(dtype=getattr(torch, one.dtype))
    return told.TensorStorageMetadata(kind, torch.Size(one.whole or one.shape), chunks)
