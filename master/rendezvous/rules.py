"""Rounds: which nodes are waited for, which form the next world, in which order, and when.

1. A world has k nodes, lo <= k <= hi, k a multiple of the unit. Nodes that have finished count for lo: the
others may have to repeat the end of the training.
2. While a member of the last world is alive, only members delay the next one; otherwise every live node does.
3. A world is complete as soon as no node is missing. After a member with the model's state has joined, the
last-call timeout bounds the wait.
4. Survivors come first, the oldest is rank 0; newcomers follow by place, or as `topology.py` says. A newcomer
never displaces a node that holds the model's state. Beside elastic workers, scripts that are not known to be
elastic are newcomers, and come last: they begin again with each world, and take seconds to open its store.
5. A world that ends stays ended. Its number is never reused, so it fences every later message.
6. No world is formed once all members of the last one have finished, or of newcomers alone, once an older
elastic member has before they made a step: the training is over. A member that is lost after the last step
does what it did there again, in a world with the others that have not finished.
7. A running world of plain scripts ends once every member that leaves is gone, or had its time to save. The
others train on until then, or wait with what they save together; so do next lives of those that are gone. If
it breaks meanwhile, the next world waits as long: it would begin without what they save.
8. A node whose coming has made worlds of a size fail does not enter one of that size (`holding.py`).
9. A running world ends for newcomers that are ready, in groups of the unit, as far as there is room. Where
that restarts the workers (plain scripts), newcomers are gathered until no other has come for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from elasticjob.api.rpc.rendezvous import Member, World
from elasticjob.api.sentences import amount, few
from elasticjob.master.rendezvous import holding, topology
from elasticjob.master.state.condition import Kind as Finding
from elasticjob.master.state.job import NAMED, Departure, Ending, Job
from elasticjob.master.state.node import Kind, Node, Waiting
from elasticjob.master.state.roster import Roster
from elasticjob.master.state.training import Change

MARGIN = timedelta(seconds=2)
"""Beyond the grace of a member that leaves, until the others wait for it no more."""
FEW = 64
"""Nodes of a job up to which every answer names the missing ones; beyond it says how many there are."""
LONGEST = 7 * 86400.0
"""Seconds of a grace, however long its pod has."""
SHOWN = 4
"""Names of each sort that the history of changes keeps."""


def lose(job: Job, name: str, why: str, now: datetime) -> Job:
    """End the membership of node `name`; its world is broken."""
    node = job.nodes[name]
    if node.finished:  # it succeeded, so the world is not broken
        return job
    member = job.member(name)
    if member and name in job.leaving:
        return note_departure(job, name, now)
    job = job.put(node.but(round=0, joined=None))
    if member and job.ending and name in job.ending.saving:  # it was to go
        return job.but(version=job.version + 1)
    return end(job, why, now, lost=(name,)) if member else job


def end(
    job: Job, reason: str, now: datetime, *, lost: tuple[str, ...] = (), left: tuple[str, ...] = ()
) -> Job:
    """End the world: at once if members are `lost`, at its next step boundary otherwise."""
    old = job.ending or Ending(reason=reason, since=now)
    left = (*job.leaving, *left)
    news = old.but(
        lost=_union(old.lost, lost), left=_union(old.left, left), saving=old.saving | _until(job.leaving)
    )
    if lost and not old.lost:
        news = news.but(reason=reason, stopped=old.stopped or now)
    if not job.world or news == job.ending:
        return job
    version = job.version + 1
    return job.but(ending=news, leaving={}, gathering=job.gathering or now, version=version)


def depart(job: Job, name: str, reason: str, grace: float, now: datetime) -> Job:
    """Let a node leave: a member whose script has `grace` seconds to save stays in its world meanwhile.

    Elastic workers stop at the next step boundary, and have no need of it.
    """
    before = job.leaving.get(name)
    if not job.member(name) or (before and before.gone):
        return job
    if job.ending and name in job.ending.saving and job.ending.saving[name] <= now:
        return job
    if grace <= 0 or job.verdict or not _is_plain(job):
        return end(job, reason, now, left=(name,))
    until = now + timedelta(seconds=min(grace, LONGEST)) + MARGIN
    if job.ending:
        return _saves(end(job, reason, now, left=(name,)), name, until)
    news = {**job.leaving, name: Departure(until=until, reason=before.reason if before else reason)}
    is_named = len(job.leaving) < NAMED
    return job.but(leaving=news, version=job.version + is_named)


def note_departure(job: Job, name: str, now: datetime) -> Job:
    """Note that a member which was leaving is gone: it stays in its world while others leave it, too."""
    if name not in job.leaving:
        return _saves(job, name, now)
    gone = job.leaving[name].but(until=now, gone=True)
    return _end_with_the_leavers(job.but(leaving={**job.leaving, name: gone}), now)


def leaves(job: Job, name: str) -> bool:
    """Whether a member of the last world was asked to end, and had time to save."""
    return job.member(name) and (name in job.leaving or bool(job.ending and name in job.ending.saving))


def saving(job: Job, now: datetime) -> list[str]:
    """Return the members of the last world that were asked to end, and may still save."""
    until = job.ending.saving if job.ending else _until(job.leaving)
    return [name for name, end in until.items() if end > now and job.member(name)]


def _saves(job: Job, name: str, until: datetime) -> Job:
    """Let the next world wait for a member of the one that has ended."""
    if job.ending is None:
        return job
    ending = job.ending.but(saving=job.ending.saving | {name: until})
    return job.but(ending=ending, version=job.version + 1)


def _until(leaving: Mapping[str, Departure]) -> dict[str, datetime]:
    return {name: each.until for name, each in leaving.items()}


def _end_with_the_leavers(job: Job, now: datetime) -> Job:
    if not job.leaving or any(each.until > now for each in job.leaving.values()):
        return job
    reason, more = next(iter(job.leaving.values())).reason, len(job.leaving) - 1
    return end(job, reason + (f", and {more} more" if more else ""), now)


def _is_plain(job: Job) -> bool:
    """Whether no member of the world is known to be elastic."""
    members = job.world.members if job.world else ()
    return bool(job.leaving) or not any(job.nodes[member.node].elastic for member in members)


def tell_restart(job: Job, name: str) -> Job:
    """Tell the members of a world that ends of the first one whose script was ended with it.

    Elastic ones may wait for that script to enter, and come to no step boundary then.
    """
    ending = job.ending
    if ending is None or ending.lost or ending.broken:
        return job
    return job.but(ending=ending.but(broken=(name,)), version=job.version + 1)


def settle(job: Job, now: datetime) -> Job:
    """Apply the rules now: end the world for newcomers, complete the next one."""
    if job.verdict:
        return job
    job = _cut_in(_end_with_the_leavers(job, now), now)
    if job.running or is_trained(job):
        return job
    if job.gathering is None:
        job = job.but(gathering=now)
    members = choose(job, now)
    return _complete(job, members, now) if members else job


def choose(job: Job, now: datetime) -> tuple[Node, ...]:
    """Return the nodes that form the next world now, in rank order; empty while it has to wait."""
    _, size = _waiting(job)
    if not size or saving(job, now):
        return ()
    survivors = _has_survivors(job)
    must_wait = survivors or size < job.most
    if must_wait and job.nodes.count(_missing(job, survivors)) and now < _last_call(job, survivors):
        return ()
    if holding.waits_for_older(job) and now < _last_call(job, survivors):
        return ()
    age = _Age(job)
    joined = sorted((node for node in job.nodes.values() if node.joined), key=age)
    bounds, done = job.spec.bounds, job.nodes.count(lambda kind: kind.completed)
    least = max(bounds.smallest - done, bounds.unit)
    size = holding.largest(joined, range(size, least - 1, -bounds.unit), now) or size
    return topology.lay_out(joined[:size], job.topology, age.entry_round)


def is_trained(job: Job) -> bool:
    """Whether all members of the world have finished, or all but newcomers to a finished elastic one.

    They entered while the others were at the end, or wait to enter: no step was made with them. Alone they
    would train from the beginning.
    """
    if not job.world or not job.nodes.count(lambda kind: kind.completed):
        return False
    finished, rest = _finished_and_rest(job.world, job)
    if not rest:
        return True
    stepped = job.training.stepped >= job.world.round
    return bool(finished) and not stepped and all(since > min(finished) for since, _ in rest)


def is_over(job: Job) -> bool:
    """Whether newcomers alone are left, if any, and none of them trains: it has joined again, or is gone."""
    if not job.world or not is_trained(job):
        return False
    _, rest = _finished_and_rest(job.world, job)
    return all(node is None or node.joined or node.kind.out for _, node in rest)


def _finished_and_rest(world: World, job: Job) -> tuple[list[int], list[tuple[int, Node | None]]]:
    """Return since when the finished elastic members of the world were in it, and the unfinished ones."""
    members = [(member.since, job.nodes.get(member.node)) for member in world.members]
    finished = [since for since, node in members if node and node.has_succeeded and node.elastic]
    return finished, [(since, node) for since, node in members if not (node and node.has_succeeded)]


def why_waiting(job: Job, now: datetime) -> str:
    """Return in one sentence what the next world waits for."""
    joined, size = _waiting(job)
    if still := waits_for(job, now):
        return f"{amount(joined, 'node')} joined; {still}"
    if not size:
        return f"{joined} of at least {amount(job.spec.bounds.smallest, 'node')} joined"
    survivors = _has_survivors(job)
    is_missing = _missing(job, survivors)
    if len(job.nodes) <= FEW:
        missing = _names([node for node in job.nodes.values() if is_missing(node.kind)])
    else:
        missing = f"{job.nodes.count(is_missing)} more"
    left = (_last_call(job, survivors) - now).total_seconds()
    return f"{amount(joined, 'node')} joined; waiting for {missing}, {left:.0f} s at most"


def waits_for(job: Job, now: datetime) -> str:
    """Return for whom all wait that have joined, since it may save; empty if for nobody."""
    if not (names := saving(job, now)):
        return ""
    return f"waits for {few(names)}, which leave{'s' * (len(names) == 1)} and may still save"


def sentence(job: Job, now: datetime) -> str:
    """Return in one sentence what the world does now."""
    if job.verdict:
        return job.verdict.message
    if world := job.running:
        still = waits_for(job, now)
        leaving = f"; the next world {still}" if still else ""
        nodes, workers = amount(len(world.members), "node"), amount(world.size, "worker")
        trains = f"round {world.round} trains with {nodes}, {workers}"
        spoilt = job.nodes.count(lambda kind: kind.spoilt)
        return f"{trains}{leaving}{holding.sentence(job) if spoilt else ''}"
    why = f" ({job.ending.reason})" if job.ending else " yet"
    return f"no world{why}: {why_waiting(job, now)}"


def _cut_in(job: Job, now: datetime) -> Job:
    """End the running world for newcomers that are ready, unless it is full or a member has finished."""
    world, most = job.running, job.most
    if not world or job.leaving or most <= len(world.members):
        return job
    many = job.nodes.count(lambda kind: kind.joined and not kind.holds)  # while a world runs, members hold
    room = most - len(world.members)
    entering = min(many, room) // job.spec.bounds.unit * job.spec.bounds.unit
    if not entering or job.nodes.count(lambda kind: kind.finished and kind.holds):
        return job
    if entering < room and now < _quiet_until(job, now):
        return job
    ready = (node for node in job.nodes.values() if node.joined and not job.member(node.name))
    order = sorted(ready, key=lambda node: (bool(node.spoilt), node.place))
    if job.nodes.count(lambda kind: kind.spoilt):
        inside = len(world.members)
        sizes = range(inside + entering, inside, -job.spec.bounds.unit)
        entering = holding.largest([*_inside(job, world), *order], sizes, now) - inside
    return end(job, f"{_names(order[:entering])} can enter", now) if entering > 0 else job


def _inside(job: Job, world: World) -> list[Node]:
    return [job.nodes[member.node] for member in world.members]


def _quiet_until(job: Job, now: datetime) -> datetime:
    """Return until when newcomers are gathered: those of plain scripts cost every worker a restart."""
    nodes, limits = job.nodes, job.spec.limits
    if nodes.first is None or nodes.last is None or not nodes.count(lambda kind: kind.costly):
        return now
    return min(nodes.last + limits.quiet, nodes.first + limits.longest_quiet)


def _waiting(job: Job) -> tuple[int, int]:
    """Return how many nodes joined, and the largest world size they allow: 0, or a number within bounds."""
    bounds, nodes = job.spec.bounds, job.nodes
    joined = nodes.count(lambda kind: kind.joined)
    size = min(joined // bounds.unit * bounds.unit, job.most)
    finished = nodes.count(lambda kind: kind.completed)
    return joined, size if size + finished >= bounds.smallest else 0


def _has_survivors(job: Job) -> bool:
    """Whether a node still holds the model's state; then only nodes that hold it are waited for."""
    return bool(job.round) and job.nodes.count(lambda kind: kind.holds and not kind.out) > 0


