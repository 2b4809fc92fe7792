"""Whom Kueue admits and evicts: the model that the interleavings use agrees with the real one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Manifest
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.kueue import Kueue, why_missing
from lab.clusters.plane.queues import (
    CLUSTER_QUEUE,
    LOCAL_QUEUE,
    RESOURCE_FLAVOR,
    WORKLOAD,
    cluster_queue,
    flavor,
    local_queue,
    workload,
)
from lab.truths.quota import flavors, is_true
from lab.virtual.cluster import TOLERATION, World, spot_flavor
from lab.virtual.kueue import condition, order
from lab.virtual.loop import run
from lab.waiting import until

HOME = "default"


@dataclass(frozen=True)
class Case:
    """Quotas of the queues a and b; Workloads in their order: name, queue, processors, priority.

    A capital letter is one that tolerates the machines of the flavor spot.
    """

    quotas: tuple[int, int]
    workloads: tuple[tuple[str, str, int, int], ...]
    admitted: str
    evicted: str = ""
    on_spot: str = ""
    """The admitted Workloads that have the flavor spot."""
    spot: tuple[int, int] = (0, 0)
    """Quotas of the flavor spot, which comes second."""
    strict: str = ""
    """The queues that are StrictFIFO."""
    never: str = ""
    """The queues that evict nobody."""
    lending: str = ""
    """The queues that lend one processor at most of each flavor; `borrowing`: that borrow one at most."""
    borrowing: str = ""

    def queues(self, cohort: str, mark: str = "") -> list[Manifest]:
        """The ClusterQueues a and b."""
        return [self._queue(number, name, f"{name}{mark}", cohort) for number, name in enumerate("ab")]

    def _queue(self, number: int, name: str, as_: str, cohort: str) -> Manifest:
        made = cluster_queue(as_, {"cpu": "0"}, cohort=cohort)
        limits = {"lendingLimit": "1"} if name in self.lending else {}
        limits |= {"borrowingLimit": "1"} if name in self.borrowing else {}
        quotas = {"default": self.quotas[number], "spot": self.spot[number]}
        made["spec"]["resourceGroups"][0]["flavors"] = [
            {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(cpu), **limits}]}
            for flavor, cpu in quotas.items()
            if cpu or flavor == "default"
        ]
        made["spec"] |= {"queueingStrategy": "StrictFIFO"} if name in self.strict else {}
        if name in self.never:
            made["spec"]["preemption"] = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}
        return made

    @property
    def told(self) -> tuple[str, str, str]:
        """The names of admitted and evicted Workloads, and of those with the flavor spot."""
        return self.admitted, self.evicted, self.on_spot


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
    "in a strict queue nobody passes": Case(
        (2, 2), (("x", "a", 3, 0), ("y", "a", 2, 0), ("z", "a", 1, 0)), "x", strict="a"
    ),
    "one that can never be admitted stops a strict queue": Case(
        (2, 2), (("x", "a", 9, 0), ("y", "a", 1, 0), ("z", "b", 1, 0)), "z", strict="a"
    ),
    "what needs no room does not wait in a strict queue": Case(
        (2, 2), (("x", "a", 3, 0), ("y", "a", 1, 9)), "xy", strict="a"
    ),
    "the first flavor with room": Case(
        (2, 0), (("X", "a", 2, 0), ("Y", "a", 2, 0), ("z", "a", 1, 0)), "xy", on_spot="y", spot=(2, 0)
    ),
    "a taint keeps others off": Case(
        (1, 0), (("x", "a", 2, 0), ("Y", "a", 2, 0)), "y", on_spot="y", spot=(4, 0)
    ),
    "another flavor before anybody leaves": Case(
        (2, 0), (("x", "a", 2, 0), ("Y", "a", 2, 5)), "xy", on_spot="y", spot=(2, 0)
    ),
    "the flavor in which somebody can leave": Case(
        (2, 0), (("x", "a", 2, 5), ("Y", "a", 2, 0), ("Z", "a", 2, 3)), "xz", "y", on_spot="z", spot=(2, 0)
    ),
    "a flavor is lent by those that have it": Case(
        (1, 1), (("X", "a", 3, 0), ("y", "b", 2, 0)), "xy", on_spot="x", spot=(1, 2)
    ),
    "no more is lent than the limit": Case(
        (2, 4), (("x", "a", 4, 0), ("y", "a", 3, 0), ("z", "b", 3, 0)), "yz", lending="b"
    ),
    "no more is borrowed than the limit": Case(
        (2, 4), (("x", "a", 4, 0), ("y", "a", 3, 0)), "y", borrowing="a"
    ),
    "a queue that evicts nobody waits": Case(
        (2, 4), (("x", "a", 6, 0), ("y", "b", 1, 0), ("z", "b", 1, 9)), "x", never="b"
    ),
    "nor within it": Case((2, 2), (("x", "a", 4, 0), ("y", "a", 2, 9)), "x", never="a"),
    "what a strict queue that evicts nobody waits for is lent to nobody": Case(
        (2, 2), (("x", "b", 3, 0), ("y", "a", 2, 0), ("z", "b", 1, 0)), "x", never="a", strict="a"
    ),
    "and one that lets others pass keeps nothing": Case(
        (2, 2), (("x", "b", 3, 0), ("y", "a", 2, 0), ("z", "b", 1, 0)), "xz", never="a"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_model_decides(case: Case) -> None:
    async def main() -> None:
        world = World(Random(0))
        for each in case.queues("c"):
            world.set_queue(each)
        for name, queue, cpu, priority in case.workloads:
            world.come(name.lower(), queue, cpu, priority, spot=name.isupper())
            await asyncio.sleep(10)
        assert said(world.server.every(WORKLOAD)) == case.told

    run(main())


@pytest.mark.plane
@pytest.mark.skipif(bool(why_missing()), reason=why_missing())
async def test_the_real_one_decides(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "plane") as plane, Kueue(plane, tmp_path / "kueue"):
        async with Client(plane.config()) as client:
            await client.create(RESOURCE_FLAVOR, flavor())
            await client.create(RESOURCE_FLAVOR, spot_flavor())
            decisions = (decided(client, number, case) for number, case in enumerate(CASES.values()))
            found = dict(zip(CASES, await asyncio.gather(*decisions), strict=True))
            assert found == {name: case.told for name, case in CASES.items()}


async def decided(client: Client, number: int, case: Case) -> tuple[str, str, str]:
    """Play a case in queues of its own; the Workloads that are evicted are deleted."""
    mark = f"-{number}"
    names = {name: f"{name}{mark}" for name in "ab"}
    for made in case.queues(f"c{number}", mark):
        name = made["metadata"]["name"]
        await client.create(CLUSTER_QUEUE, made)
        await client.create(LOCAL_QUEUE, local_queue(name, HOME, name))
    evicted = dict[str, Manifest]()

    async def settled() -> bool:
        """Whether nobody is about to leave, and Kueue has looked at all others."""
        mine = {e["metadata"]["name"]: e for e in await client.list(WORKLOAD, HOME)}
        mine = {name: each for name, each in mine.items() if name.endswith(mark)}
        for name, each in mine.items():
            if is_true(each, "Evicted") and is_true(each, "QuotaReserved"):
                evicted[name] = each
                with suppress(KubeError):
                    await client.delete(WORKLOAD, name, HOME)
                return False
        found.clear()
        found.update(mine)
        return all(condition(each, "QuotaReserved")[0] for each in mine.values() if not behind(each, mine))

    def behind(one: Manifest, mine: dict[str, Manifest]) -> bool:
        """Whether Kueue says nothing about a Workload, since another one is before it in a strict queue."""
        queue = one["spec"]["queueName"]
        before = (e for e in mine.values() if e["spec"]["queueName"] == queue and order(e) < order(one))
        return queue.removesuffix(mark) in case.strict and any(
            not is_true(e, "QuotaReserved") for e in before
        )

    found = dict[str, Manifest]()
    for name, queue, cpu, priority in case.workloads:
        made = workload(f"{name.lower()}{mark}", HOME, names[queue], cpu, {"cpu": "1"}, priority=priority)
        if name.isupper():
            made["spec"]["podSets"][0]["template"]["spec"]["tolerations"] = [TOLERATION]
        await client.create(WORKLOAD, made)
        await until(settled, f"Kueue has looked at {name} of {case}")
        await asyncio.sleep(4)  # the order of creation counts in seconds, and a look follows a look
        await until(settled, f"Kueue has looked at {name} of {case}")
    return said([*found.values(), *evicted.values()])


def said(workloads: list[Manifest]) -> tuple[str, str, str]:
    """The first letters of those that are admitted, that have been evicted, and that are on spot machines."""
    holding = [each for each in workloads if is_true(each, "Admitted") and not is_true(each, "Evicted")]
    gone = (each for each in workloads if is_true(each, "Evicted"))
    return letters(holding), letters(gone), letters(e for e in holding if "spot" in flavors(e).values())


def letters(workloads: Iterable[Manifest]) -> str:
    return "".join(sorted(each["metadata"]["name"][0] for each in workloads))
