"""A model that each worker has whole: DistributedDataParallel averages its gradients over the workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from elasticjob.trainer.link.channel import Enter
from elasticjob.trainer.link.worlds import ONE_LOOP
from elasticjob.trainer.torch.world.peers import Peers, Sum

KNOWN: Final = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64),
)
"""The types of buffers that DistributedDataParallel can broadcast by gloo and NCCL."""


class Carrier(nn.Module):
    """A model and the few numbers of each step, which its gradients carry along in their own reduction."""

    def __init__(self, model: nn.Module, numbers: int, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self.numbers = nn.Parameter(torch.zeros(numbers, device=device))

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.model(*inputs, **named)


class Replication:
    """How workers train a model of which each has a copy; `numbers` is how many go with the gradients."""

    together = 1

    def __init__(self, model: nn.Module, numbers: int, ddp: Mapping[str, Any]) -> None:
        self._device = next(model.parameters()).device
        self._alone = bool(ddp.get("find_unused_parameters") or ddp.get("static_graph"))
        self._carrier = Carrier(model, numbers, self._device)
        self._ddp = {"init_sync": False, "gradient_as_bucket_view": True, **ddp}
        self._peers: Peers | None = None
        self._sum: Sum | None = None
        self._wrapped: DistributedDataParallel | None = None
        self._used = False  # the wrapped model was called since the last backward pass
        self._trains: tuple[bool, ...] = ()
        self._ours: list[Tensor] = []  # buffers that become rank 0's by us, as bytes

    def is_stale(self) -> bool:
        """Whether other parameters are trained than those whose gradients are averaged."""
        return self._trains != self._trained()

    def _trained(self) -> tuple[bool, ...]:
        return tuple(each.requires_grad for each in self._carrier.model.parameters())

    @property
    def model(self) -> DistributedDataParallel:
        """The model in DistributedDataParallel."""
        if self._wrapped is None:
            raise RuntimeError(f"training has ended: {ONE_LOOP}")
        return self._wrapped

    def peers(self, place: Enter) -> Peers:
        """Return the workers of a world."""
        return Peers(place, self._device)

    def enter(self, peers: Peers) -> None:
        """Wrap the model for a world whose group is open."""
        self._peers = peers
        self._trains = self._trained()
        devices = [self._device] if self._device.type == "cuda" else None
        module = self._carrier.model if self._alone else self._carrier
        ours = {name: each for name, each in module.named_buffers() if each.dtype not in KNOWN}
        if ours:
            ignore = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model
            ignore(module, list(ours))  # type: ignore[no-untyped-call]  # torch has no other way
        self._ours = list(ours.values())
        self._wrapped = DistributedDataParallel(module, device_ids=devices, **self._ddp)
        self._wrapped.register_forward_pre_hook(self._note_use)

    def leave(self) -> None:
        """Unwrap the model: the world is over."""
        self._wrapped = None

    def begin(self) -> None:
        """Begin a step."""
        self._used = False
        self._carrier.numbers.grad = None

    def adding_up(self, last: bool) -> AbstractContextManager[None]:
        """Keep the gradients of a micro-batch on this worker, unless it is the last one."""
        return nullcontext() if last else self.model.no_sync()

    def check_used(self) -> None:
        """Raise RuntimeError if the micro-batch was computed by the bare model."""
        if not self._used:
            raise RuntimeError(
                "the loss was computed with the bare model: its gradients are not averaged over the workers, "
                "which would train different models; call elastic.model"
            )
        self._used = False

    @contextmanager
    def without_gradients(self, loss: Tensor) -> Iterator[None]:
        """Have a backward pass add nothing: that of a loss of weight 0, which may be 0/0.

        All parameters take part in it, because the reduction waits for each of them.
        """
        trained = [each for each in self._carrier.model.parameters() if each.requires_grad]
        hooks = [each.register_hook(torch.zeros_like) for each in trained]  # type: ignore[no-untyped-call]  # torch has no types here
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def send(self, numbers: Tensor) -> tuple[Tensor, Tensor] | None:
        """Add up `numbers` over all workers; return the parameter whose gradient they are in the last pass.

        DistributedDataParallel looks for parameters that `forward` does not use if it is asked to; then they
        are sent by themselves, ahead of the gradients.
        """
        assert self._peers is not None
        if self._alone:
            self._sum = self._peers.start_sum(numbers)
            return None
        return self._carrier.numbers, numbers

    def means(self) -> list[float]:
        """Return the means over the workers of the numbers that they sent; the gradients are reduced then."""
        assert self._peers is not None
        if self._sum is not None:
            means = self._sum.wait()
        else:
            assert self._carrier.numbers.grad is not None
            means = self._carrier.numbers.grad.tolist()
        self._peers.settle()
        return means

    def clip(self, parameters: Sequence[Tensor], max_norm: float, norm_type: float) -> Tensor:
        """Clip the gradients by their norm; return it."""
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)

    def _note_use(self, wrapped: DistributedDataParallel, _: object) -> None:
        self._used = True
        if self._ours and wrapped.broadcast_buffers and wrapped.require_backward_grad_sync:
            assert self._peers is not None
            self._peers.broadcast(self._ours, 0)
