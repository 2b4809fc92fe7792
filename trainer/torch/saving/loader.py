"""A DataLoader that goes on where a checkpoint was taken, for loops that are not elastic."""

from __future__ import annotations

import random
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from inspect import signature
from itertools import islice
from typing import Any, Final

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset

from elasticjob.trainer.records import order
from elasticjob.trainer.records.order import FINISH
from elasticjob.trainer.torch.saving import random_state

TORCHS: Final = "torch.utils.data."
"""Samplers of torch's draw from their `generator`, others from wherever they like."""
END: Final = object()


class ResumableLoader(DataLoader[Any]):
    """A DataLoader, of an iterable dataset too, that can begin an epoch at any batch.

    `shuffle` and whatever a sampler draws are by `seed` and epoch. Put the loader into the state of a
    `Checkpoint`: batches that the loop has taken do not come again. They are read and thrown away, so what
    comes before a place has to be the same each time that the dataset is read; of samplers that is checked.
    """

    counts = True
    """Whether the place is that of the batches that were taken; else others set `epoch` and `batch`."""

    def __init__(self, *arguments: Any, seed: int = 0, **more: Any) -> None:
        given = signature(DataLoader).bind(*arguments, **more).arguments
        if not given.get("in_order", True) and given.get("num_workers", 0) > 1:
            raise ValueError("in_order=False: batches come in another order each time, so leave it out")
        super().__init__(**{**given, "generator": given.get("generator") or torch.Generator()})
        self.seed = seed
        self.epoch = self.batch = 0
        self._before = 0  # records of this epoch that were taken by another number of workers
        self._loaded: tuple[int, int] | None = None  # rank, and the checksum of what it had taken
        self._checksums = array("I")  # of the indices of this epoch, up to each batch
        self._generators: list[tuple[torch.Generator, int]] = []
        for each in self._samplers():
            if getattr(each, "generator", self.generator) is None:
                each.generator = torch.Generator().manual_seed(seed)
            own = getattr(each, "generator", None)
            if isinstance(own, torch.Generator) and own is not self.generator:
                self._generators.append((own, own.initial_seed()))

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.generator.manual_seed(self.seed + self.epoch)
        for generator, seed in self._generators:
            generator.manual_seed(seed + self.epoch)
        taken = self._progress()
        for each in (self.dataset, *self._samplers()):
            if hasattr(each, "set_epoch") and (taken or not self.batch):  # else old: it had not been called
                each.set_epoch(self.epoch)
        rest = self._rest(super().__iter__(), self.batch, taken)
        return self._counted(rest) if self.counts else rest

    def endless(self) -> Iterator[Any]:
        """Yield batches from the place on, epoch after epoch, without end."""
        while True:
            empty = self.batch == self._before == 0
            for batch in self:
                empty = False
                yield batch
            if empty:
                raise ValueError(f"an epoch of {type(self.dataset).__name__} has no batches")

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is: `batch` is the next one of the epoch, of batches in this `order`."""
        place = {"epoch": self.epoch, "batch": self.batch, "order": self._order()}
        return {**place, "before": self._before, "taken": list(self._progress() or ())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next epoch there. ValueError if it is within an epoch of other batches."""
        mine, theirs, taken = self._order(), dict(state.get("order", {})), state.get("taken", ())
        batch, before, workers = state["batch"], state.get("before", 0), theirs.get("workers")
        others = workers and workers != mine.get("workers") and type(self.sampler) is DistributedSampler
        if others and (batch or before):
            before += batch * (theirs["batch size"] or 1) * workers
            theirs["workers"], batch, taken = mine["workers"], 0, ()
        if batch or before:
            order.check(f"{state['batch']} batches of epoch {state['epoch']}", mine, theirs)
        self.epoch, self.batch, self._before = state["epoch"], batch, before
        self._loaded = (taken[0], taken[1]) if taken else None
        del self._checksums[:]

    @property
    def _index_sampler(self) -> Any:
        """Return what DataLoader draws indices from: it has no other place where they are seen."""
        return Drawn(super()._index_sampler, self._drawn)

    def _drawn(self, sampler: Any) -> Iterator[Any]:
        """Yield what a sampler gives for each batch, and keep the checksums."""
        del self._checksums[:]
        checksum = 0
        if self._before:
            left = dealt_anew(self.sampler, self._before)  # type: ignore[arg-type]  # as it was loaded
            sampler = left if self.batch_size is None else BatchSampler(left, self.batch_size, self.drop_last)
        both = (sampler, getattr(sampler, "sampler", sampler))
        known = self._before or all(type(each).__module__.startswith(TORCHS) for each in both)
        for indices in sampler if known else by_seed(sampler, self.seed + self.epoch):
            plain = indices.tolist() if hasattr(indices, "tolist") else indices
            checksum = zlib.crc32(repr(plain).encode(), checksum)
            self._checksums.append(checksum)
            yield indices

    def _samplers(self) -> list[Any]:
        """Return what indices come from."""
        if isinstance(self.dataset, IterableDataset):
            return []
        of_batches = getattr(self.batch_sampler, "sampler", None)
        return [each for each in (self.sampler, self.batch_sampler, of_batches) if each is not None]

    def _order(self) -> dict[str, Any]:
        """Return what the batches depend on, the same on every worker."""
        of_batches = {"batch size": self.batch_size, "drop_last": self.drop_last}
        order: dict[str, Any] = {**of_batches, "seed": self.seed}
        if hasattr(self.dataset, "__len__"):
            order["records"] = len(self.dataset)
        if isinstance(self.dataset, IterableDataset):
            order["processes that read"] = self.num_workers
        else:
            own = self.sampler if self.batch_sampler is None or self.batch_size else self.batch_sampler
            order["sampler"] = type(own).__name__
        for each in self._samplers():
            if isinstance(each, DistributedSampler):
                order |= {"workers": each.num_replicas, "its seed": each.seed, "its shuffle": each.shuffle}
        return order

    def _progress(self) -> tuple[int, int] | None:
        """Return the rank of this worker and the checksum of what it has taken of the epoch, if known."""
        if 0 < self.batch <= len(self._checksums):
            return random_state.place()[0], self._checksums[self.batch - 1]
        return self._loaded if self.batch else None

    def _rest(self, batches: Iterator[Any], first: int, taken: tuple[int, int] | None) -> Iterator[Any]:
        """Yield the batches from the `first` on. ValueError if others come before than were taken."""
        before = sum(1 for _ in islice(batches, first))
        mine = taken is not None and taken[0] == random_state.place()[0]  # others have taken other ones
        if taken and (before < first or (mine and self._checksums[first - 1] != taken[1])):
            raise ValueError(
                f"the checkpoint has taken {first} batches of epoch {self.epoch}, and other ones come now: "
                f"the records or {self._order().get('sampler', 'the dataset')} changed, or it does not draw "
                f"by its `generator`, its seed and set_epoch alone; {FINISH}"
            )
        yield from batches

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.batch += 1
            yield batch
        self.epoch, self.batch, self._before = self.epoch + 1, 0, 0


