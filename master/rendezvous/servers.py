"""The rules of parameter servers, make before break.

- A server serves at the place that its pod has. Of two at a place the newer one is to serve: the older goes
  on until the newer has its values.
- The next cluster is formed when every place that should have a server has one that is there. A place without
  one for LATE is left out.
- A change goes through PREPARE (workers make what they need, for at most PATIENCE), DRAIN (no worker sends
  to the present cluster any more) and MOVE (the servers of the next one take the values over). Servers and
  workers that miss their heartbeat, or whose pod has ended, are dropped; nothing waits for them. If the next
  cluster loses a server, or others should serve, another next cluster with a higher version takes its place.
- After a loss there is no PREPARE. Unless the lost server's values have a copy, the next servers go back to
  the last checkpoint, and the datasets with them. So they do if values are nowhere to be found. If that
  checkpoint is damaged, an older one takes its place, which the server that has seen it names.
- The cluster in use changes in one step, when all servers of the next one hold their values.
- A save stops the workers like a change. The datasets' positions are those of the stop. It counts when all
  servers have written it and the first worker, the chief, has finished it.
- New numbers, a commit and a checkpoint that counts are told after they are saved: no later master gives a
  number again, or has not heard of a cluster that is in use.
- A server may go when it is in no cluster, in use or next, and its place has a newer server or is not wanted.
  One that never reported to the master holds no state that it knows of: not wanted, it may go at once.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.roles import PS
from elasticjob.api.rpc.parameters import Kept, Phase, Plane, ServerAt
from elasticjob.api.rpc.shards import Position
from elasticjob.master.shards import ledger as ledgers
from elasticjob.master.shards.book import Book
from elasticjob.master.state.job import Job
from elasticjob.master.state.servers import Cluster, Parameters, Saving, Server, life_of, silent

LATE: Final = timedelta(seconds=600)
"""A place whose server has not come for so long is left out of the next cluster."""
PATIENCE: Final = timedelta(seconds=10)
"""Workers may prepare for so long; then the change goes on without."""


def settle(job: Job, now: datetime) -> Job:
    """Return the job after all steps of a change of servers, or of a save, that are due."""
    if not (job.parameters.servers or job.parameters.current.version):
        return job
    before = job.parameters
    after = _forget(before, now, job.spec.limits.silence)
    after = _move(_drain(_renew(_fallen_back(after), _places(job), now), now))
    job = job if after == before else job.but(parameters=after)
    return _told_later(_save(_complete(job)), before)


def without(job: Job, pods: AbstractSet[str], now: datetime) -> Job:
    """Return the job without the servers of these pods, which have ended."""
    servers = {name: each for name, each in job.parameters.servers.items() if each.pod not in pods}
    if len(servers) == len(job.parameters.servers):
        return job
    return settle(job.but(parameters=job.parameters.but(servers=servers)), now)


def save(job: Job) -> Job:
    """Return the job with a save begun, if the servers are steady and none is under way."""
    before = job.parameters
    if before.phase is not Phase.STEADY or before.saving or before.lost:
        return job
    number = _number(before)
    finishes = any(each.finishes for each in before.followers.values())
    saving = Saving(number=number, who=before.current.who, finishes=finishes)
    return _told_later(job.but(parameters=before.but(versions=number, saving=saving)), before)


def saved_state(parameters: Parameters) -> Plane | None:
    """Return the state that servers and workers are told; None until it is saved."""
    return plane(parameters) if parameters.mark <= parameters.durable else None


def plane(parameters: Parameters) -> Plane:
    """Return the clusters as they are."""
    following, saving, chief = parameters.next or Cluster(), parameters.saving, parameters.chief
    return Plane(
        phase=parameters.phase,
        version=parameters.current.version,
        servers=_places_of(parameters.current),
        next_version=following.version,
        next_servers=_places_of(following),
        offered=parameters.offered,
        restores=following.restores,
        restored=parameters.restored,
        saves=saving.number if saving else 0,
        position=(saving.positions or ()) if saving else (),
        written=bool(saving and saving.written),
        kept=parameters.kept.number,
        chief=chief.incarnation if chief else "",
    )


def releasable(job: Job) -> frozenset[str]:
    """Return the pods of servers that training does not need any more."""
    parameters, places = job.parameters, _places(job)
    if parameters.next is not None or parameters.mark > parameters.durable:
        return frozenset()
    used = {server.index: life_of(server.node, server.pod) for server in parameters.current.members}
    servers = [node for node in job.nodes.values() if node.role == PS]
    return frozenset(
        pod
        for node in servers
        for pod in node.pods
        if _is_left_over(life_of(node.name, pod), used.get(node.index), wanted=node.index in places)
    )


def _is_left_over(life: int, serves: int | None, *, wanted: bool) -> bool:
    """Whether a pod of a place may go, where the one of the life `serves` serves."""
    if serves is None:
        return not wanted
    return life < serves or (life > serves and not wanted)


def _forget(parameters: Parameters, now: datetime, silence: timedelta) -> Parameters:
    servers = {n: s for n, s in parameters.servers.items() if not silent(s.beat, now, silence)}
    followers = {n: f for n, f in parameters.followers.items() if not silent(f.beat, now, silence)}
    if len(servers) == len(parameters.servers) and len(followers) == len(parameters.followers):
        return parameters
    return parameters.but(servers=servers, followers=followers)


def _renew(parameters: Parameters, places: frozenset[int], now: datetime) -> Parameters:
    """Offer the cluster that should be, if it is another one than the next, or than that in use."""
    candidates = _candidates(parameters)
    absent = places.difference(candidates)
    missing = {place: parameters.missing.get(place, now) for place in absent}
    parameters = parameters if missing == parameters.missing else parameters.but(missing=missing)
    waits = any(now - since < LATE for since in missing.values())
    wanted = tuple(candidates[place] for place in sorted(places & candidates.keys()))
    who = tuple(server.incarnation for server in wanted)
    if waits or not wanted:
        broken = parameters.next and any(each not in parameters.servers for each in parameters.next.who)
        return _given_up(parameters) if broken else parameters
    if who == parameters.current.who:
        return _given_up(parameters)
    restores = _restores(parameters, wanted)
    if parameters.next and (who, restores) == (parameters.next.who, parameters.next.restores):
        return parameters
    version = _number(parameters)
    cluster = Cluster(version=version, members=wanted, restores=restores, since=now)
    saving = parameters.saving if parameters.saving and parameters.saving.copied else None
    return _given_up(parameters).but(versions=version, offered=version, next=cluster, saving=saving)


def _given_up(parameters: Parameters) -> Parameters:
    return parameters.but(next=None, draining=False, moving=False)


def _restores(parameters: Parameters, wanted: tuple[Server, ...]) -> int | None:
    """Return the checkpoint that the next servers go back to, 0 for none; None if they take over."""
    if not parameters.current.version:
        found = _earlier_checkpoint(wanted)
        return found.number if found else 0
    before = parameters.next
    if before and (before.restores is not None or any(each.gone == before.version for each in wanted)):
        return parameters.kept.number
    return None if all(each.copies for each in parameters.lost) else parameters.kept.number


def _earlier_checkpoint(wanted: tuple[Server, ...]) -> Kept | None:
    """Return the checkpoint of an earlier job that all servers see in their folders.

    One that has seen that the newest is damaged names an older one.
    """
    found = [each.found for each in wanted if each.found]
    return min(found, key=_number_of) if len(found) == len(wanted) else None


def _fallen_back(parameters: Parameters) -> Parameters:
    """Let another checkpoint count, if a server found that to go back to damaged."""
    following, kept = parameters.next, parameters.kept.number
    if following is None or following.restores != kept:
        return parameters
    told = [each.found for each in parameters.servers.values() if each.gone == following.version]
    others = [found for found in told if found and found.number != kept]
    return parameters.but(kept=min(others, key=_number_of)) if others else parameters


def _number(parameters: Parameters) -> int:
    """Return the next number: above all that were given, and above an earlier job's checkpoints."""
    found = (each.found.number for each in parameters.servers.values() if each.found)
    return max(parameters.versions, *found, 0) + 1


