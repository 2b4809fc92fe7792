"""Whole jobs of real processes whose model fully_shard divides in each node: arithmetic stays exact."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.jobs.training.agents import Agent
from lab.jobs.training.harness import HELD, Scenario, scenario
from lab.jobs.training.warm import Warm
from lab.paths import TRAINED
from lab.truths.counted import check

pytestmark = pytest.mark.story


async def begun(job: Scenario, *indices: int, workers: int = 2, saves: Sequence[Path] = ()) -> list[Agent]:
    """Start nodes that train until the job is let end, each with a model that its workers divide."""
    flags = ("--nproc-per-node", str(workers))
    return [await job.agent(each, "counted.py", HELD, *saves, "--divided", flags=flags) for each in indices]


@pytest.mark.parametrize(("nodes", "workers"), [(1, 1), (2, 1)])
async def test_any_number_of_nodes_and_parts_computes_the_same(
    tmp_path: Path, warm: Warm, nodes: int, workers: int
) -> None:
    async with scenario(tmp_path, warm, nodes=(nodes, nodes)) as job:
        flags = ("--nproc-per-node", str(workers))
        agents = [await job.agent(index, "counted.py", 3, "--divided", flags=flags) for index in range(nodes)]
        assert [await job.ends(agent) for agent in agents] == [0] * nodes
        check(job, slots=nodes * workers, epochs=3)


async def test_what_fully_shard_leaves_out_is_averaged_over_all_workers(tmp_path: Path, warm: Warm) -> None:
    _, printed = await warm.output(TRAINED / "partly.py", 3)
    alone = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        flags = ("--nproc-per-node", "2")
        agents = [await job.agent(index, "partly.py", 3, flags=flags) for index in (0, 1)]
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        results = job.results()
    assert len(results) == 4
    for result in results:
        assert result["parameters"] == pytest.approx(alone["parameters"], abs=1e-5)
        assert result["norms"] == pytest.approx(alone["norms"], abs=1e-5)
        assert result["seen"] == results[0]["seen"]


async def test_survivors_of_a_lost_node_go_on_and_a_new_one_gets_their_parts(
    tmp_path: Path, warm: Warm
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 3)) as job:
        agents = await begun(job, 0, 1)
        await job.until(job.trains_with(4, after=10))
        stay = pids(job, "job-worker-1")
        agents[0].kill()
        await job.until(job.trains_with(2, after=job.last()["step"]))
        agents += await begun(job, 2, 0)
        await job.until(job.trains_with(6))
        job.let_end()
        assert [await job.ends(agent) for agent in agents[1:]] == [0] * 3
        assert pids(job, "job-worker-1") == stay
        check(job, slots=6)


async def test_node_that_lost_a_worker_comes_back_as_a_new_one(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        agents = await begun(job, 0, 1)
        await job.until(job.trains_with(4, after=10))
        stay, broken = pids(job, "job-worker-1"), pids(job, "job-worker-0")
        before = job.last()["round"]
        os.kill(min(broken), signal.SIGKILL)
        await job.until(job.trains_in_a_round_after(before))
        job.let_end()
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        assert pids(job, "job-worker-1") == stay
        assert len(pids(job, "job-worker-0") - broken) == 2
        check(job, slots=4)


async def test_last_node_that_loses_a_worker_goes_on_from_memory_and_a_new_job_from_storage(
    tmp_path: Path, warm: Warm
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        saves = [tmp_path / "saved"]
        [agent] = await begun(job, 0, saves=saves)
        await job.until(job.trains_with(2, after=10))
        os.kill(min(pids(job, "job-worker-0")), signal.SIGKILL)
        await job.until(job.trains_in_a_round_after(1))
        lost = max(step["step"] for step in job.steps() if step["round"] == 1)
        await job.until(job.trains_with(2, after=lost))  # so that the last step is one of this round
        agent.kill(signal.SIGTERM)
        assert await job.ends(agent) == 143
        job.let_end()
        left = max(line.get("done", 0) for line in job.recorded())
        [again] = await begun(job, 0, workers=1, saves=saves)
        assert await job.ends(again) == 0
        started = [each["started"] for each in job.records("started")]
        assert started[:2] == [0, 0]
        assert started[2] == started[3]
        assert started[2] in range(10, left, 5)
        assert started[4:] == [left]
        check(job, slots=2)


def pids(job: Scenario, node: str) -> set[int]:
    """Return the processes that have counted steps on a node."""
    return {step["pid"] for step in job.steps(node)}
