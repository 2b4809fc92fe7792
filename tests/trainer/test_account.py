"""A short story of real processes: productive and lost seconds are all there were."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from elasticjob.master.progress import goodput
from elasticjob.master.progress.goodput import Cause
from lab.jobs.training.harness import Scenario, scenario
from lab.jobs.training.warm import Warm

WORKERS = 2

pytestmark = pytest.mark.story


async def trains(job: Scenario) -> None:
    """Wait until both ranks have made some steps more."""
    seen = len(job.lines)

    def both() -> bool:
        new = [line.record["rank"] for line in job.lines[seen:] if "step" in line.record]
        return min(new.count(rank) for rank in range(WORKERS)) >= 20

    await job.until(both)


async def test_productive_and_lost_seconds_are_those_of_all_workers(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(WORKERS, WORKERS)) as job:
        began = job.master.now()
        job.master.observe(lambda state, _: goodput.close(state, began))  # not with the first tick
        first, second = [await job.agent(index, "stalled.py", tmp_path, 0.02) for index in range(WORKERS)]
        await trains(job)
        os.kill(job.steps(first.node)[-1]["pid"], signal.SIGKILL)
        await trains(job)
        second.kill()
        await job.ends(second)
        await job.agent(1, "stalled.py", tmp_path, 0.02)
        await trains(job)
        ended = job.master.now()
        spent = goodput.close(job.master.job, ended).account.seconds
    assert sum(spent.values()) == pytest.approx((ended - began).total_seconds() * WORKERS, rel=0.01)
    assert {Cause.PRODUCTIVE, Cause.INIT, Cause.RENDEZVOUS} <= set(spent)
    assert spent[Cause.PRODUCTIVE] > 3 * 20 * 0.02 * WORKERS
