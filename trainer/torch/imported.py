"""Tensors in files of others as a source, read as checkpoints are: by ranges, each worker what it needs.

They are of safetensors, torch.save, torch.distributed.checkpoint (DCP), or in a folder of Hugging Face.
Nothing that could run code is unpickled.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial, reduce
from itertools import product
from math import prod
from typing import Annotated, Any, Final

import msgspec
import torch
from msgspec.structs import replace

from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.checkpoint import pieces
from elasticjob.trainer.checkpoint.agreement import Share
from elasticjob.trainer.checkpoint.flash import write_part
from elasticjob.trainer.checkpoint.part import LARGEST_HEAD, Damaged, Head, Save, Tensor
from elasticjob.trainer.checkpoint.reading import wholes
from elasticjob.trainer.checkpoint.rest import REFERENCE, pointer, printed
from elasticjob.trainer.checkpoint.sources import Slab, Slabs
from elasticjob.trainer.checkpoint.storage import Manifest, Storage, file_system
from elasticjob.trainer.torch.exported import SAFE
from elasticjob.trainer.torch.saved import ROOM, described, groups, in_memory, tensors
from elasticjob.trainer.torch.saving.tree import StateParts, decode
from elasticjob.trainer.torch.world.chunks import bytes_of

KINDS: Final = "a .safetensors file, a file of torch.save, or a folder of Hugging Face, DCP or elasticjob"
_decode = msgspec.json.Decoder(dict[str, Any]).decode  # made here: see `part.decode`
TYPES: Final = {name: str(kind).removeprefix("torch.") for kind, name in SAFE.items()}
HUGGING_FACE: Final = tuple(
    file + more for file in ("model.safetensors", "pytorch_model.bin") for more in ("", ".index.json")
)
INNER: Final = ("state_dict", "model_state_dict", "model", "module")
"""Keys below which others have the state of a model, beside that of an optimizer."""
PREFIXES: Final = ("module.", "_orig_mod.", "model.")
"""What wrappers of models put before all names; the last one is a usual name of a module, too."""
Read = Callable[[Sequence[Slabs]], Iterator[Slab]]
File = tuple[Sequence[Tensor], Read]
"""What is where in a file, and what reads some of it."""


class Entry(msgspec.Struct, frozen=True):
    """A tensor in the table of a safetensors file."""

    dtype: str
    shape: tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
    data_offsets: tuple[int, int]


class Files:
    """Files of others as the parts of a checkpoint; `heads` may have the names of a model."""

    def __init__(self, files: Sequence[File], heads: Sequence[Head] = ()) -> None:
        self._files = files
        self.heads = heads or [
            Head(step=0, round=0, part=at, parts=len(files), tensors=tuple(each), ranks=(at,))
            for at, (each, _) in enumerate(files)
        ]

    def is_near(self, number: int) -> bool:
        """Whether a part is in this node's memory."""
        return False

    def open(self, number: int) -> AbstractContextManager[memoryview]:
        """Files of others are no blocks: they are read."""
        raise NotImplementedError

    def read(self, number: int, wanted: Sequence[Slabs]) -> Iterator[Slab]:
        """Yield what is wanted of a file."""
        return self._files[number][1](wanted)

    def of(self, owner: str, mine: Collection[str] = ()) -> Files:
        """Return what is of a model `owner`, by its names, which are `mine` if they are known."""
        names = named([each.name for head in self.heads for each in head.tensors], owner, mine)
        state = {owner: {name: {REFERENCE: pointer(owner, name)} for name in names.values()}}
        rest, heads = StateParts(state).encode(), []
        for head in self.heads:
            there = [each for each in head.tensors if each.name in names]
            own = tuple(replace(each, name=pointer(owner, names[each.name])) for each in there)
            heads.append(replace(head, rest=rest, tensors=own))
        return Files(self._files, heads)

    def like(self, heads: Sequence[Head]) -> Files:
        """Return these files with the heads that another worker gave. ValueError if it sees other files."""
        here, there = (
            {(head.part, each.at, each.size) for head in all_ for each in head.tensors}
            for all_ in (self.heads, heads)
        )
        if not there <= here:
            raise ValueError("workers see different files at this path: give one that is the same on all")
        return Files(self._files, heads)


