"""JAX in new worlds: workers live on, whoever is lost, and each record counts once."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from elasticjob.api.rpc.permutation import key_of, place
from lab.jobs.training.agents import Agent
from lab.jobs.training.harness import Scenario, scenario
from lab.jobs.training.warm import Warm
from lab.paths import LOOPS
from lab.truths.records import read

pytestmark = pytest.mark.story

RECORDS, BATCH = 100, 16
COUNTS = ("--epochs=0", f"--records={RECORDS}", f"--batch={BATCH}", "--pace=0.02")


async def start(job: Scenario, index: int, *more: str) -> Agent:
    """Start a node that trains until it is let end."""
    return await job.agent(index, LOOPS / "with_jax.py", job.folder, *COUNTS, *(more or ("--place=",)))


async def trains(job: Scenario, world: int, after: int = 0) -> dict[str, Any]:
    """Wait until a world of that size, of a later round, has counted; return the last step of its rank 0."""

    def found() -> dict[str, Any] | None:
        steps = [step for step in job.steps() if step["world"] == world and step["round"] > after]
        ranks = {step["rank"]: step for step in steps}
        return ranks[0] if len(ranks) == world else None

    step: dict[str, Any] = await job.until(found)
    return step


def pids(job: Scenario, world: int, round_: int) -> set[int]:
    """Return the processes that counted steps in a round."""
    found = {step["pid"] for step in job.steps() if (step["world"], step["round"]) == (world, round_)}
    assert len(found) == world
    return found


def agent_of(job: Scenario, pid: int) -> Agent:
    """Return the agent whose worker this is."""
    node = next(line.node for line in job.lines if line.record.get("pid") == pid)
    return next(agent for agent in reversed(job.agents) if agent.node == node)


def seconds(job: Scenario) -> list[str]:
    """Return how long no step was counted at each change of the world."""
    steps = sorted(job.steps(), key=lambda step: step["at"])
    rounds = {step["round"]: step["world"] for step in steps}
    times = {each: [step["at"] for step in steps if step["round"] == each] for each in rounds}
    return [
        f"{rounds[one]} -> {rounds[other]}: {min(times[other]) - max(times[one]):.2f} s"
        for one, other in pairwise(sorted(rounds))
    ]


def check(job: Scenario) -> None:
    """Check that all results are the same, and those of as many steps on one worker."""
    results = [line["end"] for line in read(job.folder / "lines") if "end" in line]
    assert results
    each = results[0]
    assert all(other == each for other in results)
    (samples,), (steps,), (half,) = each["samples"], each["touched"], each["half"]
    assert half == "bfloat16"
    assert {*each["sum"]} == {steps}, "a mean of ones is not exactly one"
    epochs, offset = divmod(samples, RECORDS)
    key = key_of(0, "numbers", epochs)
    again = {place(at, RECORDS, key) for at in range(offset)}
    counts = [epochs + (record in again) for record in range(RECORDS)]
    assert each["seen"] == pytest.approx(counts, abs=1e-3)
    in_epoch = -(-RECORDS // BATCH)
    assert steps == epochs * in_epoch + offset // BATCH


@pytest.mark.parametrize("lost", ["process", "node"])
async def test_three_two_three_two_with_the_first_killed(tmp_path: Path, warm: Warm, lost: str) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 3)) as job:
        for index in range(3):
            await start(job, index)
        oldest = await trains(job, 3)
        of_oldest = agent_of(job, oldest["pid"])
        if lost == "process":
            os.kill(oldest["pid"], signal.SIGKILL)
        else:
            of_oldest.kill()
        fewer = await trains(job, 2, after=oldest["round"])
        if lost == "node":
            await start(job, int(of_oldest.node[-1]))
        more = await trains(job, 3, after=fewer["round"])
        leaving = agent_of(job, more["pid"])
        leaving.kill(signal.SIGTERM)
        await trains(job, 2, after=more["round"])
        job.let_end()
        codes = [(agent, await job.ends(agent)) for agent in job.agents]
        assert all(code == 0 for agent, code in codes if agent not in (leaving, of_oldest))
        assert await job.ends(leaving) == 143
        check(job)
        print(f"seconds without a step, the first {lost} killed: {seconds(job)}")
        alive = pids(job, 2, fewer["round"]) & pids(job, 3, more["round"])
        assert alive == pids(job, 2, fewer["round"]) < pids(job, 3, oldest["round"]), "survivors live on"


async def test_collectives_with_a_node_that_says_nothing_are_cut_off(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 3)) as job:
        agents = [await start(job, index) for index in range(3)]
        oldest = await trains(job, 3)
        silent = agent_of(job, oldest["pid"])
        async with job.silent(silent, comes_back=False):  # its connections stay open
            await trains(job, 2, after=oldest["round"])
        job.let_end()
        assert [await job.ends(agent) for agent in agents if agent is not silent] == [0, 0]
        check(job)


async def test_without_the_private_parts_workers_start_again_from_the_checkpoint(
    tmp_path: Path, warm: Warm
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 2)) as job:
        await start(job, 0, "--lacks=jaxlib lacks it")
        alone = await trains(job, 1)
        await start(job, 1, "--lacks=jaxlib lacks it")
        await trains(job, 2, after=alone["round"])
        job.let_end()
        assert [await job.ends(agent) for agent in job.agents] == [0, 0]
        check(job)
        assert len(job.seen) == 3, "the first was started again"
        assert job.said("jaxlib lacks it")


@pytest.mark.parametrize("framework", ["torch", "jax"])
async def test_a_second_loop_ends_all_workers_with_what_to_do(
    tmp_path: Path, warm: Warm, framework: str
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        flags = ("--nproc-per-node", "2", "--max-restarts", "0")
        agent = await job.agent(0, "twice.py", framework, flags=flags)
        assert await job.ends(agent) == 1
        text = [line.text for line in job.lines]
        assert sum(line.endswith("the first phase has ended") for line in text) == 2
        assert job.said("RuntimeError: there is one Elastic in a process under `elasticjob run`")
