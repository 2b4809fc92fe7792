"""Where values lie on servers: a rule of the variable and the number of servers, without TensorFlow.

A large variable is cut into contiguous ranges of rows, as fixed_size_partitioner of TensorFlow cuts them: the
part k is on server k. A small one is whole, on a server that its name decides. The slots of an optimizer are
where their variable is. So whoever has the manifest knows all places, for any number of servers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Final

import msgspec

from elasticjob.api.rpc.message import decode_as
from elasticjob.api.rpc.unreadable import UNREADABLE

PART: Final = "/part_"
Text = Annotated[str, msgspec.Meta(max_length=1024)]
Shape = Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, le=2**53)], ...], msgspec.Meta(max_length=16)]


class Entry(msgspec.Struct, frozen=True):
    """A variable of the manifest. `slot` follows `/part_k` in the names of its parts: "/Adagrad".

    `home` is the name that decides where a whole variable is: its own, or that which it is colocated with.
    """

    stem: Text
    slot: Text
    shape: Shape
    dtype: Text
    cut: bool
    home: Text

    @property
    def name(self) -> str:
        """Its name in checkpoints."""
        return self.stem + self.slot


Manifest = Annotated[tuple[Entry, ...], msgspec.Meta(max_length=65_536)]


@dataclass(frozen=True)
class Part:
    """The part of a variable on one server: `rows` from `first`, or all of it."""

    server: int
    name: str
    shape: tuple[int, ...]
    first: int = 0

    @property
    def rows(self) -> int:
        return self.shape[0]


@dataclass(frozen=True)
class Piece:
    """Rows [start, end) of an earlier part, counted within it; None: all of it, whatever its shape."""

    part: Part
    rows: tuple[int, int] | None


def encode(manifest: Sequence[Entry]) -> bytes:
    """Return a manifest as JSON."""
    return msgspec.json.encode(manifest)


def decode(text: bytes) -> tuple[Entry, ...]:
    """Return the manifest. Raises ValueError if it is none."""
    try:
        return decode_as(text, Manifest)
    except UNREADABLE as error:
        raise ValueError(f"this is not a manifest of variables: {error}") from None


def split(name: str) -> tuple[str, str]:
    """Return stem and slot of the name of a part: users/part_3/Adagrad is users, /Adagrad."""
    stem, _, rest = name.partition(PART)
    _, slash, slot = rest.partition("/")
    return stem, slash + slot


def server_of(home: str, servers: int) -> int:
    """Return the server of a whole variable: where its home is, if that is a part, or as its name decides."""
    if PART in home:
        return part_of(home)
    return zlib.crc32(home.encode()) % servers


def part_of(name: str) -> int:
    """Return which part a name is of: 3 of users/part_3/Adagrad."""
    return int(name.partition(PART)[2].partition("/")[0])


def bounds(rows: int, servers: int) -> list[int]:
    """Return where the parts of so many rows begin, and the end of the last one."""
    parts = min(servers, rows) or 1
    return [rows // parts * k + min(k, rows % parts) for k in range(parts + 1)]


def parts(entry: Entry, servers: int) -> tuple[Part, ...]:
    """Return the parts of a variable on so many servers."""
    if not entry.cut:
        return (Part(server_of(entry.home, servers), entry.name, entry.shape),)
    return tuple(
        Part(k, f"{entry.stem}{PART}{k}{entry.slot}", (end - start, *entry.shape[1:]), start)
        for k, (start, end) in enumerate(pairwise(bounds(entry.shape[0], servers)))
    )


def of_server(manifest: Iterable[Entry], servers: int, place: int) -> list[tuple[Entry, Part]]:
    """Return what the server at `place` of so many has."""
    return [(entry, part) for entry in manifest for part in parts(entry, servers) if part.server == place]


def pieces(entry: Entry, part: Part, servers: int) -> list[Piece]:
    """Return what `part` is made of, in order, when the variable lies on so many `servers`."""
    before = parts(entry, servers)
    if not entry.cut:
        return [Piece(before[0], None)]
    found = []
    for old in before:
        start, end = max(part.first, old.first), min(part.first + part.rows, old.first + old.rows)
        if start < end:
            whole = end - start == old.rows
            found.append(Piece(old, None if whole else (start - old.first, end - old.first)))
    return found


def slice_spec(entry: Entry, part: Part) -> str:
    """Return which part of the variable this is, in the spelling of TensorFlow's checkpoints."""
    if not entry.cut:
        return ""
    others = ":".join(["-"] * (len(entry.shape) - 1))
    rows = f"{part.first},{part.rows}"
    return " ".join(map(str, entry.shape)) + " " + (f"{rows}:{others}" if others else rows)
