"""The laws of all splitters: every record once per epoch, and the same shards for every master."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from elasticjob.api.rpc.permutation import key_of, place
from elasticjob.api.rpc.shards import Dataset, Partition, Shard
from elasticjob.master.shards import splitters
from elasticjob.master.shards.splitters import SPLITTERS, Splitter

PARTITIONS = (Partition(name="a", offset=7), Partition(name="b"), Partition(name="c", offset=1000))


@st.composite
def datasets(draw: st.DrawFn, row: Splitter) -> Dataset:
    """A dataset that this splitter accepts: of the likely ones, the first that has no problem."""
    likely: dict[str, Any] = {
        "name": "any",
        "splitter": row.name,
        "size": draw(st.integers(1, 300)),
        "shard": draw(st.integers(1, 40)),
        "seed": draw(st.integers(0, 1000)),
    }
    choices = (
        Dataset(**likely, epochs=draw(st.integers(1, 3)), shuffle=draw(st.booleans())),
        Dataset(**likely, partitions=PARTITIONS[: draw(st.integers(1, 3))]),
    )
    return next(each for each in choices if not row.problem(each))


def shards(dataset: Dataset) -> list[Shard]:
    count = splitters.total(dataset)
    assert count is not None
    return [splitters.splitter(dataset).cut(dataset, number, 1) for number in range(count)]


@pytest.mark.parametrize("row", SPLITTERS, ids=lambda row: row.name)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_every_record_comes_once_per_epoch(row: Splitter, data: st.DataObject) -> None:
    dataset = data.draw(datasets(row))
    made = shards(dataset)
    records = Counter((each.epoch, each.partition, record) for each in made for record in each.records)
    assert set(records.values()) == {1}
    assert len(records) == dataset.size * dataset.epochs
    if not dataset.partitions:
        assert {record for _, _, record in records} == set(range(dataset.size))
    assert made == shards(dataset)
    assert [each.number for each in made] == list(range(len(made)))
    assert all(0 < len(each) <= dataset.shard for each in made)
    assert all(splitters.length(dataset, each.number) == len(each) for each in made)
    assert row.part(dataset) >= 1


@pytest.mark.parametrize("name", ["table", "text"])
def test_order_differs_from_epoch_to_epoch_and_by_the_seed(name: str) -> None:
    dataset = Dataset(name="any", splitter=name, size=100, shard=5, epochs=2, shuffle=True)
    made = [[tuple(each.records) for each in shards(dataset) if each.epoch == epoch] for epoch in (0, 1)]
    other = Dataset(name="any", splitter=name, size=100, shard=5, shuffle=True, seed=1)
    assert made[0] != made[1] != [tuple(each.records) for each in shards(other)] != made[0]


def test_huge_table_is_shuffled_within_sub_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitters, "PART", 8)
    starts = [each.start for each in shards(Dataset(name="huge", size=20, shard=1, shuffle=True))]
    assert [sorted(starts[i : i + 8]) for i in (0, 8, 16)] == [[*range(8)], [*range(8, 16)], [*range(16, 20)]]
    assert starts != sorted(starts)


def test_stream_takes_its_partitions_in_turn_from_their_offsets() -> None:
    stream = Dataset(name="s", splitter="streaming", size=25, shard=10, partitions=PARTITIONS[:2])
    assert [(each.partition, each.start, each.end) for each in shards(stream)] == [
        ("a", 7, 17),
        ("b", 0, 10),
        ("a", 17, 22),
    ]


@pytest.mark.parametrize(
    ("dataset", "problem"),
    [
        (Dataset(name="d"), "size is 0: only a stream has no end"),
        (Dataset(name="d", size=1, partitions=PARTITIONS), "partitions belong to the splitter streaming"),
        (Dataset(name="d", splitter="streaming"), "a stream needs partitions of different names, not []"),
        (
            Dataset(name="d", splitter="streaming", partitions=PARTITIONS, epochs=2),
            "a stream is read once, not in 2 epochs",
        ),
        (Dataset(name="d", splitter="streaming", partitions=PARTITIONS), ""),
    ],
)
def test_dataset_that_does_not_fit_is_refused_in_words(dataset: Dataset, problem: str) -> None:
    assert splitters.splitter(dataset).problem(dataset) == problem


def test_unknown_splitter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(LookupError, match="there are table, text, streaming"):
        splitters.splitter(Dataset(name="d", splitter="tabel"))


@given(n=st.integers(1, 400), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_shuffled_order_is_a_permutation(n: int, seed: int) -> None:
    assert sorted(place(k, n, key_of(seed, "d", 0)) for k in range(n)) == list(range(n))


def test_all_orders_come() -> None:
    orders = Counter(tuple(place(k, 4, key_of(seed, "d", 0)) for k in range(4)) for seed in range(2400))
    assert len(orders) == 24
    assert min(orders.values()) > 50