def _number_of(kept: Kept) -> int:
    return kept.number


def _drain(parameters: Parameters, now: datetime) -> Parameters:
    """Let the workers stop once they are prepared for the next cluster."""
    following = parameters.next
    if following is None or parameters.draining:
        return parameters
    ready = all(f.prepared >= following.version for f in parameters.followers.values() if f.prepares)
    late = following.since is None or now - following.since > PATIENCE
    if not parameters.current.version or parameters.lost or ready or late:
        return parameters.but(draining=True)
    return parameters


def _move(parameters: Parameters) -> Parameters:
    """Let the values move once no worker sends to the present cluster."""
    if parameters.next is None or not parameters.draining or parameters.moving:
        return parameters
    return parameters.but(moving=True) if _stopped(parameters, parameters.next.version) else parameters


def _stopped(parameters: Parameters, number: int) -> bool:
    """Whether no worker has anything under way for this change."""
    return all(follower.drained >= number for follower in parameters.followers.values())


def _complete(job: Job) -> Job:
    """Use the next cluster once all of its servers hold their values; the datasets go back with them."""
    parameters = job.parameters
    following = parameters.next
    if following is None or not parameters.moving:
        return job
    servers = tuple(parameters.servers[who] for who in following.who if who in parameters.servers)
    if sum(each.holds == following.version for each in servers) < len(following.members):
        return job
    after = _given_up(parameters).but(current=following)
    if following.restores is None:
        return job.but(parameters=after)
    kept, found = parameters.kept, [each.found for each in servers if each.found]
    if not parameters.current.version:
        kept = next((each for each in found if each.number == following.restores), kept)
    job = job.but(parameters=after.but(kept=kept, restored=following.version))
    if not (parameters.current.version or kept.number):
        return job
    return job.but(shards=_back_to(job.shards, kept.positions, f"servers-{following.version}"))


