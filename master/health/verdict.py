"""The rules that end a job. They are tried in this order; the first that returns a verdict wins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from elasticjob.api.sentences import few
from elasticjob.api.v1alpha1.common import RESTARTS_SPENT
from elasticjob.master.health import ends
from elasticjob.master.rendezvous import rules, topology
from elasticjob.master.shards import book
from elasticjob.master.state.job import End, Job, Verdict
from elasticjob.master.state.node import Node, Phase

Rule = Callable[[Job, datetime], Verdict | None]


def judge(job: Job, now: datetime, *, whole: bool = True) -> Job:
    """Return the job with the verdict of the first rule that has one. A verdict is final.

    Rules that look at all nodes are left out unless the job is looked at as a `whole`, as at each tick.
    """
    if job.verdict:
        return job
    tried = RULES if whole else OF_REQUESTS
    verdict = next((verdict for rule in tried if (verdict := rule(job, now))), None)
    return job.but(verdict=verdict, version=job.version + 1) if verdict else job


def succeed_when_all_finished(job: Job, now: datetime) -> Verdict | None:
    """Every member of the world succeeded."""
    if not job.world or job.nodes.count(lambda kind: kind.completed) < len(job.world.members):
        return None
    if not all(_finished(job, member.node) for member in job.world.members):
        return None
    return _success(job, len(job.world.members), f" of round {job.world.round}", now)


def succeed_when_newcomers_alone_are_left(job: Job, now: datetime) -> Verdict | None:
    """The older members of the world succeeded, and the others, which came at the end, hold no state."""
    if not job.world or not rules.is_over(job):
        return None
    many = sum(_finished(job, member.node) for member in job.world.members)
    return _success(job, many, f" with the state of round {job.world.round}", now)


def succeed_when_the_leader_finished(job: Job, now: datetime) -> Verdict | None:
    """The node whose success is the job's succeeded, whoever else goes on."""
    leader = job.nodes.get(job.spec.leader)
    if leader is None or not leader.has_succeeded or leader.with_a_leave:
        return None
    return _success(job, 1, f" {job.spec.leader} (successPolicy ChiefOrWorker0)", now)


def fail_by_the_failure_policy(job: Job, now: datetime) -> Verdict | None:
    """A worker failed with an exit code for which the job is to fail."""
    if not job.fatal:
        return None
    return Verdict(end=End.FAILED, reason="PodFailurePolicy", message=job.fatal, at=now)


def fail_when_the_leader_is_lost(job: Job, now: datetime) -> Verdict | None:
    """The node whose success would be the job's has spent its restarts, whoever else goes on."""
    leader = job.nodes.get(job.spec.leader)
    if leader is None or leader.has_succeeded or leader.failures <= job.spec.restart_count:
        return None
    why = "its success would be the job's (successPolicy ChiefOrWorker0)"
    message = f"{leader.name}: {leader.failure}; {why}"
    return Verdict(end=End.FAILED, reason=RESTARTS_SPENT, message=message, at=now)


def succeed_when_all_that_are_known_finished(job: Job, now: datetime) -> Verdict | None:
    """Every known node succeeded, although the last world was lost with an earlier master.

    If a node that did not succeed is gone, its replacement may still come. There may also be more nodes than
    `replicas`, which is the initial size.
    """
    many = job.nodes.count(lambda kind: kind.role in job.spec.roles)
    if job.spec.replicas is None or many < job.spec.replicas:
        return None
    still = job.nodes.count(lambda kind: kind.role in job.spec.roles and not kind.completed)
    return None if still else _success(job, many, "", now)


def fail_without_the_last_checkpoint(job: Job, now: datetime) -> Verdict | None:
    """The training is done, and what it was for could not be written."""
    if not job.unsaved:
        return None
    return Verdict(end=End.FAILED, reason="NotSaved", message=job.unsaved, at=now)


def fail_by_the_ends_of_workers(job: Job, now: datetime) -> Verdict | None:
    """How workers ended says that another start would end in the same way."""
    return ends.judge(ends.history(job), now)


def fail_when_no_world_is_possible(job: Job, now: datetime) -> Verdict | None:
    """Nodes have spent their restarts, and too few are left for a world, or to do the end again."""
    if not job.restarts:
        return None
    spent = job.nodes.count(lambda kind: kind.failures > job.spec.restart_count)
    if not spent:
        return None
    possible, least = _possible(job, spent), job.spec.bounds.smallest
    if possible < least:
        left = f"{possible} nodes are left, the job needs {least}"
    elif job.ending and possible <= _done(job):
        left = "the others have finished, and its part is missing"
    else:
        return None
    worst = max(job.nodes.values(), key=lambda node: node.failures)
    message = f"{worst.name}: {worst.failure}; {left}"
    return Verdict(end=End.FAILED, reason=RESTARTS_SPENT, message=message, at=now)


