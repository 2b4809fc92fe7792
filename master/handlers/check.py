"""The check's own rendezvous: nodes report, and are told what comes next. `health/pairing.py` pairs them.

1. Nodes wait here, not in the training's rendezvous, which never sees a node before its check is over.
2. A session begins when every live node that does not train has reported, and enough have for a world; or
after last call. Nodes that come later are in the next session, also while others train.
3. A turn ends when all its nodes have reported, are gone, or are late; late ones have failed it.
4. A node that is at fault is excluded: it has failed for good. Slow ones are told, or excluded by setting.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from elasticjob.api.rpc.check import Check as Request
from elasticjob.api.rpc.check import Next, Part, Peer
from elasticjob.api.sentences import few
from elasticjob.master.handlers import incarnations
from elasticjob.master.health import pairing
from elasticjob.master.rendezvous import rules, topology
from elasticjob.master.state.check import Applicant, Check, Finding, Outcome, Session
from elasticjob.master.state.errors import Refused, Stopping
from elasticjob.master.state.job import Job, Turn
from elasticjob.master.state.node import Node

LATE = timedelta(seconds=330)  # of one turn: the payload's own limit is 300 s
INITIALLY = 4  # nodes that all fail alone are no coincidence


def check(job: Job, request: Request, now: datetime) -> Turn[Next]:
    """Record the result; the reply waits until there is something to do for the node."""
    if job.verdict:
        raise Stopping(f"job {job.spec.job} ends: {job.verdict.message}")
    job = incarnations.enter(job, request, now)
    node = job.nodes[request.node]
    if node.leaving or node.finished:
        raise Refused(f"{node.name} is leaving or has finished: it needs no check")
    job = job.put(node.but(beat=now))
    job = settle(job.but(check=_record(job.check, request, now)), now)
    return Turn(job, answer(job, request))


def answer(job: Job, request: Request) -> Next | None:
    """Return what the node does next, None while that is not decided."""
    session, found = job.check.session, job.check.findings.get(request.node)
    if found and found.incarnation == request.incarnation:
        part = Part.EXCLUDED if found.excluded else Part.PASSED
        return Next(part=part, turn=request.turn, reason=found.sentence)
    mine = session.members.get(request.node) if session else None
    if session and mine and mine.incarnation == request.incarnation:
        return _together(session, request)
    return Next(part=Part.ALONE) if request.turn else None


def settle(job: Job, now: datetime) -> Job:
    """Go on with the check as far as the results allow."""
    state = job.check
    if job.verdict or not (state.session or state.waiting):
        return job
    staying = {name: one for name, one in state.waiting.items() if _is_here(job, name, one)}
    if len(staying) < len(state.waiting):
        job = job.but(check=state.but(waiting=staying))
    if session := job.check.session:
        return job if _pending(job, session, now) else _advance(job, session, now)
    return _begin(job, now) if staying and _gathered(job, now) else job


def sentence(job: Job) -> str:
    """Return what the check found on the present nodes, empty if nothing."""
    sentences = [one.sentence for one in job.check.findings.values() if one.sentence]
    return few((one[:256] for one in sentences), pairing.MOST_NAMED, "; ")


def _record(state: Check, request: Request, now: datetime) -> Check:
    known, session, name = state.findings.get(request.node), state.session, request.node
    if known and known.incarnation == request.incarnation:
        return state
    outcome = Outcome(seconds=request.seconds, error=request.error)
    mine = session.members.get(name) if session else None
    if session and mine and mine.incarnation == request.incarnation:
        if request.turn != session.turn or name in session.results:
            return state
        members = {**session.members, name: mine.but(port=request.port)}
        return state.but(session=session.but(members=members, results={**session.results, name: outcome}))
    if request.turn or (name in state.waiting and state.waiting[name].incarnation == request.incarnation):
        return state
    applicant = Applicant(
        incarnation=request.incarnation,
        address=request.address,
        port=request.port,
        slots=request.slots,
        device=request.device,
        since=now,
        alone=outcome,
    )
    return state.but(waiting={**state.waiting, name: applicant})


def _together(session: Session, request: Request) -> Next | None:
    group = next((group for group in session.groups if request.node in group), ())
    if not group or session.turn <= request.turn:
        return None
    peers = tuple(_peer(name, session.members[name]) for name in group)
    return Next(part=Part.TOGETHER, turn=session.turn, peers=peers)


def _peer(name: str, one: Applicant) -> Peer:
    return Peer(node=name, address=one.address, port=one.port, slots=one.slots)


def _is_here(job: Job, name: str, one: Applicant) -> bool:
    node = job.nodes.get(name)
    return bool(
        node and node.incarnation == one.incarnation and node.beat and not (node.leaving or node.ended)
    )


def _pending(job: Job, session: Session, now: datetime) -> bool:
    """Whether a result of this turn can still come."""
    missing = (name for group in session.groups for name in group if name not in session.results)
    return now < session.until and any(_is_here(job, name, session.members[name]) for name in missing)


def _gathered(job: Job, now: datetime) -> bool:
    """Whether no more nodes are waited for."""
    waiting, limits = job.check.waiting, job.spec.limits
    many = len(waiting) + sum(1 for _ in _pass(job))
    if many < job.spec.bounds.smallest:
        return False
    if many >= job.spec.most or next(_missing(job), None) is None:
        return True
    times = [one.since for one in waiting.values()]
    return now >= min(max(times) + limits.last_call, min(times) + limits.join_timeout)


def _pass(job: Job) -> Iterator[Node]:
    return (node for node in job.nodes.values() if node.alive and _is_beyond(job, node))


def _missing(job: Job) -> Iterator[Node]:
    """Yield live nodes that have neither reported nor passed."""
    for node in job.nodes.values():
        known = node.name in job.check.waiting or _is_beyond(job, node)
        if node.alive and node.role in job.spec.roles and not known:
            yield node


def _is_beyond(job: Job, node: Node) -> bool:
    """Whether the node has passed, or trains (as nodes do whose agents ask for no check)."""
    found = job.check.findings.get(node.name)
    passed = found and found.incarnation == node.incarnation and not found.excluded
    return bool(passed or node.joined or node.round)


def _begin(job: Job, now: datetime) -> Job:
    """Form the first groups of those whose payload ran alone; the others are at fault."""
    waiting = job.check.waiting
    session = Session(turn=job.check.turn, until=now + LATE, members=waiting, groups=())
    fit = [job.nodes[name] for name, one in waiting.items() if not one.alone.error]
    ordered = topology.lay_out(sorted(fit, key=lambda node: node.place), job.topology, lambda node: 0)
    groups = pairing.pairs([node.name for node in ordered])
    job = job.but(check=job.check.but(waiting={}))
    if not groups:
        return _finish(job, session, now)
    at_fault = {name: one for name, one in waiting.items() if one.alone.error}
    job = _tell(job, session.but(members=at_fault), pairing.judge(_alone(at_fault), (), {}), now)
    members = {name: one for name, one in waiting.items() if name not in at_fault}
    return rules.settle(_next_turn(job, session.but(members=members), groups, now), now)


def _advance(job: Job, session: Session, now: datetime) -> Job:
    """End the turn: another one if that can tell who is at fault, else the results.

    A node that was lost leaves the session, and what its partners failed with it says nothing about them.
    """
    here = {name: one for name, one in session.members.items() if _is_here(job, name, one)}
    late = Outcome(seconds=0.0, error="no result in time")
    ran = [name for group in session.groups for name in group if name in here]
    results = {name: session.results.get(name, late) for name in ran}
    void = {name for group in session.groups if not set(group) <= set(here) for name in group}
    turn = {name: one for name, one in results.items() if not (one.error and name in void)}
    session = session.but(members=here, past=(*session.past, turn), results={})
    times = pairing.best(_alone(here), session.past)
    groups = pairing.following(session.past, times)
    if not groups and len(session.past) == 1 and len(turn) < len(ran):
        groups = pairing.opposites(times)
    return _next_turn(job, session, groups, now) if groups else _finish(job, session, now)


def _next_turn(job: Job, session: Session, groups: pairing.Groups, now: datetime) -> Job:
    number = job.check.turn + 1
    session = session.but(turn=number, until=now + LATE, groups=groups)
    return job.but(check=job.check.but(turn=number, session=session), version=job.version + 1)


def _finish(job: Job, session: Session, now: datetime) -> Job:
    """Judge all nodes of the session, and keep the times of good ones as references."""
    alone, state = _alone(session.members), job.check
    devices = {name: one.device for name, one in session.members.items()}
    references = {
        name: (state.references.get(f"{device}/alone"), state.references.get(f"{device}/together"))
        for name, device in devices.items()
    }
    judged = pairing.judge(alone, session.past, references)
    good = {name: alone[name].seconds for name, one in judged.items() if not (one.fault or one.slow)}
    together = {name: time for name, time in pairing.best(alone, session.past).items() if time < float("inf")}
    measured = {
        **{f"{device}/alone": time for device, time in pairing.medians(good, devices).items()},
        **{
            f"{device}/together": time
            for device, time in pairing.medians(
                {n: t for n, t in together.items() if n in good}, devices
            ).items()
        },
    }
    job = _tell(job, session, judged, now)
    hopeless = "" if next(_pass(job), None) else _hopeless(session, judged)
    state = job.check.but(session=None, references={**measured, **state.references}, hopeless=hopeless)
    return rules.settle(job.but(check=state), now)


def _tell(job: Job, session: Session, judged: dict[str, pairing.PairResult], now: datetime) -> Job:
    """Record what was found; nodes that are excluded have failed for good."""
    if not judged:
        return job
    findings = {}
    for name, one in judged.items():
        excluded = one.fault or (one.slow and job.spec.exclude_stragglers)
        findings[name] = Finding(
            incarnation=session.members[name].incarnation, excluded=excluded, sentence=one.sentence
        )
        if excluded and _is_here(job, name, session.members[name]):
            job = _exclude(job, name, f"node check: {one.sentence}", now)
    known = {**job.check.findings, **findings}
    return job.but(check=job.check.but(findings=known), version=job.version + 1)


def _exclude(job: Job, name: str, why: str, now: datetime) -> Job:
    node = job.nodes[name]
    failed = node.but(failed=True, failures=node.failures + 1, failure=why, joined=None)
    return rules.lose(job.put(failed).but(restarts=job.restarts + 1), name, why, now)


def _hopeless(session: Session, judged: dict[str, pairing.PairResult]) -> str:
    """Return why no other machine would help: the nodes work alone, but no two of them together; or none of
    many works.
    """
    if len(judged) < 2 or not all(one.fault for one in judged.values()):
        return ""
    apart = [name for name in judged if not session.members[name].alone.error]
    if len(apart) == len(judged):
        last = next(iter(session.past[-1].values())).error
        return f"{few(sorted(judged), pairing.MOST_NAMED)} work alone, but no two of them together: {last}"
    if not apart and len(judged) >= INITIALLY:
        first = next(iter(session.members.values())).alone.error
        return f"all {len(judged)} nodes fail alone: {first}"
    return ""


def _alone(members: dict[str, Applicant]) -> dict[str, Outcome]:
    return {name: one.alone for name, one in members.items()}
