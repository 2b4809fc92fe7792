"""Tensors that workers hand over to those that have none, and the bytes that each sends."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

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
    overwrite,
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
    "float8": lambda: torch.randn(5).to(torch.float8_e4m3fn),
    "unsigned": lambda: torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.uint16).T,
    "short": lambda: torch.arange(6, dtype=torch.int16),
    "every second": lambda: torch.randn(6, 4)[:, ::2],
}


def broadcast(group: Any, tensors: list[Tensor], sources: list[int]) -> None:
    """Overwrite tensors by those of the first source."""
    overwrite(tensors, lambda block: group.broadcast(block, sources[0]))


@pytest.mark.parametrize(
    ("size", "sources"), [(2, [0]), (2, [1]), (3, [0, 2]), (4, [0, 1, 3]), (4, [1]), (1, [0])], ids=str
)
@pytest.mark.parametrize("by", [hand_over, broadcast])
def test_all_workers_have_the_tensors_of_the_sources(size: int, sources: list[int], by: Any) -> None:
    given = {name: make() for name, make in MADE.items()}

    def work(rank: int, group: ProcessGroupGloo) -> list[Tensor]:
        mine = [each.clone() if rank in sources else like(each) for each in given.values()]
        by(group, mine, sources)
        return mine

    store = HashStore()
    with ThreadPoolExecutor(size) as threads:
        groups = threads.map(lambda rank: ProcessGroupGloo(store, rank, size, PATIENCE), range(size))
        for found in threads.map(work, range(size), list(groups)):
            same = [equal(*pair) for pair in zip(found, given.values(), strict=True)]
            assert dict(zip(given, same, strict=True)) == dict.fromkeys(given, True)


def like(tensor: Tensor) -> Tensor:
    """Return another tensor that lies in memory as a tensor does."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def equal(one: Tensor, other: Tensor) -> bool:
    """Compare tensors of any type."""
    return torch.equal(*(bytes_of(side_by_side(each)) for each in (one, other)))


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_tensor_is_made_again_from_its_form_and_its_bytes(make: Callable[[], Tensor]) -> None:
    tensor = side_by_side(make())
    again = empty(form_of(tensor), torch.device("cpu"))
    bytes_of(again).copy_(bytes_of(tensor))
    assert equal(again, tensor)


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
