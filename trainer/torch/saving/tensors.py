"""The form of states in torch: tensors that are filled in place, from pieces of any layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from elasticjob.trainer.checkpoint import part, reading, rest
from elasticjob.trainer.checkpoint.agreement import Share
from elasticjob.trainer.checkpoint.reading import Plan, Reading
from elasticjob.trainer.checkpoint.sources import Source
from elasticjob.trainer.torch.saving.pinned import pin
from elasticjob.trainer.torch.saving.tree import (
    ABSENT,
    StateParts,
    decode,
    local,
    together,
    view,
    wanted,
)

Targets = Callable[[Any, Sequence[part.Tensor]], dict[str, Tensor]]
"""Returns what to fill with the tensors of a checkpoint, by name, given its rest and its tensors.

Those of a model may be its own. What is not returned this worker has no place for.
"""


KEPT: Final = 1 << 28  # bytes of tensors of which a copy is kept while they are filled


class Tensors:
    """The form of states in torch; what a worker writes of one is its `agreed` share, if there is one."""

    def __init__(self) -> None:
        self.agreed: Share | None = None

    def take(self, state: Any, ended: int = 0) -> StateParts:
        """Take a state apart."""
        return StateParts(state, ended=ended, agreed=self.agreed)

    def reading(self, source: Source, rank: int, world: int, into: Targets) -> Reading:
        """Return what one of a `world` of workers reads of a checkpoint."""
        rests = reading.rests(source.heads, rank, world)
        if any(map(rest.is_plain, rests)):
            raise ValueError("the checkpoint was not made with torch: give another checkpoint folder")
        rest_ = rest.merged([decode(each) for each in rests])
        targets: dict[str, Any] = into(rest_, list(reading.wholes(source.heads).values()))
        boxes = {name: wanted(name, each) for name, each in targets.items()}
        plan = reading.plan(source.heads, source, boxes, rank)
        return Reading(
            source.heads[0].ended,
            plan,
            lambda found: fill_or_undo(targets, found, plan),
            lambda: together(rest_, lambda name: targets.get(name, ABSENT)),
        )

    def pin(self, block: memoryview) -> Callable[[], object]:
        """Pin a block for copies from a GPU."""
        return pin(block)


def fill_or_undo(targets: Mapping[str, Tensor], source: Source, plan: Plan) -> Callable[[], None]:
    """Fill tensors; return what makes them what they were, or, if they are large, not a number.

    That is done where it fails: a script that catches the error must not train on half a checkpoint.
    """
    mine = {name: local(each) for name, each in targets.items()}
    few = sum(each.nbytes for each in mine.values()) <= KEPT
    before = {name: each.detach().clone() for name, each in mine.items()} if few else {}

    def undo() -> None:
        with torch.no_grad():
            for name, each in mine.items():
                if few:
                    each.copy_(before[name])
                elif each.is_floating_point():
                    each.fill_(torch.nan)

    try:
        fill(targets, source, plan)
    except BaseException:
        undo()
        raise
    return undo


def fill(targets: Mapping[str, Tensor], source: Source, plan: Plan) -> None:
    """Copy what is planned to where it belongs."""
    with torch.no_grad():
        for each in reading.copies(source, plan):
            found = view(each.slab.bytes_, each.slab.tensor.dtype, each.shape)
            local(targets[each.name])[each.target].copy_(found[each.found])
