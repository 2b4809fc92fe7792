"""Places for the instances of jobs: each job on few machines, unchanged jobs where they are. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from elasticjob.brain.fulfilment.state import Amounts, Cluster, Job

Places = Mapping[str, tuple[str, ...]]
"""The machines of a job's instances, by the key of the job; one name for each instance, sorted."""


class Room:
    """What is left on each machine while instances are taken away and placed."""

    def __init__(self, cluster: Cluster) -> None:
        machines = sorted(cluster.machines, key=lambda each: each.name)
        self.names = [each.name for each in machines]
        self.resources = sorted({name for each in machines for name in each.total})
        self._index = {name: at for at, name in enumerate(self.names)}
        free = [[each.soon.get(name, 0) for name in self.resources] for each in machines]
        shape = len(machines), len(self.resources)  # a cluster may have no machine that answers
        self.free: NDArray[np.int64] = np.array(free, dtype=np.int64).reshape(shape)

    def copy(self) -> Room:
        """Return the same room, to place other instances in."""
        found = copy(self)
        found.free = self.free.copy()
        return found

    def vector(self, amount: Amounts) -> NDArray[np.int64]:
        return np.array([amount.get(name, 0) for name in self.resources], dtype=np.int64)

    def fits(self, amount: Amounts, permitted: Iterable[str] | None = None) -> NDArray[np.int64]:
        """Return how many instances would find a place on each machine."""
        if any(value and name not in self.resources for name, value in amount.items()):
            return np.zeros(len(self.names), dtype=np.int64)
        wanted = self.vector(amount)
        used = wanted > 0
        if not used.any():
            raise ValueError("an instance that requests nothing fits any number of times")
        found = np.asarray(np.maximum((self.free[:, used] // wanted[used]).min(axis=1), 0), dtype=np.int64)
        if permitted is not None:
            allowed = set(permitted)
            found[[name not in allowed for name in self.names]] = 0
        return found

    def give_back(self, amount: Amounts, places: Iterable[str]) -> None:
        for name, count in Counter(places).items():
            if name in self._index:
                self.free[self._index[name]] += count * self.vector(amount)

    def take(self, amount: Amounts, places: Iterable[str]) -> None:
        for name, count in Counter(places).items():
            if name in self._index:
                self.free[self._index[name]] -= count * self.vector(amount)

    def place(
        self, amount: Amounts, count: int, permitted: Iterable[str] | None = None, own: Sequence[str] = ()
    ) -> tuple[str, ...] | None:
        """Take places for `count` instances, on few machines: best fit, and `own` machines first."""
        fits = self.fits(amount, permitted)
        if fits.sum() < count:
            return None
        mine = Counter(own)
        had = np.array([mine.get(name, 0) for name in self.names])
        found: list[str] = []
        while len(found) < count:
            wanted = count - len(found)
            whole = np.flatnonzero(fits >= wanted)
            if len(whole):
                at = min(whole, key=lambda i: (had[i] == 0, fits[i], -had[i], i))
            else:
                at = max(np.arange(len(fits)), key=lambda i: (fits[i], had[i], -i))
            number = min(wanted, int(fits[at]))
            found += [self.names[at]] * number
            fits[at] = 0
        self.take(amount, found)
        return tuple(sorted(found))


def bound(job: Job) -> tuple[str, ...]:
    """Return the machines of the instances that are placed."""
    return tuple(sorted(name for name in job.machines if name is not None))


def available(cluster: Cluster, jobs: Sequence[Job]) -> Room:
    """Return the room that these jobs share: without their instances, with the pending pods of others."""
    room = Room(cluster)
    for job in jobs:
        room.give_back(job.amount, bound(job))
    for demand in sorted(cluster.demands, key=lambda each: (-each.priority, each.submitted, each.key)):
        room.place(demand.amount, 1, demand.permitted)
    return room


def pack(room: Room, jobs: Sequence[Job], sizes: Mapping[str, Sequence[int]]) -> Places:
    """Return where the instances go in the room that the jobs share.

    A job has the first of its sizes, wanted first, that finds places.
    What keeps its size keeps its places, unless it waits for some. The others move to where they fit best,
    the largest first; if one of them lost more than it should, they keep their places as well.
    """
    packed = _pack(room.copy(), jobs, sizes, keep=False)
    if any(len(packed[job.key]) < min(len(bound(job)), sizes[job.key][0]) for job in jobs):
        return _pack(room.copy(), jobs, sizes, keep=True)
    return packed


def _pack(room: Room, jobs: Sequence[Job], sizes: Mapping[str, Sequence[int]], *, keep: bool) -> Places:
    kept: dict[str, tuple[str, ...]] = {}
    for job in jobs:
        places, size = bound(job), sizes[job.key][0]
        kept[job.key] = _fullest(places, size) if keep or len(places) == size else ()
        room.take(job.amount, kept[job.key])
    found = dict[str, tuple[str, ...]]()
    for job in sorted(jobs, key=lambda each: (-sizes[each.key][0], each.submitted, each.key)):
        had = kept[job.key]
        more = [size - len(had) for size in sizes[job.key] if size >= len(had)]
        added = (room.place(job.amount, size, job.permitted, bound(job)) for size in more)
        found[job.key] = tuple(sorted((*had, *next((places for places in added if places is not None), ()))))
    return found


def _fullest(places: tuple[str, ...], size: int) -> tuple[str, ...]:
    """Return so many places at most, of the machines that have most of them."""
    count = Counter(places)
    return tuple(sorted(sorted(places, key=lambda name: (-count[name], name))[:size]))
