"""The examples train, on two workers; on as many as there are GPUs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lab.jobs.training.device import WORKERS
from lab.jobs.training.harness import scenario
from lab.jobs.training.warm import Warm
from lab.paths import EXAMPLES


@pytest.mark.story
@pytest.mark.parametrize(
    ("script", "arguments", "loss", "at_most"),
    [
        (
            "transformer/train.py",
            ("--steps=30", "--validate-every=30", "--warm-up=5", "--width=32", "--layers=1"),
            "loss",
            4.0,
        ),
        ("stream/train.py", ("--steps=100", "--folder", "{folder}"), "loss", 0.05),
        ("fsdp/elastic.py", ("--steps=50", "--checkpoint", "{folder}"), "loss", 2.0),
        ("jax/train.py", ("--epochs=10", "--checkpoint", "{folder}"), "loss", 0.2),
    ],
)
async def test_example_learns(
    tmp_path: Path, warm: Warm, script: str, arguments: tuple[str, ...], loss: str, at_most: float
) -> None:
    given = [each.format(folder=tmp_path / "data") for each in arguments]
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        agent = await job.agent(0, EXAMPLES / script, *given, flags=("--nproc-per-node", str(WORKERS)))
        assert await job.ends(agent) == 0
        said = [line.text for line in job.lines if f"{loss} " in line.text and "step " in line.text]
    assert said, [line.text for line in job.lines]
    assert float(re.findall(rf"{loss} ([\d.]+)", said[-1])[0]) < at_most


EPOCHS = """
import os, runpy, signal, sys
from elasticjob.trainer.torch.checkpoint import Checkpoint

mark, step, save = sys.argv[1], int(sys.argv[2]), Checkpoint.save
def killed(self, number, **more):
    save(self, number, **more)
    if number == step and os.environ["RANK"] == "1" and not os.path.exists(mark):
        open(mark, "w")
        os.kill(os.getpid(), signal.SIGKILL)

Checkpoint.save = killed
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.story
async def test_a_plain_loop_over_epochs_goes_on_in_the_middle_and_at_the_end_of_one(
    tmp_path: Path, warm: Warm
) -> None:
    """The loss is that of a run in which nothing is killed; the first epoch ends with step 16."""
    script, ends = tmp_path / "epochs.py", []
    script.write_text(EPOCHS)
    for step in (0, 23, 16):
        place = tmp_path / f"killed-{step}"
        place.mkdir()
        async with scenario(place, warm, nodes=(1, 1)) as job:
            given = (place / "mark", step, EXAMPLES / "epochs/train.py", place / "run", "--every", "2")
            agent = await job.agent(0, script, *given, flags=("--nproc-per-node", "2"))
            assert await job.ends(agent) == 0
            assert (place / "mark").exists() is (step > 0)
            ends.append([line.text for line in job.lines if "step 48: epoch 2" in line.text][-1])
    assert len(set(ends)) == 1


BOARD = """
import json, runpy, sys, types

class SummaryWriter:
    def __init__(self, folder, **_):
        self.file = open(folder, "a", buffering=1)
    def add_scalar(self, name, value, step):
        self.file.write(json.dumps([name, value, step]) + "\\n")
    add_text = add_scalar

board = sys.modules["torch.utils.tensorboard"] = types.ModuleType("tensorboard")
board.SummaryWriter = SummaryWriter
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.story
async def test_a_board_gets_loss_world_and_goodput(tmp_path: Path, warm: Warm) -> None:
    """With a stand-in for TensorBoard, which is not in any extra."""
    script, logs = tmp_path / "board.py", tmp_path / "logs"
    script.write_text(BOARD)
    flags = ("--nproc-per-node", "2", "--recovery", "in-process")
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        agent = await job.agent(0, script, EXAMPLES / "tensorboard/train.py", "--logs", logs, flags=flags)
        assert await job.ends(agent) == 0
    written = [json.loads(line) for line in logs.read_text().splitlines()]
    last = {name: value for name, value, _ in written}
    assert (last["world_size"], last["nodes_lost"]) == (2, 0)
    assert "2 workers" in last["changes"]
    assert last["loss"] < 0.05
    assert 0 < last["goodput"] <= 1


@pytest.mark.parametrize(
    "script", [*sorted(EXAMPLES.glob("*/train.py")), EXAMPLES / "fsdp" / "elastic.py"], ids=str
)
def test_example_is_short(script: Path) -> None:
    assert len(script.read_text().splitlines()) <= 120
