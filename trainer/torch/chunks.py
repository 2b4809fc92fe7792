"""Tensors of workers that have the same, for those that have nothing yet: each sends a chunk of the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

SPLIT: Final = 1 << 16  # bytes of a tensor for each sender; a smaller one is sent whole, by one of them


Form = tuple[Tensor, str]
"""What another worker has to know of a tensor that it will receive: one without data, the type of device."""


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


def cut(tensors: Sequence[Tensor], senders: int) -> list[list[Tensor]]:
    """Return what each sender sends of the bytes of some tensors, in order."""
    chunks: list[list[Tensor]] = [[] for _ in range(senders)]
    for index, each in enumerate(tensors):
        if each.numel() >= SPLIT * senders:
            for mine, chunk in zip(chunks, each.tensor_split(senders), strict=True):
                mine.append(chunk)
        elif each.numel():
            chunks[index % senders].append(each)
    return chunks


def hand_over(group: dist.ProcessGroup, tensors: Sequence[Tensor], sources: Sequence[int]) -> None:
    """Overwrite tensors by those of the workers `sources`, which have the same, on all other workers.

    A worker that waits receives every byte once, as many from each source. Where a source would have to send
    more than all bytes, the first one broadcasts instead: gloo passes them on in a tree. So it does where
    GPUs are, since NCCL passes them on in a pipeline.
    """
    rank, others = group.rank(), [each for each in range(group.size()) if each not in sources]
    dense = [side_by_side(each) for each in tensors]
    blocks = [bytes_of(each) for each in dense]
    if len(others) > len(sources) or any(each.is_cuda for each in blocks):
        works = [group.broadcast(each, sources[0]) for each in blocks if each.numel()]
    elif rank in sources:
        mine = cut(blocks, len(sources))[sources.index(rank)]
        works = [group.send([each], other, 0) for each in mine for other in others]
    else:
        chunks = zip(sources, cut(blocks, len(sources)), strict=True)
        works = [group.recv([each], source, 0) for source, theirs in chunks for each in theirs]
    for work in works:
        work.wait()
    for tensor, each in zip(tensors, dense, strict=True):
        if tensor.data_ptr() != each.data_ptr() and rank not in sources:
            tensor.detach().copy_(each)
