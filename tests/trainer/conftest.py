"""The warm process that the trainer's tests share."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from lab.jobs.training.warm import Warm, warm_process


@pytest.fixture(scope="session")
def warm_line() -> Iterator[socket.socket]:
    """The line to a process that has imported torch."""
    with warm_process() as line:
        yield line


@pytest.fixture
def warm(warm_line: socket.socket) -> Warm:
    """Starts agents with a warm process beside them."""
    return Warm(warm_line)
