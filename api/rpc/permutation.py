"""Random access into a shuffled order: the k-th of n without a list of n.

A Feistel network over a rectangle of at least n cells, walked until it lands below n. Master and clients
compute the same order, so that a shard of a shuffled text is a range on the wire, not a list of records.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from math import isqrt
from typing import Final

ROUNDS: Final = 4
_MASK: Final = (1 << 64) - 1


@lru_cache(maxsize=1024)
def key_of(seed: int, dataset: str, epoch: int) -> int:
    """Return the key of one epoch's order, below 2^53 so that JSON keeps it."""
    text = f"{seed}/{epoch}/{dataset}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") >> 11


def place(k: int, n: int, key: int) -> int:
    """Return what stands at place `k` of the order `key` of the numbers below `n`."""
    columns = isqrt(n - 1) + 1
    rows = -(-n // columns)
    while True:
        row, column = divmod(k, columns)
        for turn in range(ROUNDS):
            row = (row + _mix(column, key + 2 * turn)) % rows
            column = (column + _mix(row, key + 2 * turn + 1)) % columns
        k = row * columns + column
        if k < n:
            return k


def _mix(number: int, key: int) -> int:
    """Return 64 bits that depend on all bits of both (the finisher of splitmix64)."""
    mixed = ((number + 1) * 0x9E3779B97F4A7C15 + key * 0xD1342543DE82EF95) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)
