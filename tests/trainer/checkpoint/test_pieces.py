"""Boxes, shares and what is read of them: pure functions beside NumPy, which looks at each element."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticjob.trainer.checkpoint import reading
from elasticjob.trainer.checkpoint.agreement import (
    Description,
    Piece,
    Refused,
    agree,
    check_copies,
    copies_of,
)
from elasticjob.trainer.checkpoint.arrays import block_of
from elasticjob.trainer.checkpoint.part import SLAB, Head
from elasticjob.trainer.checkpoint.pieces import Box, missing
from elasticjob.trainer.checkpoint.shared import Shared
from elasticjob.trainer.checkpoint.sources import InStorage
from elasticjob.trainer.checkpoint.storage import Manifest, Storage


@st.composite
def covers(draw: Any) -> tuple[tuple[int, ...], list[Box]]:
    """Draw a shape and boxes in it: a grid of which some are left out, or come twice."""
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    cuts = [sorted({0, n, *draw(st.lists(st.integers(0, n), max_size=2))}) for n in shape]
    boxes: list[Box] = [((), ())]
    for ends in cuts:
        pairs = list(pairwise(ends)) or [(0, 0)]
        boxes = [((*at, a), (*size, b - a)) for at, size in boxes for a, b in pairs]
    return shape, [box for box in boxes for _ in range(draw(st.sampled_from([1, 1, 1, 2, 0])))]


def where(box: Box) -> tuple[slice, ...]:
    return tuple(slice(at, at + n) for at, n in zip(*box, strict=True))


@settings(max_examples=300, deadline=None)
@given(covers())
def test_the_first_element_that_no_box_has_is_found(given_: tuple[tuple[int, ...], list[Box]]) -> None:
    shape, boxes = given_
    there = np.zeros(shape, bool)
    for box in boxes:
        there[where(box)] = True
    gaps = np.argwhere(~there)
    found = missing(((0,) * len(shape), shape), boxes)
    assert (found is None) == (len(gaps) == 0)
    assert found is None or list(found) in gaps.tolist()


@settings(max_examples=100, deadline=None)
@given(st.lists(covers(), min_size=1, max_size=4), st.integers(1, 4), st.randoms())
def test_each_piece_is_written_once_by_a_worker_that_has_it(tensors: Any, workers: int, chance: Any) -> None:
    held: list[list[Piece]] = [[] for _ in range(workers)]
    for number, (shape, boxes) in enumerate(tensors):
        for at, size in boxes:
            for rank in chance.sample(range(workers), chance.randint(1, workers)):
                held[rank].append(Piece(f"w{number}", "float32", 4, shape, at, size))
    told = [Description(tuple(dict.fromkeys(each)), "") for each in held]
    try:
        shares = agree(told)
    except Refused:
        return  # a box was left out of the grid
    written: Counter[Any] = Counter()
    for share, each in zip(shares, told, strict=True):
        if share.keeps:
            written.update(each.pieces[at].range for at in share.writes or ())
    assert written == Counter({piece.range: 1 for each in told for piece in each.pieces})


def test_nodes_with_the_same_parts_write_alike() -> None:
    """Four nodes of two workers, each pair with all four parts of the model."""
    rows = [Piece("w", "float32", 4, (8, 3), (2 * part, 0), (2, 3)) for part in range(4)]
    told = [Description((rows[rank % 4],), "", node=f"node-{rank // 2}") for rank in range(8)]
    assert [rank for rank, share in enumerate(agree(told)) if share.keeps] == [0, 2, 5, 7]


def test_copies_that_differ_are_named() -> None:
    both = Description((Piece("bias", "float32", 4, (3,), (0,), (3,)),), "")
    copies = copies_of([both, both])
    (of,) = copies
    check_copies(copies, [{of: 1}, {of: 1}])
    with pytest.raises(Refused, match=r"other values of bias \(on rank 0 and 1\)"):
        check_copies(copies, [{of: 1}, {of: 2}])


def test_workers_of_a_node_read_a_part_once_and_all_get_what_they_want(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    whole = np.arange(SLAB // 2, dtype=np.int32).reshape(-1, 64)
    place = Storage(str(tmp_path / "place"))
    file, head = place.write(block_of(Head(step=1, round=1), {"w": whole, "n": np.arange(3)}))
    place.commit(Manifest(1, 1, (file,)), [head], keep=1)
    source, streams = InStorage(place, place.manifest(1)), list[int]()
    stream = place.stream

    def counted(*of: Any) -> Any:
        streams.append(1)
        return stream(*of)

    place.stream = counted  # type: ignore[method-assign, assignment]

    def read(rank: int) -> np.ndarray[Any, Any]:
        first, mine = rank * 1000, np.zeros((1500, 64), np.int32)
        plan = reading.plan(source.heads, source, {"w": ((first, 0), (1500, 64))}, rank)
        with Shared(source, tmp_path / "memory", {(0, False): 3}) as shared:
            for each in reading.copies(shared, plan):
                mine[each.target] = np.frombuffer(each.slab.bytes_, np.int32).reshape(each.shape)[each.found]
        return mine

    with ThreadPoolExecutor(3) as pool:
        for rank, mine in enumerate(pool.map(read, range(3))):
            assert np.array_equal(mine, whole[rank * 1000 :][:1500])
    assert len(streams) == 1
    assert not list((tmp_path / "memory").iterdir())
