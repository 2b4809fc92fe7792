"""`kubectl drain` of whole machines with a real budget, and `kubectl uncordon`: no step is lost.

The job begins on one machine, master and workers; that one is drained, and all of it goes to the other. Where
there is one machine, as with kind, the worker of rank 0 alone is drained, and comes back after the uncordon.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from elasticjob import __version__
from elasticjob.cli.story.example import load
from elasticjob.cli.story.watched import INDEX, NAME, ROLE
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import POD
from lab.clusters.images import images
from lab.clusters.installed.installation import READY, Installation
from lab.clusters.installed.stage import Followed, followed, in_namespace
from lab.clusters.node.node import Node
from lab.jobs.site import Site

pytestmark = [pytest.mark.node, pytest.mark.timeout(1800)]


@pytest.fixture
def second(node: Installation) -> Iterator[str]:
    """Another machine in the cluster."""
    if not isinstance(node.machine, Node):
        pytest.skip("kind has one machine")
    yield node.machine.add([node.loaded[name, __version__] for name in images.PRODUCTS], node.store)
    assert node.machine.remove() == []


@pytest.fixture
async def play(node: Installation, admin: Client, home: str, volume: Path) -> AsyncIterator[Followed]:
    """The demo's job, which trains for longer than the test."""
    async with followed(node, admin, in_namespace(load(), home), volume, "drain") as found:
        yield found


async def train(play: Followed, world: int) -> None:
    """Wait until the first of so many workers train, and have made some steps."""
    places = {f"worker-{index}" for index in range(world)}
    await play.sees(lambda now: world == 1 or {pod.place for pod in now.workers} == places)
    await play.trains(world)


async def drain(play: Followed, machine: str, *words: str) -> None:
    async with play.noted(f"kubectl drain {machine}"):
        await play.node.kubectl("drain", machine, READY, *words)


def assert_it_cost_nothing(play: Followed, site: Site) -> None:
    """No step was lost, and no restart was counted."""
    play.assert_nothing_lost()
    assert not site.job().status.restarts


async def test_a_drained_machine_costs_no_step_and_no_restart(
    node: Installation, site: Site, second: str, play: Followed
) -> None:
    first = node.machine.place.node if isinstance(node.machine, Node) else ""
    await node.kubectl("cordon", first)
    try:
        await play.stage.apply()
        await train(play, 2)
        assert await machines_of(site, NAME) == {second}
    finally:
        await node.kubectl("uncordon", first)
    await drain(play, second, "--ignore-daemonsets", "--delete-emptydir-data")
    await train(play, 2)
    assert await machines_of(site, NAME) == {first}
    await node.kubectl("uncordon", second)
    await train(play, 2)
    assert_it_cost_nothing(play, site)


async def test_a_drained_worker_costs_no_step_and_no_restart(
    node: Installation, site: Site, play: Followed
) -> None:
    if isinstance(node.machine, Node):
        pytest.skip("whole machines are drained here")
    await play.stage.apply()
    await train(play, 2)
    rank_zero = f"{NAME}=digits,{ROLE}=worker,{INDEX}=0"
    (machine,) = await machines_of(site, rank_zero)
    try:
        await drain(play, machine, f"--pod-selector={rank_zero}")
        await train(play, 1)
    finally:
        await node.kubectl("uncordon", machine)
    await train(play, 2)
    assert_it_cost_nothing(play, site)


async def machines_of(site: Site, selector: str) -> set[str]:
    """Return the machines of pods that have not ended."""
    pods = await site.client.list(POD, site.namespace, labels=selector, fields="status.phase=Running")
    return {pod.spec.node_name for pod in pods}
