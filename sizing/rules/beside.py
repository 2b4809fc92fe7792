"""Workers beside parameter servers, by Brain: more while servers have room, fewer at their limit."""

from __future__ import annotations

from math import ceil
from statistics import fmean
from typing import Final

from elasticjob.api.roles import PS, WORKER
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.facts import Sample
from elasticjob.sizing.facts import Facts
from elasticjob.sizing.measures import KEPT, newest, shares
from elasticjob.sizing.thresholds import AT_LIMIT, AT_ONCE, HOT, MOST_WORKERS, SHORT

FIRST: Final = 32
FIRST_SHORT: Final = 10
"""Workers at most before the job is settled: of any job, and of a short one."""
SLOWER: Final = 0.9
"""Speed after a change below this share of the one before: the change did not pay."""


def propose(facts: Facts) -> Change | None:
    """While parameter servers have room, more workers; fewer where one server works at its limit."""
    samples = newest(facts.samples)
    busy = max(shares(samples, PS).values(), default=0.0)
    if not busy:
        return None
    count = samples[-1].workers
    if busy > AT_LIMIT:
        fewer = count - AT_ONCE if count > AT_ONCE else count
        return Change({WORKER: Group(fewer)}, reason=f"a parameter server uses {busy:.0%} of its cores")
    if busy >= HOT or is_slower(facts.samples):
        return None
    wanted = ceil(HOT / busy * count)
    if facts.settled:
        wanted = min(wanted, count + AT_ONCE)
    else:
        wanted = min(wanted, FIRST_SHORT if facts.total and facts.total <= SHORT else FIRST)
    wanted = max(count, min(wanted, MOST_WORKERS))
    return Change({WORKER: Group(wanted)}, reason=f"{count} workers use {busy:.0%} of the busiest server")


def is_slower(samples: tuple[Sample, ...]) -> bool:
    """Whether the job got slower at the last change of its workers: the mean of five samples on each side."""
    last = samples[-1].workers
    changed = next((i + 1 for i in reversed(range(len(samples))) if samples[i].workers != last), 0)
    before, after = samples[max(0, changed - KEPT) : changed], samples[changed : changed + KEPT]
    if not before or samples[changed].workers < before[-1].workers:
        return False
    return fmean(s.steps for s in after) < SLOWER * fmean(s.steps for s in before)
