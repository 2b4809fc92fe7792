"""Requests about the life of a node, and the detection of lost nodes.

A node is lost at once when its connection is cut or its pod is gone, otherwise after a heartbeat timeout. A
lost node may come back: it is told to regroup, and joins the next round as a newcomer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from elasticjob.api.rpc.message import Empty
from elasticjob.api.rpc.nodes import (
    CUT_OFF,
    Failure,
    Finish,
    Hang,
    Kept,
    Order,
    Orders,
    Progress,
    Report,
    Watch,
)
from elasticjob.api.rpc.rendezvous import World
from elasticjob.api.sentences import amount
from elasticjob.api.v1alpha1.common import FailureAction
from elasticjob.master.handlers import incarnations
from elasticjob.master.health import ends, verdict
from elasticjob.master.health import watch as workers
from elasticjob.master.progress import goodput, progress
from elasticjob.master.rendezvous import holding, rules, servers, topology
from elasticjob.master.shards import book
from elasticjob.master.state.condition import Kind
from elasticjob.master.state.errors import Stale
from elasticjob.master.state.job import NAMED, End, Job, Spot, Turn
from elasticjob.master.state.node import ENDS, Node, Phase
from elasticjob.master.state.roster import Roster

OF_ITS_OWN: Final = frozenset({4, 6, 7, 8, 11})
"""Signals by which a worker ends through a fault of its own: ILL, ABRT, BUS, FPE, SEGV."""
FROM_OUTSIDE: Final = frozenset({-9, -15})
"""Exit codes of workers that SIGKILL or SIGTERM ended."""
DOUBT = timedelta(seconds=0.5)  # deadline for the next Watch after a connection closed between two of them

TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.INITIAL: frozenset({Phase.PENDING, Phase.RUNNING}) | ENDS,
    Phase.PENDING: frozenset({Phase.RUNNING}) | ENDS,
    Phase.RUNNING: ENDS,
    Phase.SUCCEEDED: frozenset({Phase.DELETED}),
    Phase.FAILED: frozenset({Phase.DELETED}),
    Phase.DELETED: frozenset(),
}


class Pod(msgspec.Struct, frozen=True):
    """A pod of a node, from the API server."""

    name: str
    node: str
    role: str
    index: int
    phase: Phase
    uid: str = ""
    leaving: bool = False
    grace: float | None = None  # seconds that its deletion gives it
    relaunch: int = 0
    spot: Spot | None = None
    resource: Mapping[str, str] = {}  # requests of its training container
    created: datetime | None = None
    placed: bool = True  # it has a machine


def watch(job: Job, request: Watch, now: datetime) -> Turn[Orders]:
    """Record a heartbeat, and respond if the node's orders are newer than those it has seen."""
    incarnations.believe(request.node, "version", request.seen, job.version)
    if done := incarnations.why_done(job, request):
        return Turn(job, _Draft(job.version, None).stop(request.round, done))
    job = incarnations.enter(job, request, now)
    job = incarnations.claim(job, request.node, request.round, now)
    node = job.nodes[request.node]
    job = job.put(node.but(beat=now, pod=request.pod))
    if request.seen > job.version:  # an earlier master counted further than it saved
        job = job.but(version=request.seen + 1)
    return Turn(job, orders(job, request, now) if job.version > request.seen else None)


def answer(job: Job, request: Watch, now: datetime) -> Orders | None:
    """Return the orders if they are newer than those seen."""
    incarnations.sender_of(job, request)
    return orders(job, request, now) if job.version > request.seen else None


