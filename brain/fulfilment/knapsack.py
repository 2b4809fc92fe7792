"""One choice for each job so that their values sum up to the most, and their sizes to no more than fits. Pure.

A multiple-choice knapsack, solved exactly by dynamic programming: jobs × choices × capacity steps, each a
vector operation over the capacity.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NEVER = -np.inf


def choose(choices: Sequence[Sequence[tuple[int, float]]], capacity: int) -> list[int] | None:
    """Return the index of one choice (size, value) for each job; None where the smallest do not fit.

    Of equal values the earlier choice wins.
    """
    best = np.zeros(capacity + 1)
    taken = np.zeros((len(choices), capacity + 1), dtype=np.int16)
    for job, offered in enumerate(choices):
        after = np.full(capacity + 1, NEVER)
        for index, (size, value) in enumerate(offered):
            if size > capacity:
                continue
            worth = best[: capacity + 1 - size] + value
            better = worth > after[size:]
            after[size:][better] = worth[better]
            taken[job, size:][better] = index
        best = after
    if best[capacity] == NEVER:
        return None
    found, left = [], capacity
    for job in reversed(range(len(choices))):
        found.append(int(taken[job, left]))
        left -= choices[job][found[-1]][0]
    return found[::-1]
