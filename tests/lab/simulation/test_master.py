"""A master and its agents train in virtual time, whoever of them ends."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.controllers.parts import names
from elasticjob.kube.errors import ServerError
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import CONFIG_MAP, POD
from elasticjob.master.state.job import Job
from lab.simulation.agent import Agent
from lab.simulation.master import Master
from lab.simulation.trained import round_of, unsound, untrue_end, went_back
from lab.simulation.training import Training
from lab.virtual import cluster, loop
from lab.virtual import pods as kubelet
from lab.virtual.server import Server
from lab.waiting import until

JOB, SPACE = "digits", cluster.TEAM


class Scene:
    """A job, its pods put by hand, the programs in them, and what is wrong."""

    def __init__(self, workers: int = 3, least: int = 1, steps: int = 20, *, plain: bool = False) -> None:
        self.server, self.wrong = Server(loop.LoopClock()), list[str]()
        self.training = Training(steps, self.wrong.append, plain=plain)
        made = cluster.job(JOB, "", workers, least, workers, master=True)
        self.server.put(ELASTICJOB, {**made, "metadata": {"name": JOB, "namespace": SPACE}})
        self.server.listen(self._look)
        self.agents: dict[str, Agent] = {}
        self.words: dict[str, Any] = {}
        self.lead()
        for index in range(workers):
            self.work(index)

    def lead(self, relaunch: int = 0) -> None:
        """The next life of the master begins."""

        def ended(code: int, message: str) -> None:
            self.words = {"code": code, **json.loads(message or "{}")}

        name = self._pod(names.MASTER, 0, relaunch)["metadata"]["name"]
        self.master = Master(self.server, self.server.clock, SPACE, JOB, name, ended, self._hear)
        self.master.start()

    def work(self, index: int, relaunch: int = 0) -> None:
        """The next life of a worker begins."""
        pod = self._pod("worker", index, relaunch)
        name = pod["metadata"]["name"]

        def ended(code: int) -> None:
            kubelet.end(self.server, self.server.lookup(POD, name, SPACE), code)

        self.agents[name] = Agent(
            pod, lambda _: self.master, self.server.clock, Random(name), self.training, ended
        )
        self.agents[name].start()

    def lose(self, index: int) -> None:
        """A worker is killed, and its pod deleted."""
        pod = self.server.lookup(POD, names.pod(JOB, "worker", index, 0), SPACE)
        self.agents[pod["metadata"]["name"]].kill()
        self.server.remove(POD, kubelet.end(self.server, pod, 137))

    @property
    def job(self) -> Manifest:
        found: Manifest = self.server.lookup(ELASTICJOB, JOB, SPACE)
        return found

    @property
    def status(self) -> Manifest:
        found: Manifest = self.job.get("status", {}).get("training", {})
        return found

    @property
    def size(self) -> int:
        found: int = self.status.get("worldSize", 0)
        return found

    def phase(self, index: int, relaunch: int = 0) -> str:
        found: str = self.server.lookup(POD, names.pod(JOB, "worker", index, relaunch), SPACE)["status"][
            "phase"
        ]
        return found

    async def until(self, is_so: Callable[[], object], what: str, seconds: float = 60.0) -> None:
        await until(is_so, what, seconds)
        assert self.wrong == []

    def _pod(self, role: str, index: int, relaunch: int) -> Manifest:
        labels = names.pod_labels(JOB, role, index, relaunch)
        metadata = {"name": names.pod(JOB, role, index, relaunch), "namespace": SPACE, "labels": labels}
        made = self.server.put(POD, {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}})
        return kubelet.start(self.server, made, "n1")

    def _hear(self, before: Job, after: Job) -> None:
        self.wrong += unsound(before, after)

    def _look(self, resource: str, old: Manifest | None, new: Manifest | None) -> None:
        if resource == ELASTICJOB.resource and old and new:
            self.wrong += went_back(old, new)


def play(main: Coroutine[Any, Any, None]) -> None:
    random.seed(1)
    loop.run(main)


def test_a_job_trains_to_its_end_though_a_worker_and_its_master_are_killed() -> None:
    async def story() -> None:
        scene = Scene()
        await scene.until(lambda: scene.size == 3, "all train")
        scene.lose(1)
        await scene.until(lambda: scene.size == 2, "two train")
        scene.work(1, relaunch=1)
        await scene.until(lambda: scene.size == 3, "all train")
        before = round_of(scene.job)
        scene.master.kill()
        written = len(scene.server.writes)
        await asyncio.sleep(3)
        assert len(scene.server.writes) == written
        scene.lead(relaunch=1)
        await scene.until(lambda: scene.words, "it ends")
        assert (scene.words["verdict"], scene.words["code"]) == ("Succeeded", 0)
        assert [scene.phase(0), scene.phase(1, 1), scene.phase(2)] == ["Succeeded"] * 3
        assert round_of(scene.job) == before, "the world trained on without its master"
        assert scene.master.core
        job = {**scene.job, "status": {**scene.job["status"], "phase": "Succeeded"}}
        assert untrue_end(scene.master.core.job, job) == []
        assert untrue_end(scene.master.core.job, scene.job) != []

    play(story())


def test_a_worker_that_is_told_to_go_leaves_and_one_that_fails_says_how() -> None:
    async def story() -> None:
        scene = Scene(steps=1000)
        await scene.until(lambda: scene.status.get("step"), "it trains")
        scene.agents["digits-worker-2"].stop()
        scene.agents["digits-worker-1"].fail(3)
        await scene.until(lambda: scene.size == 1, "one trains")
        last = [
            scene.server.lookup(POD, f"digits-worker-{index}", SPACE)["status"]["containerStatuses"][0]
            for index in (1, 2)
        ]
        assert [each["state"]["terminated"]["exitCode"] for each in last] == [3, 143]

    play(story())


def test_a_lost_machine_is_missed_by_its_silence_alone() -> None:
    async def story() -> None:
        scene = Scene(steps=1000)
        await scene.until(lambda: scene.status.get("step"), "it trains")
        scene.agents["digits-worker-2"].kill(silently=True)
        await asyncio.sleep(3)
        assert scene.size == 3
        await scene.until(lambda: scene.size == 2, "it is missed", 6)

    play(story())


def test_a_master_that_is_told_to_stop_leaves_no_verdict() -> None:
    async def story() -> None:
        scene = Scene(steps=1000)
        await scene.until(lambda: scene.status.get("step"), "it trains")
        scene.master.stop()
        await scene.until(lambda: scene.words, "it ends", 10)
        assert (scene.words["verdict"], scene.words["code"]) == ("Stopped", 0)

    play(story())


def test_no_round_is_counted_twice_where_the_status_is_newer_than_the_snapshot() -> None:
    async def story() -> None:
        scene = Scene(steps=1000)
        full = ServerError(500, "InternalError", "etcdserver: no space")
        scene.server.fault = lambda verb, kind, _: full if (verb, kind) == ("apply", CONFIG_MAP) else None
        await scene.until(lambda: scene.size == 3, "all train")
        scene.lose(1)
        await scene.until(lambda: scene.size == 2, "two train")
        scene.master.kill()
        for index in (0, 2):
            scene.lose(index)
        for index in range(3):
            scene.work(index, relaunch=1)
        scene.lead(relaunch=1)
        await scene.until(lambda: scene.size == 3, "all train again")
        assert round_of(scene.job) == 3

    play(story())


def test_a_member_that_is_lost_with_the_master_of_an_unsaved_world_stops_no_other() -> None:
    async def story() -> None:
        scene = Scene(steps=1000)
        full = ServerError(500, "InternalError", "etcdserver: no space")
        scene.server.fault = lambda verb, kind, _: full if (verb, kind) == ("apply", CONFIG_MAP) else None
        await scene.until(lambda: scene.size == 3, "all train")
        scene.agents["digits-worker-2"].kill(silently=True)
        scene.master.kill(silently=True)
        await asyncio.sleep(3)
        scene.server.remove(POD, scene.server.lookup(POD, "digits-worker-2", SPACE), grace=0)
        scene.lead(relaunch=1)
        before = scene.training.step
        await scene.until(lambda: scene.training.step > before + 3, "the others train on", 90)

    play(story())