def _newest(job: Job) -> int:
    """Return the latest round whose state a node holds; an earlier master may have formed later worlds."""
    return max((kind.holds for kind in job.nodes.kinds), default=0)


def _missing(job: Job, survivors: bool) -> Callable[[Kind], bool]:
    """Return the test of nodes that have yet to join before the world is complete."""

    def is_missing(kind: Kind) -> bool:
        if kind.joined or kind.out:
            return False
        return kind.holds > 0 if survivors else kind.alive and kind.role in job.spec.roles

    return is_missing


def _last_call(job: Job, survivors: bool) -> datetime:
    """Return when to stop waiting for missing nodes; bounded, however many nodes join late.

    Without a survivor among them, newcomers wait the full join timeout: a survivor may be in a long step, and
    a world without it would lose the model. It is counted from the first and the last join since there were
    none, taken back or not.
    """
    nodes, limits = job.nodes, job.spec.limits
    if nodes.first is None or nodes.last is None:
        raise ValueError("no node has joined")
    longest = nodes.first + limits.join_timeout
    newest = _newest(job)
    if survivors and not nodes.count(lambda kind: kind.joined and kind.holds == newest):
        return longest
    return min(nodes.last + limits.last_call, longest)


class _Age:
    """Sort key of nodes: the round in which each entered the lineage, elastic ones first, then its place."""

    def __init__(self, job: Job) -> None:
        self.newest = _newest(job)
        self.world = job.world.round if job.world else 0
        self.since = {member.node: member.since for member in job.world.members} if job.world else {}
        self.next = job.round + 1
        self.elastic = job.nodes.count(lambda kind: kind.joined and not kind.costly) > 0
        self.older = job.proven.nodes if job.proven.failed else None

    def __call__(self, node: Node) -> tuple[int, bool, bool, bool, tuple[str, int, str]]:
        is_new = self.older is not None and node.name not in self.older
        return self.entry_round(node), node.kind.costly, is_new, bool(node.spoilt), node.place

    def entry_round(self, node: Node) -> int:
        """Return the round since which the node holds the model's state; the next one for a newcomer."""
        if not node.holds or node.holds < self.newest or (self.elastic and node.kind.costly):
            return self.next
        return self.since.get(node.name, node.round) if node.round == self.world else node.round


