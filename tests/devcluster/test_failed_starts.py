"""A start that fails leaves nothing behind: no task, no socket, no process, no folder that is in use."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from elasticjob.devcluster import DevCluster
from elasticjob.devcluster.server import ApiServer
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.testing import FaultProxy


def left() -> tuple[set[asyncio.Task[object]], list[psutil.Process]]:
    """Other tasks than the test's own, and processes; what is not closed is warned of."""
    gc.collect()
    return asyncio.all_tasks() - {asyncio.current_task()}, psutil.Process().children()


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    nobody = Config("http://127.0.0.1:9")
    async with FaultProxy(nobody) as holder:
        port = urlsplit(holder.url).port or 0
        before = left()
        for starting in (
            FaultProxy(nobody, port=port),
            ApiServer(port=port),
            DevCluster(tmp_path, port=port),
        ):
            with pytest.raises(OSError, match="address already in use"):
                await starting.__aenter__()
        assert left() == before


async def test_a_file_that_cannot_be_written_when_all_runs(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.mkdir()
    before = left()
    with pytest.raises(IsADirectoryError):
        await DevCluster(tmp_path / "state", kubeconfig=kubeconfig).__aenter__()
    assert left() == before
    async with DevCluster(tmp_path / "state"):
        pass
