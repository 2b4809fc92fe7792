"""The state of a training as tensors with names, and a rest of numbers and strings that refers to them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pickle import PicklingError, UnpicklingError  # noqa: TID251  # only the names of torch's errors
from typing import Any, Final

import torch
from torch import Tensor, nn

from elasticjob.trainer.checkpoint import part as blocks
from elasticjob.trainer.checkpoint import rest as plain
from elasticjob.trainer.checkpoint.agreement import Refused, Share
from elasticjob.trainer.checkpoint.part import Damaged, Shape
from elasticjob.trainer.checkpoint.pieces import Box, box_of
from elasticjob.trainer.checkpoint.rest import REFERENCE, pointer, printed

ABSENT: Final = object()
"""Stands for a tensor that a worker has no place for."""


@dataclass(frozen=True)
class Piece:
    """What is `here` of a tensor of a `shape`, in which it begins at `offset`: a DTensor by another name."""

    here: Tensor
    shape: tuple[int, ...]
    offset: tuple[int, ...]

    @property
    def dtype(self) -> torch.dtype:
        """The type of its elements."""
        return self.here.dtype


class StateParts:
    """A state, taken apart: tensors on this worker by name, and the rest; `ended` as in `part.Head`.

    What of it this worker writes is its `agreed` share, or by its place in the mesh of its node.
    """

    def __init__(self, state: Any, name: str = "", *, ended: int = 0, agreed: Share | None = None) -> None:
        self.ended, self.agreed = ended, agreed
        self.tensors: dict[str, Any] = {}
        self.rest = self._apart(state, name)

    def _apart(self, value: Any, name: str) -> Any:
        if isinstance(value, (Tensor, Piece)):
            if name in self.tensors:
                raise ValueError(
                    f"two tensors of the state are named {name}: one key is a number, one a text"
                )
            self.tensors[name] = value.detach() if isinstance(value, Tensor) else value
            return {REFERENCE: name}
        if isinstance(value, Mapping):
            apart = {key: self._apart(each, pointer(name, key)) for key, each in value.items()}
            return apart if type(value) is dict else _like(value, apart)
        if type(value).__module__.startswith("megatron."):
            raise Refused(
                f"{printed(name)} is a {type(value).__name__}: give Sharded(model.sharded_state_dict, "
                "model.load_state_dict) of elasticjob.trainer.integrations.megatron"
            )
        if type(value) in (list, tuple):
            return type(value)(self._apart(each, pointer(name, index)) for index, each in enumerate(value))
        return _number(value)

    def encode(self) -> bytes:
        """Return the rest as bytes."""
        return encoded(self.rest)

    def check(self) -> None:
        """Raise TypeError, with the name, if the rest could not be read again."""
        try:
            decode(self.encode())
        except (TypeError, AttributeError, RecursionError, PicklingError) as error:
            for name in self.rest if isinstance(self.rest, dict) else ():
                try:
                    decode(encoded({name: self.rest[name]}))
                except Exception as inner:
                    raise TypeError(f"state[{name!r}]: {inner}") from error
            raise

    def shapes(self) -> Iterator[Shape]:
        """Yield what a block has to know of each tensor."""
        return (shape_of(name, each) for name, each in self.tensors.items())

    def share(self, rank: int) -> Share:
        """Return which part of the state this worker has, and what of it it writes."""
        return self.agreed or share_of(self.tensors, rank)

    def fill(self, block: memoryview, places: Iterable[blocks.Tensor]) -> None:
        """Copy the tensors to their places in a block; returns when all is there."""
        devices: set[torch.device] = set()
        with torch.no_grad():
            for each in places:
                mine = local(self.tensors[each.name])
                tensor_in(block, each).copy_(mine, non_blocking=True)
                devices |= {mine.device} if mine.is_cuda else set()
        for device in devices:
            torch.cuda.current_stream(device).synchronize()


def together(rest: Any, tensor: Callable[[str], Any]) -> Any:
    """Return a state from its rest and its tensors; ABSENT ones are left out of their mappings."""
    if isinstance(rest, Mapping):
        if rest.keys() == {REFERENCE}:
            return tensor(rest[REFERENCE])
        whole = {key: together(each, tensor) for key, each in rest.items()}
        whole = {key: each for key, each in whole.items() if each is not ABSENT}
        return whole if type(rest) is dict else _like(rest, whole)
    if type(rest) in (list, tuple):
        return type(rest)(together(each, tensor) for each in rest)
    return rest


def encoded(rest: Any) -> bytes:
    """Return a rest as bytes."""
    file = io.BytesIO()
    torch.save(rest, file)
    return file.getvalue()


def decode(rest: bytes) -> Any:
    """Return the rest from its bytes. TypeError if it holds what only a trusted program may load."""
    if plain.is_plain(rest):
        return plain.decode(rest)
    try:
        return torch.load(io.BytesIO(rest), map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise TypeError(
            "the checkpoint could not be read again: the states of model, optimizer and the others may hold "
            f"only tensors, numbers, strings, lists and dicts ({str(error).partition('. ')[0]})"
        ) from error


def local(tensor: Tensor | Piece) -> Tensor:
    """Return the piece of a tensor that is on this worker."""
    if isinstance(tensor, Piece):
        return tensor.here
    return tensor.to_local() if is_distributed(tensor) else tensor  # type: ignore[attr-defined]


def settle(model: nn.Module) -> None:
    """Have modules of fully_shard let go of what they gathered for a forward pass."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    for each in model.modules() if fsdp is not None else ():
        if isinstance(each, fsdp.FSDPModule):  # type: ignore[union-attr]
            each.reshard()


