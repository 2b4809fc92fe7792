"""When an optimizer is asked, and what becomes of its answer.

    CREATE          once, if roles have no number of nodes
    WORKER_INITIAL  the first time that all nodes train at one size for long enough
    PS_INITIAL      the same for a job with parameter servers
    RUNNING         every `Pace.ask`, in between only if a node waits, or was out of memory

While a plan is not finished nothing is asked, unless it is our own and its nodes find no machine. A master
that takes over goes on from the snapshot and from the plans that it finds, so that no plan is made twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.resources import NOTHING, Resources
from elasticjob.api.v1alpha1.common import PS
from elasticjob.master.scaling import start
from elasticjob.master.scaling.bounds import bound
from elasticjob.master.scaling.optimizer import Question, Waiting
from elasticjob.master.scaling.plan import Change, ResourcePlan
from elasticjob.master.state.job import Job
from elasticjob.master.state.scaling import Mode, Scaling, Stage, key

LONGEST_HOLD: Final = timedelta(hours=1)


def question(job: Job, now: datetime) -> Question | None:
    """Return the question to ask now; None while nothing is to be asked."""
    scaling = job.scaling
    if job.verdict:
        return None
    found = _question(job, now)
    if scaling.placed.open and not (found.waiting and _are_own(job, scaling.placed.open)):
        return None
    if scaling.stage is Stage.CREATE:
        return found if start.undecided(found) and not scaling.placed.begun else _next(job, found, now)
    return _next(job, found, now)


def allowed(job: Job, question: Question, plan: ResourcePlan) -> ResourcePlan:
    """Return what may be carried out of a plan: within bounds, and not what has just been asked in vain."""
    plan = bound(question, plan)
    if plan and _echo(job.scaling, plan) == job.scaling.echo:
        return ResourcePlan(reason=f"{plan.reason}; but the operator did not allow just that before")
    return plan


def answered(job: Job, question: Question, plan: ResourcePlan, now: datetime) -> Job:
    """Return the job after an answer that is carried out: the stage moves on, and it is remembered."""
    scaling, number = job.scaling, _number(job.scaling)
    judged = question.records[-1].workers if question.settled and question.records else scaling.judged
    scaling = scaling.but(asked=now, reason=plan.reason, judged=judged)
    scaling = scaling.but(recovered=(*scaling.recovered, *question.killed)[-64:])
    if question.stage is Stage.CREATE or question.settled:
        scaling = scaling.but(stage=_after(job, question.stage))
    if not plan:
        return job.but(scaling=scaling)
    if question.stage is not Stage.CREATE:
        scaling = scaling.but(numbers=number, planned=now, echo=_echo(scaling, plan))
    if PS in plan.groups:
        scaling = scaling.but(planned_ps=now)
    return job.but(scaling=_held(_cut(scaling, question, plan, now), question, plan, now))


def change(job: Job, question: Question, plan: ResourcePlan) -> Change | None:
    """Return what is to be carried out of a plan that is bounded already; None if nothing is."""
    if not plan:
        return None
    number = 0 if question.stage is Stage.CREATE else _number(job.scaling)
    name = key(job.spec.job, job.spec.wish.mark, number)
    return Change(key=name, reason=plan.reason, groups=plan.groups, migrate=plan.nodes)


def _question(job: Job, now: datetime) -> Question:
    scaling, pace, stage = job.scaling, job.spec.limits.pace, job.scaling.stage
    times = [at for at in (scaling.planned, scaling.placed.planned) if at]
    rested = not times or now - min(now, max(times)) >= pace.plan
    settled = scaling.since is not None and now - scaling.since >= pace.settle
    due = scaling.planned_ps is None or now - scaling.planned_ps >= pace.plan_ps
    return Question(
        job=job.spec.job,
        stage=stage,
        wish=job.spec.wish,
        placed=scaling.placed,
        records=scaling.records,
        now=now,
        demand=scaling.demand,
        judged=scaling.judged,
        held=scaling.held,
        settled=rested and settled and bool(scaling.records),
        servers_due=due,
        waiting=_waiting(job),
        cuts=scaling.cuts,
        killed=tuple(name for name in scaling.placed.killed if name not in scaling.recovered),
        pace=pace,
    )


def _next(job: Job, found: Question, now: datetime) -> Question | None:
    """The question of a job that runs; None if it is too early."""
    scaling = job.scaling
    if found.wish.mode is Mode.MANUAL:
        return None
    if scaling.stage is Stage.CREATE:
        found = _at(found, _after(job, Stage.CREATE))
    late = scaling.asked is None or now - scaling.asked >= found.pace.ask
    first = found.settled and found.stage is not Stage.RUNNING
    new = found.settled and scaling.judged != found.records[-1].workers
    if found.killed or first or new or (late and (found.records or found.waiting)):
        return found
    return None


def _at(found: Question, stage: Stage) -> Question:
    return replace(found, stage=stage)


def _are_own(job: Job, plans: Iterable[str]) -> bool:
    prefix = key(job.spec.job, job.spec.wish.mark, 1).removesuffix("1")
    return all(name.startswith(prefix) for name in plans)


def _after(job: Job, stage: Stage) -> Stage:
    if stage is Stage.CREATE:
        return Stage.PS_INITIAL if job.spec.wish.has_servers else Stage.WORKER_INITIAL
    return Stage.RUNNING


def _echo(scaling: Scaling, plan: ResourcePlan) -> str:
    """What a plan asks, and what runs: the same twice means that the first had no effect."""
    groups = {role: (group.count, group.resource.manifest()) for role, group in sorted(plan.groups.items())}
    nodes = {name: resource.manifest() for name, resource in sorted(plan.nodes.items())}
    placed = scaling.placed
    text = repr((groups, nodes, placed.sizes, placed.resources, placed.nodes))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _number(scaling: Scaling) -> int:
    return max(scaling.numbers, scaling.placed.number) + 1


def _waiting(job: Job) -> tuple[Waiting, ...]:
    """The nodes whose pods wait for a machine, and those that have no pod, since a quota is used up."""
    there = [node for node in job.nodes.values() if not node.ended]
    pend = [Waiting(n.name, n.role, n.pends, Resources.parse(n.resource)) for n in there if n.pends]
    scaling = job.scaling
    if scaling.planned is None:
        return tuple(pend)
    for role, size in scaling.placed.sizes.items():
        missing = size - sum(node.role == role for node in there)
        pend += [Waiting("", role, scaling.planned, NOTHING)] * missing
    return tuple(pend)


def _cut(scaling: Scaling, question: Question, plan: ResourcePlan, now: datetime) -> Scaling:
    """Remember which nodes got less because they waited, and forget those that have it back."""
    waits = {waiting.name for waiting in question.waiting}
    cuts = {name: at for name, at in scaling.cuts.items() if name not in plan.nodes}
    return scaling.but(cuts=cuts | {name: now for name in plan.nodes if name in waits})


def _held(scaling: Scaling, question: Question, plan: ResourcePlan, now: datetime) -> Scaling:
    if plan.hold:
        wait = min(question.pace.hold * 2**scaling.holds, LONGEST_HOLD)
        return scaling.but(held=now + wait, holds=min(scaling.holds + 1, 8))
    return scaling.but(holds=0) if question.settled else scaling
