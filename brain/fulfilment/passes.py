"""The passes over a draft, but for the minima: range, prediction, relief, reprieve, withdrawal, growth.

Section 5 of the fulfilment reference numbers them. The score is computed anew before every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from heapq import heapify, heappop, heappush

from elasticjob.brain.fulfilment import reasons
from elasticjob.brain.fulfilment.draft import ELSEWHERE, Cause, Draft, Entry, Take
from elasticjob.brain.fulfilment.state import Options


def bring_into_range(draft: Draft) -> None:
    """Pass 1: a multiple of the step within the least and the most, rounded down."""
    for who in draft.jobs:
        before = who.now
        now = min(max(who.job.sizes.down(before) if who.job else before, who.least), who.most)
        if now == before:
            continue
        who.ranged = reasons.out_of_range(who, before)
        if now < before:
            draft.cut(who, now)
        else:
            draft.extend(who, [None] * (now - before))


def predict(draft: Draft) -> bool:
    """Pass 2: a pending pod that fits a machine now will be bound, whatever is planned. True if any was."""
    bound = False
    vain = set[object]()
    for who in draft.asking:
        kind = (who.need, who.permitted)
        while None in who.machines and kind not in vain:
            found = draft.find(who, 1, soon=False)
            if found is None:
                vain.add(kind)
            else:
                draft.bind(who, found)
                bound = True
    return bound


def relieve(draft: Draft) -> None:
    """Pass 4: while a resource is above its limit, those that request it give way."""
    rooms = draft.rooms
    taken: list[Take] = []
    for resource, most in enumerate(draft.limits):
        if rooms.used[resource] <= most:
            continue
        cause = Cause(rooms.resources[resource], reasons.limit(draft, resource))
        requesting = [who for who in draft.jobs if any(i == resource for i, _ in who.need)]
        heap = [(who.gives_after, who) for who in requesting if who.can_give()]
        heapify(heap)
        while heap and rooms.used[resource] > most:
            _, who = heappop(heap)
            taken.append(draft.take(who, cause))
            if who.can_give():
                heappush(heap, (who.gives_after, who))
    reprieve(draft, taken)


def reprieve(draft: Draft, takes: Sequence[Take]) -> None:
    """Pass 5: give steps back, newest first, while they fit the machines they left and the limits.

    Of a job's steps only the lowest that was taken can come back. A step for which only a limit leaves no
    room has this limit as its cause from now on.
    """
    back = set[int]()
    for take in reversed(takes):
        who = take.who
        if who.takes[-1] is not take or not _returns(draft, take):
            continue
        if (resource := _above(draft, take)) is not None:
            draft.leave(who, take.machines)
            if take.cause.of != draft.rooms.resources[resource]:
                take.cause = Cause(draft.rooms.resources[resource], reasons.limit(draft, resource))
            continue
        who.takes.pop()
        back.add(id(take))
        draft.extend(who, take.machines)
    draft.takes = [take for take in draft.takes if id(take) not in back]


def withdraw(draft: Draft) -> None:
    """Pass 6: drop whole steps above the least whose ranks are all without a place, and at the top.

    A step stays if terminating pods are all that is in its way: it has its place already.
    """
    for who in draft.asking:
        kept = who.now
        while kept > who.least and all(each is None for each in who.machines[kept - who.step : kept]):
            kept -= who.step
        while kept < who.now:
            found = _place_soon(draft, who)
            if found is None:
                who.withdrawn = who.now - kept
                draft.cut(who, kept)
                break
            who.machines[kept : kept + who.step] = found
            kept += who.step


def grow(draft: Draft, options: Options, now: datetime) -> None:
    """Pass 7: one step after the other to the least fulfilled; who finds no place leaves for good."""
    heap = [(who.grows_after, who) for who in draft.jobs if may_grow(who, options, now)]
    heapify(heap)
    while heap:
        _, who = heappop(heap)
        if (
            not keeps_limits(draft, who, draft.ceilings)
            or (found := draft.find(who, who.step, soon=False)) is None
        ):
            continue
        draft.extend(who, found)
        draft.grown.append(who)
        who.grown += who.step
        if who.grows:
            heappush(heap, (who.grows_after, who))


def may_grow(who: Entry, options: Options, now: datetime) -> bool:
    """Whether growth is open to a job: settled, all ranks with a place, and none taken away in this plan."""
    return is_settled(who, options, now) and not who.shrunk and who.grows and None not in who.machines


def is_settled(who: Entry, options: Options, now: datetime) -> bool:
    """Whether nothing keeps a job from growing, and its last change is long enough ago."""
    job = who.job
    if job is None or job.stays:
        return False
    longest = max(options.settle, options.longest)
    quiet = min(options.settle * 2 ** min(job.withdrawn, 32), longest)
    return job.changed is None or now - job.changed >= quiet


def _place_soon(draft: Draft, who: Entry) -> list[int] | None:
    """Return machines that will have room for one more step of a job; None as well for what must wait."""
    if who.bound < who.least or not keeps_limits(draft, who, draft.limits):
        return None
    return draft.find(who, who.step, soon=True)


def keeps_limits(draft: Draft, who: Entry, limits: Sequence[int]) -> bool:
    """Whether all limits are kept with one more step of a job."""
    return all(draft.rooms.used[i] + who.step * quantity <= limits[i] for i, quantity in who.need)


def _returns(draft: Draft, take: Take) -> bool:
    """Put the instances of a step back on their machines; False, and nothing done, if one does not fit."""
    rooms, need = draft.rooms, take.who.need
    put: list[int | None] = []
    for machine in take.machines:
        if machine is None or machine == ELSEWHERE:
            continue
        if not rooms.fits(machine, need):
            draft.leave(take.who, put)
            return False
        rooms.put(machine, need)
        put.append(machine)
    return True


def _above(draft: Draft, take: Take) -> int | None:
    """Return the first resource that the job requests and that is above its limit."""
    used, most = draft.rooms.used, draft.limits
    return next((i for i, _ in take.who.need if used[i] > most[i]), None)
