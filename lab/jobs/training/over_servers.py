"""A TensorFlow job whose servers and workers come, go, move and die: the story of a test and a benchmark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from elasticjob.kube.objects.kinds import Manifest
from lab.jobs.job import Job, role, with_servers
from lab.jobs.site import Site
from lab.jobs.training.forking import process_of
from lab.paths import SCRIPTS
from lab.truths.steps import Steps
from lab.waiting import until

SCRIPT = SCRIPTS / "e2e" / "ratings.py"
SERVE = ["python", "-m", "elasticjob.trainer.tensorflow.serve"]
COUNTS = """
import json, sys, tensorflow as tf
found = tf.train.load_checkpoint(tf.train.latest_checkpoint(sys.argv[1]))
seen = found.get_tensor("seen")
print(json.dumps([int((seen == times).sum()) for times in (0, 1, 2)] + [int(seen.max())]))
"""


async def play(site: Site, folder: Path, pids: Path, *, records: int, users: int) -> dict[str, float]:
    """Play it; return how long training stood still in each change. `users` is the size of the model."""
    job, steps = Job(site), Steps(folder)
    (folder / "kept").mkdir()
    await site.apply(spec(folder, records, users))
    await steps.more()
    async with steps.standstill("servers 3 -> 4"):
        await site.plan("four", replicaResourceSpecs={"ps": {"replicas": 4}})
    async with steps.standstill("servers 4 -> 2"):
        await site.plan("two", replicaResourceSpecs={"ps": {"replicas": 2}})
        await site.until(lambda: not job.running() & {"ps-2", "ps-3"})
    async with steps.standstill("migrate a server"):
        await site.plan("move", migratePods=[{"name": "digits-ps-0", "resource": {"cpu": "100m"}}])
        await site.until(lambda: job.running() & {"ps-0", "ps-0-1"} == {"ps-0-1"})
    async with steps.standstill("workers 2 -> 4"):
        await site.plan("workers", replicaResourceSpecs={"worker": {"replicas": 4}})
    async with steps.standstill("checkpoint"):
        (folder / "save").touch()
        await until(lambda: kept(folder), "a checkpoint")
    await steps.more()
    async with steps.standstill("SIGKILL of a server, back to the checkpoint"):
        os.kill(process_of(pids, "digits-ps-1"), signal.SIGKILL)
        await site.until(lambda: "ps-1-1" in job.running())
    async with steps.standstill("SIGKILL of a worker"):
        os.kill(process_of(pids, "digits-worker-1"), signal.SIGKILL)
    async with steps.standstill("workers -> 1"):
        await site.plan("one", replicaResourceSpecs={"worker": {"replicas": 1}})
        await site.until(lambda: sum(name.startswith("worker") for name in job.running()) == 1)
    async with steps.standstill("servers 2 -> 3, one worker"):
        await site.plan("three", replicaResourceSpecs={"ps": {"replicas": 3}})
    (folder / "gate").touch()
    await site.until(job.has_ended("Complete"))
    return steps.stood


def spec(folder: Path, records: int, users: int) -> Manifest:
    """Return a job of three servers and two workers that share a folder of this machine."""
    train = ["python", str(SCRIPT), str(folder), str(records), str(users)]
    return with_servers(
        role([*SERVE, str(folder / "kept")], 3, minReplicas=1, maxReplicas=6),
        role(train, 2, minReplicas=1, maxReplicas=6),
        optimizeMode="manual",
    )


def counts(folder: Path) -> list[int]:
    """Return how many records the last checkpoint counts 0 times, once, twice, and the most times."""
    said = subprocess.check_output((sys.executable, "-c", COUNTS, str(folder / "kept")), text=True)
    return list(json.loads(said.splitlines()[-1]))


async def kept(folder: Path) -> bool:
    return any((folder / "kept").glob("*.index"))
