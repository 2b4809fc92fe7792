"""Who is slow: the time that a worker takes in a step before it waits for the others, compared.

Waiting in a collective is not slowness, so only the time before it counts. With a fixed global batch some
workers have one micro-batch more: each is compared with what the others would take for as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from elasticjob.master.health.hang import Seen

LIMIT: Final = 2.0  # times the median, or its own best
AGAIN: Final = 1.5  # below that a straggler is none any more
LEAST: Final = 0.01  # seconds more than the others, below which noise decides
FEW: Final = 3  # workers, from which on the median says something


def ratios(workers: Sequence[Seen], slots: int) -> dict[Seen, tuple[float, str]]:
    """Return how slow each worker is, and compared with what in words; those with too few steps left out.

    `slots` is the number of micro-batches of a step.
    """
    known = [worker for worker in workers if worker.state.busy > 0]
    if len(known) < len(workers) or len(workers) < 2:
        return {}
    parts = {worker: share(slots, len(workers), worker.rank) for worker in known}
    medians = {
        part: median(each.state.busy * factor(part, parts[each]) for each in known)
        for part in Counter(parts.values())
    }
    slower = sum(own(worker) > AGAIN for worker in known)
    found = {}
    for worker in known:
        candidates = []
        if len(known) >= FEW:
            candidates.append(against(worker, medians[parts[worker]], "the median"))
        if 2 * (slower - (own(worker) > AGAIN)) < len(known) - 1:  # else the work has changed, for all
            candidates.append(against(worker, worker.state.best, "its own best"))
        found[worker] = max(candidates, default=(0.0, ""))
    return found


def slow(ratios: Mapping[Seen, tuple[float, str]], limit: float = LIMIT) -> dict[Seen, str]:
    """Return the workers beyond the limit, with a sentence for each."""
    return {
        worker: f"rank {worker.rank} on {worker.node} is slow: {worker.state.busy:.3g} s a step before it "
        f"waits for the others, {ratio:.1f} times {what}"
        for worker, (ratio, what) in ratios.items()
        if ratio > limit
    }


def against(worker: Seen, usual: float, what: str) -> tuple[float, str]:
    """Return how many times `usual` the worker takes; 0 if the difference is too small to mean anything."""
    busy = worker.state.busy
    return (busy / usual, f"{what} of {usual:.3g} s") if usual and busy - usual > LEAST else (0.0, "")


def own(worker: Seen) -> float:
    """Return how many times its own best the worker takes."""
    return worker.state.busy / worker.state.best if worker.state.best else 1.0


def share(slots: int, size: int, rank: int) -> int:
    """Return the number of micro-batches of a worker, as `trainer/records/batch.py` shares them out."""
    least, rest = divmod(slots, size)
    return max(1, least + (rank < rest))


def factor(mine: int, others: int) -> float:
    """Return how much longer `mine` micro-batches may take than `others`, before the last backward pass.

    That is m forward and m - 1 backward passes, and a backward pass takes up to three times as long.
    """
    return max(1.0, (4 * mine - 3) / (4 * others - 3))
