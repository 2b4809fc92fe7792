"""Where the records of a training come from: indexable datasets, and datasets that are read by ranges.

Which records belong to a micro-batch is a pure function of seed, epoch and place (`Order`); torch's
DataLoader reads ahead along it, in processes if asked to, and is started anew when the world has changed.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any, Final, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

from elasticjob.trainer.link.channel import FD
from elasticjob.trainer.records.sampler import ENDLESS, Piece, Position, Sampler
from elasticjob.trainer.torch.records.randomness import keep_random_state, seed_all

CPU: Final = torch.device("cpu")
SET_PARENT_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG


class Part(NamedTuple):
    """A range of records to read: from `start` to before `stop`, of `partition` in a stream of several."""

    start: int
    stop: int
    partition: int = 0


Read = Callable[[Part], Iterable[Any]]


class Order(Protocol):
    """The order of the records in each epoch, the same on every worker."""

    @property
    def records(self) -> int:
        """The number of records in an epoch."""
        ...

    def at(self, epoch: int, places: range) -> Sequence[Any]:
        """Return what stands at `places` of `epoch`: indices, or parts to read."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return what the order depends on, by name: a checkpoint within an epoch needs the same."""
        ...


class Indices:
    """The indices of a dataset, shuffled anew in each epoch or as they are."""

    def __init__(self, records: int, seed: int, *, shuffle: bool) -> None:
        self.records = records
        self._seed, self._shuffle = seed, shuffle
        self._known: tuple[int, Tensor] | None = None

    def at(self, epoch: int, places: range) -> list[int]:
        if not self._shuffle:
            return list(places)
        if self._known is None or self._known[0] != epoch:
            self._known = (epoch, permutation(self.records, self._seed, epoch))
        indices: list[int] = self._known[1][places.start : places.stop].tolist()
        return indices

    def facts(self) -> dict[str, Any]:
        return {"records": self.records, "seed": self._seed, "shuffle": self._shuffle}


class SamplerOrder:
    """The indices that a sampler of the user's gives, anew in each epoch: the same ones on every worker.

    Its random numbers are seeded by seed and epoch; one with `set_epoch` is told the epoch.
    """

    def __init__(self, sampler: Any, seed: int) -> None:
        self.records = len(sampler)
        self._sampler, self._seed = sampler, seed
        self._known: tuple[int, list[int]] | None = None

    def at(self, epoch: int, places: range) -> list[int]:
        if self._known is None or self._known[0] != epoch:
            self._known = (epoch, self._drawn(epoch))
        return self._known[1][places.start : places.stop]

    def facts(self) -> dict[str, Any]:
        return {"records": self.records, "seed": self._seed, "sampler": type(self._sampler).__name__}

    def _drawn(self, epoch: int) -> list[int]:
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        with keep_random_state():
            seed_all(stream(self._seed, epoch, -1))
            drawn = [int(index) for index in self._sampler]
        if len(drawn) != self.records:
            raise ValueError(
                f"{type(self._sampler).__name__} gave {len(drawn)} indices in epoch {epoch}, and its length "
                f"is {self.records}: an epoch has as many records as len(sampler) says"
            )
        return drawn


