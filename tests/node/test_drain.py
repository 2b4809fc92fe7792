"""`kubectl drain` of whole machines with a real budget, and `kubectl uncordon`: no step is lost.

The job begins on one machine, master and workers; that one is drained, and all of it goes to the other. Where
there is one machine, as with kind, the worker of rank 0 alone is drained, and comes back after the uncordon.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from elasticjob import __version__
from elasticjob.cli.demo.run import following
from elasticjob.cli.story.example import load
from elasticjob.cli.story.seen import Seen
from elasticjob.cli.story.steps import gaps, lost
from elasticjob.cli.story.watched import INDEX, NAME, ROLE, JobView
from elasticjob.kube.client.client import Client
from lab.clusters.images import images
from lab.clusters.installed.site import READY, Site
from lab.clusters.installed.stage import OnNode, in_namespace
from lab.clusters.installed.timeline import Row, longest
from lab.clusters.node.node import Node
from lab.waiting import PATIENCE

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]


@pytest.fixture
def second(site: Site) -> Iterator[str]:
    """Another machine in the cluster."""
    if not isinstance(site.node, Node):
        pytest.skip("kind has one machine")
    yield site.node.add([site.loaded[name, __version__] for name in images.PRODUCTS], site.store)
    assert site.node.remove() == []


@dataclass
class Drain:
    """A job on the node, drains, and what they cost."""

    site: Site
    watched: JobView
    stage: OnNode

    async def begin(self) -> None:
        """Apply the job, and wait until two workers train."""
        await self.stage.apply()
        await self.train(2)

    async def train(self, world: int) -> None:
        """Wait until the first of so many workers train, and have made some steps."""
        places = {f"worker-{index}" for index in range(world)}
        await seen(self.watched, lambda now: now.world == world and (world == 1 or stays(now) == places))
        after = self.watched.seen.step
        await seen(self.watched, lambda now: now.step > after + 20)

    async def drain(self, machine: str, *words: str) -> None:
        """Drain a machine, and note how long it took."""
        began, step = time.time(), self.watched.seen.step
        await self.site.kubectl("drain", machine, READY, *words)
        did = f"kubectl drain {machine}, from step {step} to {self.watched.seen.step}"
        during = (each for each in self.watched.steps if each.at >= began)
        self.site.rows.append(Row(0.0, "drain", did, time.time() - began, longest=longest(during)))

    async def cost_nothing(self) -> None:
        """Assert that each step was made once, and no restart was counted."""
        namespace = self.stage.example.key.namespace
        told = await self.site.kubectl("-n", namespace, "get", self.stage.resource, "-o", "json")
        assert gaps(self.watched.steps) == ()
        assert lost(self.watched.steps) == 0
        assert json.loads(told)["status"].get("restarts", 0) == 0


@pytest.fixture
async def play(site: Site, admin: Client, home: str, volume: Path) -> AsyncIterator[Drain]:
    """The demo's job, which trains for longer than the test."""
    example = in_namespace(load(), home).recording(Path("/checkpoints/steps.jsonl"))
    async with following(admin, example.key, volume / "steps.jsonl") as watched:
        yield Drain(site, watched, OnNode(site.kubectl, example, lambda: watched.seen))


async def test_a_drained_machine_costs_no_step_and_no_restart(site: Site, second: str, play: Drain) -> None:
    first = site.node.place.node if isinstance(site.node, Node) else ""
    kubectl, job = site.kubectl, f"{NAME}={play.stage.example.key.name}"
    await kubectl("cordon", first)
    try:
        await play.begin()
        assert await machines_of(play, job) == {second}
    finally:
        await kubectl("uncordon", first)
    await play.drain(second, "--ignore-daemonsets", "--delete-emptydir-data")
    await play.train(2)
    assert await machines_of(play, job) == {first}
    await kubectl("uncordon", second)
    await play.train(2)
    await play.cost_nothing()


async def test_a_drained_worker_costs_no_step_and_no_restart(site: Site, play: Drain) -> None:
    if isinstance(site.node, Node):
        pytest.skip("whole machines are drained here")
    await play.begin()
    rank_zero = f"{NAME}={play.stage.example.key.name},{ROLE}=worker,{INDEX}=0"
    (machine,) = await machines_of(play, rank_zero)
    try:
        await play.drain(machine, f"--pod-selector={rank_zero}")
        await play.train(1)
    finally:
        await site.kubectl("uncordon", machine)
    await play.train(2)
    await play.cost_nothing()


async def seen(watched: JobView, true: Callable[[Seen], bool]) -> None:
    """Wait until something is true of the job."""
    async with asyncio.timeout(2 * PATIENCE):
        while not true(watched.seen):
            await watched.change()


def stays(now: Seen) -> set[str]:
    """Return the places of the workers that stay."""
    return {pod.place for pod in now.workers}


async def machines_of(play: Drain, selector: str) -> set[str]:
    """Return the machines of pods that have not ended."""
    namespace, path = play.stage.example.key.namespace, "jsonpath={.items[*].spec.nodeName}"
    words = ("-l", selector, "--field-selector=status.phase=Running", "-o", path)
    return {*(await play.site.kubectl("-n", namespace, "get", "pods", *words)).split()}
