"""Where the pieces of one checkpoint are read from: this node's memory, another's, or storage.

A source lends slabs of pieces (`part.Tensor.slabs`): those from storage have the checksums of the index. What
is asked of a part is one stream of bytes, or two.
"""

from __future__ import annotations

import http.client
import io
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from elasticjob.api.rpc.address import parts
from elasticjob.trainer.checkpoint import memory, part
from elasticjob.trainer.checkpoint.part import Damaged, Head, Tensor
from elasticjob.trainer.checkpoint.rest import printed
from elasticjob.trainer.checkpoint.storage import Into, Manifest, Storage

PATIENCE: Final = 10.0  # seconds that another node may be silent


class Slabs(NamedTuple):
    """What is wanted of a piece: all slabs with the bytes from `begin` to `end` of it."""

    tensor: Tensor
    begin: int
    end: int

    def each(self) -> Iterator[tuple[int, int, int]]:
        """Yield the number, beginning and end of each slab."""
        for number, (at, until) in enumerate(self.tensor.slabs()):
            if at < self.end and self.begin < until:
                yield number, at, until


class Slab(NamedTuple):
    """Some rows of a piece, the first of which is row `row`."""

    tensor: Tensor
    row: int
    bytes_: memoryview


class Place(NamedTuple):
    """The bytes of a slab in a part."""

    begin: int
    end: int
    tensor: Tensor
    number: int


Stream = Callable[[int, int], AbstractContextManager[Into]]
"""Lends what reads a part on, from a place that is given with the size of it all."""


class Source(Protocol):
    """The pieces of a checkpoint; `heads` says what is where, by the numbers of parts."""

    @property
    def heads(self) -> Sequence[Head]: ...

    def is_near(self, number: int) -> bool:
        """Whether a part is in this node's memory."""

    def open(self, number: int) -> AbstractContextManager[memoryview]:
        """Lend the whole block of a part. Damaged, or OSError if it cannot be had."""

    def read(self, number: int, wanted: Sequence[Slabs]) -> Iterator[Slab]:
        """Yield what is wanted of a part. Damaged, or OSError if it cannot be had."""


class InMemory:
    """A checkpoint in the memory of nodes: `here` by files, the others by the servers that have each part."""

    def __init__(
        self, mark: str, heads: Sequence[Head], here: Mapping[int, Path], servers: Sequence[str], token: str
    ) -> None:
        self.heads = heads
        self._mark, self._save, self._here = mark, heads[0].save, here
        self._servers, self._token = servers, token

    def is_near(self, number: int) -> bool:
        """Whether a part is in this node's memory."""
        return number in self._here

    @contextmanager
    def open(self, number: int) -> Iterator[memoryview]:
        """Lend the block of a part that is near."""
        with memory.reading(self._here[number]) as block:
            if (save := part.head_in(block).save) != self._save:
                raise Damaged(f"step {save.step} is there, and no more step {self._save.step}")
            yield block

    def read(self, number: int, wanted: Sequence[Slabs]) -> Iterator[Slab]:
        """Yield what is wanted of a part."""
        if number in self._here:
            with self.open(number) as block:
                yield from slabs_in(block, wanted)
        else:
            yield from by_ranges(lambda at, size: self._stream(number, at, size), wanted)

    def _stream(self, number: int, at: int, size: int) -> AbstractContextManager[Into]:
        path = memory.path_of(self._mark, self._save, number)
        return ranged(self._servers[number], self._token, path, at, size)


class InStorage:
    """A committed checkpoint in storage."""

    def __init__(self, storage: Storage, manifest: Manifest, heads: Sequence[Head] | None = None) -> None:
        self._storage, self._manifest = storage, manifest
        self.heads = storage.heads(manifest) if heads is None else heads

    def is_near(self, number: int) -> bool:
        """Whether a part is in this node's memory."""
        return False

    @contextmanager
    def open(self, number: int) -> Iterator[memoryview]:
        """Lend the block of a part, whose checksums are right."""
        step, file = self._manifest.step, self._manifest.parts[number]
        if self._manifest.index is not None:
            block = memoryview(self._storage.read(step, file, 0, file.size))
            sizes = {len(block), self._storage.length(step, file)}
            if sizes != {file.size} or not is_as_written(block, file.crc):
                raise Damaged(f"{file.name} of step {step} is not what was written")
            whole = [Slabs(each, 0, each.size) for each in self.heads[number].tensors]
            deque(by_ranges(lambda at, _: nullcontext(io.BytesIO(block[at:]).readinto), whole, file.name), 0)
            yield block
            return
        block, at = memoryview(bytearray(file.size)), 0
        for chunk in self._storage.chunks(step, file):
            end = min(at + len(chunk), len(block))
            block[at:end] = chunk[: end - at]
            at = end
        yield block

    def read(self, number: int, wanted: Sequence[Slabs]) -> Iterator[Slab]:
        """Yield what is wanted of a part; its checksums are right."""
        if self._manifest.index is None:
            with self.open(number) as block:
                yield from slabs_in(block, wanted)
            return
        step, file = self._manifest.step, self._manifest.parts[number]
        yield from by_ranges(partial(self._storage.stream, step, file), wanted, file.name)