def orders(job: Job, request: Watch, now: datetime) -> Orders:
    """Return the present orders of this node."""
    node = job.nodes[request.node]
    order = _Draft(job.version, node.grace)
    if job.verdict:
        failed = job.verdict.end is End.FAILED
        return order.stop(node.round, job.verdict.message, failed=failed)
    if job.member(node.name):
        if job.ending:
            still = rules.waits_for(job, now) if node.joined else ""
            reason = f"{job.ending.reason}; the next world {still}" if still else job.ending.reason
            return order.regroup(node.round, reason, job.ending.lost or job.ending.broken)
        hang = job.health.hang
        leaving = tuple(job.leaving)[:NAMED]
        return order.train(
            node.round, hang=hang if hang and hang.round == node.round else None, leaving=leaving
        )
    if node.round:
        # nor whether all of its members live: elastic workers may wait for one in a collective for ever
        why = f"a new master took over: it does not know the world of {node.round}"
        return order.regroup(node.round, why, (node.name,))
    if request.round:
        return order.regroup(request.round, f"round {request.round} is over for {node.name}", (node.name,))
    left = verdict.time_to_join(job, now)
    fails = "" if left is None else f"; the job fails in {max(0.0, left.total_seconds()):.0f} s"
    return order.train(0, rules.sentence(job, now) + fails)


def report(job: Job, request: Report, now: datetime) -> Turn[Empty]:
    """Record usage, and progress if it is of the present round."""
    node = incarnations.sender_of(job, request)
    if request.progress and not (job.world and node.round == request.round == job.world.round):
        raise Stale(f"round {request.round} is over for {node.name}: the job is in round {job.round}")
    job = _with_alarms(job, node, request.progress, request.kept, now)
    if request.usage:
        job = job.put(node.using(request.usage).but(kept=request.kept))
    if request.kept:
        job = job.but(training=progress.note_stored_step(job.training, request.kept, now))
    if request.progress:
        job = progress.record(job, request.progress, now)
        job = job.but(training=job.training.but(stepped=request.round))
    if node.told and node.told.round == request.round:
        job = goodput.heard(job, node.told.workers, request.workers)
    return Turn(workers.heard(job, request, now), Empty())


def failure(job: Job, request: Failure, now: datetime) -> Turn[Empty]:
    """Record why a worker failed; a final failure loses the node and counts against its restarts."""
    node = incarnations.sender_of(job, request)
    where = (request.round, request.local_rank)
    if CUT_OFF in request.message and request.exit_code in FROM_OUTSIDE and not request.final:
        return Turn(_cut_off(job, node, request, now), Empty())
    is_new = request.number > node.number if request.number else node.reported != where
    if is_new:
        job = job.but(restarts=job.restarts + 1, shards=_without_worker(job, request))
    if request.exit_code in FROM_OUTSIDE:
        node = node.but(killed=request.round)
    node = node.but(reported=where, failure=_last_words(request))
    action = _by_rule(job, node, request)
    if is_new:
        job = ends.note(job.put(node), request, now, foreseen=bool(action))
        node = job.nodes[node.name]
    if request.exit_code > 0:
        job = holding.blame(job.put(node), node, request.round, now)
        node = job.nodes[node.name]
    if request.unsaved:
        return Turn(job.put(node).but(unsaved=f"{node.name}: {request.message}"), Empty())
    if action == FailureAction.FAIL_JOB:
        return Turn(job.put(node).but(fatal=f"{node.name}: {node.failure}; failurePolicy: FailJob"), Empty())
    if not request.final or node.failed:
        return Turn(job.put(node), Empty())
    job = job.put(node.but(failed=True, joined=None))
    job = job if action == FailureAction.IGNORE else _charge(job, node.name, now)
    job = rules.lose(job, node.name, f"{node.name} failed for good: {_last_words(request)}", now)
    job = job.but(shards=book.lose_node(job.shards, node.name))
    return Turn(rules.settle(job, now), Empty())


def _cut_off(job: Job, node: Node, request: Failure, now: datetime) -> Job:
    """Name a worker whose grace was too short, once; that is no failure of its own, and costs no restart."""
    where = (request.round, request.local_rank)
    if node.reported == where:
        return job
    job = job.put(node.but(reported=where, failure=request.message))
    job = job.but(shards=_without_worker(job, request))
    return workers.add_finding(job, Kind.CUT_OFF, f"{node.name}: {request.message}", now)


