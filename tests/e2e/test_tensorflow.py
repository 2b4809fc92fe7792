"""TensorFlow over servers that come, go, move and die: each record counts once, in the model itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.objects.kinds import Manifest
from tests.kit.controllers.site import Site
from tests.kit.e2e import Job, role
from tests.kit.training.forking import command, process_of
from tests.kit.waiting import until

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]

PIDS = Path(tempfile.gettempdir(), f"elasticjob-{os.getpid()}-pids")
SUPERVISOR = command(PIDS)
SCRIPT = Path(__file__).parent / "scripts" / "ratings.py"
EXAMPLE = Path(__file__).parents[2] / "examples" / "tensorflow" / "train.py"
SERVE = ["python", "-m", "elasticjob.trainer.tensorflow.serve"]
RECORDS = 300_000
COUNTS = """
import json, sys, tensorflow as tf
found = tf.train.load_checkpoint(tf.train.latest_checkpoint(sys.argv[1]))
seen = found.get_tensor("seen")
print(json.dumps([int((seen == times).sum()) for times in (0, 1, 2)] + [int(seen.max())]))
"""


def spec(folder: Path, servers: int, workers: int) -> Manifest:
    """Return a job whose servers and workers share a folder of this machine."""
    return {
        "distributionStrategy": "ParameterServerStrategy",
        "optimizeMode": "manual",
        "replicaSpecs": {
            "ps": role([*SERVE, str(folder / "kept")], servers, minReplicas=1, maxReplicas=6),
            "worker": role(
                ["python", str(SCRIPT), str(folder), str(RECORDS)], workers, minReplicas=1, maxReplicas=6
            ),
        },
    }


async def scale(site: Site, name: str, **changes: Any) -> None:
    """Do what a user does with a plan of their own, and wait until it is carried out."""
    metadata = {"name": name, "namespace": site.namespace}
    body = {"apiVersion": SCALEPLAN.api_version, "kind": SCALEPLAN.name, "metadata": metadata}
    await site.client.create(
        SCALEPLAN.untyped(), body | {"spec": {"ownerJob": "digits", "manualScaling": True, **changes}}
    )
    await site.until(lambda: str(site.plans()[name].status.phase) == "Succeeded")


class Steps:
    """The steps of all workers, by the file that they write."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "steps"

    def times(self) -> list[float]:
        return [
            float(line.split()[0]) for line in self._file.read_text().splitlines() if line.count(" ") == 2
        ]

    async def more(self, steps: int = 40) -> None:
        """Wait for more steps."""
        target = (len(self.times()) if self._file.exists() else 0) + steps

        async def made() -> bool:
            return self._file.exists() and len(self.times()) >= target

        await until(made, f"{target} steps")

    @asynccontextmanager
    async def standstill(self, what: str) -> AsyncIterator[None]:
        """Print the longest time without a step, from before what is done to some steps after."""
        began = time.time()
        yield
        await self.more(60)
        known = self.times()
        times = [max((t for t in known if t <= began), default=began), *sorted(t for t in known if t > began)]
        longest = max(after - before for before, after in pairwise(times))
        print(f"{what:40} stands still {longest:5.2f} s", flush=True)


def counts(folder: Path) -> list[int]:
    """Return how many records the last checkpoint counts 0 times, once, twice, and the most times."""
    said = subprocess.check_output((sys.executable, "-c", COUNTS, str(folder / "kept")), text=True)
    return list(json.loads(said.splitlines()[-1]))


async def test_each_record_counts_once_over_all_changes(site: Site, tmp_path: Path) -> None:
    job, steps = Job(site), Steps(tmp_path)
    (tmp_path / "kept").mkdir()
    await site.apply(spec(tmp_path, 3, 2))
    await steps.more()
    async with steps.standstill("servers 3 -> 4"):
        await scale(site, "four", replicaResourceSpecs={"ps": {"replicas": 4}})
    async with steps.standstill("servers 4 -> 2"):
        await scale(site, "two", replicaResourceSpecs={"ps": {"replicas": 2}})
        await site.until(lambda: not job.running() & {"ps-2", "ps-3"})
    async with steps.standstill("migrate a server"):
        await scale(site, "move", migratePods=[{"name": "digits-ps-0", "resource": {"cpu": "100m"}}])
        await site.until(lambda: job.running() & {"ps-0", "ps-0-1"} == {"ps-0-1"})
    async with steps.standstill("workers 2 -> 4"):
        await scale(site, "workers", replicaResourceSpecs={"worker": {"replicas": 4}})
    async with steps.standstill("checkpoint"):
        (tmp_path / "save").touch()
        await until(lambda: _kept(tmp_path), "a checkpoint")
    await steps.more()
    async with steps.standstill("SIGKILL of a server, back to the checkpoint"):
        os.kill(process_of(PIDS, "digits-ps-1"), signal.SIGKILL)
        await site.until(lambda: "ps-1-1" in job.running())
    async with steps.standstill("SIGKILL of a worker"):
        os.kill(process_of(PIDS, "digits-worker-1"), signal.SIGKILL)
    async with steps.standstill("workers -> 1"):
        await scale(site, "one", replicaResourceSpecs={"worker": {"replicas": 1}})
        await site.until(lambda: sum(name.startswith("worker") for name in job.running()) == 1)
    async with steps.standstill("servers 2 -> 3, one worker"):
        await scale(site, "three", replicaResourceSpecs={"ps": {"replicas": 3}})
    (tmp_path / "gate").touch()
    await site.until(job.has_ended("Complete"))
    never, once, twice, most = counts(tmp_path)
    print(f"records {RECORDS}: once {once}, never {never}, twice {twice}, at most {most} times", flush=True)
    assert never == 0
    assert once + twice == RECORDS
    assert twice <= 100, "at most the one step of the worker that was killed"


async def _kept(folder: Path) -> bool:
    return any((folder / "kept").glob("*.index"))


async def test_the_example_trains(site: Site, tmp_path: Path) -> None:
    job = Job(site)
    await site.apply(
        {
            "distributionStrategy": "ParameterServerStrategy",
            "optimizeMode": "manual",
            "replicaSpecs": {
                "ps": role([*SERVE, str(tmp_path)], 2),
                "worker": role(["python", str(EXAMPLE), str(tmp_path), "40000"], 2),
            },
        }
    )
    await site.until(job.has_ended("Complete"))
    assert list(tmp_path.glob("model-*.index")), "the first worker saves the end"