def _complete(job: Job, chosen: tuple[Node, ...], now: datetime) -> Job:
    """Form the world of `chosen`; other nodes hold no model state any more, and wait if they have joined."""
    job = holding.note_world(job, now)
    number, age = job.round + 1, _Age(job)
    members = tuple(_member(node, node.joined, age.entry_round(node)) for node in chosen if node.joined)
    slots = max(member.slots for member in members)
    batch = max(job.batch_slots, job.spec.largest_world * slots, sum(member.slots for member in members))
    world = World(round=number, members=members, batch_slots=batch)
    inside = {node.name for node in chosen}
    nodes = Roster(_place(node, number, node.name in inside) for node in job.nodes.values())
    changes = (*job.training.changes, _change(job, chosen, world, now))[-job.spec.limits.history :]
    if unfinished := _who_repeats(job, chosen):
        job = job.but(health=job.health.add(Finding.UNFINISHED, unfinished, now))
    return job.but(
        nodes=nodes,
        round=number,
        world=world,
        ending=None,
        gathering=None,
        batch_slots=batch,
        version=job.version + 1,
        training=job.training.but(changes=changes),
    )


def _who_repeats(job: Job, chosen: tuple[Node, ...]) -> str:
    """Return who does the end of a training again that other members of the last world have finished."""
    members = [job.nodes[member.node] for member in job.world.members] if job.world else []
    done = [node for node in members if node.finished and not node.with_a_leave]
    if not done:
        return ""
    training, lost = job.training, _names(list(chosen))
    where = (
        f"from the checkpoint of step {training.stored} on"
        if training.stored
        else ("from the beginning, unless the script reads a checkpoint of its own: none is known")
    )
    return f"{_names(done)} finished, and {lost} was lost before it had: it trains again, {where}"


