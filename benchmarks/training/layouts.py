"""Checkpoints of one layout read as another: bytes, requests and memory, by the code of trainings.

    python -m benchmarks.training.layouts

The state is that of a transformer and AdamW, divided by fully_shard. Parts are streams of zeros with the
checksums of zeros. What several workers of a node need one of them reads. Of many nodes some are looked at.
"""

from __future__ import annotations

import tracemalloc
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from math import prod
from typing import Annotated

import msgspec
from typer import Option

from benchmarks.commands import play
from benchmarks.figures import Sheet, show
from elasticjob.trainer.checkpoint import part, reading
from elasticjob.trainer.checkpoint.agreement import Description, Piece, agree
from elasticjob.trainer.checkpoint.part import SMALL, Head, Shape, Tensor
from elasticjob.trainer.checkpoint.pieces import Box
from elasticjob.trainer.checkpoint.reading import Plan
from elasticjob.trainer.checkpoint.shared import Key, groups, keys_of
from elasticjob.trainer.checkpoint.sources import Slab, Slabs, by_ranges, spans
from elasticjob.trainer.checkpoint.storage import Into

MOST = 12  # nodes that are looked at where there are more
State = Mapping[str, tuple[int, ...]]


def state_of(layers: int, width: int) -> State:
    """Return the shapes of a transformer's parameters and AdamW's state, in float32."""
    found: dict[str, tuple[int, ...]] = {"embedding": (4 * width, width)}
    for layer in range(layers):
        found |= {
            f"{layer}.{name}": (many * width, width) for name, many in (("qkv", 3), ("out", 1), ("up", 4))
        }
        found |= {f"{layer}.down": (width, 4 * width), f"{layer}.norm": (width,)}
    kinds = {
        f"{name}/{kind}": shape for name, shape in found.items() for kind in ("w", "exp_avg", "exp_avg_sq")
    }
    return kinds | {f"{name}/step": () for name in found}


def box(shape: tuple[int, ...], rank: int, ranks: int) -> Box:
    """Return what fully_shard gives to a rank."""
    if not shape:
        return (), ()
    each = -(-shape[0] // ranks)
    begin = min(shape[0], rank * each)
    return (begin, *(0 for _ in shape[1:])), (min(each, shape[0] - begin), *shape[1:])


@cache
def zeros(size: int) -> int:
    """Return the checksum of so many zeros."""
    return zlib.crc32(bytes(size))


def saved(state: State, ranks: int) -> list[Head]:
    """Return the heads of a checkpoint by so many ranks."""
    told = [
        Description(
            tuple(Piece(name, "float32", 4, s, *box(s, rank, ranks)) for name, s in state.items()), ""
        )
        for rank in range(ranks)
    ]
    heads = []
    for description, share in zip(told, agree(told), strict=True):
        mine = sorted(
            (description.pieces[at] for at in share.writes or ()), key=lambda each: each.size >= SMALL
        )
        placed, _ = part.place(Shape(e.name, e.dtype, e.shape, 4, e.whole, e.offset) for e in mine)
        heads.append(Head(step=1, round=1, part=share.part, parts=ranks, tensors=tuple(map(checked, placed))))
    return heads


def checked(tensor: Tensor) -> Tensor:
    """Return a piece of zeros with its checksums."""
    return msgspec.structs.replace(tensor, crcs=tuple(zeros(end - at) for at, end in tensor.slabs()))


class Zeros:
    """Parts of zeros as a source."""

    def __init__(self, heads: Sequence[Head]) -> None:
        self.heads = heads

    def is_near(self, _: int) -> bool:
        """Whether a part is in this node's memory."""
        return False

    def open(self, _: int) -> AbstractContextManager[memoryview]:
        """Lend no block."""
        raise NotImplementedError

    def read(self, _: int, wanted: Sequence[Slabs]) -> Iterator[Slab]:
        """Yield what is wanted of a part."""
        yield from by_ranges(self._stream, wanted)

    @contextmanager
    def _stream(self, _: int, __: int) -> Iterator[Into]:
        yield len  # all of it, as it is


def asked(heads: Sequence[Head], plans: Sequence[Plan]) -> tuple[int, list[int], int]:
    """Return bytes, requests by rank, and the most requests for a part, of the workers of one node."""
    read, requests, most, seen = 0, [0] * len(plans), 0, set[Key]()
    counts = Counter(key for plan in plans for key in keys_of(plan))
    sharers = {key: count for key, count in counts.items() if count > 1}
    for rank, plan in enumerate(plans):
        for number, wanted in plan.parts.items():
            asked_for = 0
            for key, all_, _ in groups(heads[number], wanted, sharers):
                if key is None or key not in seen:
                    found = spans(all_)
                    read += sum(span[-1].end - span[0].begin for span in found)
                    asked_for += len(found)
                seen |= {key} if key else set()
            requests[rank] += asked_for
            most = max(most, asked_for)
    return read, requests, most


def memory(heads: Sequence[Head], plan: Plan) -> float:
    """Return what reading takes beside what is wanted, of that."""
    need = sum(prod(shape) * 4 for _, shape in plan.wanted.values())
    tracemalloc.start()
    for _ in reading.copies(Zeros(heads), plan):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / need


def row(state: State, of: int, by: int, node: int) -> list[str]:
    """Return what it takes to read a checkpoint of `of` ranks by `by` ranks, `node` of them on each node."""
    heads, whole = saved(state, of), sum(prod(shape) * 4 for shape in state.values())
    read, requests, most, beside = 0, list[int](), 0, 0.0
    nodes = list(range(0, by, node))
    nodes = nodes[:: max(1, len(nodes) // MOST)]
    for first in nodes:
        plans = [
            reading.plan(heads, Zeros(heads), {name: box(s, rank, by) for name, s in state.items()}, rank)
            for rank in range(first, min(by, first + node))
        ]
        more, asked_for, per_part = asked(heads, plans)
        read, requests, most = read + more, requests + asked_for, max(most, per_part)
        beside = beside or memory(heads, plans[0])
    mean, largest = sum(requests) / len(requests), max(requests)
    whole_read = read / len(requests) * by
    return [
        f"{of} → {by} by {node}",
        f"{whole / 1e9:.1f} GB",
        f"{whole_read / whole:.3f}",
        f"{mean:.2f}",
        f"{largest}",
        f"{most}",
        f"{1 + beside:.2f}",
    ]


def main(
    ranks: Annotated[int, Option(min=32, help="The ranks of the largest row.")] = 2816,
) -> None:
    """Print the table; requests for the index are two, of rank 0."""
    columns = (
        "ranks by node",
        "state",
        "bytes read",
        "requests per rank",
        "at most",
        "per part",
        "memory of a need",
    )
    rows = [
        row(state_of(16, 2048), 64, 48, 8),
        row(state_of(16, 2048), 64, 64, 8),
        row(state_of(16, 2048), 64, 96, 8),
        row(state_of(16, 2048), 8, 8, 8),
        row(state_of(8, 8192), ranks, ranks, 8),
        row(state_of(8, 8192), ranks, ranks - 16, 8),
    ]
    show(Sheet(columns, rows))


if __name__ == "__main__":
    play(main)
