"""When an optimizer is asked, and what becomes of its answer.

    CREATE          once, if roles have no number of nodes
    WORKER_INITIAL  the first time that all nodes train at one size for long enough
    PS_INITIAL      the same for a job with parameter servers
    RUNNING         every `Pace.ask`, in between only if a node waits

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
from elasticjob.api.roles import PS
from elasticjob.api.sizes.change import Change
from elasticjob.api.sizes.facts import Mode, Stage
from elasticjob.master.state.job import Job
from elasticjob.master.state.scaling import Scaling, key
from elasticjob.sizing.bounds import bound
from elasticjob.sizing.facts import Facts, Waiting
from elasticjob.sizing.rules.start import open_roles

LONGEST_HOLD: Final = timedelta(hours=1)


def question(job: Job, now: datetime) -> Facts | None:
    """Return the question to ask now; None while nothing is to be asked."""
    scaling = job.scaling
    if job.verdict:
        return None
    found = _question(job, now)
    if scaling.placed.open and not (found.waiting and _are_own(job, scaling.placed.open)):
        return None
    if scaling.stage is Stage.CREATE:
        return found if open_roles(found) and not scaling.placed.begun else _next(job, found, now)
    return _next(job, found, now)


def permit(job: Job, facts: Facts, plan: Change) -> Change:
    """Return what may be carried out of a plan: within bounds, and not what has just been asked in vain."""
    plan = bound(facts, plan)
    if plan and _echo(job.scaling, plan) == job.scaling.echo:
        return Change(reason=f"{plan.reason}; but the operator did not allow just that before")
    return plan


def after_answer(job: Job, facts: Facts, plan: Change, now: datetime) -> Job:
    """Return the job after an answer that is carried out: the stage moves on, and it is remembered."""
    scaling, number = job.scaling, _number(job.scaling)
    judged = facts.samples[-1].workers if facts.settled and facts.samples else scaling.judged
    scaling = scaling.but(asked=now, reason=plan.reason, judged=judged)
    if facts.stage is Stage.CREATE or facts.settled:
        scaling = scaling.but(stage=_after(job, facts.stage))
    if not plan:
        return job.but(scaling=scaling)
    if facts.stage is not Stage.CREATE:
        scaling = scaling.but(numbers=number, planned=now, echo=_echo(scaling, plan))
    if PS in plan.groups:
        scaling = scaling.but(planned_ps=now)
    return job.but(scaling=_hold(_cut(scaling, facts, plan, now), facts, plan, now))


def name_of(job: Job, facts: Facts) -> str:
    """Return the name of the plan that carries out the answer: the same after a crash in between."""
    number = 0 if facts.stage is Stage.CREATE else _number(job.scaling)
    return key(job.spec.job, job.spec.sizes.mark, number)


def _question(job: Job, now: datetime) -> Facts:
    scaling, pace, stage = job.scaling, job.spec.limits.pace, job.scaling.stage
    times = [at for at in (scaling.planned, scaling.placed.planned) if at]
    rested = not times or now - min(now, max(times)) >= pace.plan
    settled = scaling.since is not None and now - scaling.since >= pace.settle
    due = scaling.planned_ps is None or now - scaling.planned_ps >= pace.plan_ps
    return Facts(
        job=job.spec.sizes,
        stage=stage,
        placed=scaling.placed,
        samples=scaling.records,
        now=now,
        demand=scaling.demand,
        judged=scaling.judged,
        held=scaling.held,
        settled=rested and settled and bool(scaling.records),
        servers_due=due,
        waiting=_waiting(job),
        cuts=scaling.cuts,
        pace=pace,
    )


def _next(job: Job, found: Facts, now: datetime) -> Facts | None:
    """The question of a job that runs; None if it is too early."""
    scaling = job.scaling
    if found.job.mode is Mode.MANUAL:
        return None
    if scaling.stage is Stage.CREATE:
        found = _at(found, _after(job, Stage.CREATE))
    late = scaling.asked is None or now - scaling.asked >= found.pace.ask
    first = found.settled and found.stage is not Stage.RUNNING
    new = found.settled and scaling.judged != found.samples[-1].workers
    if first or new or (late and (found.samples or found.waiting)):
        return found
    return None


def _at(found: Facts, stage: Stage) -> Facts:
    return replace(found, stage=stage)


def _are_own(job: Job, plans: Iterable[str]) -> bool:
    prefix = key(job.spec.job, job.spec.sizes.mark, 1).removesuffix("1")
    return all(name.startswith(prefix) for name in plans)


def _after(job: Job, stage: Stage) -> Stage:
    if stage is Stage.CREATE:
        return Stage.PS_INITIAL if job.spec.sizes.has_servers else Stage.WORKER_INITIAL
    return Stage.RUNNING


def _echo(scaling: Scaling, plan: Change) -> str:
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


def _cut(scaling: Scaling, facts: Facts, plan: Change, now: datetime) -> Scaling:
    """Remember which nodes got less because they waited, and forget those that have it back."""
    waits = {waiting.name for waiting in facts.waiting}
    cuts = {name: at for name, at in scaling.cuts.items() if name not in plan.nodes}
    return scaling.but(cuts=cuts | {name: now for name in plan.nodes if name in waits})


def _hold(scaling: Scaling, facts: Facts, plan: Change, now: datetime) -> Scaling:
    if plan.hold:
        wait = min(facts.pace.hold * 2**scaling.holds, LONGEST_HOLD)
        return scaling.but(held=now + wait, holds=min(scaling.holds + 1, 8))
    return scaling.but(holds=0) if facts.settled else scaling