class Shards:
    """Ranges of `shard` records each, shuffled anew in each epoch or in turn from several partitions.

    `offsets` is where each partition begins. With `records` None the stream has no end, and no epochs.
    """

    def __init__(
        self, records: int | None, shard: int, seed: int, *, shuffle: bool, offsets: Sequence[int] = (0,)
    ) -> None:
        if shard < 1:
            raise ValueError(f"shard is {shard}: it is the number of records of a range, at least 1")
        if records is None and shuffle:
            raise ValueError("a stream without an end cannot be shuffled: give records=, or shuffle=False")
        if len(offsets) != 1 and (records is not None or not offsets):
            raise ValueError("offsets are for streams without an end: one for each partition")
        self.records = ENDLESS if records is None else records
        self._shard, self._seed, self._shuffle = shard, seed, shuffle
        self._offsets = tuple(offsets)
        self._known: tuple[int, Tensor, Tensor] | None = None

    def at(self, epoch: int, places: range) -> list[Part]:
        parts: list[Part] = []
        place = places.start
        while place < places.stop:
            shard, inside, length = self._draw(epoch, place) if self._shuffle else self._in_turn(place)
            stop = min(inside + places.stop - place, length)
            partition, start = shard % len(self._offsets), shard // len(self._offsets) * self._shard
            start += self._offsets[partition]
            parts.append(Part(start + inside, start + stop, partition))
            place += stop - inside
        return parts

    def facts(self) -> dict[str, Any]:
        names = {"records": self.records, "shard": self._shard, "offsets": list(self._offsets)}
        return names | {"seed": self._seed, "shuffle": self._shuffle}

    def _in_turn(self, place: int) -> tuple[int, int, int]:
        """Return the shard at `place`, the place inside of it, and its length."""
        shard, inside = divmod(place, self._shard)
        return shard, inside, min(self._shard, self.records - shard * self._shard)

    def _draw(self, epoch: int, place: int) -> tuple[int, int, int]:
        if self._known is None or self._known[0] != epoch:
            order = permutation(-(-self.records // self._shard), self._seed, epoch)
            lengths = torch.full_like(order, self._shard)
            lengths[order == len(order) - 1] = self.records - (len(order) - 1) * self._shard
            self._known = (epoch, order, lengths.cumsum(0))
        _, order, ends = self._known
        at = int(torch.searchsorted(ends, place, right=True))
        before = int(ends[at - 1]) if at else 0
        return int(order[at]), place - before, int(ends[at]) - before


class Fetch(NamedTuple):
    """What a process of the DataLoader reads for one micro-batch, and the seed of its random numbers."""

    seed: int
    what: Sequence[Any]


class Records(Dataset[Any]):
    """A dataset as torch's DataLoader sees it: one "index" is a whole micro-batch."""

    def __init__(self, read: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
        self._read = read

    def __getitems__(self, fetch: Fetch) -> Sequence[Any]:
        if get_worker_info() is not None:
            seed_all(fetch.seed)
            return self._read(fetch.what)
        with keep_random_state():
            seed_all(fetch.seed)
            return self._read(fetch.what)


@dataclass(frozen=True)
class Place:
    """A worker's part of the data: rank, number of workers, and micro-batches of the job.

    `together` workers compute each micro-batch together.
    """

    rank: int
    size: int
    slots: int
    together: int = 1


class Loader:
    """The records of a training or an evaluation; made by `Elastic.loader` and `Elastic.stream`."""

    def __init__(
        self,
        order: Order,
        read: Callable[[Sequence[Any]], Sequence[Any]],
        *,
        global_batch: int,
        micro_batch: int | None,
        seed: int,
        workers: int,
        collate_fn: Callable[[list[Any]], Any] | None,
        drop_last: bool,
        more: dict[str, Any],
    ) -> None:
        if more.keys() & OURS:
            names = ", ".join(sorted(more.keys() & OURS))
            raise TypeError(f"{names}: set by elasticjob, which decides the records of each worker and step")
        self.order = order
        self.global_batch, self.micro_batch = global_batch, micro_batch
        self.records = order.records
        if drop_last:
            self.records -= order.records % max(1, global_batch)
            if not self.records:
                raise ValueError(
                    f"drop_last leaves nothing of {order.records} records: a step takes {global_batch}"
                )
        self._seed = seed
        self._sampler: Sampler | None = None
        self._plan: Iterator[Fetch] = iter(())
        given = more.pop("worker_init_fn", None)
        self._loader: DataLoader[Any] = DataLoader(
            Records(read),
            batch_sampler=_Ahead(self),  # type: ignore[arg-type]  # a micro-batch is any object
            num_workers=workers,
            collate_fn=collate_fn or default_collate,
            worker_init_fn=_Init(given, os.getpid()) if workers else None,
            # else each start of reading draws a number of the script's
            **{"persistent_workers": workers > 0, "generator": torch.Generator().manual_seed(seed), **more},
        )
        self._batches: Iterator[Any] = iter(())
        self.sampler(1)  # its errors are the user's

    def __len__(self) -> int:
        """Return the number of steps of an epoch, which is the same for any number of workers."""
        return -(-self.records // self.global_batch)

    def facts(self) -> dict[str, Any]:
        """Return what the records of each step depend on."""
        return {**self.order.facts(), "global batch": self.global_batch, "records of an epoch": self.records}

    def sampler(self, slots: int) -> Sampler:
        """Return how the records are cut into steps for a job of `slots` workers at most."""
        if self._sampler is None or self._sampler.slots != slots:
            self._sampler = Sampler(self.records, self.global_batch, slots, self.micro_batch)
        return self._sampler

    def start(self, position: Position, place: Place) -> None:
        """Read the micro-batches of a worker from `position` on; `next` returns them."""
        sampler = self.sampler(place.slots)
        pieces = sampler.pieces_from(position, place.rank, place.size, place.together)
        self._begin(self._fetch(at, piece.index, piece.places) for at, piece in pieces)

    def read(self, pieces: Iterable[Piece]) -> Iterator[Any]:
        """Yield the batches of `pieces`, in the order of the dataset."""
        self._begin(self._fetch(Position(), piece.index, piece.places) for piece in pieces)
        return self._batches

    def next(self) -> Any:
        """Return the next micro-batch, as `collate_fn` made it."""
        return next(self._batches)

    def _begin(self, plan: Iterator[Fetch]) -> None:
        self._plan = plan
        self._batches = iter(self._loader)

    def _fetch(self, at: Position, index: int, places: range) -> Fetch:
        seed = stream(stream(self._seed, at.epoch, at.offset), index, 1)
        return Fetch(seed, self.order.at(at.epoch, places))

    def next_reads(self) -> Iterator[Fetch]:
        """Return what is read next."""
        return self._plan


OURS: Final = frozenset({"batch_size", "batch_sampler", "sampler", "shuffle", "drop_last", "num_workers"})


class _Ahead:
    """The batch sampler of a DataLoader: what its loader has planned when it is iterated."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Fetch]:
        return self._loader.next_reads()


class _Init:
    """First act of a DataLoader's process: end with its worker, and leave the channel to the agent alone."""

    def __init__(self, given: Callable[[int], None] | None, parent: int) -> None:
        self._given, self._parent = given, parent

    def __call__(self, number: int) -> None:
        if os.getppid() != self._parent:  # the parent of a forkserver's children is the server
            _end_with(multiprocessing.parent_process())
        elif sys.platform == "linux":
            ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() != self._parent:
                os._exit(1)
        if FD in os.environ:  # with a start method other than fork it is closed already
            _close_quietly(int(os.environ[FD]))
        if self._given:
            self._given(number)


def _end_with(worker: Any) -> None:
    """End this process when its worker ends: the sentinel is a pipe that closes then."""
    if worker is None:  # an orphan already
        os._exit(1)

    def wait() -> None:
        connection.wait([worker.sentinel])
        os._exit(1)

    threading.Thread(target=wait, name="elasticjob-worker", daemon=True).start()


def _close_quietly(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return


def by_index(dataset: Any) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that reads a list of indices of `dataset`."""
    return _ByIndex(dataset)


@dataclass(frozen=True)
class _ByIndex:
    dataset: Any

    def __call__(self, indices: Sequence[int]) -> Sequence[Any]:
        many = getattr(self.dataset, "__getitems__", None)
        return many(indices) if many else [self.dataset[index] for index in indices]


@dataclass(frozen=True)
class ByPart:
    """Reads parts with the user's function, and checks that each has as many records as it should."""

    read: Read

    def __call__(self, parts: Sequence[Part]) -> Sequence[Any]:
        records: list[Any] = []
        for part in parts:
            before = len(records)
            records.extend(self.read(part))
            if len(records) - before != part.stop - part.start:
                raise ValueError(
                    f"read({part}) returned {len(records) - before} records instead of "
                    f"{part.stop - part.start}: it must return each one from start to before stop"
                )
        return records


def permutation(records: int, seed: int, epoch: int) -> Tensor:
    """Return the order of the records in `epoch`, the same on every worker."""
    generator = torch.Generator().manual_seed(stream(seed, epoch, -1))
    return torch.randperm(records, generator=generator)


def stream(seed: int, step: int, index: int) -> int:
    """Return the seed of one stream of random numbers, unique to its arguments."""
    mixed = (seed * 0x9E3779B97F4A7C15 + step) * 0xBF58476D1CE4E5B9 + index + 1
    return (mixed ^ (mixed >> 31)) & 0x7FFF_FFFF_FFFF_FFFF


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch with its tensors on `device`."""
    if device.type == "cpu":
        return batch
    match batch:
        case Tensor():
            return batch.to(device, non_blocking=True)
        case dict():
            return {key: to_device(part, device) for key, part in batch.items()}
        case list():
            return [to_device(part, device) for part in batch]
        case tuple():
            parts = [to_device(part, device) for part in batch]
            return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
        case _:
            return batch.to(device) if hasattr(batch, "to") else batch
