"""What trainings of one worker in this process leave open is closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist


@pytest.fixture(autouse=True)
def closed_group() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()