def shape_of(name: str, tensor: Tensor | Piece) -> Shape:
    """Return what a block has to know of a tensor."""
    mine = local(tensor)
    if mine.is_meta:
        raise Refused(
            f"{printed(name)} is on the meta device: call model.to_empty(device=...), and fill it, before"
        )
    if isinstance(tensor, Piece):
        kind = str(mine.dtype).removeprefix("torch.")
        return Shape(name, kind, tuple(mine.shape), mine.itemsize, tensor.shape, tensor.offset)
    whole: tuple[int, ...] = ()
    offset: tuple[int, ...] = ()
    if is_distributed(tensor):
        whole, (offset, shape) = tuple(tensor.shape), box_here(name, tensor)
        if shape != tuple(mine.shape) and mine.numel():
            raise Refused(
                f"{printed(name)} is {tuple(mine.shape)} on this worker, and {shape} by its placement"
            )
        return Shape(name, str(tensor.dtype).removeprefix("torch."), shape, mine.itemsize, whole, offset)
    return Shape(name, str(tensor.dtype).removeprefix("torch."), tuple(mine.shape), mine.itemsize)


def is_distributed(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor: fully_shard makes those."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def box_here(name: str, tensor: Any) -> Box:
    """Return what this worker has of a DTensor. Refused if it is a sum that is not made yet.

    Of a dimension that is divided several times `Shard` comes first, in the order of the mesh, and then
    `_StridedShard`, which fully_shard makes of what is divided already: that of the smallest split factor
    before the others. torch's own function for this is wrong where the dimension is uneven (2.15).
    """
    mesh, placements = tensor.device_mesh, tensor.placements
    if any(each.is_partial() for each in placements):
        raise Refused(
            f"{printed(name)} is partial, a sum over workers that is not made: redistribute it first"
        )
    here = mesh.get_coordinate()
    if here is None:  # others have it
        return (0,) * tensor.dim(), (0,) * max(1, tensor.dim())
    offset, shape = [0] * tensor.dim(), list(tensor.shape)
    cuts = [
        (getattr(each, "split_factor", 1), at)
        for at, each in enumerate(placements)
        if not each.is_replicate()
    ]
    for _, at in sorted(cuts, key=lambda each: each[0]):
        axis = placements[at].dim
        each = -(-shape[axis] // mesh.size(at))
        begin = min(each * here[at], shape[axis])
        offset[axis] += begin
        shape[axis] = min(each, shape[axis] - begin)
    return tuple(offset), tuple(shape)


def share_of(tensors: Mapping[str, Tensor], rank: int) -> Share:
    """Return the share of a worker whose node has one mesh for all that is divided, as other nodes have."""
    split: Any = next((each for each in tensors.values() if is_distributed(each)), None)
    if split is None:
        return Share(keeps=rank == 0)
    here, parts = split.device_mesh.get_local_rank(0), split.device_mesh.size()
    writes = [at for at, each in enumerate(tensors.values()) if not here or is_divided(each)]
    return Share(here, parts, writes=tuple(writes), alone=False)


def is_divided(tensor: Tensor) -> bool:
    """Whether workers have different pieces of a tensor."""
    return is_distributed(tensor) and not all(each.is_replicate() for each in tensor.placements)  # type: ignore[attr-defined]


def wanted(name: str, tensor: Tensor) -> Box:
    """Return what this worker wants of a tensor."""
    return box_of(shape_of(name, tensor))


def view(bytes_: memoryview, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor that shares the memory of its bytes. Damaged if they are too few."""
    kind = getattr(torch, dtype)
    if not len(bytes_):
        return torch.empty(shape, dtype=kind)
    try:
        return torch.frombuffer(bytes_, dtype=torch.uint8).view(kind).view(shape)
    except RuntimeError as error:
        raise Damaged(f"{len(bytes_)} bytes are no {dtype} {shape}: {error}") from error


def tensor_in(block: memoryview, where: blocks.Tensor) -> Tensor:
    """Return a tensor that shares the memory of its block."""
    if where.at + where.size > len(block):
        raise Damaged(f"{where.name} would end at {where.at + where.size} of {len(block)} bytes")
    return view(block[where.at : where.at + where.size], where.dtype, where.shape)


def _like(value: Any, items: dict[Any, Any]) -> Any:
    """Return the items in a mapping of the same kind: a Counter stays one."""
    if isinstance(value, dict) and hasattr(value, "copy"):
        same = value.copy()
        same.clear()
        same.update(items)
        return same
    return items


def _number(value: Any) -> Any:
    """Return NumPy's scalars as Python's: torch refuses to load others."""
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value
