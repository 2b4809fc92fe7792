"""What a plan makes of a random cluster, in plain arithmetic that shares no code with the planner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from elasticjob.brain.fulfilment.draft import Draft, Entry
from elasticjob.brain.fulfilment.state import Amounts, Cluster, Demand, Job
from tests.kit.planning.worlds import LOST, World, fits, plus


@dataclass(frozen=True)
class Place:
    """An instance that got a machine by a plan, in the order in which pods are bound."""

    key: str
    rank: int
    machine: str
    need: Amounts
    permitted: frozenset[str] | None


def names_of(draft: Draft) -> dict[str, tuple[str | None, ...]]:
    """The machine of each rank after a plan, by the key of the job or of the pod of others."""
    names = draft.rooms.names
    found = {}
    for who in draft.asking:
        places = [None if each is None else LOST if each < 0 else names[each] for each in who.machines]
        found[who.key] = tuple(places)
    return found


def placed(world: World, draft: Draft) -> Iterator[Place]:
    """The instances that have a place by the plan, and had none."""
    before: Mapping[str, tuple[str | None, ...]] = {job.key: job.machines for job in world.jobs}
    of: dict[str, Job | Demand] = {job.key: job for job in world.jobs}
    of |= {pod.key: pod for pod in world.cluster.demands}
    places = names_of(draft)
    for who in draft.asking:
        old = before.get(who.key, ())
        for rank, machine in enumerate(places[who.key]):
            if machine is not None and (rank >= len(old) or old[rank] is None):
                yield Place(who.key, rank, machine, of[who.key].amount, of[who.key].permitted)


def released(world: World, draft: Draft) -> Iterator[tuple[str, Amounts]]:
    """The machines that instances leave by the plan, with what they held there."""
    after = {who.key: who.now for who in draft.jobs}
    for job in world.jobs:
        for machine in job.machines[after.get(job.key, job.now) :]:
            if machine is not None and machine != LOST:
                yield machine, job.amount


def rooms_after(world: World, draft: Draft) -> dict[str, dict[str, int]]:
    """What is left of each machine by the plan, once terminating pods are gone."""
    rooms = {machine.name: dict(machine.soon) for machine in world.cluster.machines}
    for machine, held in released(world, draft):
        rooms[machine] = plus(rooms[machine], held)
    for place in placed(world, draft):
        rooms[place.machine] = plus(rooms[place.machine], place.need, -1)
    return rooms


def used(cluster: Cluster, rooms: Mapping[str, Amounts]) -> Counter[str]:
    """What is used of each resource."""
    found: Counter[str] = Counter()
    for machine in cluster.machines:
        for name, total in machine.total.items():
            found[name] += total - rooms[machine.name].get(name, 0)
    return found


def most_used(world: World) -> dict[str, int]:
    """The limit of each resource."""
    found: Counter[str] = Counter()
    for machine in world.cluster.machines:
        found.update(machine.total)
    return {name: total * world.options.limits.get(name, Fraction(1)) // 1 for name, total in found.items()}


def applied(world: World, draft: Draft, *, stays: bool = True) -> World:
    """The world after a plan: pods are bound that fit, those that leave are gone.

    With `stays`, a job that was shrunk may not grow, as while its pods terminate.
    """
    idle = {machine.name: dict(machine.idle) for machine in world.cluster.machines}
    soon = {machine.name: dict(machine.soon) for machine in world.cluster.machines}
    for machine, held in released(world, draft):
        soon[machine] = plus(soon[machine], held)
        idle[machine] = plus(idle[machine], held)
    pending = set()
    for place in placed(world, draft):
        if place.machine == LOST or fits(idle[place.machine], place.need):
            idle[place.machine] = plus(idle[place.machine], place.need, -1)
            soon[place.machine] = plus(soon[place.machine], place.need, -1)
        else:
            pending.add((place.key, place.rank))
    places = names_of(draft)
    machines = tuple(
        replace(each, idle=idle[each.name], soon=soon[each.name]) for each in world.cluster.machines
    )
    demands = tuple(
        each for each in world.cluster.demands if places[each.key] == (None,) or (each.key, 0) in pending
    )
    jobs = []
    for job in world.jobs:
        if job.key not in places:
            jobs.append(job)
            continue
        ranks = tuple(
            None if (job.key, rank) in pending else machine for rank, machine in enumerate(places[job.key])
        )
        why = "a pod is terminating" if stays and len(ranks) < job.now else job.stays
        jobs.append(replace(job, now=len(ranks), machines=ranks, stays=why))
    return replace(world, cluster=Cluster(machines, demands), jobs=tuple(jobs))


def sizes(deltas: Iterable[object]) -> list[tuple[object, ...]]:
    """Deltas, or waiting entries, without their sentences."""
    return [tuple(vars(each).values())[:-1] for each in deltas]


def ours(world: World, draft: Draft) -> Iterator[tuple[Entry, Job]]:
    jobs = {job.key: job for job in world.jobs}
    yield from ((who, jobs[who.key]) for who in draft.jobs)


def asked(job: Job) -> list[str]:
    return [name for name, quantity in job.amount.items() if quantity]


def bound(who: Entry) -> int:
    return sum(machine is not None for machine in who.machines)


def gives(who: Entry) -> bool:
    """Whether a job keeps its minimum without its highest step."""
    kept = who.machines[: who.now - who.step]
    return who.now - who.step >= who.least and len([each for each in kept if each is not None]) >= who.least


def order(who: Entry, size: int) -> tuple[int, float]:
    return -who.priority, (size - who.least) / (who.most - who.least)


def rooms_now(world: World, draft: Draft) -> dict[str, dict[str, int]]:
    """What is left of each machine by the plan while pods that were terminating before still hold theirs."""
    rooms = rooms_after(world, draft)
    for machine in world.cluster.machines:
        rooms[machine.name] = plus(rooms[machine.name], plus(machine.soon, machine.idle, -1), -1)
    return rooms


def shift(
    now: dict[str, dict[str, int]],
    after: dict[str, dict[str, int]],
    machine: str | None,
    amount: Amounts,
    sign: int,
) -> None:
    assert machine is not None
    for rooms in (now, after):
        rooms[machine] = plus(rooms[machine], amount, sign)


def grows(world: World, who: Entry, job: Job, rooms: Mapping[str, Amounts], use: Mapping[str, int]) -> bool:
    """Whether one more step of a job finds places, and keeps the limits."""
    most = most_used(world)
    if any(use.get(name, 0) + who.step * job.amount[name] > most.get(name, 0) for name in asked(job)):
        return False
    left = {name: room for name, room in rooms.items() if job.permitted is None or name in job.permitted}
    for _ in range(who.step):
        machine = next((name for name, room in left.items() if fits(room, job.amount)), None)
        if machine is None:
            return False
        left[machine] = plus(left[machine], job.amount, -1)
    return True
