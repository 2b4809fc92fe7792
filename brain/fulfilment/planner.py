"""The fulfilment planner: shares a cluster among elastic jobs, the least fulfilled first. Pure.

    plan = plan(cluster, jobs, Options(), now)
    plan.deltas   # (Delta("default/mnist", 2, 6, "default/mnist grows by 4 instances, …"), …)

After EDL's autoscaling (design document "Horizontal Autoscaling"), with the seven passes of section 5 of the
fulfilment reference. A job's score is (now − least) / (most − least). Room goes to the lowest score, and is
taken from the highest, for a minimum that this meets or a resource above its limit that the job requests.

Guarantees: equal input, equal plan, in whatever order it comes; sizes within [least, most], multiples of the
step; a place for every instance that is added; the plan for the applied plan is empty.
Assumptions: terminating pods end; what is not in the input, such as quotas, refuses no pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from elasticjob.brain.fulfilment import reasons
from elasticjob.brain.fulfilment.draft import Draft
from elasticjob.brain.fulfilment.minima import Minima
from elasticjob.brain.fulfilment.passes import (
    bring_into_range,
    grow,
    predict,
    relieve,
    reprieve,
    withdraw,
)
from elasticjob.brain.fulfilment.rebalance import rebalance
from elasticjob.brain.fulfilment.state import Cluster, Delta, Job, Options, Plan, Waiting


def plan(cluster: Cluster, jobs: Sequence[Job], options: Options, now: datetime) -> Plan:
    """Return what changes, and who waits for their minimum."""
    return plan_of(draft_plan(cluster, jobs, options, now))


def draft_plan(cluster: Cluster, jobs: Sequence[Job], options: Options, now: datetime) -> Draft:
    """Return the draft after all passes, with the place of every instance."""
    draft = Draft(cluster, jobs, options)
    minima = Minima(draft)
    bring_into_range(draft)
    changes = True
    while changes:
        taken = list(draft.takes)
        bound = predict(draft)
        met = minima.meet()
        relieve(draft)
        reprieve(draft, draft.takes)
        changes = bound or met or draft.takes != taken
    withdraw(draft)
    grow(draft, options, now)
    if options.rebalance:
        rebalance(draft, options, now)
    return draft


def plan_of(draft: Draft) -> Plan:
    """Return the plan that a draft has come to."""
    jobs = sorted(draft.jobs, key=lambda each: each.key)
    return Plan(
        deltas=tuple(
            Delta(who.key, who.job.now, who.now, reasons.describe_delta(draft, who))
            for who in jobs
            if who.job is not None and who.now != who.job.now
        ),
        waiting=tuple(
            Waiting(who.key, who.least - who.bound, reasons.waits(draft, who))
            for who in jobs
            if who.bound < who.least
        ),
    )
