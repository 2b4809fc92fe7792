"""One short job with the elastic library, and the same script without an agent."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.kit.training.counted import check, trained_alone
from tests.kit.training.harness import HELD, SCRIPTS, scenario
from tests.kit.training.warm import Warm

pytestmark = pytest.mark.xdist_group("warm")  # one process of pytest-xdist has torch warm


async def test_killed_workers_are_replaced_and_nothing_is_lost(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        agents = [await job.agent(index, "counted.py", HELD) for index in (0, 1)]
        for rank in (1, 0):  # without rank 0 the next oldest has the state
            at = job.last()["step"]
            await job.until(job.trains_with(2, after=at + 10))
            last = next(step for step in reversed(job.steps()) if (step["world"], step["rank"]) == (2, rank))
            os.kill(last["pid"], signal.SIGKILL)
            await job.until(job.trains_in_a_round_after(last["round"]))
        job.let_end()
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        check(job, slots=2, lost=2)
        assert job.last()["world"] == 2
        assert len(job.seen) == 4, "who survived goes on in its process"


async def test_elastic_script_under_another_launcher_says_what_to_do(warm: Warm) -> None:
    launched = {**os.environ, "WORLD_SIZE": "2", "RANK": "0"}
    process = await warm.run([str(SCRIPTS / "counted.py"), "1"], launched)
    assert b"start it with `elasticjob run`" in await process.stdout.read()
    assert await process.wait() == 1


async def test_script_trains_alone_without_an_agent(tmp_path: Path, warm: Warm) -> None:
    process = await warm.run([str(SCRIPTS / "counted.py"), "2"], {**os.environ, "COUNTED": str(tmp_path)})
    output = await process.stdout.read()
    result = json.loads(output.splitlines()[-1])
    assert result["parameters"] == pytest.approx(trained_alone(2)[0], abs=1e-6)
