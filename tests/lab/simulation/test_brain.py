"""Brain, an autoscaler and a tool that applies what git has, in virtual time beside the operator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

import pytest

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import POD
from lab.simulation import acts
from lab.simulation.autoscaler import HPA, GitOps
from lab.simulation.brain import QUICK, SHARING, Brain
from lab.simulation.connection import Connection, Strike
from lab.simulation.history import History
from lab.simulation.players import DIServer, player_fails, players_come, players_go
from lab.simulation.records import records
from lab.simulation.world import World
from lab.virtual.admission import Admission
from lab.virtual.cluster import TEAM, dijob, training
from lab.virtual.loop import run
from lab.virtual.server import Instant

A: Final = Key(TEAM, "a")
WORKERS: Final = "spec/replicaSpecs/worker/replicas"


@pytest.mark.parametrize("when", ["before", "after"])
def test_brain_that_dies_beside_its_write_plans_once(when: str) -> None:
    async def play(world: World) -> None:
        store, died = await records(), die_beside_first_write(world, "brain", when)
        first = Brain(world.connection("brain"), Random(1), store, SHARING)
        await acts.submit(world, job="a", strategy="Local", workers=2, least=1, most=4, mode="cluster")
        await died.wait()
        first.stop()
        assert len(world.server.every(SCALEPLAN)) == (when == "after")
        await asyncio.sleep(2)
        second = Brain(world.server, Random(2), store, SHARING)
        await asyncio.sleep(20)
        second.stop()
        [plan] = world.server.every(SCALEPLAN)
        assert (plan["spec"]["replicaResourceSpecs"], plan["status"]["phase"]) == (
            {"worker": {"replicas": 4}},
            "Succeeded",
        )
        [kept] = await store.decisions_of(plan["metadata"]["ownerReferences"][0]["uid"])
        assert (kept.plan, kept.outcome) == (plan["metadata"]["name"], "Succeeded")
        assert len(world.server.every(POD)) == 4

    run(beside_the_operator(play))


def test_brain_grows_a_job_whose_master_reports_its_speed() -> None:
    async def play(world: World) -> None:
        brain = Brain(world.server, Random(1), await records(), QUICK)
        await acts.submit(world, job="a", workers=0, least=1, most=4, mode="cluster")
        await acts.plan(world, "a", 2, "no")
        reports = asyncio.create_task(report_speed(world, "a"))
        await asyncio.sleep(30)
        reports.cancel()
        brain.stop()
        [plan] = [each for each in world.server.every(SCALEPLAN) if "-brain-" in each["metadata"]["name"]]
        assert plan["spec"]["reason"] == "worker-growth: 2 at 20/s: 4 are tried, to see whether it pays"
        assert plan["status"]["phase"] == "Succeeded"

    run(beside_the_operator(play))


def test_an_autoscaler_and_git_come_to_rest_beside_each_other() -> None:
    async def play(world: World) -> None:
        clock = world.server.clock
        git = GitOps(world.server, clock)
        scaler = HPA(world.server, clock, Random(1), JOBRESOURCE, A, 1, 4)
        git.commit(ELASTICJOB, acts.manifest(job="a", strategy="Local", workers=2, least=1, most=6))
        git.start()
        scaler.start()
        await asyncio.sleep(60)
        version = world.server.version
        await asyncio.sleep(120)
        assert world.server.version == version
        wanted = scaler.wanted(2)
        assert wanted != 2  # what git says
        assert resource(world)["spec"]["replicas"] == wanted == len(world.server.every(POD))

        world.change_workers("a", maxReplicas=5)
        await asyncio.sleep(10)
        assert job(world)["spec"]["replicaSpecs"]["worker"]["maxReplicas"] == 6  # healed
        git.remove(ELASTICJOB, A)
        await asyncio.sleep(60)
        world.server.collect()
        assert not world.there(ELASTICJOB, "a")
        git.stop()
        scaler.stop()

    run(beside_the_operator(play))


def test_a_training_job_of_paddle_runs_as_a_job() -> None:
    async def play(world: World) -> None:
        world.add(TRAININGJOB, training("a", 2, 4))
        await asyncio.sleep(10)
        made, found = job(world), world.there(TRAININGJOB, "a")
        assert found
        assert made["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]
        assert found["status"]["phase"] == "running"

    run(beside_the_operator(play))


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_coordinator_gets_its_collectors_once_from_a_di_server_that_dies(when: str) -> None:
    async def play(world: World) -> None:
        world.add(DIJOB, dijob("a", ""))
        await asyncio.sleep(5)
        died = die_beside_first_write(world, "di-server", when)
        running = [DIServer(world.connection("di-server"), Random(1))]
        asked = asyncio.create_task(players_come(lambda: running[-1], A, 2))
        await died.wait()
        running[-1].stop()
        assert len(world.players()) == (when == "after")
        running.append(DIServer(world.server, Random(2)))
        assert await asked
        assert await players_come(lambda: running[-1], A, 1)
        await asyncio.sleep(5)
        [first, *others] = sorted(pod["metadata"]["name"] for pod in world.players())
        assert len(others) == 2
        assert await player_fails(lambda: running[-1], A, first)
        assert await players_go(lambda: running[-1], A, 2)
        await asyncio.sleep(10)
        [left] = world.players()
        assert left["metadata"]["name"] != first
        running[-1].stop()

    run(beside_the_operator(play))


async def beside_the_operator(play: Callable[[World], Awaitable[None]]) -> None:
    world = World.of(History(1), ())
    world.server.admission = Admission(Instant(world.server))
    world.start()
    await play(world)
    world.close()


def die_beside_first_write(world: World, program: str, when: str) -> asyncio.Event:
    """Have a program do nothing more before or after its first write. Returns what is set then."""
    died = asyncio.Event()

    async def die(connection: Connection) -> None:
        connection.dead = True
        died.set()

    world.strikes[program, 1] = Strike(when == "after", die)
    return died


async def report_speed(world: World, name: str) -> None:
    """Write each second what a master does: a job with twice the workers trains twice as fast."""
    while True:
        await asyncio.sleep(1)
        found = world.there(ELASTICJOB, name) or {}
        if active := found.get("status", {}).get("replicaStatuses", {}).get("worker", {}).get("active"):
            training = {
                "worldSize": active,
                "stepsPerSecond": 1.0 * active,
                "samplesPerSecond": 10.0 * active,
            }
            world.server.change(ELASTICJOB, found, status={**found["status"], "training": training})


def job(world: World) -> Manifest:
    found = world.there(ELASTICJOB, "a")
    assert found
    return found


def resource(world: World) -> Manifest:
    found = world.there(JOBRESOURCE, "a")
    assert found
    return found
