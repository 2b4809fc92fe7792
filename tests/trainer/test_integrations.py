"""The examples with other loops than ours, and with a divided model: a worker is killed, and no step changes.

Each step's loss is that of a training in which nothing happened: the state is right, and the records are.
"""

from __future__ import annotations

import json
import signal
from functools import partial
from pathlib import Path

import pytest

from tests.kit.harness import Scenario, scenario
from tests.kit.warm import Warm

EXAMPLES = Path("examples").resolve()
STEPS = {"fsdp": 80, "huggingface": 160, "lightning": 160, "accelerate": 1280}
PER_EPOCH = 16

pytestmark = pytest.mark.long


def losses(job: Scenario) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for line in job.lines:
        if '"loss"' in line.text:
            record = json.loads(line.text[line.text.index("{") :])
            found.setdefault(record["step"], []).append(record["loss"])
    return found


def reached(job: Scenario, step: int) -> bool:
    mark = f'"step": {step},'
    return any(mark in line.text for line in reversed(job.lines))


@pytest.mark.parametrize("name", STEPS)
async def test_a_killed_worker_changes_no_step(tmp_path: Path, warm: Warm, name: str) -> None:
    length = ("--steps", STEPS[name]) if name == "fsdp" else ("--epochs", STEPS[name] // PER_EPOCH)
    script, flags = EXAMPLES / name / "train.py", ("--nproc-per-node", "2", "--recovery", "restart")
    seen = []
    for kills in (False, True):
        folder = tmp_path / str(kills)
        folder.mkdir()
        async with scenario(folder, warm, nodes=(1, 1)) as job:
            agent = await job.agent(0, script, folder / "checkpoints", *length, flags=flags)
            if kills:
                await job.until(partial(reached, job, 23))
                worker = next(each for each in reversed(agent.tree()) if not each.children())
                worker.send_signal(signal.SIGKILL)
            assert await job.ends(agent) == 0
            seen.append(losses(job))
    plain, restarted = seen
    assert plain.keys() == restarted.keys() == set(range(1, STEPS[name] + 1))
    assert any(len(each) > 1 for each in restarted.values())  # steps after the last copy were made again
    assert not [step for step in range(1, 11) if len(restarted[step]) > 1]  # it did not begin anew
    for step, (loss,) in plain.items():
        assert restarted[step] == pytest.approx([loss] * len(restarted[step]), rel=1e-4)
