"""Numbers, strings, tensors, and dicts, lists and tuples of them, as bytes; none of them can run code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import torch
from torch import Tensor

from elasticjob.trainer.torch.saving.tree import is_distributed

TENSOR: Final = 1
TUPLE: Final = 2
"""Codes of MessagePack's extensions."""

_encode = msgspec.msgpack.Encoder().encode


class Flat(msgspec.Struct, frozen=True, array_like=True):
    """A tensor: its type, shape, the type of its device, and its bytes."""

    kind: str
    shape: list[int]
    device: str
    block: bytes


_flat = msgspec.msgpack.Decoder(Flat).decode


def encode_value(value: Any, name: str = "value") -> bytes:
    """Return a value as bytes. TypeError, with the name of the entry, for what is none."""
    return _encode(_plain(value, name))


def decode_value(data: bytes, device: torch.device) -> Any:
    """Return a value from its bytes; tensors on `device` if they were on one of its type, else in memory."""

    def extension(code: int, block: memoryview) -> Any:
        return _tensor(_flat(block), device) if code == TENSOR else tuple(decode(block))

    decode = msgspec.msgpack.Decoder(ext_hook=extension).decode
    return decode(data)


def mean_of(values: Sequence[Any], name: str = "value") -> Any:
    """Return the mean of one value of each worker. ValueError if they are of different kinds.

    Sums are exact for numbers, and of double precision in the order of ranks for tensors, so all workers get
    the same bits. The mean of whole numbers is a float, or a tensor of float64.
    """
    first = values[0]
    _same(name, [_form(each) for each in values])
    if isinstance(first, Tensor):
        inexact = first.is_floating_point() or first.is_complex()
        total = first.to(torch.complex128 if first.is_complex() else torch.float64)
        for each in values[1:]:
            total = total + each.to(total.dtype)
        return (total / len(values)).to(first.dtype if inexact else torch.float64)
    if isinstance(first, dict):
        return {key: mean_of([each[key] for each in values], f"{name}[{key!r}]") for key in first}
    add = math.fsum if all(map(math.isfinite, values)) else sum
    return add(map(float, values)) / len(values)


def check_mean(value: Any, name: str = "value") -> None:
    """Raise TypeError, with the name of the entry, for what has no mean."""
    if isinstance(value, dict):
        for key, each in value.items():
            check_mean(each, f"{name}[{key!r}]")
    elif not isinstance(value, (int, float, Tensor)):
        raise TypeError(f"{name} is a {type(value).__name__}: give a number, a tensor, or a dict of them")


def _same(name: str, forms: Sequence[str]) -> None:
    for rank, form in enumerate(forms):
        if form != forms[0]:
            raise ValueError(
                f"{name} is {forms[0]} on rank 0 and {form} on rank {rank}: give the same on all"
            )


def _form(value: Any) -> str:
    """Return what the values of all workers need to have in common."""
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {(*value.shape,)}"
    return f"a dict of {sorted(value, key=str)}" if isinstance(value, dict) else "a number"


def _plain(value: Any, name: str) -> Any:
    match value:
        case None | bool() | int() | float() | str() | bytes():
            return value
        case Tensor():
            return msgspec.msgpack.Ext(TENSOR, _encode(_flatten(value, name)))
        case dict() if all(isinstance(key, (str, int)) for key in value):
            return {key: _plain(each, f"{name}[{key!r}]") for key, each in value.items()}
        case list() | tuple():
            parts = [_plain(each, f"{name}[{index}]") for index, each in enumerate(value)]
            return parts if isinstance(value, list) else msgspec.msgpack.Ext(TUPLE, _encode(parts))
    raise TypeError(
        f"{name} is a {type(value).__name__}: give numbers, strings, tensors, or dicts (keys: strings, whole "
        "numbers), lists and tuples of them"
    )


def _flatten(tensor: Tensor, name: str) -> Flat:
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized or is_distributed(tensor):
        raise TypeError(f"{name} is a tensor whose numbers are not all here: give a dense one")
    dense = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
    block = dense.view(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    return Flat(str(tensor.dtype).removeprefix("torch."), [*tensor.shape], tensor.device.type, block)


def _tensor(flat: Flat, device: torch.device) -> Tensor:
    kind = getattr(torch, flat.kind)
    if not flat.block:
        dense = torch.empty(flat.shape, dtype=kind)
    else:
        dense = torch.frombuffer(bytearray(flat.block), dtype=torch.uint8).view(kind).view(flat.shape)
    return dense.to(device) if device.type == flat.device else dense
