"""Who is slow: the time that a worker takes in a step before it waits for the others, compared.

Waiting in a collective is not slowness, so only the time before it counts; and only where it is a good part
of the step. With a fixed global batch some
workers have one micro-batch more: each is compared with what the others would take for as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from elasticjob.master.health.hang import Seen

LIMIT: Final = 2.0  # times the median, or its own usual time
AGAIN: Final = 1.5  # below that a straggler is none any more
LEAST: Final = 0.01  # seconds more than the others, below which noise decides
SHARE: Final = 0.2  # of a step, likewise: the others lose that
FEW: Final = 3  # workers, from which on the median says something


class Ratio(NamedTuple):
    """How many times `usual` a worker takes, which is what, in words."""

    times: float = 0.0
    usual: float = 0.0
    what: str = ""


def ratios(workers: Sequence[Seen], slots: int, before: Mapping[Seen, float]) -> dict[Seen, Ratio]:
    """Return how slow each worker is; those with too few steps left out.

    `slots` is the number of micro-batches of a step, `before` the usual times of those that have been slow
    since, as they were then: by now these may be usual.
    """
    known = [worker for worker in workers if worker.state.busy > 0]
    if len(known) < len(workers) or len(workers) < 2:
        return {}
    parts = {worker: share(slots, len(workers), worker.rank) for worker in known}
    medians = {
        part: median(each.state.busy * factor(part, parts[each]) for each in known)
        for part in Counter(parts.values())
    }
    own = {worker: before.get(worker, 0.0) or worker.state.best for worker in known}
    slower = [worker for worker in known if own[worker] and worker.state.busy > AGAIN * own[worker]]
    found = {}
    for worker in known:
        candidates = []
        if len(known) >= FEW:
            candidates.append(against(worker, medians[parts[worker]], "the median"))
        if 2 * (len(slower) - (worker in slower)) < len(known) - 1:  # else the work has changed, for all
            candidates.append(against(worker, own[worker], "its own usual time"))
        found[worker] = max(candidates, default=Ratio())
    return found


def slow(ratios: Mapping[Seen, Ratio], limit: float = LIMIT) -> dict[Seen, str]:
    """Return the workers beyond the limit, with a sentence for each."""
    return {
        worker: f"rank {worker.rank} on {worker.node} is slow: {worker.state.busy:.3g} s a step before it "
        f"waits for the others, {ratio.times:.1f} times {ratio.what} of {ratio.usual:.3g} s"
        for worker, ratio in ratios.items()
        if ratio.times > limit
    }


def against(worker: Seen, usual: float, what: str) -> Ratio:
    """Return how many times `usual` the worker takes; 0 if the difference is too small to mean anything."""
    busy = worker.state.busy
    least = max(LEAST, SHARE * worker.state.usual)
    return Ratio(busy / usual, usual, what) if usual and busy - usual > least else Ratio()


def share(slots: int, size: int, rank: int) -> int:
    """Return the number of micro-batches of a worker, as `trainer/records/batch.py` shares them out."""
    least, rest = divmod(slots, size)
    return max(1, least + (rank < rest))


def factor(mine: int, others: int) -> float:
    """Return how much longer `mine` micro-batches may take than `others`, before the last backward pass.

    That is m forward and m - 1 backward passes, and a backward pass takes up to three times as long.
    """
    return max(1.0, (4 * mine - 3) / (4 * others - 3))
