"""A ResumableLoader gives each batch of an epoch once, or says what changed: over DataLoader's signature."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from itertools import chain, islice
from typing import Any, Final

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from elasticjob.trainer.torch.checkpoint import ResumableLoader

RECORDS: Final = 23
EPOCHS: Final = 2
DATA: Any = list(range(RECORDS))


class Stream(IterableDataset[int]):
    """The records, dealt to the processes that read."""

    def __iter__(self) -> Iterator[int]:
        reader = get_worker_info()
        yield from DATA[reader.id :: reader.num_workers] if reader else DATA


class Batches(Sampler[list[int]]):
    """Batches of three records, in an order from a generator of all."""

    def __init__(self, draw: Callable[[int], Any]) -> None:
        self._draw = draw

    def __iter__(self) -> Iterator[list[int]]:
        order = [int(each) for each in self._draw(RECORDS)]
        for at in range(0, RECORDS, 3):
            yield order[at : at + 3]
            random.random()


class Flat(Batches):
    """The same, a record at a time."""

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            yield from batch


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def lists(batch: list[int]) -> list[int]:
    return [*batch]


def idle(_: int) -> None:
    """Prepare nothing."""


DRAWS: Final = (torch.randperm, np.random.permutation, lambda size: random.sample(range(size), size))
SAMPLERS: Final[tuple[Callable[[], Any], ...]] = (
    lambda: None,
    lambda: SequentialSampler(DATA),
    lambda: RandomSampler(DATA),
    lambda: RandomSampler(DATA, generator=seeded()),
    lambda: RandomSampler(DATA, replacement=True, num_samples=11),
    lambda: SubsetRandomSampler(range(3, 20)),
    lambda: WeightedRandomSampler([1.0, 2.0] * 11, 15),
    lambda: DistributedSampler(DATA, num_replicas=2, rank=1),
    lambda: DistributedSampler(DATA, num_replicas=2, rank=1, seed=3),
    lambda: DistributedSampler(DATA, num_replicas=2, rank=0, shuffle=False),
    lambda: [5, 3, 8, 1],
    *(partial(Flat, draw) for draw in DRAWS),
)
BATCHES: Final[tuple[Callable[[], Any], ...]] = (
    lambda: BatchSampler(RandomSampler(DATA), 4, drop_last=False),
    lambda: BatchSampler(Flat(torch.randperm), 5, drop_last=True),
    lambda: [[1, 2], [3], [4, 5, 6]],
    *(partial(Batches, draw) for draw in DRAWS),
)
ALPHABET: Final[dict[str, tuple[Callable[[], Any], ...]]] = {
    "dataset": (lambda: DATA, Stream),
    "batch_size": (lambda: 1, lambda: 4, lambda: 7, lambda: None),
    "shuffle": (lambda: None, lambda: True),
    "sampler": SAMPLERS,
    "batch_sampler": (lambda: None, *BATCHES),
    "num_workers": (*[lambda: 0] * 78, lambda: 2, lambda: 3),
    "collate_fn": (lambda: lists, lambda: None),
    "pin_memory": (lambda: False,),
    "drop_last": (lambda: False, lambda: True),
    "timeout": (lambda: 0, lambda: 60),
    "worker_init_fn": (lambda: None, lambda: idle),
    "multiprocessing_context": (lambda: None, lambda: "fork"),
    "generator": (lambda: None, seeded),
    "prefetch_factor": (lambda: None, lambda: 3),
    "persistent_workers": (lambda: False, lambda: True),
    "pin_memory_device": (lambda: "",),
    "in_order": (lambda: True, lambda: False),
}
OF_READERS: Final = ("timeout", "multiprocessing_context", "prefetch_factor", "persistent_workers")
Make = Callable[[], ResumableLoader]


@st.composite
def makes(draw: st.DrawFn) -> Make:
    """Return how to make a loader: a way that DataLoader takes."""
    chosen = {name: draw(st.sampled_from(choices)) for name, choices in ALPHABET.items()}

    def make() -> ResumableLoader:
        values = {name: value() for name, value in chosen.items()}
        if isinstance(values["dataset"], Stream):
            for name in ("shuffle", "sampler", "batch_sampler"):
                del values[name]
        elif values["batch_sampler"] is not None:
            for name in ("batch_size", "shuffle", "sampler", "drop_last"):
                del values[name]
        elif values["sampler"] is not None:
            del values["shuffle"]
        if not values["num_workers"]:
            for name in OF_READERS:
                del values[name]
        elif values["num_workers"] > 1:
            del values["in_order"]
        if values.get("batch_size", 1) is None:
            values |= {"drop_last": False, "collate_fn": None}
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(random.SystemRandom().randrange(1 << 32))  # another process
        return ResumableLoader(**values, seed=7)

    return make


def taken(loader: ResumableLoader, many: int | None = None) -> list[list[int]]:
    """Return so many batches, as lists."""
    batches = iter(loader.endless()) if many is not None else iter(loader)
    return [torch.as_tensor(batch).flatten().tolist() for batch in islice(batches, many)]


def test_the_alphabet_is_the_whole_signature_of_dataloader() -> None:
    assert set(ALPHABET) == set(signature(DataLoader).parameters)


@settings(max_examples=15)
@given(makes(), st.data())
def test_after_a_resume_each_batch_comes_once(make: Make, data: st.DataObject) -> None:
    alone = make()
    expected = [batch for _ in range(EPOCHS) for batch in taken(alone)]
    stop = data.draw(st.integers(0, len(expected)), "stop")
    one, other = make(), make()
    first = taken(one, stop)
    other.load_state_dict(one.state_dict())
    assert first + taken(other, len(expected) - stop) == expected


@settings(max_examples=20)
@given(makes(), makes(), st.data())
def test_with_other_arguments_each_record_comes_once_or_the_change_is_refused(
    make: Make, change: Make, data: st.DataObject
) -> None:
    expected = Counter(chain(*taken(make())))
    one, other = make(), change()
    first = taken(one, data.draw(st.integers(1, len(taken(make()))), "stop"))
    try:
        other.load_state_dict(one.state_dict())
        rest = taken(other)
    except ValueError as error:
        if "finish the epoch with what it had" not in str(error):
            raise
    else:
        assert Counter(chain(*first, *rest)) == expected


def test_each_epoch_has_an_order_of_its_own() -> None:
    sampler: Sampler[int] = DistributedSampler(DATA, num_replicas=1, rank=0)
    batches = taken(ResumableLoader(DATA, 4, sampler=sampler), 12)
    assert sorted(chain(*batches[:6])) == sorted(chain(*batches[6:])) == DATA
    assert batches[:6] != batches[6:]


def test_a_checkpoint_of_before_loads_and_goes_on_in_the_order_of_before() -> None:
    state = {"epoch": 1, "batch": 2, "order": {"batch size": 4, "seed": 7, "drop_last": False}}
    loader = ResumableLoader(DATA, 4, sampler=DistributedSampler(DATA, num_replicas=1, rank=0), seed=7)
    loader.load_state_dict(state)
    whole = taken(ResumableLoader(DATA, 4, sampler=DistributedSampler(DATA, num_replicas=1, rank=0), seed=7))
    assert taken(loader) == whole[2:]  # set_epoch had not been called


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shuffle": True}, "sampler SequentialSampler became RandomSampler"),
        ({"sampler": DistributedSampler(DATA, 2, 0)}, "became DistributedSampler"),
        ({"batch_size": 5}, "2 batches of epoch 0 in another order: batch size 4 became 5; fin"),
        ({"seed": 1}, "seed 0 became 1"),
        ({"dataset": DATA[1:]}, "records 23 became 22"),
    ],
)
def test_a_change_within_an_epoch_is_named(change: dict[str, Any], said: str) -> None:
    before = ResumableLoader(DATA, 4)
    taken(before, 2)
    with pytest.raises(ValueError, match=said):
        ResumableLoader(**{"dataset": DATA, "batch_size": 4, **change}).load_state_dict(before.state_dict())
    assert len(list(before)) == 4  # the epoch is over: what follows may be as it likes
    ResumableLoader(**{"dataset": DATA, "batch_size": 4, **change}).load_state_dict(before.state_dict())


def test_what_cannot_be_gone_on_with_is_refused_where_it_is_made() -> None:
    with pytest.raises(ValueError, match="in_order=False"):
        ResumableLoader(DATA, num_workers=2, in_order=False)
    with pytest.raises(ValueError, match="an epoch of list has no batches"):
        next(ResumableLoader(DATA, 50, drop_last=True).endless())


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=4), st.integers(1, 3))
def test_another_number_of_workers_takes_what_is_left_of_an_epoch(
    worlds: list[tuple[int, int]], batch: int
) -> None:
    """A record comes twice only where the last ones are made as many for each worker."""
    place, came = None, Counter[int]()
    for number, (workers, steps) in enumerate(worlds, 1):
        for rank in reversed(range(workers)):
            loader = ResumableLoader(DATA, batch, sampler=DistributedSampler(DATA, workers, rank), seed=7)
            if place:
                loader.load_state_dict(place if rank == 0 else {**place, "taken": []})
            came.update(
                chain(*(each.tolist() for each in islice(loader, steps if number < len(worlds) else None)))
            )
        place = loader.state_dict()
        if place["epoch"]:
            break
    assert set(came) == {*DATA}
    assert came.total() < RECORDS + max(workers for workers, _ in worlds)
