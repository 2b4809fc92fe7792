"""One choice for each job so that the values sum up to the most, and the sizes to no more than fits. Pure.

A multiple-choice knapsack, solved exactly. One resource: dynamic programming, jobs × choices vector
operations over the capacity, which is faster than a solver. Several resources, or a long one: HiGHS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_matrix

LONGEST: Final = 20_000
"""Steps of a capacity up to which dynamic programming is used."""
CORE: Final = 0.1
"""Choices of a reduced cost up to so much of a job's mean value are tried first; then WIDER times that."""
WIDER: Final = 8
TINY: Final = 1e-9
SOLVED: Final = 0


@dataclass(frozen=True)
class Choice:
    """What a choice takes of each resource, and what it is worth."""

    size: tuple[int, ...]
    value: float


def choose(choices: Sequence[Sequence[Choice]], capacity: Sequence[int]) -> list[int] | None:
    """Return the index of one choice for each job, of the greatest sum of values; None where none fits."""
    if not choices:
        return []
    if any(most < 0 for most in capacity):
        return None
    if not capacity:
        return [max(range(len(each)), key=lambda at: each[at].value) for each in choices]
    if len(capacity) == 1:
        unit = gcd(*(choice.size[0] for each in choices for choice in each)) or 1
        if capacity[0] // unit <= LONGEST:
            sizes = [[(choice.size[0] // unit, choice.value) for choice in each] for each in choices]
            return _by_programming(sizes, capacity[0] // unit)
    return _by_highs(choices, capacity)


def _by_programming(choices: Sequence[Sequence[tuple[int, float]]], capacity: int) -> list[int] | None:
    best = np.zeros(capacity + 1)
    taken = np.zeros((len(choices), capacity + 1), dtype=np.int16)
    for job, offered in enumerate(choices):
        after = np.full(capacity + 1, -np.inf)
        for index, (size, value) in enumerate(offered):
            if size > capacity:
                continue
            worth = best[: capacity + 1 - size] + value
            better = worth > after[size:]
            after[size:][better] = worth[better]
            taken[job, size:][better] = index
        best = after
    if best[capacity] == -np.inf:
        return None
    found, left = [], capacity
    for job in reversed(range(len(choices))):
        found.append(int(taken[job, left]))
        left -= choices[job][found[-1]][0]
    return found[::-1]


def _by_highs(choices: Sequence[Sequence[Choice]], capacity: Sequence[int]) -> list[int] | None:
    """Solve without integrality first: in all but a few jobs that is the choice already.

    Whatever uses a choice of the reduced cost r is worse than that bound by r at least. So a solution among
    the choices below some r, which is worse than the bound by less than r, is the best of all.
    """
    flat = [choice for each in choices for choice in each]
    jobs = np.repeat(np.arange(len(choices)), [len(each) for each in choices])
    cost = np.array([-choice.value for choice in flat])
    one_each = csr_matrix((np.ones(len(flat)), (jobs, np.arange(len(flat)))))
    share = csr_matrix(
        np.array([choice.size for choice in flat], dtype=float).T / np.maximum(capacity, 1)[:, None]
    )
    most = np.minimum(capacity, 1)
    bound = linprog(cost, share, most, one_each, np.ones(len(choices)), method="highs")
    if bound.status != SOLVED:
        return None
    reduced = cost - one_each.T @ bound.eqlin.marginals - share.T @ bound.ineqlin.marginals
    near = max(abs(bound.fun) / len(choices), TINY) * CORE
    while True:
        core = np.flatnonzero(reduced <= near)
        solved = milp(
            cost[core],
            integrality=np.ones(len(core)),
            bounds=Bounds(0, 1),
            constraints=[
                LinearConstraint(one_each[:, core], 1, 1),
                LinearConstraint(share[:, core], -np.inf, most),
            ],
            options={"mip_rel_gap": 0.0},
        )
        whole = len(core) == len(flat)
        if solved.x is not None and (whole or solved.fun - bound.fun <= near):
            break
        if whole:
            return None
        near *= WIDER
    picked = core[np.flatnonzero(np.round(solved.x))]
    return [int(at) for at in picked - np.searchsorted(jobs, np.arange(len(choices)))]
