"""Arrays of numpy in the block of a checkpoint's part: for frameworks whose states are not torch's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from elasticjob.trainer.checkpoint import part
from elasticjob.trainer.checkpoint.part import Head, Shape, Tensor

Arrays = Mapping[str, np.ndarray[Any, Any]]


def shapes_of(arrays: Arrays) -> Iterator[Shape]:
    """Yield what a block has to know of each array."""
    for name, each in arrays.items():
        yield Shape(name, each.dtype.name, each.shape, each.dtype.itemsize)


def fill(block: memoryview, places: Iterable[Tensor], arrays: Arrays) -> None:
    """Copy arrays to their places in a block."""
    for each in places:
        if each.size:
            array = arrays[each.name]
            np.copyto(np.frombuffer(block, array.dtype, array.size, each.at).reshape(array.shape), array)


def block_of(head: Head, arrays: Arrays) -> memoryview:
    """Return a whole block with arrays; `head` knows none of them yet."""
    tensors, at = part.place(shapes_of(arrays))
    encoded = part.encode(msgspec.structs.replace(head, tensors=tensors))
    block = memoryview(bytearray(at + len(encoded)))
    fill(block, tensors, arrays)
    part.seal(block, encoded, at)
    return block
