"""Which plan of a job is carried out, which is superseded, and how each ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from elasticjob.api.readings import after, decode, span
from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.order import asked_in
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, PlanPhase, ScalePlan
from elasticjob.controllers.kueue.grant import Grant
from elasticjob.controllers.kueue.kinds.elasticjob import target
from elasticjob.controllers.nodes.relaunch import Life
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.owners import manifest_of
from elasticjob.controllers.passes.conclusions import IMPOSSIBLE, is_over, why_impossible
from elasticjob.controllers.passes.plan import Apply, Delete, Plan, soonest
from elasticjob.controllers.passes.rules import Rule, first, leave_it_to_others, leave_it_to_the_collector
from elasticjob.controllers.scaleplan.fold import (
    COUNTED,
    Fold,
    Impossible,
    as_it_is,
    fold,
    sizes_of,
    touches,
)
from elasticjob.controllers.scaleplan.queue import (
    FOLLOWED,
    affordable,
    asked_with,
    follow_queue,
    follow_request,
    lacking,
    number_to_write,
    sized_by,
)
from elasticjob.controllers.scaleplan.status import End, adoption, begin, ending, pending
from elasticjob.kube.json import JsonReader
from elasticjob.kube.objects.conditions import find, is_true

SENTENCES: Final = JsonReader(list[str])
KEPT: Final = timedelta(seconds=10)
"""How long a finished plan is kept at least: who asked for it reads its end, and else would ask again."""
KEPT_FAILURE: Final = timedelta(minutes=10)
"""The same for a plan that could not be carried out."""
NOT_ADMITTED: Final = "NotAdmitted"
"""The reason of plans for more nodes than the job's queue admitted in time."""
LATE: Final = "DeadlineExceeded"
"""The reason of plans that took too long, where nothing more exact is known."""


@dataclass(frozen=True)
class Seen:
    """A job's plans, the oldest first, and what they change."""

    job: ElasticJob | None
    resource: JobResource | None
    plans: tuple[ScalePlan, ...]
    grant: Grant | None = None  # what its queue gives to the job; None: it is in no queue
    lives: tuple[Life, ...] = ()
    never: Callable[[JobResource], str] = lambda planned: ""  # why its queue could not ever give so much

    @cached_property
    def open(self) -> tuple[ScalePlan, ...]:
        """The plans that are not finished."""
        return tuple(plan for plan in self.plans if not _finished(plan))

    @cached_property
    def going(self) -> tuple[ScalePlan, ...]:
        """The plans that are being carried out."""
        return tuple(plan for plan in self.open if plan.status.phase is PlanPhase.SCALING)


def decide(seen: Seen, now: datetime) -> Plan:
    """Return the plan of the first rule that applies, looking again when a plan can be forgotten."""
    left = (_kept_until(plan, now) - now for plan in _surplus(seen))
    return first(RULES, seen, now).again_by(soonest(each for each in left if each > timedelta(0)))


def fail_plans_without_a_job(seen: Seen, now: datetime) -> Plan | None:
    """Plans need a job to change."""
    if seen.job is not None:
        return None
    message = "there is no ElasticJob of this name"
    return ending("JobNotFound", (End(p, PlanPhase.FAILED, "JobNotFound", message) for p in seen.open), now)


def close_plans_of_a_finished_job(seen: Seen, now: datetime) -> Plan | None:
    """A job that is over no longer changes."""
    if seen.job is None or not is_over(seen.job):
        return None
    ends = (End(plan, PlanPhase.SUPERSEDED, "JobFinished", "the job is over") for plan in seen.open)
    return ending("JobFinished", ends, now)


def adopt_plans(seen: Seen, now: datetime) -> Plan | None:
    """A plan without an owner gets its job as one, so that it is deleted with it.

    Not before it has a status: until then its resourceVersion says when it was created.
    """
    orphans = [plan for plan in seen.plans if not plan.metadata.owner_references and plan.status.phase]
    if seen.job is None or not orphans:
        return None
    adoptions = tuple(adoption(plan, seen.job) for plan in orphans)
    return Plan("PlansAdopted", "plans belong to their job", groups=(adoptions,), quiet=True)


