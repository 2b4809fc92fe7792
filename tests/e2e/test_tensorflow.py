"""TensorFlow over servers that come, go, move and die: each record counts once, in the model itself."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from elasticjob.kube.objects.kinds import Manifest
from lab.jobs.job import role, submitted, with_servers
from lab.jobs.site import Site
from lab.jobs.training.forking import command
from lab.jobs.training.over_servers import SERVE, counts, kept, play

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]

PIDS = Path(tempfile.gettempdir(), f"elasticjob-{os.getpid()}-pids")
SUPERVISOR = command(PIDS)
EXAMPLE = Path(__file__).parents[2] / "examples" / "tensorflow" / "train.py"
RECORDS = 300_000
FAILS = """
import tensorflow.compat.v1 as tf
from elasticjob.trainer.shards import Dataset
from elasticjob.trainer.tensorflow import Servers, Step

def look():
    raise KeyError("mine")

def model():
    found = tf.numpy_function(look, [], tf.float64)
    total = tf.get_variable("total", [], tf.float64)
    return Step(total.assign_add(tf.ensure_shape(found, []), read_value=False), {})

with Servers(model, Dataset(name="ratings", size=100, shard=10)) as servers:
    for _, step in servers.steps(batch=10):
        step()
"""


async def test_each_record_counts_once_over_all_changes(site: Site, tmp_path: Path) -> None:
    await play(site, tmp_path, PIDS, records=RECORDS, users=20_000)
    never, once, twice, most = counts(tmp_path)
    print(f"records {RECORDS}: once {once}, never {never}, twice {twice}, at most {most} times", flush=True)
    assert never == 0
    assert once + twice == RECORDS
    assert twice <= 100, "at most the one step of the worker that was killed"


async def test_the_example_trains(site: Site, tmp_path: Path) -> None:
    """Its worker is started as users start it: no fork of a process that has imported TensorFlow."""
    train = ["python3", str(EXAMPLE), str(tmp_path / "kept"), "40000"]
    job = await submitted(site, over_servers(2, train, tmp_path))
    await site.until(job.has_ended("Complete"))
    assert {name for name in job.born if name.startswith("worker")} == {"worker-0"}, "none has failed"
    assert await kept(tmp_path), "the first worker saves the end"


async def test_a_step_that_fails_by_itself_fails_the_job(site: Site, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(FAILS)
    job = await submitted(site, over_servers(1, ["python", str(script)], tmp_path))
    await site.until(job.has_ended("Failed"))
    said = job.condition("Failed")[2]
    assert "digits-worker-0 failed with exit code 1: a step of the model failed: " in said


def over_servers(servers: int, command: list[str], folder: Path) -> Manifest:
    """Return a job of some servers and one worker, which is not started again."""
    serve = [*SERVE, str(folder / "kept")]
    return with_servers(role(serve, servers), role(command, 1, restartCount=0), optimizeMode="manual")
