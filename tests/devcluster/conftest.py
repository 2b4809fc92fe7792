"""Fixtures of whole clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from elasticjob.devcluster import VirtualNode
from tests.kit.devcluster.live import Live, live

NODE = VirtualNode("node", {"cpu": "8", "memory": "16Gi", "pods": "50", "nvidia.com/gpu": "2"})


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Live]:
    """A cluster of one node with two pretended devices."""
    async with live(tmp_path / "state", nodes=(NODE,)) as running:
        yield running
