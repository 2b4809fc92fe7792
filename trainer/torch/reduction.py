"""How gradients are reduced over all workers: as fully_shard has divided the model, or replicated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from torch import Tensor, nn

from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.torch.saving.tree import is_distributed, settle
from elasticjob.trainer.torch.state import State
from elasticjob.trainer.torch.world.peers import Peers
from elasticjob.trainer.torch.world.replicated import Replication

NUMBERS: Final = 5  # loss, weight, interrupted, step, squares of gradients


class Reduction(Protocol):
    """How the gradients of a step become those of all workers: by `Replicated` or `Divided`."""

    @property
    def together(self) -> int:
        """How many workers compute each micro-batch together, and have a model together."""
        ...

    @property
    def model(self) -> nn.Module:
        """The model to call in steps."""
        ...

    def peers(self, place: Enter) -> Peers: ...
    def enter(self, peers: Peers) -> None: ...
    def is_stale(self) -> bool: ...
    def leave(self) -> None: ...
    def begin(self) -> None: ...
    def adding_up(self, last: bool) -> AbstractContextManager[None]: ...
    def check_used(self) -> None: ...
    def without_gradients(self, loss: Tensor) -> AbstractContextManager[None]: ...
    def send(self, numbers: Tensor) -> tuple[Tensor, Tensor] | None: ...
    def means(self) -> list[float]: ...
    def clip(self, parameters: Sequence[Tensor], max_norm: float, norm_type: float) -> Tensor: ...


def reduction_of(state: State, noise_every: int, ddp: Mapping[str, Any]) -> Reduction:
    """Return how the model is trained: as fully_shard has divided it, or replicated over all workers."""
    if not is_divided(state.model):
        return Replication(state.model, NUMBERS, ddp)
    for name, given in (("ddp", ddp), ("scaler", state.scaler), ("noise_every", noise_every)):
        if given:
            raise ValueError(f"the model is divided by fully_shard: Elastic({name}=...) is not for that")
    from elasticjob.trainer.torch.world.divided import Sharding  # what it imports takes a second

    return Sharding(state.model)


def is_divided(model: nn.Module) -> bool:
    """Whether fully_shard has divided a model."""
    settle(model)
    return any(map(is_distributed, model.parameters()))
