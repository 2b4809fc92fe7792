"""The examples with other loops than ours, and with a divided model: a worker is killed, and no step changes.

Each step's loss is that of a training in which nothing happened: the state is right, and the records are.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.training.device import WORKERS
from tests.kit.training.harness import Scenario, scenario
from tests.kit.training.warm import Warm, warm_process

EXAMPLES = Path("examples").resolve()
EPOCHS, BATCHES = 3, 96  # batches of all epochs and workers together
STEPS = {"fsdp": 30} | dict.fromkeys(("huggingface", "lightning", "accelerate"), BATCHES // WORKERS)
KILLED = 23

LOOPS = ("transformers.trainer", "transformers.models.gpt2.modeling_gpt2", "lightning", "accelerate")

pytestmark = pytest.mark.story


@pytest.fixture(scope="module")
def warm_line() -> Iterator[socket.socket]:
    """The line to a process that has imported these packages once, for all workers of this module."""
    with warm_process(*LOOPS) as line:
        yield line


def losses(job: Scenario) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for line in job.lines:
        if '"loss"' in line.text:
            record = json.loads(line.text[line.text.index("{") :])
            found.setdefault(record["step"], []).append(record["loss"])
    return found


@pytest.mark.parametrize("name", STEPS)
async def test_a_killed_worker_changes_no_step(tmp_path: Path, warm: Warm, name: str) -> None:
    length = ("--steps", STEPS[name]) if name == "fsdp" else ("--epochs", EPOCHS)
    flags = ("--nproc-per-node", str(WORKERS), "--recovery", "restart")
    seen = []
    for kills in (False, True):
        folder = tmp_path / str(kills)
        folder.mkdir()
        mark = folder / "mark"
        if not kills:
            mark.touch()
        async with scenario(folder, warm, nodes=(1, 1)) as job:
            script = (mark, KILLED, EXAMPLES / name / "train.py", folder / "checkpoints", *length)
            agent = await job.agent(0, "killed.py", *script, flags=flags)
            assert await job.ends(agent) == 0
            seen.append(losses(job))
    plain, restarted = seen
    assert plain.keys() == restarted.keys() == set(range(1, STEPS[name] + 1))
    assert [step for step in restarted if len(restarted[step]) == 2] == [21, 22, 23]  # since the last copy
    for step, (loss,) in plain.items():
        assert restarted[step] == pytest.approx([loss] * len(restarted[step]), rel=1e-4)
