"""Where torchrun finds our rendezvous. torch loads this amid its own import, so it imports nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def create_handler() -> Callable[[Any], Any]:
    """Return the factory of handlers, as entry points in `torchrun.handlers` require."""
    return connect


def connect(parameters: Any) -> Any:
    """Return the rendezvous of `torchrun --rdzv-backend=elasticjob`."""
    from elasticjob.trainer.torch import rendezvous

    return rendezvous.connect(parameters)
