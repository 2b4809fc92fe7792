"""The well-behaved tenant: a job that trains, one without a master, and a client of di-server.

Its objects are in a namespace of their own. Sizes are changed now and then, as `kubectl scale` does; nothing
else may change.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NAMESPACE, POD, Pod
from lab.build.manifests import DIJOB as MANIFEST
from lab.jobs.pulse import Pulse, Stamp
from lab.troubles.rubbish import HERE, SLEEP
from lab.waiting import until

HOME: Final = "quiet"
EVERY: Final = 12.0
"""Seconds between two changes of sizes."""
SCALED_WITHIN: Final = 30.0
STEP_WITHIN: Final = 30.0
SIZES: Final = {"trains": (2, 3), "sleeps": (2, 4)}


def job(name: str) -> Manifest:
    """Return the manifest of a job."""
    began = {"name": "BEGAN", "value": str(time.time() - 1)}
    stepper = {
        "name": "main",
        "image": "python:3.11",
        "command": [sys.executable, str(HERE / "stepper.py")],
        "env": [began],
    }
    pod = {"terminationGracePeriodSeconds": 2, "containers": [stepper if name == "trains" else SLEEP]}
    worker = {"replicas": 2, "minReplicas": 1, "maxReplicas": 4, "restartCount": 3, "template": {"spec": pod}}
    strategy = "AllreduceStrategy" if name == "trains" else "Local"
    spec = {"distributionStrategy": strategy, "optimizeMode": "manual", "replicaSpecs": {"worker": worker}}
    return {"metadata": {"name": name}, "spec": spec}


@dataclass
class Seen:
    """A job of the neighbour as it was last right."""

    generation: int
    size: int
    stepped: Stamp
    uids: dict[str, str] = field(default_factory=dict)
    """The pod of each index that no change of ours has taken away."""
    step: int = 0


@dataclass
class Neighbour:
    """Works quietly; `wrong` gets a sentence for each disturbance."""

    client: Client
    session: aiohttp.ClientSession
    di_server: str
    pulse: Pulse
    wrong: Callable[[str], None]
    jobs: dict[str, Seen] = field(default_factory=dict)
    scaled: list[float] = field(default_factory=list)
    """Seconds that each change of a size took."""
    calls: int = 0
    leaves: bool = False
    """Whether `run` is to end, once what it does is done."""

    async def move_in(self) -> None:
        """Create everything, and wait until it runs."""
        await self.client.create(NAMESPACE, {"metadata": {"name": HOME}})
        await self.client.create(NAMESPACE, {"metadata": {"name": "hostile"}})
        for name in SIZES:
            await self.client.create(ELASTICJOB.untyped(), job(name), HOME)
        dijob = {**MANIFEST, "metadata": {"name": "steady"}}
        await self.client.create(DIJOB.untyped(), dijob, HOME)
        for name, (size, _) in SIZES.items():
            await until(lambda name=name, size=size: self._runs(name, size), f"{name} runs")  # type: ignore[misc]
            found = await self.client.get(ELASTICJOB, name, HOME)
            pods = await self._pods(name)
            self.jobs[name] = Seen(found.metadata.generation, size, self.pulse.stamp(), pods)
        await until(self._steps, "the job trains")

    async def run(self) -> None:
        """Look at the jobs, scale them and call di-server."""
        grown = False
        while not self.leaves:
            began = time.monotonic()
            grown = not grown
            for name, sizes in SIZES.items():
                await self._scale(name, sizes[grown])
            await self._call_di_server()
            while time.monotonic() - began < EVERY and not self.leaves:
                await self.look()
                await asyncio.sleep(1)  # a look at what happens meanwhile

    async def look(self) -> None:
        """Compare the jobs with what they were."""
        for name, seen in self.jobs.items():
            found = await self.client.find(ELASTICJOB, name, HOME)
            if found is None:
                self.wrong(f"{HOME}/{name} is gone")
                continue
            for sentence in disturbed(found, await self._pods(name), seen):
                self.wrong(f"{HOME}/{name} {sentence}")
            self._note_step(name, found)

    def _note_step(self, name: str, found: ElasticJob) -> None:
        seen = self.jobs[name]
        step = (found.status.training.step if found.status.training else None) or 0
        if step > seen.step or name != "trains":
            seen.step, seen.stepped = step, self.pulse.stamp()
        elif seen.stepped.ago > STEP_WITHIN:
            self.wrong(f"{HOME}/{name} made no step for {seen.stepped.ago:.0f} s: it is at {step}")
            seen.stepped = self.pulse.stamp()

    async def _scale(self, name: str, size: int) -> None:
        began, seen = self.pulse.stamp(), self.jobs[name]
        patch = {"spec": {"replicas": size}}
        try:
            await self.client.merge_patch(ELASTICJOB.untyped(), name, patch, HOME, subresource="scale")
        except KubeError as error:
            self.wrong(f"{HOME}/{name} cannot be scaled: {error!s:.300}")
            return
        seen.generation += 1
        seen.size, before = size, seen.uids
        seen.uids = {index: uid for index, uid in before.items() if int(index) < min(size, len(before))}
        if not await self.pulse.until(lambda: self._runs(name, size), SCALED_WITHIN):
            found = await self.client.find(ELASTICJOB, name, HOME)
            told = found.status.model_dump_json(exclude_none=True) if found else ""
            self.wrong(f"{HOME}/{name} was not scaled to {size} within {SCALED_WITHIN:.0f} s: {told:.800}")
        self.scaled.append(began.ago)
        seen.uids = {**await self._pods(name), **seen.uids}

    async def _call_di_server(self) -> None:
        """Add a collector and take one away, as a coordinator does; it asks again when it is told to."""
        body = {"namespace": HOME, "coordinator": "steady-coordinator", "collectors": {"replicas": 1}}
        for verb in ("POST", "DELETE"):
            began, said = self.pulse.stamp(), ""
            while began.ago < SCALED_WITHIN:
                said = await self._ask(verb, body)
                if not said:
                    break
                await asyncio.sleep(0.5)  # as DI-engine's client does
            if said:
                self.wrong(f"di-server does not carry out {verb} of {HOME}/steady: {said:.300}")

    async def _ask(self, verb: str, body: Manifest) -> str:
        """Call; return "" where it was done, else why not."""
        url = f"{self.di_server}/v1alpha1/replicas"
        try:
            async with self.session.request(verb, url, data=json.dumps(body)) as answer:
                told: dict[str, Any] = await answer.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return f"no answer: {error!r}"
        self.calls += 1
        if answer.status != 200:
            self.wrong(f"di-server answers {answer.status} {told!s:.300} to {verb} of {HOME}/steady")
        return "" if told.get("success") else str(told.get("message"))

    async def _runs(self, name: str, size: int) -> bool:
        found = await self.client.get(ELASTICJOB, name, HOME)
        whole = found.status.phase == "Running" and found.status.workers == f"{size}/{size}"
        return whole and len(await self._pods(name)) == size

    async def _steps(self) -> bool:
        found = await self.client.get(ELASTICJOB, "trains", HOME)
        return bool(found.status.training and found.status.training.step)

    async def _pods(self, name: str) -> dict[str, str]:
        """The uids of the workers of a job that run, by their index."""
        chosen = f"{LABEL_JOB}={name},{LABEL_ROLE}=worker"
        return running(await self.client.list(POD, HOME, labels=chosen))


def running(pods: Iterable[Pod]) -> dict[str, str]:
    """Return the uids of pods that run and stay, by their index."""
    return {
        pod.metadata.labels[LABEL_INDEX]: pod.metadata.uid
        for pod in pods
        if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None
    }


def disturbed(found: ElasticJob, pods: dict[str, str], seen: Seen) -> list[str]:
    """Return what is not as it was."""
    wrong = []
    if found.metadata.generation != seen.generation:
        wrong.append(f"has generation {found.metadata.generation} instead of {seen.generation}")
        seen.generation = found.metadata.generation
    if found.status.phase not in ("Running", "Scaling"):
        wrong.append(f"is {found.status.phase}: {found.status.conditions!s:.600}")
    for index, uid in seen.uids.items():
        if pods.get(index) != uid:
            wrong.append(f"has another pod of index {index}: {pods.get(index)} instead of {uid}")
            seen.uids = {**seen.uids, index: pods.get(index, uid)}
    return wrong
