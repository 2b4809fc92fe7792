"""Tensors of workers that have the same, for those that have nothing yet: each sends a share of the bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

CHUNK: Final = 8 << 20  # bytes that a worker sends at once

Form = tuple[Tensor, str]
"""A tensor's shape, strides and type, as a tensor without data; and the type of its device."""


def form_of(tensor: Tensor) -> Form:
    """Return the form of a tensor whose elements lie side by side."""
    return torch.empty_like(tensor, device="meta"), tensor.device.type


def empty(form: Form, device: torch.device) -> Tensor:
    """Return a tensor of that form: on `device`, if the sender's is on one of that type, else in memory."""
    like, there = form
    return torch.empty_like(like, device=device if device.type == there else "cpu")


def side_by_side(tensor: Tensor) -> Tensor:
    """Return a tensor whose elements lie side by side in memory, in whatever order: itself, or a copy."""
    same = torch.empty_like(tensor, device="meta").stride() == tensor.stride()
    return tensor.detach() if same else tensor.detach().contiguous()


def bytes_of(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor whose elements lie side by side; they share its memory."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def cut(blocks: Sequence[Tensor]) -> list[list[Tensor]]:
    """Return the bytes of some tensors, in order, in chunks; one may hold pieces of several tensors."""
    chunks: list[list[Tensor]] = []
    room = 0
    for block in blocks:
        for piece in torch.split(block, CHUNK) if block.numel() else ():
            if piece.numel() > room:
                chunks.append([])
                room = CHUNK
            chunks[-1].append(piece)
            room -= piece.numel()
    return chunks


def spread(flat: Tensor, into: Sequence[Tensor]) -> None:
    """Copy a flat tensor to those that it was made of."""
    at = 0
    for each in into:
        each.copy_(flat[at : at + each.numel()].view_as(each))
        at += each.numel()


def overwrite(tensors: Sequence[Tensor], broadcast: Callable[[Tensor], dist.Work | None]) -> None:
    """Overwrite tensors by those of another worker, by what broadcasts bytes: backends know few types."""
    dense = [side_by_side(each) for each in tensors]
    for work in [broadcast(bytes_of(each)) for each in dense if each.numel()]:
        if work is not None:
            work.wait()
    for tensor, each in zip(tensors, dense, strict=True):
        if tensor.data_ptr() != each.data_ptr():
            tensor.detach().copy_(each)


def hand_over(group: dist.ProcessGroup, tensors: Sequence[Tensor], sources: Sequence[int]) -> None:
    """Overwrite tensors by those of the workers `sources`, in ascending order, on all other workers.

    The sources have the same tensors, and send as much each: a worker that waits receives every byte once.
    A single one broadcasts instead, which takes no copies. So does the first one where each would have to
    send more than all bytes, since gloo passes them on in a tree, and on GPUs: NCCL does so in a pipeline.
    """
    dense = [side_by_side(each) for each in tensors]
    blocks = [bytes_of(each) for each in dense]
    if len(sources) == 1 or group.size() > 2 * len(sources) or any(each.is_cuda for each in blocks):
        for work in [group.broadcast(each, sources[0]) for each in blocks if each.numel()]:
            work.wait()
    else:
        exchange(group, cut(blocks), sources)
    if group.rank() not in sources:
        for tensor, each in zip(tensors, dense, strict=True):
            if tensor.data_ptr() != each.data_ptr():
                tensor.detach().copy_(each)


def exchange(group: dist.ProcessGroup, chunks: Sequence[list[Tensor]], sources: Sequence[int]) -> None:
    """Send chunk after chunk, one from each source at a time, to the workers that are no sources.

    One operation at a time, and not by `send` and `recv`: gloo (torch 2.15) can leave others waiting for ever
    when a worker is gone.
    """
    rank, size = group.rank(), group.size()
    others = [each for each in range(size) if each not in sources]
    nothing, none = torch.empty(0, dtype=torch.uint8), [0] * size
    for first in range(0, len(chunks), len(sources)):
        sent = dict(zip(sources, chunks[first : first + len(sources)], strict=False))
        sizes = [sum(map(len, sent.get(each, []))) for each in range(size)]
        if rank in sources:
            mine = torch.cat(sent[rank] * len(others)) if rank in sent and others else nothing
            shares = [sizes[rank] if each in others else 0 for each in range(size)]
            group.alltoall_base(nothing, mine, none, shares).wait()
        else:
            incoming = torch.empty(sum(sizes), dtype=torch.uint8)
            group.alltoall_base(incoming, nothing, sizes, none).wait()
            spread(incoming, [piece for each in sent.values() for piece in each])
