"""When a node stops to wait for the master on another node: who holds the next one, and where it is found."""

from __future__ import annotations

from typing import Final

from elasticjob.api.rpc.nodes import Heir, Succession

PATIENCE: Final = 2.0  # seconds without a connection to the master until the first heir takes over
STEP: Final = 3.0  # until the next one does: the heir before it is gone too


def heirs(left: Succession, silent: float) -> tuple[Heir, ...]:
    """Return the nodes that may hold the master now, the last of which is to take over; none yet if empty."""
    if silent < PATIENCE:
        return ()
    return left.heirs[: 1 + int((silent - PATIENCE) / STEP)]


def is_next(node: str, left: Succession | None, silent: float) -> bool:
    """Whether `node` is to hold the master now; before there was a world, the first that can."""
    if left is None:
        return silent >= PATIENCE
    found = heirs(left, silent)
    return bool(found) and found[-1].node == node