class Drawn:
    """A sampler whose indices are drawn by `draw`."""

    def __init__(self, sampler: Any, draw: Callable[[Any], Iterator[Any]]) -> None:
        self._sampler, self._draw = sampler, draw

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        return self._draw(self._sampler)


def dealt_anew(sampler: DistributedSampler[Any], before: int) -> list[int]:
    """Return this worker's share of an epoch of which others, more or fewer, have taken `before` records."""
    alone: DistributedSampler[Any] = DistributedSampler(
        sampler.dataset, 1, 0, shuffle=sampler.shuffle, seed=sampler.seed
    )
    alone.set_epoch(sampler.epoch)
    left, workers = list(alone)[before:], sampler.num_replicas
    odd = len(left) % workers
    if odd:
        left = left[:-odd] if sampler.drop_last else left + (left * workers)[: workers - odd]
    return left[sampler.rank :: workers]


def by_seed(sampler: Iterable[Any], seed: int) -> Iterator[Any]:
    """Yield what a sampler gives if all generators are seeded; those of the script stay as they are."""
    own, rest = None, iter(())
    while True:
        scripts = random_state.drawn()
        try:
            if own is None:
                seed_all(seed)
                rest = iter(sampler)
            else:
                random_state.restore(own)
            indices = next(rest, END)
            own = random_state.drawn()
        finally:
            random_state.restore(scripts)
        if indices is END:
            return
        yield indices


def seed_all(seed: int) -> None:
    """Seed torch, random and, if it is imported, NumPy."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFF_FFFF)
