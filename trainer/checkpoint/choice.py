"""Which checkpoint a world begins with: the newest one of which every part is somewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from elasticjob.trainer.checkpoint.part import Save


class Offer(msgspec.Struct, frozen=True, array_like=True):
    """A part that a worker's node holds in memory: of which checkpoint, which part of how many."""

    step: int
    round: int
    part: int
    parts: int

    @property
    def save(self) -> Save:
        """The checkpoint of which this is a part."""
        return Save(self.step, self.round)


class Chosen(msgspec.Struct, frozen=True):
    """A checkpoint, and for each of its parts the workers whose nodes hold it; none: it is in storage."""

    save: Save
    holders: tuple[tuple[int, ...], ...] = ()


def choose(offers: Sequence[Iterable[Offer]], stored: Mapping[Save, int]) -> list[Chosen]:
    """Return the checkpoints that can be had, the newest first, in memory before in storage.

    `offers` has those of each worker, by rank; `stored` the committed ones with their numbers of parts.
    """
    held: dict[Save, dict[int, list[int]]] = {}
    counts: dict[Save, int] = {}
    for rank, each in enumerate(offers):
        for offer in each:
            held.setdefault(offer.save, {}).setdefault(offer.part, []).append(rank)
            counts[offer.save] = offer.parts
    whole = [
        Chosen(save, tuple(tuple(found[part]) for part in range(counts[save])))
        for save, found in held.items()
        if found.keys() >= set(range(counts[save]))
    ]
    return sorted(
        [*whole, *map(Chosen, stored)], key=lambda each: (each.save, bool(each.holders)), reverse=True
    )
