"""The form of states in torch: tensors that are filled in place, from pieces of any layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from elasticjob.trainer.checkpoint import part, reading, rest
from elasticjob.trainer.checkpoint.agreement import Share
from elasticjob.trainer.checkpoint.flash import Reading
from elasticjob.trainer.checkpoint.reading import Plan
from elasticjob.trainer.checkpoint.sources import Slabs, Source
from elasticjob.trainer.torch.saving.pinned import pin
from elasticjob.trainer.torch.saving.tree import (
    ABSENT,
    StateParts,
    decode,
    local,
    tensor_in,
    together,
    view,
    wanted,
)

Targets = Callable[[Any, Sequence[part.Tensor]], dict[str, Tensor]]
"""Returns what to fill with the tensors of a checkpoint, by name, given its rest and its tensors.

Those of a model may be its own. What is not returned this worker has no place for.
"""


class Tensors:
    """The form of states in torch; what a worker writes of one is its `agreed` share, if there is one."""

    def __init__(self) -> None:
        self.agreed: Share | None = None

    def take(self, state: Any, ended: int = 0) -> StateParts:
        """Take a state apart."""
        return StateParts(state, ended=ended, agreed=self.agreed)

    @contextmanager
    def reading(self, source: Source, rank: int, world: int, into: Targets) -> Iterator[Reading]:
        """Lend a checkpoint for a `with` statement.

        What is in this node's memory is copied when all workers can read theirs; reading the rest may fail
        half-way, and then nobody goes on with it: another one fills all of it anew, or the start fails.
        """
        rests = reading.rests(source.heads, rank, world)
        if any(map(rest.is_plain, rests)):
            raise ValueError("the checkpoint was not made with torch: give another checkpoint folder")
        rest_ = rest.merged([decode(each) for each in rests])
        targets: dict[str, Any] = into(rest_, list(reading.wholes(source.heads).values()))
        boxes = {name: wanted(name, each) for name, each in targets.items()}
        plan = reading.plan(source.heads, source, boxes, rank)
        with ExitStack() as opened:
            near = all(map(source.is_near, plan.parts))
            for number in plan.parts if near else ():
                check(opened.enter_context(source.open(number)), plan.parts[number])
            if not near:
                fill(targets, source, plan)

            def state() -> Any:
                if near:
                    fill(targets, source, plan)
                return together(rest_, lambda name: targets.get(name, ABSENT))

            yield Reading(source.heads[0].ended, state, targets)

    def pin(self, block: memoryview) -> Callable[[], object]:
        """Pin a block for copies from a GPU."""
        return pin(block)


def check(block: memoryview, all_: Iterable[Slabs]) -> None:
    """Raise Damaged for what a block could not be read to: now, or never."""
    for each in all_:
        tensor_in(block, each.tensor)


def fill(targets: Mapping[str, Tensor], source: Source, plan: Plan) -> None:
    """Copy what is planned to where it belongs."""
    with torch.no_grad():
        for each in reading.copies(source, plan):
            found = view(each.slab.bytes_, each.slab.tensor.dtype, each.shape)
            local(targets[each.name])[each.target].copy_(found[each.found])