def _member(node: Node, joined: Waiting, since: int) -> Member:
    return Member(
        node=node.name,
        incarnation=node.incarnation,
        slots=joined.slots,
        address=joined.address,
        port=joined.port,
        since=since,
        files=joined.files,
    )


def _place(node: Node, number: int, inside: bool) -> Node:
    """Return the node after a world was formed with or without it."""
    if inside:
        return node.but(round=number, joined=None)
    return node.but(round=0) if node.round else node


def _change(job: Job, chosen: tuple[Node, ...], world: World, now: datetime) -> Change:
    ending, progress = job.ending, job.training.progress
    joined = [node.name for node in chosen if not node.round]
    stayed = len(chosen) - len(joined)
    gone = len(job.world.members) - stayed if ending and job.world else 0
    named = (ending.lost[:SHOWN], ending.left[:SHOWN]) if ending else ((), ())
    return Change(
        round=world.round,
        reason=ending.reason if ending else f"the job starts with {amount(len(chosen), 'node')}",
        formed=now,
        nodes=len(chosen),
        workers=world.size,
        lost=named[0],
        left=named[1],
        joined=tuple(joined[:SHOWN]),
        others=max(0, gone - sum(map(len, named))) + max(0, len(joined) - SHOWN),
        ordered=ending.since if ending else None,
        stopped=(ending.stopped or ending.since) if ending else None,
        step_before=progress.step if progress else 0,
    )


def _union(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """Return both, at most NAMED: a world that has lost so many ends in the same way if it loses more."""
    return (*old, *(name for name in new if name not in old))[:NAMED]


def _names(nodes: list[Node]) -> str:
    """Return the first three names, and how many more there are."""
    return few(sorted(node.name for node in nodes))
