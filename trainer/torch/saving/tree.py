"""The state of a training as tensors with names, and a rest of numbers and strings that refers to them."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pickle import UnpicklingError  # noqa: TID251  # only the name of torch's error
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from elasticjob.trainer.checkpoint import part as blocks
from elasticjob.trainer.checkpoint import rest as plain
from elasticjob.trainer.checkpoint.flash import Place
from elasticjob.trainer.checkpoint.part import Shape
from elasticjob.trainer.checkpoint.rest import REFERENCE, pointer
from elasticjob.trainer.torch.saving.reshard import tensor_in


class StateParts:
    """A state, taken apart: tensors on this worker by name, and the rest; `ended` as in `part.Head`."""

    def __init__(self, state: Any, name: str = "", *, ended: int = 0) -> None:
        self.ended = ended
        self.tensors: dict[str, Tensor] = {}
        self.rest = self._apart(state, name)

    def _apart(self, value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            if name in self.tensors:
                raise ValueError(
                    f"two tensors of the state are named {name}: one key is a number, one a text"
                )
            self.tensors[name] = value.detach()
            return {REFERENCE: name}
        if isinstance(value, Mapping):
            apart = {key: self._apart(each, pointer(name, key)) for key, each in value.items()}
            return apart if type(value) is dict else _like(value, apart)
        if type(value) in (list, tuple):
            return type(value)(self._apart(each, pointer(name, index)) for index, each in enumerate(value))
        return _number(value)

    def encode(self) -> bytes:
        """Return the rest as bytes."""
        file = io.BytesIO()
        torch.save(self.rest, file)
        return file.getvalue()

    def check(self) -> None:
        """Raise TypeError if the rest could not be read again."""
        decode(self.encode())

    def shapes(self) -> Iterator[Shape]:
        """Yield what a block has to know of each tensor."""
        return (shape_of(name, each) for name, each in self.tensors.items())

    def place(self, rank: int) -> Place:
        """Return which part of the state this worker has."""
        return place_of(self.tensors, rank)

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


def targets(state: Mapping[str, Any], tensors: Sequence[blocks.Tensor]) -> dict[str, Tensor]:
    """Return what to fill with the tensors of a checkpoint, placed over the workers as the model is now.

    `state` has by name (`joined`) what holds tensors.

    A model's own tensors are filled, and then given to its load_state_dict, as torch.distributed.checkpoint
    does. All other objects may keep what they are given, so they get new tensors. An optimizer has no state
    before its first step: that of a parameter is placed as the parameter.
    """
    there: dict[str, Tensor] = {}
    filled: set[str] = set()
    for name, each in state.items():
        if isinstance(each, nn.Module):
            found = StateParts(each.state_dict(), name).tensors
            there |= found
            filled |= found.keys() if loads_as_torch(each) else set()
        elif isinstance(each, dict):
            there |= StateParts(each, name).tensors
    into: dict[str, Tensor] = {}
    names = {older(name): name for name in there}
    for where in tensors:
        name = where.name if where.name in there else names.get(where.name, "")
        like = there.get(name)
        if like is None:
            like = parameter_of(state, where.name)
        elif name in filled and takes(where, like):
            into[where.name] = like
            continue
        into[where.name] = empty(where, like)
    return into


def loads_as_torch(module: nn.Module) -> bool:
    """Whether a module's load_state_dict is that of torch, which keeps nothing of what it is given."""
    return getattr(module.load_state_dict, "__func__", None) is nn.Module.load_state_dict


def takes(where: blocks.Tensor, tensor: Tensor) -> bool:
    """Whether a tensor can be filled with one of a checkpoint as it is."""
    same = tuple(tensor.shape) == (where.whole or where.shape) and tensor.dtype is getattr(torch, where.dtype)
    return same and not tensor.is_meta


def empty(where: blocks.Tensor, like: Tensor | None) -> Tensor:
    """Return a new tensor for one of a checkpoint, divided over the workers as `like`, if that is."""
    whole, kind = where.whole or where.shape, getattr(torch, where.dtype)
    if like is not None and is_distributed(like) and tuple(like.shape) == whole:
        return torch.empty_like(like, dtype=kind)
    return torch.empty(whole, dtype=kind)


def is_there(where: blocks.Tensor, tensor: Tensor) -> bool:
    """Whether what a block has of a tensor is just this worker's piece of it."""
    mine = shape_of(where.name, tensor)
    return (mine.shape, mine.whole, mine.offset) == (where.shape, where.whole, where.offset)


def parameter_of(state: Mapping[str, Any], name: str) -> Tensor | None:
    """Return the parameter of a tensor in an optimizer's state, named <optimizer>/state/<index>/<key>."""
    owner, _, rest = name.replace(".state.", "/state/").partition("/state/")
    optimizer = state.get(owner) or {older(each): state[each] for each in state}.get(owner)
    index = re.split(r"[./]", rest)[0]
    if not isinstance(optimizer, Optimizer) or not index.isdecimal():
        return None
    all_: list[Tensor] = [each for group in optimizer.param_groups for each in group["params"]]
    return all_[int(index)] if int(index) < len(all_) else None


def older(name: str) -> str:
    """Return the name that a tensor had in checkpoints whose names were joined by dots."""
    return name.replace("/", ".").replace("~1", "/").replace("~0", "~")


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
