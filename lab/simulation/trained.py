"""Truths of a master's state, with each change, and of the status of its job.

Each function returns sentences about what is wrong.
"""

from __future__ import annotations

from typing import Final

from elasticjob.api.v1alpha1.elasticjob import FINISHED, Phase
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.master.state.invariants import invariants
from elasticjob.master.state.job import Job

LATE: Final = "DeadlineExceeded"


def unsound(before: Job, after: Job) -> list[str]:
    """Errors in a master's state after a change: invariants, the round, the size of a new world."""
    if after.version == before.version and after.nodes.kinds is before.nodes.kinds:
        return []  # a heartbeat, progress, or a tick
    name, wrong = after.spec.job, invariants(after)
    if after.round < before.round:
        wrong.append(f"round {before.round} is followed by {after.round}")
    if before.verdict and after.verdict != before.verdict:
        wrong.append(f"the verdict {before.verdict} is followed by {after.verdict}")
    return [f"the master of job {name}: {each}" for each in (*wrong, *_ill_sized(before, after))]


def _ill_sized(before: Job, after: Job) -> list[str]:
    """Errors in the size of a world that is formed now; a finished node counts as one of it."""
    world, bounds = after.world, after.spec.bounds
    if world is None or world.round != before.round + 1 or world is before.world:
        return []
    size, finished = len(world.members), after.nodes.count(lambda kind: kind.completed)
    if size <= after.most and size + finished >= bounds.smallest and not size % bounds.unit:
        return []
    return [f"world {world.round} is of {size} nodes, {finished} have finished, the bounds are {bounds}"]


def went_back(old: Manifest, new: Manifest) -> list[str]:
    """Errors in `status.training` of an ElasticJob after a change: rounds never go back."""
    if old["metadata"]["uid"] != new["metadata"]["uid"] or round_of(new) >= round_of(old):
        return []
    name = new["metadata"]["name"]
    return [f"the status of job {name} goes back from round {round_of(old)} to {round_of(new)}"]


def round_of(job: Manifest) -> int:
    """Return the round in the status of an ElasticJob, 0 without one."""
    found: int = job.get("status", {}).get("training", {}).get("round", 0)
    return found


def untrue_end(job: Job, found: Manifest) -> list[str]:
    """Errors in the phase of an ElasticJob at rest, by the last state of its last master.

    A member that entered the lineage after all that finished held nothing that they did not.
    """
    status, name, verdict = found.get("status", {}), job.spec.job, job.verdict
    phase, completed = status.get("phase", ""), status.get("completionTime")
    members = job.world.members if job.world else ()
    done = {node.name for node in job.nodes.values() if node.has_succeeded}
    eldest = min((each.since for each in members if each.node in done), default=0)
    late, leads = [each for each in members if each.node not in done], job.spec.leader in done
    missing = [each.node for each in late if each.since <= eldest or not eldest]
    said = timestamp(verdict.at) if verdict else ""
    was_over = bool(completed and (completed < said or (completed == said and status.get("reason") == LATE)))
    wrong = []
    if verdict and phase != verdict.end.value and not was_over:  # as by its deadline
        wrong.append(f"job {name} is {phase or 'new'}, and the verdict is {verdict.end}: {verdict.message}")
    if phase == Phase.SUCCEEDED and missing and not leads:
        wrong.append(f"job {name} has succeeded without {', '.join(missing)}")
    if members and not late and phase not in FINISHED:
        wrong.append(f"all nodes of job {name} have finished, and it is {phase or 'new'}")
    return wrong
