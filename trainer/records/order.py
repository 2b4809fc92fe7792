"""The order of a training's records: a checkpoint within an epoch needs the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from elasticjob.trainer.records.done import Done

FINISH: Final = (
    "finish the epoch with what it had, after which it may change, or give another checkpoint folder"
)
"""The way out where a checkpoint is within an epoch of another order."""


def check(before: Mapping[str, Any], now: Mapping[str, Any], done: Done) -> None:
    """Raise ValueError if `done` is within an epoch of another order than that of `now`."""
    other = [name for name, was in before.items() if now.get(name) != was]
    if not other or not done.offset:
        return
    changes = ", ".join(f"{name} {before[name]} became {now.get(name)}" for name in other)
    raise ValueError(
        f"the checkpoint has taken {done.offset} records of epoch {done.epoch} in another order: {changes}; "
        f"{FINISH}"
    )
