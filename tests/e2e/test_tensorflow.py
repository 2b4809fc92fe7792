"""TensorFlow over servers that come, go, move and die: each record counts once, in the model itself."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.kit.controllers.site import Site
from tests.kit.e2e import Job, role
from tests.kit.training.forking import command
from tests.kit.training.over_servers import SERVE, counts, kept, play

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]

PIDS = Path(tempfile.gettempdir(), f"elasticjob-{os.getpid()}-pids")
SUPERVISOR = command(PIDS)
EXAMPLE = Path(__file__).parents[2] / "examples" / "tensorflow" / "train.py"
RECORDS = 300_000


async def test_each_record_counts_once_over_all_changes(site: Site, tmp_path: Path) -> None:
    await play(site, tmp_path, PIDS, records=RECORDS, users=20_000)
    never, once, twice, most = counts(tmp_path)
    print(f"records {RECORDS}: once {once}, never {never}, twice {twice}, at most {most} times", flush=True)
    assert never == 0
    assert once + twice == RECORDS
    assert twice <= 100, "at most the one step of the worker that was killed"


async def test_the_example_trains(site: Site, tmp_path: Path) -> None:
    job = Job(site)
    await site.apply(
        {
            "distributionStrategy": "ParameterServerStrategy",
            "optimizeMode": "manual",
            "replicaSpecs": {
                "ps": role([*SERVE, str(tmp_path / "kept")], 2),
                "worker": role(["python", str(EXAMPLE), str(tmp_path / "kept"), "40000"], 2),
            },
        }
    )
    await site.until(job.has_ended("Complete"))
    assert await kept(tmp_path), "the first worker saves the end"