def close_plans_that_give_way(seen: Seen, now: datetime) -> Plan | None:
    """A newer plan supersedes an older one that changes the same; an automatic one never a manual one.

    An automatic plan for a size that a manual one is changing rests on the size before: it gives way as well.
    """
    ended = dict[str, End]()
    for old, new in _pairs(seen.open):
        if new.manual or not old.manual:
            message = f"{new.metadata.name} is newer and changes the same"
            ended[old.metadata.name] = End(old, PlanPhase.SUPERSEDED, "Superseded", message)
        elif any(each.endswith(COUNTED) for each in touches(old) & touches(new)):
            message = f"it was made while {old.metadata.name}, which a user asked for, changed the same"
            ended[new.metadata.name] = End(new, PlanPhase.SUPERSEDED, "Superseded", message)
    return ending("PlansSuperseded", ended.values(), now) if ended else None


def carry_out_the_next(seen: Seen, now: datetime) -> Plan | None:
    """The oldest plan that waits for no other is written into the JobResource."""
    if seen.job is None or seen.resource is None:
        return None
    held = {new.metadata.name for old, new in _pairs(seen.open) if old.manual and not new.manual}
    waiting = (plan for plan in seen.open if plan not in seen.going and plan.metadata.name not in held)
    plan = next(waiting, None)
    if plan is None:
        return None
    if seen.resource.metadata.annotations.get(names.FOLDED) == _mark(plan):  # the pass that did it died
        known = decode(seen.resource.metadata.annotations.get(names.CHANGES), SENTENCES)
        start = begin(plan, tuple(known or ("carried out",)), now)
        return Plan("ScalePlanStarted", groups=((start,),), quiet=True)
    try:
        folded = fold(seen.job, seen.resource, plan, seen.grant, seen.lives)
    except Impossible as error:
        return ending(IMPOSSIBLE, (End(plan, PlanPhase.FAILED, IMPOSSIBLE, str(error)),), now)
    if why := seen.never(folded.applied_to(seen.resource)):
        return ending(IMPOSSIBLE, (End(plan, PlanPhase.FAILED, IMPOSSIBLE, why),), now)
    return _carry_out(seen, seen.job, seen.resource, plan, folded, now)


def follow_the_queue(seen: Seen, now: datetime) -> Plan | None:
    """A job in a queue has no more nodes than that admits, and no fewer than were asked for and admitted."""
    if seen.job is None or seen.resource is None or seen.grant is None:
        return None
    folded = follow_queue(seen.job, seen.resource, seen.grant, seen.lives)
    if folded is None:
        return None
    write = _write(seen, folded, None, target(seen.job, seen.resource))
    return Plan(FOLLOWED, "; ".join(folded.changes), groups=((write,),))


def follow_what_is_asked(seen: Seen, now: datetime) -> Plan | None:
    """Outside of queues, a job has the workers that were asked for last, as far as its range allows."""
    if seen.job is None or seen.resource is None or seen.grant is not None or is_over(seen.job):
        return None
    folded = follow_request(seen.job, seen.resource, seen.lives)
    if folded is None:
        return None
    asked = target(seen.job, seen.resource)
    if seen.resource.spec.replicas is None:
        asked = {WORKER: folded.sizes[WORKER].replicas or 0}
    write = _write(seen, folded, None, asked)
    return Plan("Scaled", "; ".join(folded.changes), groups=((write,),), quiet=not folded.changes)


def say_what_plans_wait_for(seen: Seen, now: datetime) -> Plan | None:
    """A plan that cannot begin yet is Pending, and says why."""
    held = {
        new.metadata.name: f"{old.metadata.name} comes first" for old, new in _pairs(seen.open) if old.manual
    }
    suspended = seen.job is not None and seen.job.spec.suspend
    lacks = "the job is suspended" if suspended else "the job has no JobResource yet"
    waits = [plan for plan in seen.open if plan.status.phase is None]
    said = tuple(pending(plan, held.get(plan.metadata.name, lacks), now) for plan in waits)
    return Plan("PlansWait", quiet=True, groups=(said,)) if said else None


def finish_plans(seen: Seen, now: datetime) -> Plan | None:
    """A plan has succeeded when the nodes it changed are ready, and failed when that takes too long."""
    ends = tuple(end for plan in seen.going if (end := _finish(seen, plan, now)) is not None)
    if not ends:
        return None
    ended = ending("PlansFinished", ends, now)
    given_up = [end.plan for end in ends if end.reason == NOT_ADMITTED and not end.plan.manual]
    return replace(ended, groups=(*(_given_up(seen, plan) for plan in given_up), *ended.groups))


