"""What a user keeps, schedules and evaluates is the same as without losses; real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.jobs.training.agents import Agent
from lab.jobs.training.harness import Scenario, scenario
from lab.jobs.training.warm import Warm
from lab.paths import LOOPS
from lab.truths.model import distance
from lab.truths.records import read

pytestmark = pytest.mark.story


async def start(job: Scenario, index: int, *more: str, flags: tuple[str, ...] = ()) -> Agent:
    """Start a node that trains with all that a real script has."""
    arguments = ("--kind=plateau", "--place=", "--records=50", "--epochs=4", *more)
    return await job.agent(index, LOOPS / "with_elastic.py", job.folder, *arguments, flags=flags)


def results(job: Scenario) -> list[dict[str, Any]]:
    """Return what each worker's training came to."""
    return [line["end"] for line in read(job.folder / "lines") if "end" in line]


async def undisturbed(warm: Warm, folder: Path) -> dict[str, Any]:
    """Return what the training of two workers comes to if nothing happens."""
    async with scenario(folder, warm, nodes=(1, 1)) as job:
        agent = await start(job, 0, flags=("--nproc-per-node", "2"))
        assert await job.ends(agent) == 0
        return results(job)[0]


async def test_losses_in_steps_and_in_evaluations_change_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, warm: Warm
) -> None:
    expected = await undisturbed(warm, tmp_path_factory.mktemp("undisturbed"))
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        losses = {"epoch-0": 1, "step-10": 0, "epoch-2": 1}  # the main worker in the last two
        for place, node in losses.items():
            (job.counted / f"{place}-job-worker-{node}").touch()
        agents = [await start(job, index, "--readers=2") for index in (0, 1)]
        for place in losses:
            await job.strike(place)
        assert [await job.ends(agent) for agent in agents] == [0, 0]
    assert len(results(job)) == 2
    for result in results(job):
        assert len(result["losses"]) == 4
        assert result.keys() == expected.keys()
        assert all(distance(result[name], expected[name]) < 1e-9 for name in result)
