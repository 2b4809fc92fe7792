"""The order of a training's records: a checkpoint within an epoch needs the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

FINISH: Final = (
    "finish the epoch with what it had, after which it may change, or give another checkpoint folder"
)
"""The way out where a checkpoint is within an epoch of another order."""


def check(taken: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Raise ValueError if a checkpoint has `taken` what it has in another order than mine."""
    changes = [
        f"{name} {was} became {mine.get(name)}" for name, was in theirs.items() if mine.get(name) != was
    ]
    if changes:
        raise ValueError(f"the checkpoint has taken {taken} in another order: {', '.join(changes)}; {FINISH}")
