"""One worker's part of a checkpoint: a block of bytes, the same in shared memory, in a file and on the wire.

    4,096 bytes   magic, whether the block is whole, its size, place and checksum of the head
    tensors       each at a multiple of 64 bytes
    head          msgpack: the step, which part of how many, where each tensor is, and the rest of the state

The first bytes say that a block is whole only when all others are written. A reader refuses any other.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Final, NamedTuple

import msgspec

from elasticjob.api.rpc.unreadable import UNREADABLE

MAGIC: Final = b"elasticjob part\n"
VERSION: Final = 1
START: Final = 4096
ALIGNED: Final = 64
SMALL: Final = 1 << 20  # bytes of a piece that stays together with others: who reads one reads most of them
SLAB: Final = 1 << 22  # bytes of a piece that have a checksum together, but for longer rows
LARGEST_HEAD: Final = 1 << 28
OWN: Final = "give each training a folder of its own"
_FIRST: Final = struct.Struct(
    "=16sIIQQQI"
)  # magic, version, whole, size, place and size of the head, its CRC

Read = Callable[[int, int], bytes | memoryview]
"""Returns the bytes of a block from a place on, as many as asked for, or fewer at its end."""


class Damaged(Exception):
    """A block is not whole, or not what its checksum says: its bytes were read, and are wrong."""


class Newer(Exception):
    """A block was written by a newer program, in a format that this one cannot read."""


class Save(NamedTuple):
    """One checkpoint: the step after which it was taken, and in which round; later ones are greater."""

    step: int
    round: int


def beside(where: str, steps: Iterable[int]) -> str:
    """Return in a sentence that another run has written steps to a place."""
    others = ", ".join(map(str, steps))
    return f"another training writes to {where}, too: step {others} is its own; {OWN}"


class Tensor(msgspec.Struct, frozen=True, array_like=True):
    """Where a tensor is in the block: `size` bytes from `at` on.

    `whole` is the shape of the tensor of which this is a piece, and `offset` where the piece begins in it;
    both are empty for a tensor that is whole. In storage `crcs` has the CRC-32 of each slab (`slabs`).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    at: int
    size: int
    whole: tuple[int, ...] = ()
    offset: tuple[int, ...] = ()
    crcs: tuple[int, ...] = ()

    @property
    def row(self) -> int:
        """The size in bytes of one row, of all that has the same place on the first axis."""
        return self.size // (self.shape[0] or 1) if self.shape else self.size

    @property
    def rows(self) -> int:
        """The number of rows in a slab."""
        return max(1, SLAB // max(1, self.row))

    def slabs(self) -> Iterator[tuple[int, int]]:
        """Yield where each slab begins and ends in the piece, in bytes: as many rows as fit into 4 MiB."""
        step = self.rows * self.row
        return ((at, min(at + step, self.size)) for at in range(0, self.size, step or 1))


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a block. Workers that replicate each other take the same `part` of `parts`.

    The script `ended` its loop by itself after that step, of so many that it had asked for; 0: it did not.
    Of the tensors in memory those in `writes` go to storage, None being all: others write the rest. An empty
    `rest` is that of the part `like`. `ranks` are those of the workers with this part.
    """

    step: int
    round: int
    part: int = 0
    parts: int = 1
    tensors: tuple[Tensor, ...] = ()
    rest: bytes = b""
    ended: int = 0
    writes: tuple[int, ...] | None = None
    like: int = 0
    ranks: tuple[int, ...] = ()

    @property
    def save(self) -> Save:
        """The checkpoint of which this is a part."""
        return Save(self.step, self.round)


class Shape(NamedTuple):
    """A tensor that is to be placed in a block; see `Tensor`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    itemsize: int
    whole: tuple[int, ...] = ()
    offset: tuple[int, ...] = ()


def place(shapes: Iterable[Shape]) -> tuple[tuple[Tensor, ...], int]:
    """Return the places of all tensors, and where the head begins."""
    at, found = START, []
    for each in shapes:
        size = prod(each.shape) * each.itemsize
        found.append(Tensor(each.name, each.dtype, each.shape, at, size, each.whole, each.offset))
        at += -(-size // ALIGNED) * ALIGNED
    return tuple(found), at


def begin(block: memoryview) -> None:
    """Say that the block is being written."""
    block[: _FIRST.size] = bytes(_FIRST.size)


def seal(block: memoryview, head: bytes, at: int) -> int:
    """Write the encoded head at its place, then say that the block is whole; return its size."""
    size = at + len(head)
    block[at:size] = head
    block[: _FIRST.size] = first(head, at)
    return size


def first(head: bytes, at: int) -> bytes:
    """Return the first bytes of a whole block whose head begins `at` a place."""
    return _FIRST.pack(MAGIC, VERSION, 1, at + len(head), at, len(head), zlib.crc32(head))


def size_of(first: bytes | bytearray | memoryview) -> int:
    """Return the size of a block from its first bytes. Damaged if it is not whole, Newer by its format."""
    return _first(first)[0]


def head_of(read: Read) -> Head:
    """Return the head of a block. Damaged if it is not whole, Newer by its format."""
    _, at, length, checksum = _first(read(0, _FIRST.size))
    found = bytes(read(at, length))
    if len(found) != length or zlib.crc32(found) != checksum:
        raise Damaged("its head does not have the checksum that its first bytes tell")
    try:
        return decode(found)
    except UNREADABLE as error:
        raise Damaged(f"its head is none: {error}") from error


def head_in(block: memoryview) -> Head:
    """Return the head of a block in memory."""
    return head_of(lambda at, size: block[at : at + size])


def _first(found: bytes | bytearray | memoryview) -> tuple[int, int, int, int]:
    if len(found) < _FIRST.size:
        raise Damaged(f"it has {len(found)} bytes")
    magic, version, whole, size, at, length, checksum = _FIRST.unpack_from(found)
    if magic != MAGIC or not whole:
        raise Damaged("it is not whole")
    if version > VERSION:
        raise Newer(
            f"it has format {version}, and this program reads format {VERSION}: use a newer elasticjob"
        )
    if length > LARGEST_HEAD or at + length != size:
        raise Damaged(f"its head would have {length} bytes at {at} of {size}")
    return size, at, length, checksum


encode = msgspec.msgpack.Encoder().encode
# made here: their first use in two threads would crash (`typed`)
decode = msgspec.msgpack.Decoder(Head).decode
decode_heads = msgspec.msgpack.Decoder(list[Head]).decode
