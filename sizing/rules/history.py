"""Sizes from jobs like this one, and from its own first samples: the start of jobs that Brain knows.

Rows of the table in section 11 of the reference design. A job whose like ended in failure teaches nothing.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from elasticjob.api.roles import PS, WORKER
from elasticjob.api.sentences import amount
from elasticjob.api.sizes.change import Change, Group
from elasticjob.sizing.facts import Facts, Past
from elasticjob.sizing.measures import GIB, means, memory, newest, resource, totals
from elasticjob.sizing.thresholds import MARGIN, MOST_SERVERS, ROOMY, SHORT, WIDEST

SPARE_SERVERS: Final = 1.5
SPARE: Final = 1.2
"""Of the cores that all servers, and each worker, of earlier jobs used."""
ROOMY_WORKERS: Final = 1.4
"""Of the memory that workers of earlier jobs used at most."""
AFTER_KILL: Final = 1.2
SHORT_TARGET: Final = 10
FIRST_TARGET: Final = 20
"""Workers that servers are sized for at the first adjustment: of a short job, and of any other."""


def servers(facts: Facts) -> Change | None:
    """Servers with the cores of the busiest one in earlier jobs and a margin, as many as needed."""
    past = [job for job in facts.past if job.completed and means(job.samples, PS)]
    if not past:
        return None
    busiest = max(max(means(job.samples, PS).values()) for job in past)
    total = sum(totals(job.samples, PS) for job in past) / len(past)
    cores = min(ceil(busiest) + MARGIN, WIDEST)
    count = max(1, ceil(SPARE_SERVERS * total / cores))
    if count > MOST_SERVERS:
        count, cores = MOST_SERVERS, min(WIDEST, ceil(SPARE_SERVERS * total / MOST_SERVERS))
    largest, every = _memory(past)
    size = max(ROOMY * largest, ROOMY * every / count)
    reason = f"{_jobs(past)} used {total:.3g} cores in all, {busiest:.3g} of the busiest server"
    return Change({PS: Group(count, resource(cores, size))}, reason=reason)


def workers(facts: Facts) -> Change | None:
    """Workers as large as those of completed jobs like it needed, and as many as the last one had."""
    past = [job for job in facts.past if job.completed and means(job.samples, WORKER)]
    if not past:
        return None
    cores = max(max(means(job.samples, WORKER).values()) for job in past)
    size = max(max(memory(job.samples, WORKER).values()) for job in past)
    killed = max((node.bytes for job in past for node in job.killed if node.role == WORKER), default=0)
    count = past[-1].samples[-1].workers
    reason = (
        f"{amount(len(past), 'completed job')} like it used up to {cores:.3g} cores and {size / GIB:.3g} GiB "
        f"a worker; the last one had {amount(count, 'worker')}"
    )
    given = resource(SPARE * cores, max(ROOMY_WORKERS * size, AFTER_KILL * killed))
    return Change({WORKER: Group(count, given)}, reason=reason)


def initial_servers(facts: Facts) -> Change | None:
    """The first samples: servers for as many workers as the job will have."""
    samples = newest(facts.samples)
    used, count = means(samples, PS), samples[-1].workers if samples else 0
    if not used or not count:
        return None
    target = SHORT_TARGET if facts.total and facts.total <= SHORT else FIRST_TARGET
    cores = min(ceil(max(used.values())) + MARGIN, WIDEST)
    most = totals(samples, PS)
    while target > count and ceil(target / count * most / cores) > MOST_SERVERS:
        target -= 1
    wanted = max(1, min(MOST_SERVERS, ceil(target / count * most / cores)))
    size = ROOMY * max(memory(samples, PS).values())
    reason = f"{count} workers use {most:.3g} cores of the servers: for {target} workers"
    return Change({PS: Group(wanted, resource(cores, size))}, reason=reason)


def _memory(past: list[Past]) -> tuple[float, float]:
    """Return the largest memory of one server, and the largest of all of one job."""
    each = [memory(job.samples, PS).values() for job in past]
    return max(max(sizes) for sizes in each), max(sum(sizes) for sizes in each)


def _jobs(past: list[Past]) -> str:
    return f"{len(past)} jobs like it" if len(past) > 1 else f"job {past[0].name} like it"
