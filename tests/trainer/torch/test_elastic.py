"""Whole jobs of real processes with the elastic library: kills, joins, leaves; arithmetic stays exact."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from elasticjob.trainer.agent.decide import STUCK
from lab.jobs.training.agents import Agent
from lab.jobs.training.harness import HELD, scenario
from lab.jobs.training.warm import Warm
from lab.paths import TRAINED
from lab.truths.counted import check
from lab.waiting import PATIENCE

pytestmark = pytest.mark.story


@pytest.mark.parametrize(("index", "missed"), [(0, 0), (1, 20)])
async def test_silent_node_is_left_behind_and_comes_back(
    tmp_path: Path, warm: Warm, index: int, missed: int
) -> None:
    """After many steps as a newcomer: its script is at another place, what it keeps is old."""
    async with scenario(tmp_path, warm, nodes=(1, 2)) as job:
        agents = [await job.agent(each, "counted.py", HELD) for each in (0, 1)]
        await job.until(job.trains_with(2, after=10))
        async with job.silent(agents[index]):
            away = job.last(agents[index].node)["step"]
            await job.until(job.trains_with(1, after=away + missed))
        await job.until(job.trains_with(2, after=job.last()["step"]))
        job.let_end()
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        check(job, slots=2)
        assert not missed or job.said("it missed the others' steps")
        steps = max(line.get("done", 0) for line in job.recorded())
        assert [result["notes"]["steps"] for result in job.results()] == [steps] * 2


async def test_worker_that_is_lost_in_the_last_step_does_not_train_again(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        (job.counted / "stand-13-1").touch()
        agent = await job.agent(0, "counted.py", 1, flags=("--nproc-per-node", "2"))
        await job.until(lambda: any(step["step"] == 13 for step in job.steps()))  # the last one, by rank 0
        await job.strike()
        assert await job.ends(agent) == 0
        check(job, slots=2, epochs=1)


async def test_survivor_that_evaluates_is_not_taken_for_stuck(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        agent = await job.agent(0, "counted.py", HELD, flags=("--nproc-per-node", "2"))
        await job.until(job.trains_with(2, after=5))
        (job.counted / "seconds").write_text(str(STUCK + 1))
        (job.counted / "seconds").rename(job.counted / "evaluation")  # no worker reads half of it
        await job.until(lambda: job.said("evaluating"))
        before = job.last()
        os.kill(job.pid(1), signal.SIGKILL)
        await job.until(job.trains_in_a_round_after(before["round"]))
        job.let_end()
        assert await job.ends(agent) == 0
        check(job, slots=2)
        assert len({step["pid"] for step in job.steps() if step["rank"] == 0}) == 1


async def test_late_node_is_cut_in_at_a_step_boundary_and_an_old_one_leaves_at_one(
    tmp_path: Path, warm: Warm
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 2)) as job:
        first = await job.agent(0, "counted.py", HELD)
        await job.until(job.trains_with(1, after=5))
        second = await job.agent(1, "counted.py", HELD)
        await job.until(lambda: job.steps("job-worker-1"))
        joined = job.steps("job-worker-1")[0]
        assert (joined["rank"], joined["world"]) == (1, 2)
        assert [change.lost for change in job.master.job.training.changes] == [(), ()]
        first.kill(signal.SIGTERM)
        assert await job.ends(first) == 143
        job.let_end()
        assert first.last_words()["reason"] == "Left"
        assert await job.ends(second) == 0
        check(job, slots=2)
        assert job.last()["world"] == 1


LATE = """
import os, runpy, sys, time
gate, *sys.argv = sys.argv[1:]
while os.environ["ELASTICJOB_NODE"] == "job-worker-1" and not os.path.exists(gate):
    time.sleep(0.01)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


async def test_newcomers_enter_while_another_one_starts(tmp_path: Path, warm: Warm) -> None:
    """Scripts that are not known to be elastic take seconds to enter; the others wait for them in vain."""
    script, gate = tmp_path / "late.py", tmp_path / "gate"
    script.write_text(LATE)
    async with scenario(tmp_path, warm, nodes=(1, 4)) as job:

        async def node(index: int) -> Agent:
            return await job.agent(index, script, gate, TRAINED / "counted.py", HELD)

        agents = [await node(0)]
        await job.until(job.trains_with(1))
        agents.append(await node(1))
        await job.until(lambda: job.said("2 workers on"))
        agents += [await node(index) for index in (2, 3)]
        await job.until(lambda: job.said("4 workers on"))
        gate.touch()
        await job.until(job.trains_with(4))
        job.let_end()
        assert [await job.ends(agent) for agent in agents] == [0] * 4
        check(job, slots=4)


async def test_killed_agent_takes_its_worker_along_and_the_other_goes_on(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 2)) as job:
        agents = [await job.agent(index, "counted.py", HELD) for index in (0, 1)]
        await job.until(job.trains_with(2, after=10))
        family = agents[0].tree()
        agents[0].kill()
        job.let_end()
        assert psutil.wait_procs(family[1:], timeout=PATIENCE)[1] == []
        assert await job.ends(agents[1]) == 0
        check(job, slots=2)


async def test_all_leave_and_a_new_job_goes_on_from_the_checkpoint(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        agent = await job.agent(0, "counted.py", HELD, tmp_path / "saved")
        await job.until(lambda: job.last()["step"] > 20)
        agent.kill(signal.SIGTERM)
        assert await job.ends(agent) == 143
        job.let_end()
        left = job.last()["step"]
        again = await job.agent(0, "counted.py", HELD, tmp_path / "saved")
        assert await job.ends(again) == 0
        started = [each["started"] for each in job.records("started")]
        assert started == [0, left]
        check(job, slots=1)


async def test_master_that_restarts_costs_no_step(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        agents = [await job.agent(index, "counted.py", HELD) for index in (0, 1)]
        await job.until(job.trains_with(2, after=10))
        await job.restart_master()
        job.let_end()
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        check(job, slots=2)
        assert {step["round"] for step in job.steps()} == {1}
        assert job.master.job.verdict is not None
