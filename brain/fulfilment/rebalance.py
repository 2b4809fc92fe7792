"""An option after the passes: steps go from more fulfilled jobs to less fulfilled ones, both settled. Pure.

A step moves only if the job that gives it stays at least as fulfilled as the other becomes. So scores come
closer, and no step moves back.
"""

from __future__ import annotations

from datetime import datetime
from heapq import heapify, heappop, heappush

from elasticjob.brain.fulfilment import reasons
from elasticjob.brain.fulfilment.draft import Cause, Draft, Entry
from elasticjob.brain.fulfilment.passes import is_settled, keeps_limits, may_grow
from elasticjob.brain.fulfilment.state import Options


def rebalance(draft: Draft, options: Options, now: datetime) -> None:
    """Move steps until no one can: first to the least fulfilled, first from the most fulfilled."""
    heap = [(who.grows_after, who) for who in draft.jobs if may_grow(who, options, now)]
    heapify(heap)
    while heap:
        _, who = heappop(heap)
        if not may_grow(who, options, now):
            continue
        giving = (each for each in draft.jobs if not each.grown and is_settled(each, options, now))
        for each in sorted(giving, key=lambda each: each.gives_after):
            if _may_give(each, who) and _move(draft, each, who):
                break
        else:
            continue
        if who.grows:
            heappush(heap, (who.grows_after, who))


def _may_give(rich: Entry, poor: Entry) -> bool:
    """Whether `rich` stays at least as fulfilled as `poor` becomes, and does not matter more."""
    if rich is poor or rich.priority > poor.priority or not rich.can_give():
        return False
    after = (rich.now - rich.step - rich.least) / (rich.most - rich.least)
    return after >= (poor.now + poor.step - poor.least) / (poor.most - poor.least)


def _move(draft: Draft, rich: Entry, poor: Entry) -> bool:
    """Move a step; False, and nothing done, if it makes no place for the other."""
    take = draft.take(rich, Cause(poor.key, reasons.poorer(rich, poor)))
    kept = keeps_limits(draft, poor, draft.ceilings)
    found = draft.find(poor, poor.step, soon=False) if kept else None
    if found is None:
        draft.give_back(take)
        return False
    draft.extend(poor, found)
    poor.grown += poor.step
    return True
