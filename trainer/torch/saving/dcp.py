"""What torch.distributed.checkpoint has written: its `.metadata` tells where in which file each chunk is.

That is a pickle. What it names is looked up in a table, so that it cannot run code.
"""

from __future__ import annotations

import io
import pickle  # noqa: TID251  # what torch has written, by names that are in a table
from collections import defaultdict
from functools import reduce
from math import prod
from pathlib import PurePosixPath
from typing import Any, Final

import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.serialization import _get_layout

from elasticjob.trainer.checkpoint.part import Tensor
from elasticjob.trainer.checkpoint.rest import pointer

CLASSES: Final = (
    *(metadata.Metadata, metadata.MetadataIndex, metadata.StorageMeta, metadata.TensorStorageMetadata),
    *(metadata.BytesStorageMetadata, metadata.ChunkStorageMetadata, metadata.TensorProperties),
    *(metadata._MEM_FORMAT_ENCODING, filesystem._StorageInfo),
)
KNOWN: Final[dict[tuple[str, str], Any]] = {
    **{(each.__module__, each.__qualname__): each for each in CLASSES},
    **{("torch", name): each for name, each in vars(torch).items() if isinstance(each, torch.dtype)},
    ("torch", "Size"): torch.Size,
    ("torch.serialization", "_get_layout"): _get_layout,
    **{(module, "PosixPath"): PurePosixPath for module in ("pathlib", "pathlib._local")},
}


class Unpickler(pickle.Unpickler):
    """Reads what consists of these classes alone."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class by its name. UnpicklingError for all others."""
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it needs {module}.{name}, which is none of torch's")
        return KNOWN[module, name]


def chunks(content: bytes) -> dict[str, dict[Tensor, int]]:
    """Return the chunks in each file, with the size of each there. ValueError if that is no `.metadata`."""
    try:
        return _chunks(Unpickler(io.BytesIO(content)).load())
    except Exception as error:  # a damaged pickle raises whatever it likes
        raise ValueError(f"its .metadata cannot be read ({type(error).__name__}: {error})") from error


def _chunks(all_: Any) -> dict[str, dict[Tensor, int]]:
    paths, files = all_.planner_data or {}, defaultdict[str, dict[Tensor, int]](dict)
    for name, each in all_.state_dict_metadata.items():
        for chunk in each.chunks if isinstance(each, metadata.TensorStorageMetadata) else ():
            kind, shape = each.properties.dtype, tuple(chunk.sizes)
            where = all_.storage_data[metadata.MetadataIndex(name, chunk.offsets)]
            if where.transform_descriptors:
                raise ValueError(f"{name} is written as {where.transform_descriptors}: save it without")
            size, dtype = prod(shape) * kind.itemsize, str(kind).removeprefix("torch.")
            known = reduce(pointer, paths.get(name, (name,)), "")
            piece = Tensor(known, dtype, shape, where.offset, size, tuple(each.size), tuple(chunk.offsets))
            files[where.relative_path][piece] = where.length
    return files
