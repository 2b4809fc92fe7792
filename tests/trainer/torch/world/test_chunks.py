"""Tensors that workers hand over to those that have none, and the bytes that each sends."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch import Tensor
from torch.distributed import HashStore, ProcessGroupGloo  # type: ignore[attr-defined]  # documented there

from elasticjob.trainer.torch.world.chunks import (
    CHUNK,
    bytes_of,
    cut,
    empty,
    form_of,
    hand_over,
    side_by_side,
)

PATIENCE = timedelta(minutes=2)

MADE: dict[str, Callable[[], Tensor]] = {
    "large": lambda: torch.randn(CHUNK + 5),
    "small": lambda: torch.randn(7, 3),
    "a number": lambda: torch.tensor(3.5),
    "nothing": lambda: torch.empty(0, 4),
    "half": lambda: torch.randn(5).bfloat16(),
    "yes and no": lambda: torch.tensor([True, False, True]),
    "complex": lambda: torch.randn(4, dtype=torch.complex64),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(300, 500).T,
    "every second": lambda: torch.randn(6, 4)[:, ::2],
}


@pytest.mark.parametrize(
    ("size", "sources"), [(2, [0]), (2, [1]), (3, [0, 2]), (4, [0, 1, 3]), (4, [1]), (1, [0])], ids=str
)
def test_all_workers_have_the_tensors_of_the_sources(size: int, sources: list[int]) -> None:
    given = {name: make() for name, make in MADE.items()}

    def work(rank: int, group: ProcessGroupGloo) -> list[Tensor]:
        mine = [each.clone() if rank in sources else like(each) for each in given.values()]
        hand_over(group, mine, sources)  # type: ignore[arg-type]  # torch's stubs know no base of both
        return mine

    store = HashStore()
    with ThreadPoolExecutor(size) as threads:
        groups = threads.map(lambda rank: ProcessGroupGloo(store, rank, size, PATIENCE), range(size))
        for found in threads.map(work, range(size), list(groups)):
            same = [torch.equal(*pair) for pair in zip(found, given.values(), strict=True)]
            assert dict(zip(given, same, strict=True)) == dict.fromkeys(given, True)


def like(tensor: Tensor) -> Tensor:
    """Return another tensor that lies in memory as a tensor does."""
    other = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return other.fill_(1)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_tensor_is_made_again_from_its_form_and_its_bytes(make: Callable[[], Tensor]) -> None:
    tensor = side_by_side(make())
    again = empty(form_of(tensor), torch.device("cpu"))
    bytes_of(again).copy_(bytes_of(tensor))
    assert torch.equal(again, tensor)


def test_each_byte_is_in_one_chunk() -> None:
    blocks = [torch.zeros(size, dtype=torch.uint8) for size in (10, 2 * CHUNK + 1, 0, 11, CHUNK - 12, 1, 14)]
    chunks = cut(blocks)
    assert all(0 < sum(map(len, chunk)) <= CHUNK for chunk in chunks)
    pieces = iter([piece for chunk in chunks for piece in chunk])
    for block in blocks:
        at, end = block.data_ptr(), block.data_ptr() + len(block)
        while at < end:
            piece = next(pieces)
            assert piece.data_ptr() == at
            at += len(piece)
        assert at == end
    assert next(pieces, None) is None
