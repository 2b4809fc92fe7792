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

from elasticjob.trainer.torch.saved import ROOM, Described, Saved, groups, on_disk

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


def export(of: Saved, only: str, out: Path, kind: str, shard: int = 0) -> int:
    """Write a state as a new file or folder `out`, whole or not at all; return how many values it leaves out.

    With `shard` safetensors are a folder of Hugging Face, in files of at most so many bytes. FileExistsError
    if `out` is there already, NotExported if the format cannot hold the state.
    """
    described = chosen(of.described(), only)
    if out.exists():
        raise FileExistsError(f"{out} is there already: remove it, or give another name")
    temporary = out.with_name(f"{out.name}.{secrets.token_hex(4)}.tmp")
    try:
        if kind == "safetensors":
            with of.pinned():
                left_out = as_safetensors(of, described, temporary, shard)
        else:
            left_out = WRITERS[kind](chosen(of.state(on_disk(out.parent)), only), temporary)
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
    from torch.distributed.checkpoint.api import CheckpointException  # a CPU second of imports
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

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


def as_safetensors(of: Saved, described: Any, path: Path, shard: int) -> int:
    """Write the tensors alone, their names joined by dots, one after the other."""
    values = values_by_name(described)
    tensors = {name: each for name, each in values.items() if isinstance(each, Described)}
    for name, each in tensors.items():
        if each.kind not in SAFE:
            raise NotExported(f"{name} is of {each.dtype}, which safetensors has not: use --format torch")
    if not shard:
        write_safetensors(of, tensors, path)
        return len(values) - len(tensors)
    sizes = {name: each.size for name, each in tensors.items()}
    files = groups(sizes, shard)
    names = [f"model-{number:05d}-of-{len(files):05d}.safetensors" for number in range(1, len(files) + 1)]
    names = names if len(files) > 1 else ["model.safetensors"]
    path.mkdir()
    for file, group in zip(names, files, strict=True):
        write_safetensors(of, {name: tensors[name] for name in group}, path / file)
    weights = {name: file for file, group in zip(names, files, strict=True) for name in group}
    index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": weights}
    if len(files) > 1:
        (path / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return len(values) - len(tensors)


def write_safetensors(of: Saved, tensors: Mapping[str, Described], path: Path) -> None:
    """Write a file of safetensors, some tensors at a time."""
    at, table = 0, dict[str, Any](__metadata__={"format": "pt"})
    ordered = sorted(tensors.items(), key=lambda each: (-each[1].kind.itemsize, each[0]))  # all are aligned
    for name, each in ordered:
        end = at + each.size
        table[name] = {"dtype": SAFE[each.kind], "shape": [*each.shape], "data_offsets": [at, end]}
        at = end
    head = json.dumps(table, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        sizes = {each.name: each.size for _, each in ordered}
        for group in groups(
            sizes, ROOM if of.manifest.index else sum(sizes.values())
        ):  # else it is read whole
            for tensor in of.tensors(group, on_disk(path.parent)).values():
                tensor.view(-1).view(torch.uint8).numpy().tofile(file)


WRITERS: Final[Mapping[str, Callable[[Any, Path], int]]] = {"torch": as_torch, "dcp": as_dcp}


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