def _with_alarms(job: Job, node: Node, news: Progress | None, kept: Kept | None, now: datetime) -> Job:
    """Name what a node tells for the first time: a loss that is not as usual, storage that fails."""
    if kept:
        job = workers.note_storage_trouble(
            job, node.name, node.kept.error if node.kept else "", kept.error, now
        )
    last = job.training.progress
    if news and news.alarm and news.alarm != (last.alarm if last else ""):
        job = workers.add_finding(job, Kind.LOSS, news.alarm, now)
    return job


def _by_rule(job: Job, node: Node, request: Failure) -> str:
    """Return the action of the first rule of the failure policy for a worker's end, "" if none is for it.

    No rule is asked about a worker that was killed or told to end: it may have been out of memory.
    """
    if request.exit_code in FROM_OUTSIDE:
        return ""
    code = 128 - request.exit_code if request.exit_code < 0 else request.exit_code
    rules = job.spec.rules if code else ()
    return next((rule.action for rule in rules if rule.applies(node.role, code)), "")


def _charge(job: Job, name: str, now: datetime) -> Job:
    """Count a failure of the node against its budget; exclude it beyond."""
    node, spec = job.nodes[name], job.spec
    forgiven = spec.forgive and node.failed_at and now - node.failed_at >= spec.forgive
    node = node.but(failures=1 if forgiven else node.failures + 1, failed_at=now)
    if spec.replicas is None or node.failures <= spec.restart_count or node.excluded:
        return job.put(node)
    why = f"it failed {amount(node.failures, 'time')} (restartCount {spec.restart_count}): {node.failure}"
    job = job.put(node.but(excluded=why))
    return workers.add_finding(job, Kind.FAULT_NODE, f"{name} takes part no more: {why}", now, name)


def finish(job: Job, request: Finish, now: datetime) -> Turn[Empty]:
    """Record that all workers of the node succeeded; the job succeeds when all members have.

    A node that was taken for lost may have done the last steps meanwhile, if no other world was formed.
    """
    node = incarnations.sender_of(job, request)
    if node.finished:
        return Turn(job, Empty())
    world = job.world
    if not (world and request.round == world.round and (node.round == world.round or _was_in(world, node))):
        raise Stale(f"round {request.round} is over for {node.name}: the job is in round {job.round}")
    job = _with_alarms(job, node, request.progress, None, now)
    if request.progress:
        job = progress.record(job, request.progress, now)
    if rules.leaves(job, node.name):  # it has saved, and its replacement goes on
        return Turn(rules.settle(rules.note_departure(job, node.name, now), now), Empty())
    with_a_leave = bool(job.leaving or (job.ending and job.ending.saving))
    job = job.put(job.nodes[node.name].but(finished=True, with_a_leave=with_a_leave, joined=None))
    job = job.but(shards=book.lose_node(job.shards, node.name))
    return Turn(rules.settle(job, now), Empty())


def _was_in(world: World, node: Node) -> bool:
    """Whether a node was lost out of a world, and is in no other; its next life was in none."""
    lives = ((each.node, each.incarnation) for each in world.members)
    return not node.round and (node.name, node.incarnation) in lives


def hang_up(job: Job, request: Watch, now: datetime) -> Job:
    """Treat the node as lost: its connection was cut during a Watch."""
    node = job.nodes.get(request.node)
    if node is None or node.incarnation != request.incarnation:
        return job
    return rules.settle(gone(job, node, f"lost the connection to {node.name}", now), now)


def doubt(job: Job, request: Watch, now: datetime) -> Job:
    """Shorten the heartbeat deadline: the connection closed between two Watches."""
    node = job.nodes.get(request.node)
    if node is None or node.incarnation != request.incarnation or node.beat is None:
        return job
    return job.put(node.but(beat=min(node.beat, now - job.spec.limits.silence + DOUBT)))


def tick(job: Job, now: datetime) -> Job:
    """Lose nodes without heartbeats, drop joins that were not repeated, and settle the round.

    The join timeout does not count while pods wait for capacity: their pending limit is the user's. Nor while
    members of the last world may save: their grace is.
    """
    if _may_be_late(job, now):
        job = _without_the_late(job, now)
    job = _with_who_is_back(job, now)
    if job.gathering and (job.waits_for_pods or rules.saving(job, now)):
        job = job.but(gathering=now)
    return rules.settle(job, now)