def _back_to(book: Book, positions: tuple[Position, ...], restored: str) -> Book:
    """Return the book at `positions`; a dataset that has none begins again."""
    known = {each.dataset.name: each for each in positions}
    begun = {name: Position(dataset=found.dataset, next=0) for name, found in book.datasets.items()}
    for position in (begun | known).values():
        book = book.put(ledgers.at_position(position, book.mark + 1, restored))
    return book


def _save(job: Job) -> Job:
    """Take the next steps of a save that are due."""
    parameters, saving = job.parameters, job.parameters.saving
    if saving is None:
        return job
    if any(who not in parameters.servers for who in saving.who):
        return job.but(parameters=parameters.but(saving=None))
    servers = [parameters.servers[who] for who in saving.who]
    if saving.positions is None:
        # A consumer of an earlier master may still have to repeat what was applied.
        awaited = any(each.awaiting for each in job.shards.datasets.values())
        if awaited or not _stopped(parameters, saving.number):
            return job
        positions = tuple(map(ledgers.position, job.shards.datasets.values()))
        step = job.training.progress.step if job.training.progress else 0
        return job.but(parameters=parameters.but(saving=saving.but(positions=positions, step=step)))
    saving = saving.but(
        copied=saving.copied or all(each.copied >= saving.number for each in servers),
        written=saving.written or all(each.written >= saving.number for each in servers),
    )
    parameters, chief = parameters.but(saving=saving), parameters.chief
    finished = not saving.finishes or (chief is not None and chief.finished >= saving.number)
    if saving.copied and saving.written and finished:
        kept = Kept(number=saving.number, positions=saving.positions or ())
        parameters = parameters.but(kept=kept, saving=None)
        job = job.but(training=job.training.but(stored=max(job.training.stored, saving.step)))
    return job if parameters == job.parameters else job.but(parameters=parameters)


def _told_later(job: Job, before: Parameters) -> Job:
    """Renumber the news, and the changes that must be saved before they are told."""
    after = job.parameters
    if after is before:
        return job
    news = plane(after) != plane(before)
    commits = _commits(after) != _commits(before)
    return job.but(parameters=after.but(news=after.news + news, mark=after.mark + commits))


def _commits(parameters: Parameters) -> tuple[object, ...]:
    """Return the state that must be saved before it is told: a later master needs it."""
    saving = parameters.saving
    stopped = saving.number if saving and saving.positions is not None else 0
    return parameters.versions, parameters.current.version, parameters.kept.number, stopped


def _candidates(parameters: Parameters) -> dict[int, Server]:
    """The newest server of each place."""
    newest = dict[int, Server]()
    for server in sorted(parameters.servers.values(), key=lambda each: each.age):
        newest[server.index] = server
    return newest


def _places(job: Job) -> frozenset[int]:
    """The places that should have a server; those of the present servers while that is not known."""
    placed = job.scaling.placed.servers
    if placed is None:
        return frozenset(server.index for server in job.parameters.servers.values())
    return frozenset(placed)


def _places_of(cluster: Cluster) -> tuple[ServerAt, ...]:
    return tuple(
        ServerAt(index=s.index, incarnation=s.incarnation, address=s.address) for s in cluster.members
    )
