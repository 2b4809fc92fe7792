"""Pieces of tensors: where each begins in the whole one, what of it is missing, and where two of them meet.

A box is an offset and a shape. A tensor without axes is one element, and its box is `((), ())`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from math import prod
from typing import Final

from elasticjob.trainer.checkpoint import part
from elasticjob.trainer.checkpoint.part import Damaged, Head, Tensor

Shape = tuple[int, ...]
Box = tuple[Shape, Shape]
MOST: Final = 10  # names in a sentence
THIS: Final = "the checkpoint"
"""Begins what is said of a checkpoint by those who do not know its step and place."""
Stored = tuple[int, Tensor]
"""A piece, and the number of the part that has it."""


def meet(one: Box, other: Box) -> Box | None:
    """Return what two boxes have in common, None if that is nothing."""
    begin = tuple(map(max, one[0], other[0]))
    ends = zip(*one, strict=True), zip(*other, strict=True)
    shape = tuple(min(a + n, b + m) - at for (a, n), (b, m), at in zip(*ends, begin, strict=True))
    return (begin, shape) if all(each > 0 for each in shape) else None


def missing(whole: Box, boxes: Iterable[Box]) -> Shape | None:
    """Return where the first element of `whole` is that no box has, None if all are there."""
    found = [each for each in {meet(whole, box) for box in boxes} if each is not None]
    return _missing(whole, found)


def _missing(whole: Box, boxes: Sequence[Box]) -> Shape | None:
    begin, shape = whole
    if 0 in shape:
        return None
    if not shape or not boxes or boxes[0] == whole:
        return None if boxes else begin
    first, end = begin[0], begin[0] + shape[0]
    cuts = sorted({first, end, *(at for at, _ in map(_span, boxes)), *(at for _, at in map(_span, boxes))})
    opening: dict[int, list[Box]] = defaultdict(list)
    for box in boxes:
        opening[box[0][0]].append(box)
    there: list[Box] = []
    for at, until in pairwise(cuts):
        there = [box for box in there if _span(box)[1] > at] + opening[at]
        inner = _missing((begin[1:], shape[1:]), [(box[0][1:], box[1][1:]) for box in there])
        if inner is not None:
            return (at, *inner)
        assert until > at
    return None


def _span(box: Box) -> tuple[int, int]:
    return box[0][0], box[0][0] + box[1][0]


def box_of(tensor: Tensor | part.Shape) -> Box:
    """Return where a piece is in its tensor."""
    return tensor.offset or (0,) * len(tensor.shape), tensor.shape


def all_of(shape: Shape) -> Box:
    """Return the box that has all of a tensor."""
    return (0,) * len(shape), shape


def whole_of(tensor: Tensor | part.Shape) -> Shape:
    """Return the shape of the whole tensor of a piece."""
    return tensor.whole or tensor.shape


def by_name(heads: Iterable[Head]) -> dict[str, list[Stored]]:
    """Return the pieces of all tensors."""
    found: dict[str, list[Stored]] = defaultdict(list)
    for head in heads:
        for each in head.tensors:
            found[each.name].append((head.part, each))
    return dict(found)


def check(heads: Sequence[Head]) -> None:
    """Raise Damaged, with names, if a checkpoint with these heads would not be whole."""
    found = by_name(heads)
    wrong = [
        f"{name}: {why}" for name, pieces in found.items() if (why := _wrong([each for _, each in pieces]))
    ]
    if wrong:
        raise Damaged(f"it is not whole: {listed(wrong)}")
    for head in heads:
        places = sorted((each.at, each.at + each.size, each.name) for each in head.tensors if each.size)
        for (_, end, one), (begin, _, other) in pairwise(places):
            if begin < end:
                raise Damaged(f"{one} and {other} have the same bytes of part {head.part}")


def _wrong(pieces: Sequence[Tensor]) -> str:
    """Return what is wrong with the pieces of a tensor, "" if nothing is."""
    one, whole = pieces[0], whole_of(pieces[0])
    known: dict[Box, Tensor] = {}
    for each in pieces:
        offset, shape = box_of(each)
        if whole_of(each) != whole or each.dtype != one.dtype or len(offset) != len(whole):
            return f"it is {each.dtype} {whole_of(each)} in one part, {one.dtype} {whole} in another"
        if any(at < 0 or n < 0 or at + n > most for at, n, most in zip(offset, shape, whole, strict=True)):
            return f"a piece of {shape} at {offset} is outside of {whole}"
        if known.setdefault((offset, shape), each).crcs != each.crcs:
            return f"two copies of the piece at {offset} differ"
    at = missing(all_of(whole), known)
    if at is not None:
        return f"no part has the element {at} of {whole}"
    return "pieces of it overlap" if overlap(whole, known) else ""


def overlap(whole: Shape, boxes: Iterable[Box]) -> bool:
    """Whether some of different boxes, which together have all of a tensor, have an element in common."""
    return sum(prod(shape) for _, shape in boxes) > prod(whole)


def choose(pieces: Iterable[Stored], wanted: Box, near: Mapping[int, int]) -> Iterator[tuple[Stored, Box]]:
    """Yield each piece that meets the box, and where; of copies the one whose part is nearest."""
    best: dict[Box, Stored] = {}
    for number, each in pieces:
        box = box_of(each)
        if box not in best or near.get(number, number) < near.get(best[box][0], best[box][0]):
            best[box] = number, each
    for box, stored in best.items():
        if (common := meet(box, wanted)) is not None:
            yield stored, common


def is_like(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is like one of some patterns (fnmatch)."""
    return any(fnmatchcase(name, each) for each in patterns)


def listed(names: Sequence[str]) -> str:
    """Return names for a sentence, at most ten."""
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
