"""What happens where a cache is behind, or where others leave, without a word about those that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.controllers.kueue.workload import WORKLOAD
from elasticjob.kube.objects.views import POD
from lab.clusters.plane.queues import cluster_queue
from lab.virtual.cluster import TEAM, World, job
from lab.virtual.kueue import reserved
from lab.virtual.loop import run
from lab.virtual.story import SLICE

Scene = Callable[[World], Awaitable[None]]


def play(scene: Scene, **quotas: int) -> World:
    """Let a scene happen in queues of so many processors; no rule may be broken."""

    async def main() -> World:
        world = World(Random(0))
        for name, amount in quotas.items():
            world.set_queue(cluster_queue(name, {"cpu": str(amount)}, cohort="c"))
        world.start()
        try:
            await scene(world)
            assert not world.broken
        finally:
            await world.kill()
        return world

    return run(main())


def base_of(world: World, name: str) -> Any:
    [found] = [
        w
        for w in world.server.every(WORKLOAD)
        if w["metadata"]["name"].startswith(f"elasticjob-{name}-") and SLICE not in w["metadata"]["labels"]
    ]
    return found


def test_no_pod_is_made_in_a_base_that_was_deleted_and_is_still_in_the_cache() -> None:
    async def scene(world: World) -> None:
        world.arrive(job("j0", "a", 1, 1, None, master=True))
        await asyncio.sleep(30)
        before = base_of(world, "j0")
        world.go(before["metadata"]["name"])
        await world.until(lambda: not world.server.every(POD))
        assert world.operator
        world.operator.watches[WORKLOAD.resource].stall(3)
        await asyncio.sleep(60)
        assert base_of(world, "j0")["metadata"]["uid"] != before["metadata"]["uid"]

    play(scene, a=3, b=3)


def test_no_pod_is_made_in_a_base_that_the_job_has_paused_and_resumed() -> None:
    async def scene(world: World) -> None:
        world.arrive(job("j0", "a", 1, 1, None))
        await asyncio.sleep(30)
        world.change_job("j0", suspend=True)
        await world.until(lambda: not world.server.every(POD))
        assert world.operator
        world.operator.watches[WORKLOAD.resource].stall(3)
        await world.until(lambda: not base_of(world, "j0")["spec"].get("active", True))
        world.change_job("j0", suspend=False)
        await asyncio.sleep(60)
        assert [each["metadata"]["name"] for each in world.server.every(POD)] == ["j0-worker-0"]

    play(scene, a=3, b=3)


@pytest.mark.parametrize("leaves", ["a Workload of others", "a job"])
def test_slices_are_given_back_when_others_leave_too_little(leaves: str) -> None:
    async def scene(world: World) -> None:
        world.arrive(job("j0", "a", 2, 1, None, priority="high"))
        world.come("f0", "b", 1, 0)
        world.arrive(job("j1", "b", 1, 1, None))
        await asyncio.sleep(30)
        world.arrive(job("j2", "a", 2, 2, None))
        await asyncio.sleep(30)
        assert not reserved(base_of(world, "j2"))
        if leaves == "a job":
            world.delete_job("j1")
        else:
            world.go("f0")
        await asyncio.sleep(30)
        assert reserved(base_of(world, "j2"))

    world = play(scene, a=3, b=1)
    assert world.server.found(ELASTICJOB, "j0", TEAM)


def test_others_that_are_activated_before_they_have_left_are_excused() -> None:
    async def scene(world: World) -> None:
        world.come("f0", "a", 3, 0)
        await asyncio.sleep(10)
        world.activate("f0", False)
        world.come("f1", "a", 3, 0)
        await world.until(lambda: all(map(reserved, world.server.every(WORKLOAD))))
        world.activate("f0", True)
        await asyncio.sleep(10)

    play(scene, a=2, b=1)


def pods(world: World) -> int:
    return len(world.server.every(POD))


def test_a_job_whose_label_goes_stays_in_its_queue_while_it_runs() -> None:
    async def scene(world: World) -> None:
        world.arrive(job("j0", "a", 6, 1, None))
        await asyncio.sleep(60)
        found = world.server.found(ELASTICJOB, "j0", TEAM)
        assert found
        world.server.change(ELASTICJOB, found, metadata={**found["metadata"], "labels": {}})
        await asyncio.sleep(30)
        assert pods(world) == 4  # no more than the cohort has
        world.come("f0", "a", 3, 9)
        await asyncio.sleep(60)
        assert pods(world) == 1  # what was taken back has left
        world.change_job("j0", suspend=True)
        await asyncio.sleep(60)
        assert [each["metadata"]["name"] for each in world.server.every(WORKLOAD)] == ["f0"]

    play(scene, a=3, b=1)


def test_a_workload_that_kueue_does_not_admit_costs_a_job_its_growth_once() -> None:
    async def scene(world: World) -> None:
        sizes = list[int]()
        world.server.listen(lambda kind, *_: sizes.append(pods(world)) if kind == POD.resource else None)
        world.kueue.refused.add("f0")
        world.arrive(job("j0", "a", 4, 1, None))
        await asyncio.sleep(30)
        world.come("f0", "a", 2, 0)
        for _ in range(3):
            await asyncio.sleep(120)
            await world.kill()
            world.start()
        assert pods(world) == 4
        shrunk = sum(after < before for before, after in pairwise(sizes))
        assert shrunk == 1

    play(scene, a=4, b=1)


@pytest.mark.parametrize(
    ("told", "by_force"),
    [(True, False), (False, False), (False, True)],
    ids=["a watch was told", "no watch was told", "by force"],
)
def test_jobs_run_on_where_kueue_is_uninstalled_and_are_queued_when_it_is_back(
    told: bool, by_force: bool
) -> None:
    async def scene(world: World) -> None:
        world.arrive(job("j0", "a", 3, 1, None, master=True))
        world.arrive(job("j1", "b", 2, 1, None))
        await asyncio.sleep(60)
        before = {each["metadata"]["uid"] for each in world.server.every(POD)}
        await asyncio.wait_for(world.uninstall_kueue(told, by_force), 30)  # no finalizer keeps the definition
        await asyncio.sleep(60)
        assert {each["metadata"]["uid"] for each in world.server.every(POD)} >= before
        assert all(each["status"]["phase"] == "Running" for each in world.jobs())

        world.install_kueue()
        await asyncio.sleep(30)
        assert all(reserved(base_of(world, name)) for name in ("j0", "j1"))

    play(scene, a=3, b=3)
