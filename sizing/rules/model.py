"""The number of workers of an all-reduce job by the fitted model of its speed, where that holds."""

from __future__ import annotations

from elasticjob.api.roles import WORKER
from elasticjob.api.sizes.change import Change, Group
from elasticjob.sizing.facts import Facts
from elasticjob.sizing.thresholds import MOST_WORKERS, PAYS


def propose(facts: Facts) -> Change | None:
    """Return the number of workers that pays by the model; None without a model."""
    from elasticjob.sizing.rules import throughput  # numpy and scipy are Brain's alone

    role, samples = facts.roles[WORKER], facts.samples
    if not facts.settled or not samples or (model := throughput.fit(samples)) is None:
        return None
    count, room = samples[-1].workers, (facts.placed.room or {}).get(WORKER)
    most = role.most if role.most is not None else MOST_WORKERS
    most = max(count, most if room is None else min(most, count + room))
    sizes = (size for size in range(role.smallest, most + 1) if role.down(size) == size)
    best = throughput.best(model, sizes, PAYS)
    pays = "1 worker pays" if best == 1 else f"{best} workers pay"
    return Change({WORKER: Group(best)}, reason=f"{model}: {pays}")
