"""The rules of parameter servers, make before break.

- A server serves at the place that its pod has. Of two at a place the newer one is to serve: the older goes
  on until the newer has its values.
- The next cluster is formed when every place that should have a server has one that is there. A place without
  one for LATE is left out.
- A change goes through DRAIN (no worker sends to the present cluster any more) and MOVE (the servers of the
  next one take the values over). Servers and workers that miss their heartbeat are dropped; nothing waits for
  them. If the next cluster loses a server, or others should serve, another next cluster with a higher version
  takes its place, and begins with DRAIN.
- The cluster in use changes in one step, when all servers of the next one hold their values.
- A server may go when it is in no cluster, in use or next, and its place has a newer server or is not wanted.
  One that never reported to the master holds no state that it knows of: not wanted, it may go at once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from elasticjob.api.rpc.parameters import Phase, Plane, ServerAt
from elasticjob.api.v1alpha1.common import PS
from elasticjob.master.state.job import Job
from elasticjob.master.state.servers import Cluster, Parameters, Server, life_of, silent

LATE: Final = timedelta(seconds=600)
"""A place whose server has not come for so long is left out of the next cluster."""


def settle(job: Job, now: datetime) -> Job:
    """Return the job after all steps of a change of servers that are due."""
    if not (job.parameters.servers or job.parameters.current.version):
        return job
    after = _forget(job.parameters, now, job.spec.limits.silence)
    after = _complete(_moved(_renewed(after, _places(job), now)))
    return job if after == job.parameters else job.but(parameters=after)


def plane(parameters: Parameters) -> Plane:
    """Return what servers and workers are told."""
    following = parameters.next or Cluster()
    return Plane(
        phase=parameters.phase,
        version=parameters.current.version,
        servers=_told(parameters.current),
        next_version=following.version,
        next_servers=_told(following),
    )


def releasable(job: Job) -> frozenset[str]:
    """Return the pods of servers that training does not need any more."""
    parameters, places = job.parameters, _places(job)
    if parameters.phase not in (Phase.STEADY, Phase.FORMING):
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


def _renewed(parameters: Parameters, places: frozenset[int], now: datetime) -> Parameters:
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
        return parameters.but(next=None, moving=False) if broken else parameters
    if who == parameters.current.who:
        return parameters.but(next=None, moving=False)
    if parameters.next and who == parameters.next.who:
        return parameters
    version = parameters.versions + 1
    return parameters.but(versions=version, next=Cluster(version=version, members=wanted), moving=False)


def _moved(parameters: Parameters) -> Parameters:
    """Let the values move once no worker sends to the present cluster."""
    if parameters.next is None or parameters.moving:
        return parameters
    version = parameters.next.version
    done = all(follower.drained >= version for follower in parameters.followers.values())
    return parameters.but(moving=True) if done else parameters


def _complete(parameters: Parameters) -> Parameters:
    """Use the next cluster once all of its servers hold their values."""
    following = parameters.next
    if following is None or not parameters.moving:
        return parameters
    holds = (parameters.servers[who].holds for who in following.who if who in parameters.servers)
    if sum(held == following.version for held in holds) < len(following.members):
        return parameters
    return parameters.but(current=following, next=None, moving=False)


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


def _told(cluster: Cluster) -> tuple[ServerAt, ...]:
    return tuple(
        ServerAt(index=s.index, incarnation=s.incarnation, address=s.address) for s in cluster.members
    )
