"""What a worker reads of a checkpoint: for each tensor a box, from the nearest pieces that meet it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from elasticjob.trainer.checkpoint.part import Damaged, Head, Tensor
from elasticjob.trainer.checkpoint.pieces import Box, box_of, by_name, choose, meet
from elasticjob.trainer.checkpoint.sources import Slab, Slabs, Source

Where = tuple[slice, ...]


class Copy(NamedTuple):
    """Some rows of a piece: `target` of what is wanted becomes `found` of these bytes, which have a shape."""

    name: str
    target: Where
    slab: Slab
    shape: tuple[int, ...]
    found: Where


class Reading(NamedTuple):
    """How a worker reads a checkpoint: by a `plan`, which `fill` follows; then there is a `state`.

    Filling may fail half-way, here or on another worker, and then nobody goes on with it: it returns what
    undoes it. `ended` is as in `part.Head`.
    """

    ended: int
    plan: Plan
    fill: Callable[[Source], Callable[[], object]]
    state: Callable[[], Any]


class Plan(NamedTuple):
    """What is read of each part, and the box in which each piece is wanted."""

    wanted: Mapping[str, Box]
    parts: Mapping[int, Sequence[Slabs]]
    boxes: Mapping[tuple[int, str, Box], Box]


def plan(heads: Sequence[Head], source: Source, wanted: Mapping[str, Box], rank: int) -> Plan:
    """Return what to read. Of copies the one in this node's memory is, else workers take different ones."""
    near = {each.part: -1 if source.is_near(each.part) else (each.part - rank) % len(heads) for each in heads}
    pieces = by_name(heads)
    parts: dict[int, list[Slabs]] = defaultdict(list)
    boxes: dict[tuple[int, str, Box], Box] = {}
    for name, box in wanted.items():
        for (number, piece), common in choose(pieces[name], box, near):
            parts[number].append(rows(piece, common))
            boxes[number, name, box_of(piece)] = common
    return Plan(wanted, parts, boxes)


def rows(piece: Tensor, common: Box) -> Slabs:
    """Return what to read of a piece for what is in a box."""
    if not piece.shape:
        return Slabs(piece, 0, piece.size)
    first = common[0][0] - box_of(piece)[0][0]
    return Slabs(piece, first * piece.row, (first + common[1][0]) * piece.row)


def copies(source: Source, of: Plan) -> Iterator[Copy]:
    """Yield each copy that is to be made. Damaged unless all that is wanted was there in the end."""
    left = {name: prod(shape) for name, (_, shape) in of.wanted.items()}
    for number, wanted in sorted(of.parts.items()):
        for slab in source.read(number, wanted):
            piece = slab.tensor
            offset, _ = here = slab_box(slab)
            common = meet(here, of.boxes[number, piece.name, box_of(piece)])
            if common is None:
                continue
            left[piece.name] -= prod(common[1])
            target = within(common, of.wanted[piece.name][0])
            yield Copy(piece.name, target, slab, here[1], within(common, offset))
    if lacking := [name for name, elements in left.items() if elements]:
        raise Damaged(f"{len(lacking)} tensors would not be filled, {lacking[0]} the first")


def slab_box(slab: Slab) -> Box:
    """Return where the rows of a slab are in the whole tensor."""
    offset, shape = box_of(slab.tensor)
    if not shape:
        return offset, shape
    count = len(slab.bytes_) // (slab.tensor.row or 1)
    return (offset[0] + slab.row, *offset[1:]), (count, *shape[1:])


def within(box: Box, origin: tuple[int, ...]) -> Where:
    """Return a box as slices of what begins at an origin."""
    return tuple(slice(at - zero, at - zero + n) for at, n, zero in zip(*box, origin, strict=True))


def wholes(heads: Sequence[Head]) -> dict[str, Tensor]:
    """Return one piece of each tensor: it tells type and shape."""
    return {name: pieces[0][1] for name, pieces in by_name(heads).items()}


def rests(heads: Sequence[Head], rank: int, world: int) -> list[bytes]:
    """Return the rests of a checkpoint, what this worker had first: among as many workers it goes on with it.

    Parts of older formats have no ranks, and each its own.
    """
    parts = {each.part: each for each in heads}
    known = sum(len(each.ranks) for each in heads)
    if not known:
        mine = parts.get(rank, heads[0])
        return [mine.rest or parts[mine.like].rest]
    mine = next((each for each in heads if known == world and rank in each.ranks), heads[0])
    order = [parts[mine.like], *heads]
    return list(dict.fromkeys(each.rest for each in order if each.rest))
