"""Each record counts once, from any sender, with retries in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.api.rpc.shards import Shard
from elasticjob.trainer.store.applied_updates import AppliedUpdates, Done, Key, Overlap
from elasticjob.trainer.store.store import cuts


def key(number: int, start: int, end: int) -> Key:
    return Key("records", number, start, end)


def test_a_repeated_range_is_counted_already() -> None:
    counted = AppliedUpdates()
    counted.add(key(3, 30, 34))
    assert counted.has(key(3, 30, 34))
    assert not counted.has(key(3, 34, 38))
    assert not counted.has(key(4, 30, 34))


def test_a_shard_that_is_done_is_counted_whole_for_ever() -> None:
    counted = AppliedUpdates()
    counted.add(key(3, 30, 34))
    counted.forget(Done("records", (3,)))
    assert counted.open == {"records": {}}
    assert counted.has(key(3, 38, 40))
    assert not AppliedUpdates().has(key(3, 38, 40))


def test_batches_of_another_size_are_refused_while_a_shard_is_open() -> None:
    counted = AppliedUpdates()
    counted.add(key(3, 30, 34))
    with pytest.raises(Overlap, match="counted up to 34: use the size of batches of before"):
        counted.has(key(3, 32, 37))


@given(st.permutations(range(200)))
def test_done_shards_in_any_order_become_one_range(numbers: list[int]) -> None:
    counted = AppliedUpdates()
    for number in numbers:
        counted.forget(Done("records", (number,)))
    assert counted.done == {"records": [(0, 200)]}


@given(st.integers(1, 40), st.integers(1, 12), st.data())
def test_a_shard_is_cut_at_the_same_places_however_often_it_is_dealt(
    length: int, size: int, data: st.DataObject
) -> None:
    whole = list(cuts(Shard(number=7, lease=1, epoch=0, start=100, end=100 + length), size))
    assert [start for start, _ in whole] + [100 + length] == [100] + [end for _, end in whole]
    at = data.draw(st.integers(0, len(whole) - 1))
    used = whole[at][0] - 100
    again = Shard(number=7, lease=2, epoch=0, start=100 + used, end=100 + length, used=used)
    assert list(cuts(again, size)) == whole[at:]
