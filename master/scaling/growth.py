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

from elasticjob.api.v1alpha1.common import WORKER
from elasticjob.master.scaling.optimizer import Question
from elasticjob.master.scaling.plan import Group, ResourcePlan
from elasticjob.master.scaling.samples import ratio
from elasticjob.master.state.scaling import Record

PAYS: Final = 0.2
"""The least speed of an added node, as a share of that of a node before."""
GAIN: Final = 1.05
NEAR: Final = 4
STAYS: Final = 0.1
"""The same for nodes that are there already."""


def plan(question: Question) -> ResourcePlan:
    """Return the next size of an all-reduce job; an empty plan says why it stays."""
    role = question.wish.roles.get(WORKER)
    if role is None or not role.elastic:
        return ResourcePlan(reason="the number of workers is the user's")
    if back := _without_surplus(question):
        return back
    if not question.settled or not question.records:
        return ResourcePlan(reason="not all nodes train long enough at this size")
    speeds, now = _speeds(question), question.records[-1].workers
    return _back(question, speeds, now) or _up(question, speeds, now)


def _without_surplus(question: Question) -> ResourcePlan | None:
    """Give up added nodes that find no machine, so that records of the others count again."""
    role, now = question.wish.roles[WORKER], question.count(WORKER)
    late = [
        w for w in question.waiting if w.role == WORKER and question.now - w.since >= question.pace.surplus
    ]
    fits = (now - len(late)) // role.unit * role.unit
    if not late or fits < role.smallest or fits == now:
        return None
    seconds = round((question.now - min(w.since for w in late)).total_seconds())
    reason = f"{len(late)} of {now} workers have found no machine for {seconds} s: {fits} go on"
    return ResourcePlan({WORKER: Group(fits)}, reason=reason, hold=True)


def _back(question: Question, speeds: Mapping[int, float], now: int) -> ResourcePlan | None:
    """Return to a smaller world if this one is new and does not pay."""
    smaller = max((size for size in speeds if size < now), default=None)
    if (
        smaller is None
        or question.judged == now
        or not _grew(question, now)
        or (got := ratio(speeds, smaller, now)) >= STAYS
    ):
        return None
    told = f"{_told(speeds, now)} is not worth it beside {_told(speeds, smaller)}"
    reason = f"{told}: an added worker brings {got:.0%} of one before, {STAYS:.0%} are asked for"
    return ResourcePlan({WORKER: Group(_count(question, smaller, now))}, reason=reason)


def _grew(question: Question, now: int) -> bool:
    """Whether the world was smaller before: a size to which it went back has been judged already."""
    before = next((record.workers for record in reversed(question.records) if record.workers != now), now)
    return before < now


def _up(question: Question, speeds: Mapping[int, float], now: int) -> ResourcePlan:
    unit, most = question.wish.roles[WORKER].unit, _most(question, now)
    larger = min((size for size in speeds if size > now), default=None)
    if larger is not None and ratio(speeds, now, larger) >= PAYS and speeds[larger] >= GAIN * speeds[now]:
        return _grown(question, speeds, now, min(larger, most), "which paid before")
    if larger is not None:
        middle = (now + larger) // 2 // unit * unit
        if middle <= now or larger - now <= now // NEAR:
            return _down(question, speeds, now, larger)
        return _grown(question, speeds, now, min(middle, most), f"since {larger} did not pay")
    tried = min((record.workers for record in question.records if record.workers > now), default=2 * now)
    return _grown(question, speeds, now, min(tried, 2 * now, most), "to see whether it pays")


def _grown(question: Question, speeds: Mapping[int, float], now: int, size: int, why: str) -> ResourcePlan:
    role = question.wish.roles[WORKER]
    count = _count(question, size, now) // role.unit * role.unit
    if count <= question.count(WORKER):
        return ResourcePlan(reason=f"{_told(speeds, now)}: {_obstacle(question)}")
    return ResourcePlan({WORKER: Group(count)}, reason=f"{_told(speeds, now)}: {count} are tried, {why}")


def _down(question: Question, speeds: Mapping[int, float], now: int, larger: int) -> ResourcePlan:
    role = question.wish.roles[WORKER]
    half = max(now // 2 // role.unit * role.unit, role.smallest)
    if any(size < now for size in speeds) or half >= now:
        return ResourcePlan(reason=f"{_told(speeds, now)} is settled: {larger} did not pay")
    count = max(_count(question, half, now), role.smallest)
    reason = f"{_told(speeds, now)}: {larger} did not pay, so {count} are tried"
    return ResourcePlan({WORKER: Group(count)}, reason=reason)


def _speeds(question: Question) -> Mapping[int, float]:
    """The median speed of each size; sizes above the present one only as long as they are not tried again."""
    found = dict[int, list[Record]]()
    for record in question.records:
        found.setdefault(record.workers, []).append(record)
    now, first = question.records[-1].workers, question.records[0].at
    known = {
        size: of_size for size, of_size in found.items() if size <= now or _counts(question, of_size, first)
    }
    return {
        size: median(record.samples or record.steps for record in of_size) for size, of_size in known.items()
    }


def _counts(question: Question, records: list[Record], first: datetime) -> bool:
    at = records[-1].at
    return question.now - at < max(question.pace.retry, at - first)


def _most(question: Question, now: int) -> int:
    """The largest world that bounds and room allow; without a word about the room, the present one."""
    role, room = question.wish.roles[WORKER], question.placed.room
    free = 0 if room is None or (question.held and question.now < question.held) else room.get(WORKER, 0)
    most = now + free
    return most if role.most is None else min(most, role.most + now - question.count(WORKER))


def _count(question: Question, size: int, now: int) -> int:
    """The workers of a world of `size` nodes: chiefs train beside them."""
    return size - (now - question.count(WORKER))


def _obstacle(question: Question) -> str:
    role, room = question.wish.roles[WORKER], question.placed.room
    if role.most is not None and question.count(WORKER) + role.unit > role.most:
        return f"maxReplicas is {role.most}"
    if room is None:
        return "how much room the cluster has is not known yet"
    if question.held and question.now < question.held:
        return f"nodes found no machine, so none is added before {question.held:%H:%M:%S}"
    return f"the cluster has room for {room.get(WORKER, 0)} more"


def _told(speeds: Mapping[int, float], size: int) -> str:
    return f"{size} at {speeds[size]:.4g}/s"
