"""`kubectl drain` of a worker on a real node, with the real budget, and `kubectl uncordon`.

There is one node, so the drain is of one worker, that of rank 0, and its replacement waits until the node is
back. The eviction passes the job's PodDisruptionBudget as the disruption controller counts it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from elasticjob.cli.story.demo import following
from elasticjob.cli.story.example import load
from elasticjob.cli.story.seen import Seen
from elasticjob.cli.story.steps import gaps, lost
from elasticjob.cli.story.watched import INDEX, NAME, ROLE, Watched
from elasticjob.kube.client.client import Client
from tests.kit.node.site import READY, Site
from tests.kit.node.stage import OnNode, in_namespace
from tests.kit.node.timeline import Row

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]

LONG: Final = 100_000
"""Epochs, more than the story lasts."""
SOON: Final = 300.0


async def test_a_drained_worker_costs_no_step_and_no_restart(
    site: Site, admin: Client, home: str, volume: Path
) -> None:
    example = in_namespace(load(), home).recording(Path("/checkpoints/steps.jsonl")).training(LONG)
    async with following(admin, example.key, volume / "steps.jsonl") as watched:
        stage = OnNode(site.kubectl, example, lambda: watched.seen)
        await stage.apply()
        await seen(watched, lambda now: now.world == 2 and now.step > 20)
        rank_zero = f"{NAME}={example.key.name},{ROLE}=worker,{INDEX}=0"
        machine = await machine_of(site, home, rank_zero)
        began, step = time.time(), watched.seen.step
        try:
            await site.kubectl("drain", machine, f"--pod-selector={rank_zero}", READY)
            await seen(watched, lambda now: now.world == 1)
            alone, drained = watched.seen.step, time.time() - began
            await seen(watched, lambda now: now.step > alone + 20)
        finally:
            await site.kubectl("uncordon", machine)
        await seen(watched, lambda now: now.world == 2 and places(now) == {"worker-0", "worker-1"})
        after = watched.seen.step
        await seen(watched, lambda now: now.step > after + 20)
    status = json.loads(await site.kubectl("-n", home, "get", stage.resource, "-o", "json"))["status"]
    row = f"steps {step} to {watched.seen.step}, {lost(watched.steps)} lost"
    site.rows.append(Row(0.0, "kubectl drain of rank 0", row, drained))
    assert gaps(watched.steps) == ()
    assert lost(watched.steps) == 0
    assert status.get("restarts", 0) == 0


async def seen(watched: Watched, true: Callable[[Seen], bool]) -> None:
    """Wait until something is true of the job."""
    async with asyncio.timeout(SOON):
        while not true(watched.seen):
            await watched.changed()


def places(now: Seen) -> set[str]:
    """Return the places of the workers that stay."""
    return {pod.place for pod in now.workers}


async def machine_of(site: Site, namespace: str, selector: str) -> str:
    """Return the node that a pod is on."""
    path = "jsonpath={.items[0].spec.nodeName}"
    return await site.kubectl("-n", namespace, "get", "pods", "-l", selector, "-o", path)