def _given_up(seen: Seen, plan: ScalePlan) -> tuple[Apply, ...]:
    """The write after which the queue is not asked any more for what an optimizer wanted."""
    if seen.job is None or seen.resource is None:
        return ()
    have = {role: size.replicas or 0 for role, size in sizes_of(seen.resource).items()}
    roles = [role for role, spec in plan.spec.replica_resource_specs.items() if spec.replicas is not None]
    asked = {**target(seen.job, seen.resource), **{role: have[role] for role in roles if role in have}}
    now = as_it_is(seen.resource)
    folded = affordable(seen.job, now, plan, seen.grant) if seen.grant else now
    return (_write(seen, folded, None, asked),)


def forget_the_oldest(seen: Seen, now: datetime) -> Plan | None:
    """Only the last finished plans are kept, each of them for some seconds at least."""
    old = [plan for plan in _surplus(seen) if _kept_until(plan, now) <= now]
    deletions = tuple(Delete(SCALEPLAN, plan.metadata.name, plan.metadata.uid) for plan in old)
    return Plan("PlansForgotten", "old plans are deleted", groups=(deletions,), quiet=True) if old else None


def wait_for_the_nodes(seen: Seen, now: datetime) -> Plan | None:
    """While plans are being carried out, look again at the deadline of the oldest of them."""
    starts = [plan.status.start_time or now for plan in seen.going]
    if not starts or seen.job is None:
        return None
    due = max(now, after(min(starts), _deadline(seen.job)))
    return Plan("Scaling", "nodes are not as planned yet", again_in=due - now)


RULES: Final[tuple[Rule[Seen], ...]] = (
    leave_it_to_others,
    leave_it_to_the_collector,
    fail_plans_without_a_job,
    adopt_plans,
    close_plans_of_a_finished_job,
    close_plans_that_give_way,
    carry_out_the_next,
    say_what_plans_wait_for,
    follow_the_queue,
    follow_what_is_asked,
    finish_plans,
    forget_the_oldest,
    wait_for_the_nodes,
)


def _surplus(seen: Seen) -> list[ScalePlan]:
    """The finished plans beyond the job's history; the answer to what is asked for now is not counted."""
    if seen.job is None:
        return []
    about, resource = seen.job.metadata, seen.resource.metadata.generation if seen.resource else 0
    requests = [plan.metadata.name for plan in seen.plans if asked_in(about.name, plan.metadata.name)]
    asked = {names.bounds_plan(about.name, about.generation, resource), *requests[-1:]}
    finished = [
        plan
        for plan in seen.plans
        if _finished(plan)
        and not plan.metadata.deletion_timestamp
        and not (plan.metadata.name in asked and why_impossible(plan))
    ]
    return finished[: max(0, len(finished) - seen.job.spec.run_policy.scale_plan_history_limit)]


def _kept_until(plan: ScalePlan, now: datetime) -> datetime:
    ended = plan.status.finish_time
    return after(ended, KEPT_FAILURE if why_impossible(plan) else KEPT) if ended else now


def _pairs(plans: Iterable[ScalePlan]) -> Iterator[tuple[ScalePlan, ScalePlan]]:
    """Each plan with the next newer one that changes the same."""
    ordered = tuple(plans)
    for number, old in enumerate(ordered):
        for new in ordered[number + 1 :]:
            if touches(old) & touches(new):
                yield old, new


def _carry_out(
    seen: Seen, job: ElasticJob, resource: JobResource, plan: ScalePlan, folded: Fold, now: datetime
) -> Plan:
    """Change the JobResource, then the plan's status."""
    asked = asked_with(job, resource, folded)
    if not folded.changes and seen.grant and asked != target(job, resource):
        write, start = _write(seen, folded, plan, asked), begin(plan, folded.remarks, now)
        return Plan("ScalePlanStarted", "; ".join(folded.remarks), groups=((write,), (start,)))
    why = f" ({plan.metadata.name}: {plan.spec.reason})" if plan.spec.reason else f" ({plan.metadata.name})"
    if not folded.changes:
        said = "; ".join(("the job is as planned already", *folded.remarks))
        ended = ending("NothingToChange", (End(plan, PlanPhase.SUCCEEDED, "NothingToChange", said),), now)
        if folded.asked.get(WORKER, resource.spec.replicas) == resource.spec.replicas:
            return ended
        # the job's bounds have brought it there before the plan was seen: an earlier request is over
        return replace(ended, groups=((_write(seen, folded, plan, asked),), *ended.groups))
    sentence = "; ".join(folded.changes) + why
    start = begin(plan, folded.changes, now)
    write = _write(seen, folded, plan, asked)
    return Plan("ScalePlanStarted", sentence, groups=((write,), (start,)))