def _may_be_late(job: Job, now: datetime) -> bool:
    """Whether a node may be silent or a join over: with regular heartbeats, one tick in ten has to look."""
    heard, expires = job.nodes.heard, job.nodes.expires
    return bool((heard and now - heard > job.spec.limits.silence) or (expires and expires < now))


def _without_the_late(job: Job, now: datetime) -> Job:
    for node in job.nodes.values():
        if node.beat and now - node.beat > job.spec.limits.silence:
            job = gone(job, job.nodes[node.name], f"{node.name} is silent", now)
            if job.nodes[node.name].alive:  # its pod runs, and looks well to everybody else
                why = f"{node.name} does not answer, and the others go on without it"
                job = workers.add_finding(job, Kind.FAULT_NODE, why, now, node.name)
        elif node.joined and node.joined.until < now:
            job = job.put(job.nodes[node.name].but(joined=None))
    return job.but(nodes=job.nodes.exact())


def _with_who_is_back(job: Job, now: datetime) -> Job:
    """Return the job with findings closed about nodes that answer again, or whose pod is gone."""
    kind = Kind.FAULT_NODE
    about = {each.about for each in job.health.findings if each.reason is kind and each.until is None}
    known = (node for name in about if (node := job.nodes.get(name)) is not None)
    away = {node.name for node in known if node.excluded or (node.alive and node.beat is None)}
    return workers.close_findings(job, kind, now, away) if about - away else job


def overslept(job: Job, gap: timedelta) -> Job:
    """Extend heartbeat deadlines by `gap`, the time for which the master itself was suspended."""
    nodes = Roster(_heard_later(node, gap) for node in job.nodes.values())
    return job.but(nodes=nodes, shards=book.overslept(job.shards, gap))


def observe(job: Job, pods: Sequence[Pod], now: datetime) -> Job:
    """Apply the pods listed by the API server: all pods of training nodes."""
    job = goodput.close(job, now)
    by_node: dict[str, list[Pod]] = {name: [] for name, node in job.nodes.items() if node.pods}
    for pod in pods:
        by_node.setdefault(pod.node, []).append(pod)
    for name, listed in by_node.items():
        job = _observe_node(job, name, listed, now)
    job = topology.seen(job, {pod.node: pod.spot for pod in pods})
    job = servers.without(job, {pod.name for pod in pods if pod.phase in ENDS} - {""}, now)
    return rules.settle(job, now)


def _heard_later(node: Node, gap: timedelta) -> Node:
    joined = node.joined and node.joined.but(until=node.joined.until + gap)
    return node.but(beat=node.beat and node.beat + gap, joined=joined)


def _observe_node(job: Job, name: str, listed: list[Pod], now: datetime) -> Job:
    node = job.nodes.get(name) or Node(name=name, role=listed[0].role, index=listed[0].index)
    current = max(
        listed, key=lambda pod: (not pod.leaving, pod.phase not in ENDS, pod.relaunch), default=None
    )
    own = next((pod for pod in listed if pod.name == node.pod), None)
    vanished = node.pod in node.pods and own is None
    seen = node.but(
        pods=tuple(sorted(pod.name for pod in listed)),
        phase=node.phase if not vanished and _is_of_the_past(node, current) else _phase(node, current),
        uid=current.uid if current else "",
        resource=dict(current.resource) if current else {},
        pends=_pends(current, now),
    )
    if not listed and seen.failures > job.spec.restart_count:
        # It is scaled away, and may be added again: the operator keeps the last pod of one that is wanted.
        seen = seen.but(failures=0, failure="", failed_at=None, failed=False, excluded="")
    if seen != node:
        job = job.put(seen)
    if current and current.uid != node.uid and current.phase not in ENDS and not current.leaving:
        job = goodput.account_new_pod(job, name, current.created)
    if own and own.phase is Phase.SUCCEEDED and seen.has_succeeded and job.member(name):
        return job.put(seen.but(finished=True, beat=None, joined=None))  # the Finish request may be lost
    nameless = not node.pod and seen.phase in ENDS  # its agent has joined, and has yet to watch
    if node.beat and (vanished or nameless or (own and own.phase in ENDS)):
        return gone(job, seen, f"pod {node.pod or name} is gone", now)
    if not node.beat and seen.phase in ENDS:  # without an agent: its shards need not wait for their deadline
        return job.but(shards=book.lose_node(job.shards, name))
    if own and own.leaving and (not seen.leaving or own.grace != seen.grace):
        return _leaves(job, seen.but(grace=own.grace), now)
    return job


