"""Jobs that train: they learn their sizes, go on without their master, and resume where they were."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.cli.demo.run import following
from elasticjob.cli.story.example import STEPS as RECORD
from elasticjob.cli.story.seen import Seen
from elasticjob.cli.story.steps import gaps
from elasticjob.cli.story.watched import JobView
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import (
    CONFIG_MAP,
    NETWORK_POLICY,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from elasticjob.master.durable.store import ConfigMap as Snapshot
from lab.jobs.job import TRAINS, Job, submitted, trainer
from lab.jobs.site import Site
from lab.waiting import until

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]
SUPERVISOR = TRAINS


# jobs without sizes


def learning(worker: Manifest, pace: float) -> Manifest:
    """Return the spec of a job without sizes; the times of its master are `pace` times as long as usual."""
    del worker["replicas"]
    return {
        "replicaSpecs": {"worker": worker},
        "envs": {"ELASTICJOB_MASTER__PACE": {"value": str(pace)}},
        "resourceLimits": {"cpu": "2", "memory": "8Gi"},
    }


def is_told(site: Site, *words: str) -> bool:
    """Whether the reason of a plan has all these words."""
    return any(all(word in plan.spec.reason for word in words) for plan in site.plans().values())


async def test_a_job_without_sizes_grows_as_long_as_it_pays(site: Site, tmp_path: Path) -> None:
    fastest_with_two = ("--seconds", 0.3, 0.15, 0.25, "--steps", 5000, "--gate", tmp_path / "never")
    spec = learning(trainer(*fastest_with_two, minReplicas=1, maxReplicas=3), pace=0.05)
    job = await submitted(site, spec)
    await site.until(lambda: is_told(site, "3 at", "is not worth it beside 2 at"))
    await site.until(lambda: job.running() == {"master-0", "worker-0", "worker-1"})
    await site.until(lambda: job.status.workers == "2/2")


async def test_a_worker_that_eats_memory_gets_more_before_it_dies(site: Site) -> None:
    leaks = ("--leak", 5, "--steps", 250)
    job = await submitted(site, learning(trainer(*leaks, minReplicas=1, maxReplicas=1), pace=0.02))
    await site.until(job.has_ended("Complete"))
    assert is_told(site, "worker uses", "out of memory in")
    assert {name: len(uids) for name, uids in job.born.items()} == {"master-0": 1, "worker-0": 1}


# what happens in mid-life


@dataclass(frozen=True)
class Training:
    """A job of two workers that a gate holds, and what is seen of it."""

    job: Job
    watched: JobView
    record: Path
    gate: Path

    async def until(self, true: Callable[[Seen], bool]) -> None:
        """Wait until something is true of the job."""
        await until(lambda: true(self.watched.seen), "what is seen of the job")


@pytest_asyncio.fixture(loop_scope="module")
async def training(site: Site, tmp_path: Path) -> AsyncIterator[Training]:
    record, gate = tmp_path / "steps.jsonl", tmp_path / "gate"
    workers = trainer("--gate", gate, "--steps", 2000, "--checkpoint", tmp_path / "checkpoints", replicas=2)
    silence = {"ELASTICJOB_MASTER__SILENCE": {"value": "60"}}  # who is only not heard of is not lost
    envs = {RECORD: {"value": str(record)}, **silence}
    job = await submitted(site, {"replicaSpecs": {"worker": workers}, "envs": envs})
    async with following(site.client, Key(site.namespace, "digits"), record) as watched:
        found = Training(job, watched, record, gate)
        await found.until(lambda seen: seen.step >= 10 and seen.world == 2)  # one may begin before the other
        yield found


async def test_a_killed_master_is_replaced_while_the_training_goes_on(site: Site, training: Training) -> None:
    job, trained = training.job, training.watched.seen.round
    await until(lambda: is_saved(site, trained), f"round {trained} is saved")
    job.kill("master-0")
    await site.until(lambda: "master-0-1" in job.born)
    training.gate.touch()
    await site.until(job.has_ended("Complete"))
    await site.event("digits-master-0-1 replaces digits-master-0: killed by SIGKILL (exit code 137)")
    await training.until(lambda seen: seen.step == 2000)
    assert gaps(training.watched.steps) == ()
    assert training.watched.seen.round == trained
    assert job.born.keys() == {"master-0", "master-0-1", "worker-0", "worker-1"}


async def is_saved(site: Site, number: int) -> bool:
    """Whether a successor of the master would know of a round: one that it does not know ends."""
    found = await site.client.find(CONFIG_MAP, "digits-master-state", site.namespace)
    saved = found.data.get(Snapshot.KEY) if found else None
    return saved is not None and json.loads(saved)["job"]["round"] == number


async def test_a_suspended_job_resumes_where_it_was_and_leaves_nothing_when_deleted(
    site: Site, training: Training
) -> None:
    job = training.job
    await site.patch({"suspend": True})
    await site.until(lambda: not site.pods() and job.has_ended("Suspended")())
    assert job.processes() == ()
    last = json.loads(training.record.read_text().splitlines()[-1])  # who watches may be late
    saved = last["step"]
    await site.patch({"suspend": False})
    await training.until(lambda seen: seen.step > saved)
    assert gaps(training.watched.steps) == ()
    first = min(step.step for step in training.watched.steps if step.round > last["round"])
    assert first in (saved, saved + 1)  # a new main worker writes the step before its own as well

    processes = job.processes()
    assert len(processes) > 3
    await site.client.delete(ELASTICJOB, "digits", site.namespace)
    await site.until(lambda: not site.pods() and not site.operator.cache(JOBRESOURCE).list(site.namespace))
    assert not any(psutil.pid_exists(process.pid) for process in processes)
    kinds: tuple[Kind[Any], ...] = (POD, SECRET, SERVICE, ROLE, ROLE_BINDING, NETWORK_POLICY, SCALEPLAN)
    for kind in kinds:
        await site.has_only(kind)
    await site.has_only(SERVICE_ACCOUNT, "default")