def _write(seen: Seen, folded: Fold, plan: ScalePlan | None, asked: Mapping[str, int]) -> Apply:
    """The write of the sizes, the plan that is folded in (None: the last one), and of what is asked for.

    Only on what was seen: a size that somebody has asked for since must not be written over.
    """
    assert seen.job is not None
    assert seen.resource is not None
    resource, before = seen.resource, seen.resource.metadata.annotations
    last = {name: before[name] for name in (names.FOLDED, names.CHANGES) if before.get(name)}
    if plan is not None:
        said = json.dumps([*(folded.changes or folded.remarks)])
        last = {names.FOLDED: _mark(plan), names.CHANGES: said}
    sizes = {role: size.replicas for role, size in folded.sizes.items() if size.replicas is not None}
    metadata = {
        "name": resource.metadata.name,
        "namespace": resource.metadata.namespace,
        "uid": resource.metadata.uid,
        "resourceVersion": resource.metadata.resource_version,
        "annotations": {
            **last,
            names.SIZES: names.written(sizes),
            **({names.WANTED: names.written(asked)} if seen.grant else {}),
        },
    }
    count = asked.get(WORKER)
    if count is not None and plan is None:
        count = number_to_write(seen.job, resource, count)
    workers = {} if count is None else {"replicas": count}
    spec = {"selector": {"name": resource.spec.selector.name}, **workers, **folded.manifest()}
    return Apply(JOBRESOURCE, manifest_of(JOBRESOURCE, metadata, spec=spec))


def _mark(plan: ScalePlan) -> str:
    return f"{plan.metadata.name}/{plan.metadata.uid}"


def _finish(seen: Seen, plan: ScalePlan, now: datetime) -> End | None:
    job, resource = seen.job, seen.resource
    if job is None or resource is None:
        return None
    if resource.spec.suspend:
        return End(plan, PlanPhase.SUCCEEDED, "JobSuspended", "it takes effect when the job is resumed")
    short = _not_admitted(seen, job, resource, plan)
    if not short and _is_reached(resource, plan):
        return End(plan, PlanPhase.SUCCEEDED, "NodesReady", "all nodes are as planned")
    if now < after(plan.status.start_time or now, _deadline(job)):
        return None
    if short:
        return End(plan, PlanPhase.FAILED, NOT_ADMITTED, short)
    ready, seconds = (
        find(resource.status.conditions, "Ready"),
        job.spec.run_policy.scale_plan_deadline_seconds,
    )
    why = f": {ready.message}" if ready else ""
    message = f"nodes were not ready after {seconds} s (scalePlanDeadlineSeconds){why}"
    return End(plan, PlanPhase.FAILED, job.status.reason or LATE, message)


def _not_admitted(seen: Seen, job: ElasticJob, resource: JobResource, plan: ScalePlan) -> str:
    """Return which nodes that the plan asks for the queue has not admitted yet, "" where it has."""
    if seen.grant is None or plan is not seen.going[-1]:
        return ""
    asked, specs = target(job, resource), resource.spec.replica_resource_specs
    counted = {role: spec.replicas for role, spec in specs.items() if f"{role}{COUNTED}" in touches(plan)}
    have = {role: count for role, count in counted.items() if count is not None}
    short = [f"{role} has {n} of {asked[role]} nodes" for role, n in have.items() if n < asked.get(role, 0)]
    short += filter(None, (lacking(job, resource, role, seen.grant) for role in sized_by(job, plan)))
    return f"{', '.join(short)}: {seen.grant.sentence}" if short else ""


def _deadline(job: ElasticJob) -> timedelta:
    """How long a plan of the job may take until its nodes are ready."""
    return span(job.spec.run_policy.scale_plan_deadline_seconds)


def _is_reached(resource: JobResource, plan: ScalePlan) -> bool:
    """Whether the pods are as the JobResource says, at least those of the roles that the plan changed."""
    if resource.status.observed_generation != resource.metadata.generation:
        return False
    if is_true(resource.status.conditions, "Ready"):
        return True
    roles = {touched.removesuffix(COUNTED) for touched in touches(plan) if touched.endswith(COUNTED)}
    found = [resource.status.replica_statuses.get(role) for role in roles]
    counted = all(status is not None and status.desired == status.current == status.ready for status in found)
    return bool(roles) and len(roles) == len(touches(plan)) and counted


def _finished(plan: ScalePlan) -> bool:
    return plan.status.phase is not None and plan.status.phase.is_terminal
