"""The partitions that a server has in one version of the cluster: those it owns, and copies of another's."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from elasticjob.trainer.store.applied_updates import AppliedUpdates
from elasticjob.trainer.store.optimizers import Rows as Matrix
from elasticjob.trainer.store.partitions import copies_of, partitions_of
from elasticjob.trainer.store.tables import PARTITIONS, Change, Ids, Slab, Table, among, ids_in, matrix
from elasticjob.trainer.store.wire import (
    ROOM,
    Answer,
    Fetch,
    Gradients,
    Hello,
    Partitions,
    Pull,
    Push,
    Refused,
    Rows,
    Taken,
)


class PartitionSet:
    """Partitions of the server at `place` of `servers`, in one version. Not for several threads at once."""

    def __init__(self, version: int = 0, place: int = 0, servers: int = 0) -> None:
        self.version, self.frozen = version, False
        self.owned = frozenset(partitions_of(place, servers) if servers else ())
        self.copied = frozenset(copies_of(place, servers) if servers else ())
        self.slabs: dict[str, Slab] = {}
        self.counted = {each: AppliedUpdates() for each in self.owned | self.copied}

    def answer(self, request: Hello | Pull | Push | Fetch) -> Answer:
        """Carry out a request."""
        try:
            match request:
                case Hello():
                    return self._greet(request.tables)
                case Pull():
                    return self._pull(request)
                case Push():
                    return self._push(request)
                case Fetch():
                    return self._fetch(request)
        except (ValueError, LookupError) as error:
            return Refused(str(error))

    def part(self, partitions: Iterable[int]) -> Partitions:
        """Return copies of whole partitions."""
        chosen = sorted(partitions)
        parts = tuple(slab.part(chosen) for slab in self.slabs.values())
        return Partitions(parts, {each: self.counted[each].copy() for each in chosen})

    def put(self, partitions: Partitions) -> None:
        """Take whole partitions over."""
        for part in partitions.parts:
            self._greet([part.table])
            self.slabs[part.table.name].put(part)
        self.counted |= {
            each: counted for each, counted in partitions.counted.items() if each in self.counted
        }

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that are known; also for a thread that does not have the lock."""
        return tuple(slab.table for slab in list(self.slabs.values()))

    def know(self, tables: Iterable[Table]) -> None:
        """Add tables that are not here yet."""
        for table in tables:
            self.slabs.setdefault(table.name, Slab(table))

    def _greet(self, tables: Iterable[Table]) -> Answer:
        for table in tables:
            slab = self.slabs.setdefault(table.name, Slab(table))
            if slab.table != table:
                return Refused(f"table {table.name} was made as {slab.table}, and is {table} now")
        return Taken()

    def _pull(self, request: Pull) -> Answer:
        if why := self._outdated(request.version):
            return Refused(why, later=True)
        ids = ids_in(request.ids)
        self._refuse_strangers(ids, self.owned)
        slab = self._slab(request.table)
        if 4 * len(ids) * slab.table.dim > ROOM:
            raise ValueError(f"{len(ids)} rows of {request.table} are too many for one answer: pull fewer")
        return Rows(slab.rows(ids).tobytes())

    def _push(self, request: Push) -> Answer:
        if why := self._outdated(request.version):
            return Refused(why, later=True)
        if self.frozen:
            return Refused("the values move to other servers", later=True)
        own = self.copied if request.copy else self.owned
        if len({each.table for each in request.gradients}) < len(request.gradients):
            raise ValueError("an update names a table twice")
        updates = [self._update(each, own) for each in request.gradients]
        touched = {int(each) for _, ids, _ in updates for each in np.unique(ids % PARTITIONS)}
        fresh = {each for each in touched if not self.counted[each].has(request.key)}
        changes = list[tuple[Slab, Change]]()
        for slab, ids, gradients in updates:
            chosen = among(ids, fresh)
            try:
                changes.append((slab, slab.change(ids[chosen], gradients[chosen])))
            except OverflowError as error:
                raise ValueError(
                    f"an update of {slab.table.name}: {error}: make its gradients or its rate smaller"
                ) from None
        for slab, changed in changes:  # all of them, or none
            slab.set(changed)
        for each in fresh:
            self.counted[each].add(request.key)
        for done in request.done:
            for each in own:
                self.counted[each].forget(done)
        return Taken()

    def _fetch(self, request: Fetch) -> Answer:
        if why := self._outdated(request.since):
            return Refused(why)
        if missing := set(request.partitions) - self.counted.keys():
            return Refused(f"partitions {sorted(missing)} are not here")
        self.frozen = True
        return self.part(request.partitions)

    def _update(self, each: Gradients, own: frozenset[int]) -> tuple[Slab, Ids, Matrix]:
        slab, ids = self._slab(each.table), ids_in(each.ids)
        self._refuse_strangers(ids, own)
        if len(np.unique(ids)) < len(ids):
            raise ValueError(f"an update of {each.table} names a row twice")
        try:
            gradients = matrix(each.values, len(ids), slab.table.dim)
        except ValueError as error:
            raise ValueError(f"an update of {each.table}: {error}") from None
        if not np.isfinite(gradients).all():
            raise ValueError(f"an update of {each.table} has gradients that are no numbers")
        return slab, ids, gradients

    def _outdated(self, version: int) -> str:
        return (
            "" if version == self.version else f"version {version} is not in use here: it is {self.version}"
        )

    def _refuse_strangers(self, ids: Ids, own: frozenset[int]) -> None:
        if not among(ids, own).all():
            raise ValueError("rows of partitions that are not here")

    def _slab(self, name: str) -> Slab:
        if name not in self.slabs:
            raise LookupError(f"there is no table {name}")
        return self.slabs[name]