def _pends(current: Pod | None, now: datetime) -> datetime | None:
    """Return since when the pod waits for a machine, by the API server's clock, but not later than now."""
    if current is None or current.placed or current.leaving or current.phase in ENDS:
        return None
    return min(current.created or now, now)


def _is_of_the_past(node: Node, current: Pod | None) -> bool:
    """Whether the pod ended before this agent began, so that the agent's own pod is not listed yet."""
    if node.beat is None or (current and current.phase not in ENDS):
        return False
    if node.pod:
        return current is None or current.name != node.pod
    return current is not None and current.uid == node.uid and node.phase is Phase.INITIAL


def _phase(node: Node, current: Pod | None) -> Phase:
    """Return the next phase by the table of transitions; a new pod starts anew."""
    if current is None:
        return Phase.DELETED
    phase = Phase.DELETED if current.leaving and current.phase in ENDS else current.phase
    same_life = current.uid == node.uid
    return phase if not same_life or phase in TRANSITIONS[node.phase] else node.phase


def _leaves(job: Job, node: Node, now: datetime) -> Job:
    """Plan the node's leave: its pod is being deleted, its agent gets SIGTERM, and is told the grace."""
    job = job.put(node.but(leaving=True, joined=None)).but(version=job.version + 1)
    if node.finished:
        return job
    grace = 0.0 if job.ending and node.joined else node.grace or 0.0  # its script has ended already
    return rules.depart(job, node.name, f"pod {node.pod} is being deleted", grace, now)


def gone(job: Job, node: Node, why: str, now: datetime) -> Job:
    """Return the job with the node lost. The caller settles the round after all lost nodes are marked."""
    job = job.but(shards=book.lose_node(job.shards, node.name))
    return rules.lose(job.put(node.but(beat=None)), node.name, why, now)


def _without_worker(job: Job, request: Failure) -> book.Book:
    """Return the ledgers without the consumer that failed; a kill from outside is no failure of its shard."""
    own_fault = request.exit_code > 0 or -request.exit_code in OF_ITS_OWN
    error = _last_words(request) if own_fault else ""
    return book.lose_node(job.shards, request.node, str(request.local_rank), error)


def _last_words(request: Failure) -> str:
    how = f"signal {-request.exit_code}" if request.exit_code < 0 else f"exit code {request.exit_code}"
    where = f" ({request.frame})" if request.frame else ""
    return f"worker {request.local_rank} ended with {how}: {request.message[:2048] or 'no message'}{where}"


class _Draft(NamedTuple):
    """Orders of one version to one node."""

    version: int
    grace: float | None

    def stop(self, number: int, reason: str, *, failed: bool = False) -> Orders:
        return self._orders(Order.STOP, number, reason=reason, failed=failed)

    def regroup(self, number: int, reason: str, lost: tuple[str, ...] = ()) -> Orders:
        return self._orders(Order.REGROUP, number, lost=lost, reason=reason)

    def train(
        self, number: int, reason: str = "", hang: Hang | None = None, leaving: tuple[str, ...] = ()
    ) -> Orders:
        return self._orders(Order.TRAIN, number, reason=reason, hang=hang, leaving=leaving)

    def _orders(self, order: Order, number: int, **more: Any) -> Orders:
        return Orders(version=self.version, order=order, round=number, grace=self.grace, **more)
