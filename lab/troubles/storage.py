"""Slow and full machines: a worker that is throttled, and storage without room for a checkpoint."""

from __future__ import annotations

import asyncio
import resource
import time
from contextlib import suppress
from typing import Final

import psutil

from lab.jobs.digits import PATIENCE, Digits
from lab.story import Trouble

SLOW: Final = 10.0
FULL: Final = 4.0
"""Seconds for which a worker is slow, and for which storage is full after a checkpoint has failed."""
TURN: Final = (0.12, 0.03)
"""Seconds in which a slow worker stands, and in which it computes, again and again."""
LARGEST: Final = 1 << 18
"""Bytes of a file on full storage: less than a checkpoint has, more than a log."""


async def slow_worker(scene: Digits) -> str:
    """Let a worker stand most of the time, as on a machine that is throttled."""
    pod, pid = scene.chance.choice(scene.processes("worker"))
    process, until = psutil.Process(pid), time.monotonic() + SLOW
    with suppress(psutil.NoSuchProcess):
        try:
            while time.monotonic() < until:
                process.suspend()
                await asyncio.sleep(TURN[0])
                process.resume()
                await asyncio.sleep(TURN[1])
        finally:
            process.resume()
    return f"slowed {pod} down"


async def full_disk(scene: Digits) -> str:
    """Let agents, which write checkpoints to storage, write no large file: a full mount would need root."""
    agents = [psutil.Process(pid) for _, pid in scene.processes("agent")]
    try:
        for agent in agents:
            agent.rlimit(psutil.RLIMIT_FSIZE, (LARGEST, resource.RLIM_INFINITY))
        async with asyncio.timeout(PATIENCE):
            while not (await scene.page())[1]["checkpoint"].get("error"):  # noqa: ASYNC110  # others fail
                await asyncio.sleep(0.2)
        await asyncio.sleep(FULL)
    finally:
        for agent in agents:
            with suppress(psutil.NoSuchProcess):
                agent.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return "filled the disk"


TROUBLES: Final = (Trouble("slow-worker", Digits, slow_worker), Trouble("full-disk", Digits, full_disk))