def fail_when_no_node_passes_the_check(job: Job, now: datetime) -> Verdict | None:
    """The check found that no nodes can train together, and other machines would not help."""
    why = "" if job.round else job.check.hopeless
    return Verdict(end=End.FAILED, reason="NodeCheckFailed", message=why, at=now) if why else None


def fail_when_node_groups_do_not_add_up(job: Job, now: datetime) -> Verdict | None:
    """Before the first world, the labels of the workers name groups that are not those of the job."""
    why = "" if job.round else topology.problem(job)
    return Verdict(end=End.FAILED, reason="InvalidNodeGroups", message=why, at=now) if why else None


def fail_when_too_few_nodes_come(job: Job, now: datetime) -> Verdict | None:
    """No world was formed within the join timeout, although enough pods run (see nodes.tick).

    Workers of parameter servers train each for itself.
    """
    if (left := time_to_join(job, now)) is None or left > timedelta(0):
        return None
    why = rules.why_waiting(job, now) + _why_missing(job)
    message = f"no world for {job.spec.limits.join_timeout.total_seconds():.0f} s: {why}"
    return Verdict(end=End.FAILED, reason="TooFewNodes", message=message, at=now)


def time_to_join(job: Job, now: datetime) -> timedelta | None:
    """Return how long nodes may still take to form a world; None if the job does not fail without one."""
    if job.spec.sizes.has_servers or job.spec.suspended or not job.gathering or job.waits_for_pods:
        return None
    if rules.saving(job, now):
        return None
    return job.spec.limits.join_timeout - (now - job.gathering)


def fail_when_nothing_is_computed(job: Job, now: datetime) -> Verdict | None:
    """No node has computed for `idle`, nor made a step for a quarter of it: it holds machines in vain."""
    limit, idle, stepped = job.spec.limits.idle, job.health.idle, job.training.at
    if not limit or not job.running or idle is None or now - idle < limit:
        return None
    if stepped is None or now - stepped < limit / 4:
        return None
    still, last = (now - stepped).total_seconds(), job.training.progress
    message = (
        f"no node computed for {limit.total_seconds():.0f} s, and there was no step for {still:.0f} s"
        + (f"; the last one was {last.step}" if last else "")
    )
    return Verdict(end=End.FAILED, reason="NothingComputed", message=message, at=now)


RULES: tuple[Rule, ...] = (
    fail_without_the_last_checkpoint,
    fail_when_the_leader_is_lost,
    succeed_when_all_finished,
    succeed_when_newcomers_alone_are_left,
    succeed_when_all_that_are_known_finished,
    succeed_when_the_leader_finished,
    fail_by_the_failure_policy,
    fail_when_no_node_passes_the_check,
    fail_by_the_ends_of_workers,
    fail_when_no_world_is_possible,
    fail_when_node_groups_do_not_add_up,
    fail_when_too_few_nodes_come,
    fail_when_nothing_is_computed,
)
OF_REQUESTS = tuple(rule for rule in RULES if rule is not fail_when_node_groups_do_not_add_up)


def _success(job: Job, many: int, where: str, now: datetime) -> Verdict:
    progress = job.training.progress
    steps = f" after step {progress.step}" if progress else ""
    who = "the node" if many == 1 else f"all {many} nodes"
    incomplete = f"; {trouble}" if (trouble := book.trouble(job.shards)) else ""
    message = f"{who}{where} finished{steps}{incomplete}"
    return Verdict(end=End.SUCCEEDED, reason="Finished", message=message, at=now)


def _finished(job: Job, name: str) -> bool:
    node = job.nodes.get(name)
    return bool(node and node.has_succeeded)


def _done(job: Job) -> int:
    """Return how many members of the last world have finished, where nodes are replaced; else none."""
    if job.spec.replicas is None or job.world is None:
        return 0
    return sum(_finished(job, member.node) for member in job.world.members)


def _possible(job: Job, spent: int) -> int:
    """Return how many nodes can still take part: those that are replaced when lost, and the live ones.

    These are more after a plan for more, or where a spent one is not wanted any more.
    """
    alive = job.nodes.count(lambda kind: kind.alive and kind.role in job.spec.roles)
    return alive if job.spec.replicas is None else max(alive, job.spec.replicas - spent)


def _why_missing(job: Job) -> str:
    """Return the last known state of the nodes that did not join."""
    absent = [node for node in job.nodes.values() if not node.joined and not node.finished]
    messages = [f"{node.name}: {node.failure or _doing(job, node)}" for node in absent]
    return f" ({few(messages, separator='; ')})" if messages else ""


def _doing(job: Job, node: Node) -> str:
    """Return what a node without a join does: its agent is there, or only its pod."""
    if node.name in job.check.waiting or (job.check.session and node.name in job.check.session.members):
        return "in the node check"
    if node.beat:
        return "its agent is here, its workers are not ready"
    agent = ", but its agent has not reached the master" if node.phase is Phase.RUNNING else ""
    return node.phase.lower() + agent
