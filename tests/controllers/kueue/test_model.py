"""Whom Kueue admits and evicts: the model that the interleavings use agrees with the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from benchmarks.chaos.quota import is_true
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Manifest
from hack.cluster.controlplane import ControlPlane
from hack.cluster.kueue import Kueue, why_missing
from hack.cluster.queues import (
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    WORKLOAD,
    cluster_queue,
    flavor,
    local_queue,
    workload,
)
from tests.kit.queues.kueue import condition
from tests.kit.queues.loop import run
from tests.kit.queues.world import World
from tests.kit.waiting import until

HOME = "default"


@dataclass(frozen=True)
class Case:
    """Quotas of the queues a and b; Workloads in their order: name, queue, processors, priority."""

    quotas: tuple[int, int]
    workloads: tuple[tuple[str, str, int, int], ...]
    admitted: str
    evicted: str = ""


CASES = {
    "an important one preempts in its queue": Case((2, 4), (("x", "b", 4, 0), ("y", "b", 4, 5)), "y", "x"),
    "none preempts for more than its queue's own quota": Case(
        (2, 4), (("x", "b", 4, 0), ("y", "b", 5, 5)), "x"
    ),
    "what a queue lends is taken back": Case((2, 4), (("x", "a", 6, 9), ("y", "b", 1, 0)), "y", "x"),
    "and not to borrow": Case((3, 3), (("x", "b", 2, 0), ("y", "a", 4, 0), ("z", "b", 2, 0)), "xy"),
    "the fewest leave, if the queue can borrow": Case(
        (2, 4), (("x", "b", 1, 0), ("y", "b", 3, 1), ("z", "b", 3, 5)), "yz", "x"
    ),
    "others leave first": Case((2, 4), (("x", "a", 3, 9), ("y", "b", 3, 0), ("z", "b", 1, 5)), "yz", "x"),
    "one that waits lets the next one pass": Case(
        (2, 2), (("x", "a", 3, 0), ("y", "a", 2, 0), ("z", "a", 1, 0)), "xz"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_model_decides(case: Case) -> None:
    async def main() -> None:
        world = World(Random(0))
        for name, cpu in zip("ab", case.quotas, strict=True):
            world.resize_queue(name, cpu)
        for each in case.workloads:
            world.come(*each)
            await asyncio.sleep(10)
        assert said(world.server.every(WORKLOAD)) == (case.admitted, case.evicted)

    run(main())


@pytest.mark.plane
@pytest.mark.skipif(bool(why_missing()), reason=why_missing())
async def test_the_real_one_decides(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "plane") as plane, Kueue(plane, tmp_path / "kueue"):
        async with Client(plane.config()) as client:
            await client.create(RESOURCE_FLAVOR, flavor())
            for number, case in enumerate(CASES.values()):
                assert await decided(client, number, case) == (case.admitted, case.evicted), case


async def decided(client: Client, number: int, case: Case) -> tuple[str, str]:
    """Play a case in queues of its own; the Workloads that are evicted are deleted."""
    names = {name: f"{name}{number}" for name in "ab"}
    for (name, queue), cpu in zip(names.items(), case.quotas, strict=True):
        made = cluster_queue(queue, {"cpu": str(cpu)}, cohort=f"c{number}")
        await client.create(CLUSTER_QUEUE, made)
        await client.create(LOCAL_QUEUE, local_queue(queue, HOME, names[name]))
    evicted = dict[str, Manifest]()

    async def settled() -> bool:
        """Whether nobody is about to leave, and Kueue has looked at all others."""
        mine = {e["metadata"]["name"]: e for e in await client.list(WORKLOAD, HOME)}
        mine = {name: each for name, each in mine.items() if name.endswith(str(number))}
        for name, each in mine.items():
            if is_true(each, "Evicted") and is_true(each, "QuotaReserved"):
                evicted[name] = each
                with suppress(KubeError):
                    await client.delete(WORKLOAD, name, HOME)
                return False
        found.clear()
        found.update(mine)
        return all(condition(each, "QuotaReserved")[0] for each in mine.values())

    found = dict[str, Manifest]()
    for name, queue, cpu, priority in case.workloads:
        made = workload(f"{name}{number}", HOME, names[queue], cpu, {"cpu": "1"}, priority=priority)
        await client.create(WORKLOAD, made)
        await until(settled, f"Kueue has looked at {name} of {case}")
        await asyncio.sleep(1.1)  # the order of creation counts in seconds
        await until(settled, f"Kueue has looked at {name} of {case}")
    return said([*found.values(), *evicted.values()])


def said(workloads: list[Manifest]) -> tuple[str, str]:
    """The first letters of those that are admitted, and of those that have been evicted."""
    holding = (each for each in workloads if is_true(each, "Admitted") and not is_true(each, "Evicted"))
    gone = (each for each in workloads if is_true(each, "Evicted"))
    return letters(holding), letters(gone)


def letters(workloads: Iterable[Manifest]) -> str:
    return "".join(sorted(each["metadata"]["name"][0] for each in workloads))
