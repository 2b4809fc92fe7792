"""The form of states in torch: tensors that are filled in place, or divided anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from elasticjob.trainer.checkpoint import part
from elasticjob.trainer.checkpoint.rest import is_plain
from elasticjob.trainer.checkpoint.sources import Source
from elasticjob.trainer.torch.saving import reshard
from elasticjob.trainer.torch.saving.pinned import pin
from elasticjob.trainer.torch.saving.reshard import tensor_in
from elasticjob.trainer.torch.saving.tree import StateParts, decode, empty, is_there, local, together

Targets = Callable[[Any, Sequence[part.Tensor]], dict[str, Tensor]]
"""Returns what to fill with the tensors of a checkpoint, by name, given its rest and its tensors.

Those of a model may be its own: they are changed when no worker can fail to read the checkpoint any more.
"""


class Tensors:
    """The form of states in torch."""

    def take(self, state: Any, ended: int = 0) -> StateParts:
        """Take a state apart."""
        return StateParts(state, ended=ended)

    @contextmanager
    def reading(self, source: Source, rank: int, into: Targets) -> Iterator[tuple[int, Callable[[], Any]]]:
        """Lend, for a `with` statement, `Head.ended`, and a function that returns the state in a checkpoint.

        If this worker's part has just what belongs here, the function fills the targets from it, by one copy;
        no tensor of the state lies in a block. A state that has to be divided anew is read before, to tensors
        of its own: reading may fail half-way.
        """
        number = rank if rank < source.parts else 0
        head = source.head(number)
        if is_plain(head.rest):
            raise ValueError("the checkpoint was not made with torch: give another checkpoint folder")
        rest = decode(head.rest)
        targets = into(rest, head.tensors)
        if all(is_there(each, targets[each.name]) for each in head.tensors):
            with source.open(number) as block:
                for each in head.tensors:
                    tensor_in(block, each)  # Damaged now, or never

                def state() -> Any:
                    restore(block, head.tensors, targets)
                    return together(rest, targets.__getitem__)

                yield head.ended, state
        else:
            heads = [head if each == number else source.head(each) for each in range(source.parts)]
            beside = {each.name: empty(each, targets[each.name]) for each in head.tensors}
            reshard.read(heads, source.open, beside)
            yield head.ended, lambda: together(rest, beside.__getitem__)

    def pin(self, block: memoryview) -> Callable[[], object]:
        """Pin a block for copies from a GPU."""
        return pin(block)


def restore(block: memoryview, places: Iterable[part.Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Copy the tensors of a block to where they belong."""
    with torch.no_grad():
        for each in places:
            local(tensors[each.name]).copy_(tensor_in(block, each))
