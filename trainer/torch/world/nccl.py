"""NCCL's part in a group of workers on GPUs: begun before others wait for it, and taken down by a thread.

The first communicator of a process takes half a second to make, as do the first operations on a GPU: a
worker does both before it says that it is ready. To take one down, even to abort it, takes up to half a
second, since a thread of NCCL (2.28) looks only twice a second whether it has to end: nobody waits for that,
and meanwhile there may be two, which take 0.4 GB of an H100 each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

PATIENCE: Final = 10.0  # seconds at the end of a process until groups are given up that do not end

_ending: set[threading.Thread] = set()


class Nccl:
    """The operations on a GPU of torch's default group; `abort` may be called from any thread."""

    def __init__(self, device: torch.device) -> None:
        group = dist.group.WORLD
        assert group is not None
        self._device = device
        self._backend: Any = group._get_backend(device)
        self._lock = threading.Lock()
        self._ends = False

    def abort(self) -> None:
        """Begin to abort what is pending on the GPU."""
        self._end(self._backend.abort)

    def leave(self, *, broken: bool) -> None:
        """Destroy all groups. `broken`: what is pending would never end, and does before this returns."""
        if broken:
            self.abort()
        if self._ends:
            torch.cuda.synchronize(self._device)
        destroy_groups()
        self._end(self._backend.shutdown if hasattr(self._backend, "shutdown") else self._backend._shutdown)

    def _end(self, act: Callable[[], object]) -> None:
        with self._lock:
            ends, self._ends = self._ends, True
        if not ends:
            aside(act)


def destroy_groups() -> None:
    """Destroy all groups, but end no operations of theirs, for which torch would wait."""
    distributed_c10d._world.pg_names.clear()  # of those that it ends
    dist.destroy_process_group()


def aside(act: Callable[[], object]) -> None:
    """Let a thread do something, unless this process ends already."""

    def end() -> None:
        with suppress(RuntimeError):  # NCCL tells what it met with, and the group is given up
            act()
        _ending.discard(thread)

    thread = threading.Thread(target=end, name="elasticjob-nccl", daemon=True)
    _ending.add(thread)
    try:
        thread.start()
    except RuntimeError:  # Python 3.12 starts none at its end
        end()


def wait_for_ends() -> None:
    """Wait until all groups are taken down: other workers may still receive what this one has sent."""
    until = time.monotonic() + PATIENCE
    for each in list(_ending):
        each.join(max(0.0, until - time.monotonic()))


def warm_up(device: torch.device) -> None:
    """Do on a GPU, in a group that is open, what takes long the first time; no random numbers are drawn."""
    with torch.enable_grad():
        weight = torch.ones(8, 8, device=device, requires_grad=True)
        torch.autograd.backward((weight @ weight).sum())
    torch.optim.AdamW([weight]).step()
    dist.all_reduce(weight.detach())
    torch.cuda.synchronize(device)