@contextmanager
def ranged(server: str, token: str, path: str, at: int, size: int) -> Iterator[Into]:
    """Lend what reads bytes of a block from the node that has it. Damaged, or OSError if it cannot be had."""
    connection = http.client.HTTPConnection(*parts(server), timeout=PATIENCE)
    try:
        headers = {"Authorization": f"Bearer {token}", "Range": f"bytes={at}-{at + size - 1}"}
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        if answer.status not in (200, 206):
            raise Damaged(f"{server} has no {path} (HTTP {answer.status})")
        yield answer.readinto
    except http.client.HTTPException as error:
        raise Damaged(f"{server} broke off: {error!r}") from error
    finally:
        connection.close()


def is_as_written(block: memoryview, crc: int) -> bool:
    """Whether the bytes of a part that belong to no piece are right; the others have checksums."""
    head = part.head_in(block)
    body = part.encode(head)
    at = len(block) - len(body)
    rest = bytes(block[: part.START]).rstrip(b"\0")
    ends = [(each.at + each.size, -each.size % part.ALIGNED) for each in head.tensors]
    pads = all(not any(block[end : end + pad]) for end, pad in ends)
    return zlib.crc32(body) == crc and rest == part.first(body, at).rstrip(b"\0") and pads


def slabs_in(block: memoryview, wanted: Sequence[Slabs]) -> Iterator[Slab]:
    """Yield the slabs of a block that is whole."""
    for each in wanted:
        tensor = each.tensor
        if tensor.at + tensor.size > len(block):
            raise Damaged(f"{tensor.name} would end at {tensor.at + tensor.size} of {len(block)} bytes")
        for number, at, until in each.each():
            yield Slab(tensor, number * tensor.rows, block[tensor.at + at : tensor.at + until])


def by_ranges(stream: Stream, wanted: Sequence[Slabs], of: str = "") -> Iterator[Slab]:
    """Yield slabs, read by at most two requests. Damaged for a wrong checksum."""
    for span in spans(wanted):
        begin, end = span[0].begin, span[-1].end
        with stream(begin, end - begin) as read:
            for each in span:
                while begin < each.begin:
                    begin += len(taken(read, min(part.SLAB, each.begin - begin), of))
                found = taken(read, each.end - each.begin, of)
                begin, crcs = each.end, each.tensor.crcs
                if crcs and zlib.crc32(found) != crcs[each.number]:
                    raise Damaged(f"{of or 'a part'}: {printed(each.tensor.name)} is not what was written")
                yield Slab(each.tensor, each.number * each.tensor.rows, memoryview(found))


def spans(wanted: Sequence[Slabs]) -> list[list[Place]]:
    """Return the slabs of a part by their bytes, in two where the widest gap is worth a request."""
    places = [
        Place(slabs.tensor.at + at, slabs.tensor.at + until, slabs.tensor, number)
        for slabs in sorted(wanted, key=lambda each: each.tensor.at)
        for number, at, until in slabs.each()
    ]
    gaps = [(after.begin - before.end, at) for at, (before, after) in enumerate(pairwise(places), 1)]
    widest, at = max(gaps, default=(0, 0))
    if widest > part.SLAB:
        return [places[:at], places[at:]]
    return [places] if places else []


def taken(read: Into, size: int, of: str) -> bytearray:
    """Return so many bytes of a stream. Damaged if there are fewer."""
    found = bytearray(size)  # torch wants memory that it could write to
    fill(memoryview(found), read, of)
    return found


def fill(view: memoryview, read: Into, of: str) -> None:
    """Fill memory from a stream. Damaged if it ends before."""
    at = 0
    while at < len(view) and (more := read(view[at:])):
        at += more
    if at < len(view):
        raise Damaged(f"{of or 'a part'} ends {len(view) - at} bytes before it should")
