"""A DataLoader that goes on where a checkpoint was taken, for loops that are not elastic."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import torch
from torch.utils.data import DataLoader

FINISH: Final = (
    "finish the epoch with what it had, after which it may change, or give another checkpoint folder"
)
"""The way out where a checkpoint is within an epoch of another order."""


class ResumableLoader(DataLoader[Any]):
    """A DataLoader, of an iterable dataset too, that can begin an epoch at any batch.

    `shuffle` is by `seed` and epoch. Put the loader into the state of a `Checkpoint`: batches that the loop
    has taken do not come again. They are read and thrown away, so what comes before a place has to be the
    same each time that the dataset is read.
    """

    counts = True
    """Whether the place is that of the batches that were taken; else others set `epoch` and `batch`."""

    def __init__(self, *arguments: Any, seed: int = 0, **more: Any) -> None:
        super().__init__(*arguments, **{"generator": torch.Generator(), **more})
        self.seed = seed
        self.epoch = self.batch = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.generator.manual_seed(self.seed + self.epoch)
        rest = islice(super().__iter__(), self.batch, None)
        return self._counted(rest) if self.counts else rest

    def endless(self) -> Iterator[Any]:
        """Yield batches from the place on, epoch after epoch, without end."""
        while True:
            yield from self

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is: `batch` is the next one of the epoch, of batches in this `order`."""
        return {"epoch": self.epoch, "batch": self.batch, "order": self._order()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next epoch there. ValueError if it is within an epoch of other batches."""
        mine, theirs = self._order(), state.get("order", {})
        changes = [
            f"{name} {was} became {mine.get(name)}" for name, was in theirs.items() if mine.get(name) != was
        ]
        if changes and state["batch"]:
            raise ValueError(
                f"the checkpoint has taken {state['batch']} batches of epoch {state['epoch']} in another "
                f"order: {', '.join(changes)}; {FINISH}"
            )
        self.epoch, self.batch = state["epoch"], state["batch"]

    def _order(self) -> dict[str, Any]:
        """Return what the batches depend on."""
        sized = hasattr(self.dataset, "__len__")
        records = {"records": len(self.dataset)} if sized else {}  # type: ignore[arg-type]  # as asked
        return {"batch size": self.batch_size, "seed": self.seed, "drop_last": self.drop_last, **records}

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.batch += 1
            yield batch
        self.epoch, self.batch = self.epoch + 1, 0
