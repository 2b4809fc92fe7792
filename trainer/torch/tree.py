"""The state of a training as tensors with names, and a rest of numbers and strings that refers to them."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pickle import UnpicklingError  # noqa: TID251  # only the name of torch's error
from typing import Any, Final

import torch
from torch import Tensor, nn

from elasticjob.trainer.checkpoint.part import Shape

REFERENCE: Final = "\0tensor"
"""The key of a dict that stands for a tensor."""


@dataclass(frozen=True)
class Place:
    """Which part of the state a worker holds; of workers with the same part one `keeps` it in storage."""

    part: int = 0
    parts: int = 1
    keeps: bool = True


class Taken:
    """A state, taken apart: tensors on this worker by name, and the rest."""

    def __init__(self, state: Any) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.rest = self._apart(state, "")

    def _apart(self, value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            self.tensors[name] = value.detach()
            return {REFERENCE: name}
        if isinstance(value, Mapping):
            apart = {
                key: self._apart(each, f"{name}.{key}" if name else str(key)) for key, each in value.items()
            }
            return apart if type(value) is dict else _like(value, apart)
        if type(value) in (list, tuple):
            return type(value)(self._apart(each, f"{name}.{index}") for index, each in enumerate(value))
        return _number(value)

    def encoded(self) -> bytes:
        """Return the rest as bytes."""
        file = io.BytesIO()
        torch.save(self.rest, file)
        return file.getvalue()


def together(rest: Any, tensor: Callable[[str], Tensor]) -> Any:
    """Return a state from its rest and its tensors."""
    if isinstance(rest, Mapping):
        if rest.keys() == {REFERENCE}:
            return tensor(rest[REFERENCE])
        whole = {key: together(each, tensor) for key, each in rest.items()}
        return whole if type(rest) is dict else _like(rest, whole)
    if type(rest) in (list, tuple):
        return type(rest)(together(each, tensor) for each in rest)
    return rest


def decoded(rest: bytes) -> Any:
    """Return the rest from its bytes. TypeError if it holds what only a trusted program may load."""
    try:
        return torch.load(io.BytesIO(rest), map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise TypeError(
            "the checkpoint could not be read again: the states of model, optimizer and the others may hold "
            f"only tensors, numbers, strings, lists and dicts ({str(error).partition('. ')[0]})"
        ) from error


def local(tensor: Tensor) -> Tensor:
    """Return the piece of a tensor that is on this worker."""
    return tensor.to_local() if is_distributed(tensor) else tensor  # type: ignore[attr-defined]


def settle(model: nn.Module) -> None:
    """Have modules of fully_shard let go of what they gathered for a forward pass."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    for each in model.modules() if fsdp is not None else ():
        if isinstance(each, fsdp.FSDPModule):  # type: ignore[union-attr]
            each.reshard()


def shape_of(name: str, tensor: Tensor) -> Shape:
    """Return what a block has to know of a tensor."""
    mine = local(tensor)
    whole: tuple[int, ...] = ()
    offset: tuple[int, ...] = ()
    if is_distributed(tensor):
        whole, offset = tuple(tensor.shape), offset_of(tensor)
    return Shape(
        name, str(tensor.dtype).removeprefix("torch."), tuple(mine.shape), mine.itemsize, whole, offset
    )


def is_distributed(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor: fully_shard makes those."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def offset_of(tensor: Any) -> tuple[int, ...]:
    """Return where this worker's piece of a DTensor begins. TypeError for a placement that is not simple."""
    sizes, offset = list(tensor.shape), [0] * tensor.dim()
    mesh = tensor.device_mesh
    for dimension, placement in enumerate(tensor.placements):
        if placement.is_replicate():
            continue
        if type(placement).__name__ != "Shard":
            raise TypeError(
                f"a tensor of placement {placement} cannot be kept in a checkpoint: only Shard can"
            )
        axis, here = placement.dim, mesh.get_local_rank(dimension)
        chunk = -(-sizes[axis] // mesh.size(dimension))
        begin = min(chunk * here, sizes[axis])
        offset[axis] += begin
        sizes[axis] = min(chunk, sizes[axis] - begin)
    return tuple(offset)


def place_of(tensors: Mapping[str, Tensor], rank: int) -> Place:
    """Return which part of the state this worker has; workers that replicate each other have the same."""
    split: Any = next((each for each in tensors.values() if is_distributed(each)), None)
    if split is None:
        return Place(keeps=rank == 0)
    part, parts, keeps = 0, 1, True
    for dimension, placement in enumerate(split.placements):
        here, many = split.device_mesh.get_local_rank(dimension), split.device_mesh.size(dimension)
        if placement.is_replicate():
            keeps &= here == 0
        else:
            part, parts = part * many + here, parts * many
    return Place(part, parts, keeps)


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
