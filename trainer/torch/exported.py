"""A state written in formats that others read: torch.save, safetensors, torch.distributed.checkpoint.

The format of safetensors is a length, a table in JSON and the bytes of all tensors
(https://github.com/huggingface/safetensors#format), so no package is needed to write it.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

SAFE: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.complex64: "C64",
}


class NotExported(ValueError):
    """A format cannot hold a state."""


def export(state: Any, out: Path, kind: str) -> int:
    """Write a state as a new file or folder `out`, whole or not at all; return how many values it leaves out.

    FileExistsError if `out` is there already, NotExported if the format cannot hold the state.
    """
    if out.exists():
        raise FileExistsError(f"{out} is there already: remove it, or give another name")
    temporary = out.with_name(f"{out.name}.{secrets.token_hex(4)}.tmp")
    try:
        left_out = WRITERS[kind](state, temporary)
        os.replace(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.unlink(missing_ok=True)
    return left_out


def as_torch(state: Any, path: Path) -> int:
    """Write it as torch.save does."""
    torch.save(state, path)
    return 0


def as_dcp(state: Any, path: Path) -> int:
    """Write it as torch.distributed.checkpoint does, in one process."""
    if not isinstance(state, Mapping):
        raise NotExported("torch.distributed.checkpoint takes a dict: leave --only out, or name a dict")
    values_by_name(state)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        try:
            save(dict(state), storage_writer=FileSystemWriter(path), no_dist=True)
        except CheckpointException as error:  # no Exception by its class
            raise OSError(f"{path.parent}: {next(iter(error.failures.values()))[0]}") from error
    return 0


def as_safetensors(state: Any, path: Path) -> int:
    """Write the tensors alone, their names joined by dots."""
    values = values_by_name(state)
    tensors = {name: each for name, each in values.items() if isinstance(each, Tensor)}
    for name, each in tensors.items():
        if each.dtype not in SAFE:
            raise NotExported(f"{name} is of {each.dtype}, which safetensors has not: use --format torch")
    at, table = 0, {"__metadata__": {"format": "pt"}}
    ordered = sorted(tensors.items(), key=lambda each: (-each[1].itemsize, each[0]))  # so all are aligned
    for name, tensor in ordered:
        end = at + tensor.nbytes
        table[name] = {"dtype": SAFE[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [at, end]}  # type: ignore[dict-item]
        at = end
    head = json.dumps(table, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for _, tensor in ordered:
            tensor.contiguous().view(-1).view(torch.uint8).numpy().tofile(file)
    return len(values) - len(tensors)


WRITERS: Final[Mapping[str, Callable[[Any, Path], int]]] = {
    "torch": as_torch,
    "safetensors": as_safetensors,
    "dcp": as_dcp,
}


def values_by_name(state: Any) -> dict[str, Any]:
    """Return all values by their names. NotExported if two have the same name, joined by dots."""
    values: dict[str, Any] = {}
    for keys, value in leaves(state):
        name = ".".join(map(str, keys))
        if name in values:
            raise NotExported(f"two values would be named {name}: use --format torch, which keeps the tree")
        values[name] = value
    return values


def leaves(state: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each value of a tree that is neither a mapping, a list nor a tuple, with its keys."""
    if isinstance(state, Mapping):
        for key, each in state.items():
            yield from leaves(each, (*keys, key))
    elif isinstance(state, (list, tuple)):
        for index, each in enumerate(state):
            yield from leaves(each, (*keys, index))
    else:
        yield keys, state


def chosen(state: Any, name: str) -> Any:
    """Return what is at `name`, keys joined by dots; a key may have some itself. KeyError tells the keys."""
    if not name:
        return state
    there = state if isinstance(state, Mapping) else dict(enumerate(state))
    for key, each in there.items():
        if name == str(key):
            return each
    for key, each in there.items():
        if name.startswith(f"{key}.") and isinstance(each, (Mapping, list, tuple)):
            return chosen(each, name.removeprefix(f"{key}."))
    raise KeyError(f"{name} is not there; there are {', '.join(map(str, there)) or 'no names'}")
