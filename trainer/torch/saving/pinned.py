"""Memory that a GPU reaches by itself: copies there are four times as fast as to other memory (H100)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch


def pin(block: memoryview) -> Callable[[], object]:
    """Let GPUs reach a block of memory; return what ends that, to be called before the block is unmapped.

    Where the driver refuses, as for a file on disk, it copies to such a block itself, through memory of its
    own. A process that has not used CUDA pins nothing.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return bool
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = torch.frombuffer(block, dtype=torch.uint8).data_ptr()
    if runtime.cudaHostRegister(address, len(block), 0) != runtime.cudaError.success:
        with suppress(RuntimeError):  # CUDA keeps the error, and would raise it at what comes next
            torch.zeros(1, device="cuda")
        return bool
    return lambda: runtime.cudaHostUnregister(address)
