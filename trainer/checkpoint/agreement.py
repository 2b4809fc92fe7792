"""Who writes what of a state: agreed by all workers from what each of them has, before anything is written.

Workers with the same pieces have the same part of the state. Each piece is written once, by one of those that
have it. What would be no whole checkpoint is refused here, for all workers at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import msgspec

from elasticjob.trainer.checkpoint.part import SMALL, Shape
from elasticjob.trainer.checkpoint.pieces import Box, all_of, box_of, listed, missing, overlap, whole_of

WAYS_OUT: Final = (
    "make it a DTensor, which says what each worker has, or give the object as Local(...), one for each; "
    "buffers of BatchNorm are equal with SyncBatchNorm"
)
Range = tuple[str, Box]


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A piece that a worker has: which tensor's, and where it is in that."""

    name: str
    dtype: str
    itemsize: int
    whole: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def range(self) -> Range:
        """What of which tensor it is."""
        return self.name, (self.offset, self.shape)

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return prod(self.shape) * self.itemsize


class Description(msgspec.Struct, frozen=True):
    """What a worker has: its pieces, the form of all that is no tensor; its node, "" if not known.

    `names` are those of the objects in its state.
    """

    pieces: tuple[Piece, ...]
    form: str
    node: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Share:
    """Which part of a state a worker has, and what of it it writes to storage.

    Of the workers with the same part one `keeps` it in storage. `writes` has the places of the tensors that
    it writes, None for all. Its rest, all but tensors, is that of part `like`; `ranks` have this part, all of
    them on one node if it is `alone`.
    """

    part: int = 0
    parts: int = 1
    keeps: bool = True
    writes: tuple[int, ...] | None = None
    like: int = 0
    ranks: tuple[int, ...] = ()
    alone: bool = True


class Refused(ValueError):
    """A state cannot be saved as it is."""


def piece_of(shape: Shape) -> Piece:
    """Return the piece that a tensor is on this worker."""
    return Piece(shape.name, shape.dtype, shape.itemsize, whole_of(shape), *box_of(shape))


def agree(told: Sequence[Description]) -> list[Share]:
    """Return the share of each worker, by rank. Refused with the names of tensors that would not be whole."""
    _check(told)
    kinds: dict[tuple[tuple[Range, ...], str], list[int]] = defaultdict(list)
    forms: dict[str, int] = {}
    for rank, each in enumerate(told):
        kinds[tuple(piece.range for piece in each.pieces), each.form].append(rank)
    parts = list(kinds.values())
    for number, ranks in enumerate(parts):
        forms.setdefault(told[ranks[0]].form, number)
    writers = _deal({number: told[ranks[0]] for number, ranks in enumerate(parts)})
    shares: dict[int, Share] = {}
    load = Counter[str]()  # bytes that each node writes
    for number, ranks in enumerate(parts):
        pieces = told[ranks[0]].pieces
        writes = tuple(place for place, piece in enumerate(pieces) if writers[piece.range] == number)
        keeper = min(ranks, key=lambda rank: (load[told[rank].node], rank))
        load[told[keeper].node] += sum(pieces[place].size for place in writes)
        like, alone = forms[told[ranks[0]].form], len({told[each].node for each in ranks}) == 1
        share = Share(number, len(parts), False, writes, like, tuple(ranks), alone)
        shares |= {rank: replace(share, keeps=rank == keeper) for rank in ranks}
    return [shares[rank] for rank in range(len(told))]


def copies_of(told: Sequence[Description]) -> dict[Range, list[int]]:
    """Return the workers that have a piece, for each piece that several have: these have to be equal."""
    holders: dict[Range, list[int]] = defaultdict(list)
    for rank, each in enumerate(told):
        for piece in each.pieces:
            holders[piece.range].append(rank)
    return {of: ranks for of, ranks in holders.items() if len(ranks) > 1 and 0 not in of[1][1]}


def check_copies(copies: Mapping[Range, Sequence[int]], prints: Sequence[Mapping[Range, int]]) -> None:
    """Refuse pieces that are not the same on all workers that have them, by their fingerprints, by rank."""
    differ = [
        f"{name} (on rank {ranks[0]} and {other})"
        for (name, box), ranks in copies.items()
        if (other := next((r for r in ranks if prints[r][name, box] != prints[ranks[0]][name, box]), None))
    ]
    if differ:
        raise Refused(
            f"workers have other values of {listed(differ)}, and only one would be saved: {WAYS_OUT}"
        )


def _check(told: Sequence[Description]) -> None:
    """Refuse tensors of one name that do not fit each other, or that the workers do not have as a whole."""
    for rank, each in enumerate(told):
        if alone := set(each.names) ^ set(told[0].names):
            raise Refused(
                f"rank 0 and rank {rank} have other objects in their states: {listed(sorted(alone))}; give "
                "all workers the same names, an empty dict where a worker has nothing"
            )
    boxes: dict[str, dict[Box, int]] = defaultdict(dict)
    kinds: dict[str, tuple[Piece, int]] = {}
    wrong: dict[str, str] = {}
    for rank, each in enumerate(told):
        for piece in each.pieces:
            first, of = kinds.setdefault(piece.name, (piece, rank))
            if (first.whole, first.dtype) != (piece.whole, piece.dtype):
                wrong[piece.name] = (
                    f"{piece.name} is {first.dtype} {first.whole} on rank {of} and {piece.dtype} "
                    f"{piece.whole} on rank {rank}"
                )
            boxes[piece.name][piece.range[1]] = rank
    if wrong:
        raise Refused(f"workers have other tensors of one name: {listed([*wrong.values()])}: {WAYS_OUT}")
    for name, found in boxes.items():
        whole = kinds[name][0].whole
        at = missing(all_of(whole), found)
        if at is not None:
            wrong[name] = f"{name} (element {at} of {whole})"
        elif overlap(whole, found):
            wrong[name] = f"{name} (its pieces overlap)"
    if wrong:
        raise Refused(f"all workers together do not have a whole {listed([*wrong.values()])}")


def _deal(parts: Mapping[int, Description]) -> dict[Range, int]:
    """Return which part writes each piece, so that bytes are even; the largest pieces are dealt first."""
    holders: dict[Range, list[int]] = defaultdict(list)
    sizes: dict[Range, int] = {}
    for number, each in parts.items():
        for piece in each.pieces:
            holders[piece.range].append(number)
            sizes[piece.range] = piece.size
    load, writers = dict.fromkeys(parts, 0), dict[Range, int]()
    for of in sorted(holders, key=lambda each: (len(holders[each]) > 1, -sizes[each], each)):
        small = sizes[of] < SMALL
        writers[of] = holders[of][0] if small else min(holders[of], key=lambda at: (load[at], at))
        load[writers[of]] += sizes[of]
    return writers
