"""The fixed global batch: which micro-batches a worker computes.

A step always consists of N micro-batches, N being the configured maximum of workers. With n workers, worker i
takes m_i = ⌊N/n⌋ + [i < N mod n] of them, and Σ m_i = N, so a step consumes the same records and has the same
gradient for every n.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate


def shares(total: int, parts: int) -> tuple[int, ...]:
    """Split `total` into `parts` that differ by at most one, the larger ones first."""
    if parts < 1:
        raise ValueError(f"cannot split {total} into {parts} parts")
    least, rest = divmod(total, parts)
    return tuple(least + (index < rest) for index in range(parts))


@lru_cache(maxsize=64)  # each step asks for the same few
def bounds(total: int, parts: int) -> tuple[range, ...]:
    """Return the parts of `shares` as consecutive ranges that cover 0 … total-1."""
    ends = tuple(accumulate(shares(total, parts)))
    return tuple(range(start, end) for start, end in zip((0, *ends), ends, strict=False))


def micro_batches(slots: int, size: int, rank: int) -> range:
    """Return the indices of the micro-batches (of `slots` in all) that worker `rank` of `size` computes."""
    if size > slots:
        raise ValueError(f"{size} workers cannot share a global batch of {slots} micro-batches")
    return bounds(slots, size)[rank]
