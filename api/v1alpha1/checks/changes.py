"""Immutable fields of an ElasticJob.

Sizes, limits, suspend, restart and run policy, optimizer and priority may change at any time. Fields from
which running nodes were made (roles, templates, envs, nodeUnit, gang) may change only while the job is
suspended, so that all nodes come from the same template, and not after its end. The strategy and managedBy
never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from elasticjob.api.v1alpha1.elasticjob import FINISHED, ElasticJob
from elasticjob.api.v1alpha1.keeping import outlook
from elasticjob.api.v1alpha1.kueue import PRIORITY_CLASS, queue_of, queue_stays, waits_in_a_queue
from elasticjob.kube.objects.problem import Problem

Change = Callable[[ElasticJob, ElasticJob], Iterable[Problem]]

WHILE_IT_RUNS: Final = "while the job runs: set suspend: true first, change it, and set suspend: false"
AFTER_ITS_END: Final = "once the job has finished: delete it and create it again"


def identity_stays(old: ElasticJob, new: ElasticJob) -> Iterator[Problem]:
    """The strategy and the manager of a job are immutable; what the EasyDL form says may only be left out."""
    command, image = new.spec.command, new.spec.image
    for field, before, now in (
        ("distributionStrategy", str(old.spec.distribution_strategy), str(new.spec.distribution_strategy)),
        ("managedBy", old.spec.managed_by, new.spec.managed_by),
        ("command", command and (old.spec.command or ""), command),
        ("image", image and (old.spec.image or ""), image),
    ):
        if before != now:
            message = f"it cannot change from {before!r} to {now!r}: delete the job and create it again"
            yield Problem(f"spec.{field}", message)


def what_nodes_are_made_from_stays(old: ElasticJob, new: ElasticJob) -> Iterator[Problem]:
    """Roles, templates, envs and nodeUnit change only while the job is suspended, and so has no nodes."""
    finished = old.status.phase in FINISHED
    if old.spec.suspend and not finished:
        return
    when = "; ".join(filter(None, (AFTER_ITS_END if finished else WHILE_IT_RUNS, outlook(old))))
    for role in sorted(old.spec.replica_specs.keys() ^ new.spec.replica_specs.keys()):
        word = "added" if role in new.spec.replica_specs else "removed"
        yield Problem(f"spec.replicaSpecs[{role}]", f"a role cannot be {word} {when}")
    for role in sorted(old.spec.replica_specs.keys() & new.spec.replica_specs.keys()):
        before, now = old.spec.replica_specs[role].template, new.spec.replica_specs[role].template
        if before != now:
            path = difference(f"spec.replicaSpecs[{role}].template", before, now)
            yield Problem(path, f"the template cannot change {when}")
    if old.spec.envs != new.spec.envs:
        yield Problem("spec.envs", f"envs cannot change {when}")
    if old.spec.node_unit != new.spec.node_unit:
        yield Problem("spec.nodeUnit", f"it cannot change {when}")
    if old.spec.run_policy.scheduling.gang != new.spec.run_policy.scheduling.gang:
        path = "spec.runPolicy.scheduling.gang"
        yield Problem(path, f"the gang cannot change {when}")


def the_queue_stays(old: ElasticJob, new: ElasticJob) -> Iterator[Problem]:
    """A job enters and leaves a queue before it runs, or while it is suspended."""
    begun = old.status.phase is not None and old.status.phase not in FINISHED
    if begun and not new.spec.suspend:
        yield from queue_stays(old, new, old.status.conditions, WHILE_IT_RUNS)
        yield from _class_of_the_queue_stays(old, new)


def _class_of_the_queue_stays(old: ElasticJob, new: ElasticJob) -> Iterator[Problem]:
    """With another PriorityClass of its pods a job would be queued again, and lose what it runs on."""
    before, now = (each.spec.run_policy.scheduling.priority_class_name for each in (old, new))
    others = PRIORITY_CLASS in new.metadata.labels or any(
        spec.pod.get("priorityClassName") for spec in new.spec.roles.values()
    )
    if before != now and queue_of(new) and not others and not waits_in_a_queue(old.status.conditions):
        path = "spec.runPolicy.scheduling.priorityClassName"
        yield Problem(path, f"in a queue it cannot change from {before!r} to {now!r} {WHILE_IT_RUNS}")


CHANGES: Final[tuple[Change, ...]] = (identity_stays, what_nodes_are_made_from_stays)


def difference(path: str, before: Any, now: Any) -> str:
    """Return the deepest path that contains all differences between two JSON values."""
    match before, now:
        case dict(), dict():
            pairs = {f"{path}.{key}": (before.get(key), now.get(key)) for key in sorted(before | now)}
        case list(), list() if len(before) == len(now):
            pairs = {f"{path}[{place}]": pair for place, pair in enumerate(zip(before, now, strict=True))}
        case _:
            return path
    changed = [(place, *pair) for place, pair in pairs.items() if pair[0] != pair[1]]
    return difference(*changed[0]) if len(changed) == 1 else path
