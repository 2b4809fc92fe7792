"""What a user keeps, schedules and evaluates is the same as without losses; real processes."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kit.training.harness import Scenario, scenario
from tests.kit.training.warm import Warm

EPOCHS = 6


def results(job: Scenario) -> list[dict[str, Any]]:
    """Return what each worker's training came to."""
    return [line.record["result"] for line in job.lines if "result" in line.record]


async def undisturbed(warm: Warm, folder: Path) -> dict[str, Any]:
    """Return what the training of two workers comes to if nothing happens."""
    async with scenario(folder, warm, nodes=(1, 1)) as job:
        agent = await job.agent(0, "kept.py", EPOCHS, flags=("--nproc-per-node", "2"))
        assert await job.ends(agent) == 0
        return results(job)[0]


def worker(job: Scenario, epoch: int, node: int) -> int:
    """Return the last process of a node that evaluated after `epoch` or a later one; 0 if none did yet."""
    said = [line for line in job.lines if line.record.get("evaluates", -1) >= epoch]
    return next((line.record["pid"] for line in reversed(said) if line.node == f"job-worker-{node}"), 0)


@pytest.mark.parametrize("readers", [0, 2])
async def test_losses_in_steps_and_in_evaluations_change_nothing(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    warm: Warm,
    monkeypatch: pytest.MonkeyPatch,
    readers: int,
) -> None:
    expected = await undisturbed(warm, tmp_path_factory.mktemp("undisturbed"))
    monkeypatch.setenv("READERS", str(readers))
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:

        def replaced(epoch: int, node: int, killed: int) -> bool:
            return worker(job, epoch, node) not in (0, killed) and worker(job, epoch, 1 - node) != 0

        with job.slowly():
            agents = [await job.agent(index, "kept.py", EPOCHS) for index in (0, 1)]
            for epoch, node in ((0, 1), (2, 0)):  # in mid-evaluation, the main worker too
                killed = await job.until(partial(worker, job, epoch, node))
                os.kill(killed, signal.SIGKILL)
                await job.until(partial(replaced, epoch + 1, node, killed))
        assert [await job.ends(agent) for agent in agents] == [0, 0]
    assert len(results(job)) == 2
    for result in results(job):
        assert result["accuracies"] == expected["accuracies"]
        for name in ("parameters", "ema", "rates"):
            assert result[name] == pytest.approx(expected[name], abs=1e-9), name
