"""The real Kueue on a real control plane, whose machines only pretend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from elasticjob.kube.client.client import Client
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.kueue import Kueue


@asynccontextmanager
async def real_kueue(folder: Path) -> AsyncIterator[Client]:
    """An administrator's client of it, while the block lasts."""
    with (
        ControlPlane(folder / "plane", scheduler=True, kwok=True) as plane,
        Kueue(plane, folder / "kueue"),
    ):
        async with Client(plane.config()) as client:
            yield client