def opened(where: str) -> Files | None:
    """Open what is at a path; None for a folder of no known kind. ValueError for what cannot be used."""
    files, root = file_system(where)
    if not files.exists(root):
        raise ValueError(f"there is no {where}: give {KINDS}")
    if not files.isdir(root):
        return Files([of_file(files, root)])
    names = {str(each).rstrip("/").rpartition("/")[2] for each in files.ls(root, detail=False)}
    kind = next((each for each in (".metadata", *HUGGING_FACE) if each in names), "")
    if not kind:
        return None
    try:
        found = Files((of_dcp if kind == ".metadata" else of_hugging_face)(files, root, kind, names))
        pieces.check(found.heads)
    except (ValueError, Damaged) as error:
        raise ValueError(f"{where} cannot be used: {error}") from error
    for name, copies in pieces.by_name(found.heads).items():
        several = copies if len(copies) > 1 and not copies[0][1].whole else ()
        if len({checksum(found, *each) for each in several}) > 1:
            raise ValueError(f"{where} has {printed(name)} in two files, with other bytes")
    return found


def checksum(files: Files, number: int, tensor: Tensor) -> int:
    """Return the checksum of a tensor in a file."""
    all_ = files.read(number, [Slabs(tensor, 0, tensor.size)])
    return reduce(lambda crc, slab: zlib.crc32(slab.bytes_, crc), all_, 0)


def of_hugging_face(files: Any, root: str, kind: str, names: Collection[str]) -> list[File]:
    """Open the weights in a folder: a file, or those that its index names."""
    if not kind.endswith(".json"):
        return [of_file(files, f"{root}/{kind}")]
    try:
        index = _decode(files.cat_file(f"{root}/{kind}"))
        known = msgspec.convert(index.get("weight_map"), dict[str, str])
    except UNREADABLE as error:
        raise ValueError(f"{kind} cannot be read: {error}") from error
    found = {each: of_file(files, plain(root, each, names)) for each in sorted({*known.values()})}
    there = {(each.name, name) for name, (all_, _) in found.items() for each in all_}
    if lacking := [f"{name} in {at}" for name, at in known.items() if (pointer("", name), at) not in there]:
        raise ValueError(f"{kind} names tensors that are not there: {pieces.listed(lacking)}")
    return [*found.values()]


def of_dcp(files: Any, root: str, kind: str, names: Collection[str]) -> list[File]:
    """Open what torch.distributed.checkpoint has written."""
    from elasticjob.trainer.torch.saving.dcp import chunks  # a CPU second of imports

    def load(path: str, sizes: Mapping[int, int], at: int) -> Any:
        return loaded(io.BytesIO(files.cat_file(path, start=at, end=at + sizes[at])), path)

    found: list[File] = []
    for name, all_ in chunks(files.cat_file(f"{root}/{kind}")).items():
        path, sizes = plain(root, name, names), {each.at: size for each, size in all_.items()}
        end = files.size(path)
        if any(at < 0 or size < 0 or at + size > end for at, size in sizes.items()):
            raise ValueError(f"{name} is cut, or not the file of its {kind}")
        found.append(([*all_], partial(by_tensor, partial(load, path, sizes), path)))
    return found


def plain(root: str, name: str, there: Collection[str]) -> str:
    """Return the path of a file in a folder. ValueError if it is not there, or elsewhere."""
    if name not in there:  # so ../x and /x are none, either
        raise ValueError(f"its index names the file {name[:80]!r}, which is not in the folder")
    return f"{root}/{name}"


def of_file(files: Any, path: str) -> File:
    """Open a file of safetensors, whose table has to name all bytes in their order, or of torch.save."""
    if not path.endswith(".safetensors"):
        return of_torch(path)
    size, at, found = files.size(path), 0, list[Tensor]()
    begin = 8 + int.from_bytes(files.cat_file(path, start=0, end=8), "little")
    if begin > min(size, LARGEST_HEAD):
        raise ValueError(
            f"{path} is no file of safetensors, or cut: its table would end at {begin} of {size}"
        )
    try:
        table = _decode(files.cat_file(path, start=8, end=begin))
        table.pop("__metadata__", None)
        entries = msgspec.convert(table, dict[str, Entry])
    except UNREADABLE as error:
        raise ValueError(f"{path} has no table of safetensors: {error}") from error
    for name, each in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        if each.dtype not in TYPES:
            raise ValueError(f"{name} in {path} is of {each.dtype}, which this program cannot read")
        end = at + prod(each.shape) * getattr(torch, TYPES[each.dtype]).itemsize
        if each.data_offsets != (at, end):
            raise ValueError(
                f"{name} in {path} has the range {each.data_offsets}, and can have {(at, end)} alone"
            )
        found.append(Tensor(pointer("", name), TYPES[each.dtype], each.shape, begin + at, end - at))
        at = end
    if begin + at != size:
        raise ValueError(f"{path} has {size} bytes, and {begin + at} by its table: it is cut, or not whole")
    return found, partial(by_slabs, files, path)


