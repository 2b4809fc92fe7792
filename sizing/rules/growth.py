"""How many nodes an all-reduce job should have: it tries larger worlds, and keeps those that pay.

A larger world pays if the added nodes bring at least PAYS of what each node brought before (the speed ratio).
The first that applies:

    nodes that were added find no machine                → back to those that run, and wait
    this size is new, and does not pay beside a smaller  → back to the smaller one
    nothing is known above this size                     → twice as many, or what the cluster has room for
    the next larger size is known to pay                 → that one
    it did not pay, and lies more than a quarter away    → half-way to it
    it did not pay, and no smaller size is known         → half as many: the user's start may be too large

So a size that did not pay is approached from below: nearer than a quarter, what is left to win is less than
the noise. It is tried again after half an hour, and each time after as long as the job had run at the last
attempt: ever more rarely. To leave a size takes a worse ratio than not to seek it, because of noise, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from statistics import median
from typing import Final

from elasticjob.api.roles import WORKER
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.facts import Sample
from elasticjob.sizing.facts import Facts
from elasticjob.sizing.measures import ratio
from elasticjob.sizing.thresholds import PAYS

GAIN: Final = 1.05
NEAR: Final = 4
STAYS: Final = 0.1
"""PAYS for nodes that are there already."""


def propose(facts: Facts) -> Change:
    """Return the next size of an all-reduce job; an empty change says why it stays."""
    role = facts.roles.get(WORKER)
    if role is None or not role.elastic:
        return Change(reason="the number of workers is the user's")
    if back := _without_surplus(facts):
        return back
    if not facts.settled or not facts.samples:
        return Change(reason="not all nodes train long enough at this size")
    speeds, now = _speeds(facts), facts.samples[-1].workers
    return _back(facts, speeds, now) or _up(facts, speeds, now)


def _without_surplus(facts: Facts) -> Change | None:
    """Give up added nodes that find no machine, so that records of the others count again."""
    role, now = facts.roles[WORKER], facts.count(WORKER)
    late = [w for w in facts.waiting if w.role == WORKER and facts.now - w.since >= facts.pace.surplus]
    fits = role.down(now - len(late))
    if not late or fits < role.smallest or fits == now:
        return None
    seconds = round((facts.now - min(w.since for w in late)).total_seconds())
    reason = f"{len(late)} of {now} workers have found no machine for {seconds} s: {fits} go on"
    return Change({WORKER: Group(fits)}, reason=reason, hold=True)


def _back(facts: Facts, speeds: Mapping[int, float], now: int) -> Change | None:
    """Return to a smaller world if this one is new and does not pay."""
    smaller = max((size for size in speeds if size < now), default=None)
    if (
        smaller is None
        or facts.judged == now
        or not _grew(facts, now)
        or (got := ratio(speeds, smaller, now)) >= STAYS
    ):
        return None
    told = f"{_describe(speeds, now)} is not worth it beside {_describe(speeds, smaller)}"
    reason = f"{told}: an added worker brings {got:.0%} of one before, {STAYS:.0%} are asked for"
    return Change({WORKER: Group(_count(facts, smaller, now))}, reason=reason)


def _grew(facts: Facts, now: int) -> bool:
    """Whether the world was smaller before: a size to which it went back has been judged already."""
    before = next((record.workers for record in reversed(facts.samples) if record.workers != now), now)
    return before < now


def _up(facts: Facts, speeds: Mapping[int, float], now: int) -> Change:
    unit, most = facts.roles[WORKER].unit, _most(facts, now)
    larger = min((size for size in speeds if size > now), default=None)
    if larger is not None and ratio(speeds, now, larger) >= PAYS and speeds[larger] >= GAIN * speeds[now]:
        return _grown(facts, speeds, now, min(larger, most), "which paid before")
    if larger is not None:
        middle = (now + larger) // 2 // unit * unit
        if middle <= now or larger - now <= now // NEAR:
            return _down(facts, speeds, now, larger)
        return _grown(facts, speeds, now, min(middle, most), f"since {larger} did not pay")
    tried = min((record.workers for record in facts.samples if record.workers > now), default=2 * now)
    return _grown(facts, speeds, now, min(tried, 2 * now, most), "to see whether it pays")


def _grown(facts: Facts, speeds: Mapping[int, float], now: int, size: int, why: str) -> Change:
    role = facts.roles[WORKER]
    count = role.down(_count(facts, size, now))
    if count <= facts.count(WORKER):
        return Change(reason=f"{_describe(speeds, now)}: {_obstacle(facts)}")
    return Change({WORKER: Group(count)}, reason=f"{_describe(speeds, now)}: {count} are tried, {why}")


def _down(facts: Facts, speeds: Mapping[int, float], now: int, larger: int) -> Change:
    role = facts.roles[WORKER]
    half = max(now // 2 // role.unit * role.unit, role.smallest + role.beside)
    if any(size < now for size in speeds) or half >= now:
        return Change(reason=f"{_describe(speeds, now)} is settled: {larger} did not pay")
    count = max(_count(facts, half, now), role.smallest)
    reason = f"{_describe(speeds, now)}: {larger} did not pay, so {count} are tried"
    return Change({WORKER: Group(count)}, reason=reason)


def _speeds(facts: Facts) -> Mapping[int, float]:
    """The median speed of each size; sizes above the present one only as long as they are not tried again."""
    found = dict[int, list[Sample]]()
    for record in facts.samples:
        found.setdefault(record.workers, []).append(record)
    now, first = facts.samples[-1].workers, facts.samples[0].at
    known = {
        size: of_size for size, of_size in found.items() if size <= now or _counts(facts, of_size, first)
    }
    return {
        size: median(record.samples or record.steps for record in of_size) for size, of_size in known.items()
    }


def _counts(facts: Facts, records: list[Sample], first: datetime) -> bool:
    at = records[-1].at
    return facts.now - at < max(facts.pace.retry, at - first)


def _most(facts: Facts, now: int) -> int:
    """The largest world that bounds and room allow; without a word about the room, the present one."""
    role, room = facts.roles[WORKER], facts.placed.room
    free = 0 if room is None or (facts.held and facts.now < facts.held) else room.get(WORKER, 0)
    most = now + free
    return most if role.most is None else min(most, role.most + now - facts.count(WORKER))


def _count(facts: Facts, size: int, now: int) -> int:
    """The workers of a world of `size` nodes: chiefs train beside them."""
    return size - (now - facts.count(WORKER))


def _obstacle(facts: Facts) -> str:
    role, room = facts.roles[WORKER], facts.placed.room
    if role.most is not None and facts.count(WORKER) + role.unit > role.most:
        return f"maxReplicas is {role.most}"
    if room is None:
        return "how much room the cluster has is not known yet"
    if facts.held and facts.now < facts.held:
        return f"nodes found no machine, so none is added before {facts.held:%H:%M:%S}"
    return f"the cluster has room for {room.get(WORKER, 0)} more"


def _describe(speeds: Mapping[int, float], size: int) -> str:
    return f"{size} at {speeds[size]:.4g}/s"
