"""The arithmetic of steps: every record once per epoch for any series of worlds; weights sum to the mean."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.api.rpc.nodes import Progress
from elasticjob.trainer.records.batch import bounds, micro_batches, shares
from elasticjob.trainer.records.sampler import ENDLESS, Position, Sampler, in_total

sizes = st.integers(1, 300)
slots = st.integers(1, 9)
samplers = st.builds(Sampler, sizes, st.integers(1, 64), slots, largest=st.none() | st.integers(1, 16))


@pytest.mark.parametrize(
    ("total", "parts", "expected"),
    [(10, 1, (10,)), (10, 3, (4, 3, 3)), (2, 3, (1, 1, 0)), (0, 2, (0, 0)), (9, 3, (3, 3, 3))],
)
def test_shares_differ_by_at_most_one(total: int, parts: int, expected: tuple[int, ...]) -> None:
    assert shares(total, parts) == expected


def test_shares_of_nobody_are_an_error() -> None:
    with pytest.raises(ValueError, match="cannot split 3 into 0 parts"):
        shares(3, 0)


@given(total=st.integers(0, 500), parts=st.integers(1, 20))
def test_bounds_cover_everything_once(total: int, parts: int) -> None:
    assert [index for part in bounds(total, parts) for index in part] == list(range(total))


@given(slots=slots, data=st.data())
def test_workers_share_all_micro_batches(slots: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, slots))
    dealt = [index for rank in range(size) for index in micro_batches(slots, size, rank)]
    assert dealt == list(range(slots))


def test_more_workers_than_micro_batches_is_an_error() -> None:
    with pytest.raises(ValueError, match="4 workers cannot share a global batch of 3"):
        micro_batches(3, 4, 0)


@given(sampler=samplers, data=st.data())
def test_every_record_once_per_epoch_for_any_series_of_worlds(sampler: Sampler, data: st.DataObject) -> None:
    position = Position()
    expected, taken = sampler.steps_left(position, 1), 0
    seen: list[int] = []
    while position.epoch == 0:
        size = data.draw(st.integers(1, sampler.slots))
        pieces = [piece for rank in range(size) for piece in sampler.window(position).of(rank, size)]
        seen += [place for piece in pieces for place in piece.places if piece.count]
        position, taken = sampler.following(sampler.window(position)), taken + 1
    assert seen == list(range(sampler.records))
    assert taken == expected
    assert position == Position(1)


@given(sampler=samplers)
def test_a_step_has_the_same_micro_batches_for_every_number_of_workers(sampler: Sampler) -> None:
    position = Position()
    while position.epoch == 0:
        window = sampler.window(position)
        alone = window.of(0, 1)
        for size in range(2, sampler.slots + 1):
            dealt = [window.of(rank, size) for rank in range(size)]
            assert all(pieces for pieces in dealt), "each worker takes part in the reduction"
            assert tuple(piece for pieces in dealt for piece in pieces if piece.count) == alone
        position = sampler.following(sampler.window(position))


@given(sampler=samplers, data=st.data())
def test_what_is_read_ahead_is_what_the_steps_take(sampler: Sampler, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, sampler.slots))
    rank, position = data.draw(st.integers(0, size - 1)), Position()
    ahead = sampler.pieces_from(position, rank, size)
    for _ in range(5):
        for piece in sampler.window(position).of(rank, size):
            assert next(ahead) == (position, piece)
        position = sampler.following(sampler.window(position))


@given(records=st.integers(2, 300), each=st.integers(3, 16), slots=slots)
def test_last_step_of_an_epoch_has_no_micro_batch_of_one_record_where_there_are_more(
    records: int, each: int, slots: int
) -> None:
    sampler, position = Sampler(records, each * slots, slots), Position()
    while position.epoch == 0:
        window = sampler.window(position)
        sizes = [piece.count for piece in window.of(0, 1)]
        assert len(sizes) == -(-len(window.places) // each)
        assert max(sizes) <= each
        assert min(sizes) > 1 or len(window.places) == 1
        position = sampler.following(sampler.window(position))


@pytest.mark.parametrize(
    ("records", "last"), [(1797, [5]), (133, [5]), (128, [32] * 4), (161, [17, 16]), (255, [32, 32, 32, 31])]
)
def test_last_step_of_an_epoch_is_cut_into_as_few_micro_batches_as_hold_it(
    records: int, last: list[int]
) -> None:
    sampler = Sampler(records, 128, 4)
    window = sampler.window(Position(0, (records - 1) // 128 * 128))
    assert [piece.count for rank in range(4) for piece in window.of(rank, 4) if piece.count] == last


@given(sampler=samplers, data=st.data())
def test_weights_make_the_average_of_workers_the_mean_of_records(
    sampler: Sampler, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, sampler.slots))
    window = sampler.window(Position())
    total = len(window.places)
    value = {place: float(place % 7) for place in window.places}  # the gradient of one record
    summed = 0.0
    for rank in range(size):
        for piece in window.of(rank, size):
            mean = sum(value[place] for place in piece.places) / len(piece.places)
            summed += mean * size * piece.count / total
    assert summed / size == pytest.approx(sum(value.values()) / total)


@given(sampler=samplers, epochs=st.integers(0, 4))
def test_steps_left_counts_down_to_zero(sampler: Sampler, epochs: int) -> None:
    position = Position()
    left = sampler.steps_left(position, epochs)
    for count in range(left, 0, -1):
        assert sampler.steps_left(position, epochs) == count
        position = sampler.following(sampler.window(position))
    assert sampler.steps_left(position, epochs) == 0
    assert position == Position(epochs)


def test_empty_data_is_an_error() -> None:
    with pytest.raises(ValueError, match="each must be >= 1"):
        Sampler(0, 4, 1)


@pytest.mark.parametrize(("offset", "refused"), [(0, False), (99, False), (100, True), (128, True)])
def test_checkpoint_of_a_larger_data_set_is_refused(offset: int, refused: bool) -> None:
    sampler, position = Sampler(100, 128, 4), Position(3, offset)
    expected = pytest.raises(ValueError, match=f"taken {offset} records of epoch 3, and the data set has 100")
    with expected if refused else nullcontext():
        sampler.check(position)


@given(sampler=samplers, together=st.integers(2, 4), data=st.data())
def test_workers_that_compute_together_have_equally_many_micro_batches(
    sampler: Sampler, together: int, data: st.DataObject
) -> None:
    sampler = replace(sampler, slots=sampler.slots * together)
    size = together * data.draw(st.integers(1, sampler.slots // together))
    position = Position()
    while position.epoch == 0:
        window = sampler.window(position)
        dealt = [window.of(rank, size, together) for rank in range(size)]
        for first in range(0, size, together):
            assert len({len(pieces) for pieces in dealt[first : first + together]}) == 1
        assert tuple(piece for pieces in dealt for piece in pieces if piece.count) == window.of(0, 1)
        position = sampler.following(window)


@pytest.mark.parametrize("done", [0, 1_000_000])
@pytest.mark.parametrize("batch", [1, 64, 1024])
@pytest.mark.parametrize("records", [10, 10**12, ENDLESS])
@pytest.mark.parametrize("epochs", [1, 10**9, ENDLESS])
def test_steps_in_total_can_be_told_however_many_they_are(
    done: int, batch: int, records: int, epochs: int
) -> None:
    left = Sampler(records, batch, 1).steps_left(Position(), epochs)
    told = Progress(step=done, total_steps=in_total(done, left))
    assert msgspec.json.decode(msgspec.json.encode(told), type=Progress) == told
    assert told.total_steps in (0, done + left)
    assert (told.total_steps == 0) == (done + left > 2**53)