def of_torch(path: str) -> File:
    """Open a file of torch.save, its tensors mapped."""
    at, found, places = 0, list[Tensor](), dict[int, torch.Tensor]()
    for name, each in StateParts(loaded(path, path)).tensors.items():
        is_plain = type(each) is torch.Tensor and each.layout is torch.strided
        if not is_plain or each.is_quantized or each.is_meta:
            raise ValueError(f"{printed(name)} in {path} is no plain tensor")
        found.append(Tensor(name, str(each.dtype).removeprefix("torch."), tuple(each.shape), at, each.nbytes))
        places[at] = each
        at += each.nbytes
    return found, partial(by_tensor, places.__getitem__, path)


def loaded(file: Any, of: str) -> Any:
    """Return what torch.save has written. ValueError for what needs more than `weights_only` allows."""
    try:
        mapped = isinstance(file, str) and zipfile.is_zipfile(file)
        return torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # what is no such file raises whatever it likes
        raise ValueError(
            f"{of} cannot be read by torch.load(weights_only=True), which runs no code of others "
            f"({str(error).partition('. ')[0]}): save the state_dict of its model alone, or give {KINDS}"
        ) from error


def by_slabs(files: Any, path: str, wanted: Sequence[Slabs]) -> Iterator[Slab]:
    """Yield slabs of a file with the bytes of tensors. Damaged if they are not there any more."""
    with files.open(path, "rb") as file:
        for slabs in sorted(wanted, key=lambda each: each.tensor.at):
            for number, at, until in slabs.each():
                file.seek(slabs.tensor.at + at)
                found = bytearray(file.read(until - at))  # torch wants memory that it could write to
                if len(found) < until - at:
                    raise Damaged(f"{path} has become shorter")
                yield Slab(slabs.tensor, number * slabs.tensor.rows, memoryview(found))


def by_tensor(load: Callable[[int], Any], of: str, wanted: Sequence[Slabs]) -> Iterator[Slab]:
    """Yield slabs of tensors that are loaded as a whole. Damaged if one is not as it was described."""
    for slabs in (each for each in wanted if each.end):
        each, tensor = slabs.tensor, load(slabs.tensor.at)
        wanted_ = each.shape, getattr(torch, each.dtype)
        if not isinstance(tensor, torch.Tensor) or (tensor.shape, tensor.dtype) != wanted_:
            raise Damaged(f"{of} has another {printed(each.name)} than was told of it")
        block = bytes_of(tensor.contiguous()).numpy().data
        for number, at, until in slabs.each():
            yield Slab(each, number * each.rows, block[at:until])


def named(theirs: Sequence[str], owner: str, mine: Collection[str]) -> dict[str, str]:
    """Return a model's own names by those in files; what is beside the model there is left out."""
    above = {each.partition("/")[0] for each in theirs if "/" in each}
    inner = next((f"{each}/" for each in (pointer("", owner), *INNER) if each in above), "")
    names = {each: printed(each.removeprefix(inner)) for each in theirs if each.startswith(inner)}
    before, after = [*prefixes(names.values(), PREFIXES[:-1])][-1], ""
    if mine:
        before, after = max(
            product(prefixes(names.values(), PREFIXES), prefixes(mine, PREFIXES)),
            key=lambda both: len({both[1] + each.removeprefix(both[0]) for each in names.values()} & {*mine}),
        )
    found = {of: after + name.removeprefix(before) for of, name in names.items()}
    if len({*found.values()}) < len(found):
        raise ValueError("it has two tensors of one name, joined by dots: save a plain state_dict")
    return found


def prefixes(names: Collection[str], known: Sequence[str]) -> Iterator[str]:
    """Yield "", and then longer and longer prefixes that all names have."""
    yield ""
    for each in known:
        if names and all(name.startswith(each) for name in names):
            yield from (each + more for more in prefixes([name.removeprefix(each) for name in names], known))


def write(where: str, owner: str, to: Storage) -> None:
    """Write what is at a path as step 0 of an empty place. ValueError if that has checkpoints."""
    if any(to.standing()):
        raise ValueError(f"{to.where} has checkpoints: give an empty place")
    if (files := opened(where)) is None:
        raise ValueError(f"{where} has no files of others: give {KINDS.rpartition(' or ')[0]}")
    source, written = files.of(owner), list[Any]()
    all_ = {name: described(name, [each]) for name, each in wholes(source.heads).items()}
    parts = groups({name: each.size for name, each in all_.items()}, ROOM)
    for number, names in enumerate(parts):
        taken = StateParts({})
        taken.rest = decode(source.heads[0].rest)
        taken.tensors = tensors(source, source.heads, {name: all_[name] for name in names}, in_memory)
        share = Share(number, len(parts), ranks=() if number else (0,))
        written.append(write_part(to, taken, Save(0, 0), share))
    to.commit(Manifest(0, 0, tuple(file for file, _ in written)), [head for _, head in written], keep=1)
