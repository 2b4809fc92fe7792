"""The examples with other loops than ours, and with a divided model: a worker is killed, and no step changes.

Each step's loss is that of a training in which nothing happened: the state is right, and the records are.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticjob.trainer.agent.script import Script, imports, preloads
from lab.jobs.training.device import WORKERS
from lab.jobs.training.harness import Scenario, scenario
from lab.jobs.training.warm import Warm, warm_process
from lab.paths import EXAMPLES, ROOT, SCRIPTS, TRAINED
from lab.truths.records import read

EPOCHS, BATCHES = 3, 96  # batches of all epochs and workers together
STEPS = {"fsdp": 30} | dict.fromkeys(("huggingface", "lightning", "accelerate"), BATCHES // WORKERS)
KILLED = 23

KILLS, STOPS = TRAINED / "kills", SCRIPTS / "loops"
LOOPS = {name: imports(Script(str(EXAMPLES / name / "train.py"))) for name in STEPS if name != "fsdp"}
"""What the examples import."""

pytestmark = pytest.mark.story


@pytest.fixture(scope="module")
def warm_line() -> Iterator[socket.socket]:
    """The line to a process that has imported what the agent would, once for all workers of this module."""
    with warm_process(*preloads(frozenset().union(*LOOPS.values()))) as line:
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
            script = (mark, KILLED, "SIGKILL", EXAMPLES / name / "train.py", folder / "checkpoints", *length)
            agent = await job.agent(0, "killed.py", *script, flags=flags)
            assert await job.ends(agent) == 0
            seen.append(losses(job))
    plain, restarted = seen
    assert plain.keys() == restarted.keys() == set(range(1, STEPS[name] + 1))
    assert [step for step in restarted if len(restarted[step]) == 2] == [21, 22, 23]  # since the last copy
    for step, (loss,) in plain.items():
        assert restarted[step] == pytest.approx([loss] * len(restarted[step]), rel=1e-5)


@pytest.mark.parametrize("name", LOOPS)
async def test_a_worker_that_is_asked_to_end_keeps_its_last_step(
    tmp_path: Path, warm: Warm, name: str
) -> None:
    script = (tmp_path / "mark", KILLED, "SIGTERM", EXAMPLES / name / "train.py", tmp_path / "checkpoints")
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        agent = await job.agent(0, "killed.py", *script, "--epochs", 1)
        assert await job.ends(agent) == 0
        assert {step: len(each) for step, each in losses(job).items()} == dict.fromkeys(range(1, 33), 1)


@pytest.mark.parametrize("name", LOOPS)
async def test_killed_at_any_micro_batch_the_training_is_the_same(
    tmp_path: Path, warm: Warm, name: str
) -> None:
    """Bit for bit: weights, callbacks, scaler, and what is logged from the last whole step on."""
    code, output = await warm.output(KILLS / f"with_{name}.py", tmp_path, PYTHONPATH=str(ROOT))
    assert code == 0, output
    assert "Didn't find an RNG file" not in output
    plain, *killed = (json.loads(line) for line in output.splitlines() if line.startswith('{"'))
    assert [each.pop("kill") for each in killed] == list(range(1, 11))
    logged = plain.pop("logged")
    for each in killed:
        later = each.pop("logged")
        assert later == logged[len(logged) - len(later) :]
        assert each == plain


@pytest.mark.parametrize(("name", "more"), [("huggingface", 7), ("lightning", 6), ("accelerate", 7)])
async def test_a_training_that_has_stopped_early_is_not_gone_on_with(
    tmp_path: Path, warm: Warm, name: str, more: int
) -> None:
    """Not before it is to make more steps; Lightning has ended the epoch then."""
    given = (STOPS / f"with_{name}.py", tmp_path, "--records=12", "--batch=4", "--save-every=100")
    steps = []
    for arguments in (("--epochs=3", "--stop=5"), ("--epochs=3",), ("--epochs=3",), ("--epochs=4",)):
        code, output = await warm.output(*given, *arguments, PYTHONPATH=str(ROOT))
        assert code == 0, output
        steps.append(sum("done" in line for line in read(tmp_path / "lines")))
    assert steps == [5, 5, 5, 5 + more]


async def test_what_would_not_be_saved_or_trained_right_is_refused(tmp_path: Path, warm: Warm) -> None:
    code, output = await warm.output(TRAINED / "refused.py", tmp_path, PYTHONPATH=str(ROOT))
    assert code == 0, output
    assert output.splitlines() == [
        "TypeError: SimpleNamespace divides the model in its own way: use ModelParallelStrategy or DDP",
        "TypeError: ZeroRedundancyOptimizer divides its state: ElasticCallback copies whole ones",
        "TypeError: there are several train loaders, and a ResumableLoader has to be the only one",
        "TypeError: accelerate divides the model by DEEPSPEED, which is not saved: use FSDP2 or DDP",
        "TypeError: accelerate divides the model by FSDP 1, which is not saved: set fsdp_version=2",
        "RuntimeError: call trainer.train(resume_from_checkpoint=elastic.newest(trainer))",
        "ValueError: the checkpoint has taken 3 batches of epoch 0 in another order: batch size 4 became 2, "
        "sampler SequentialSampler became SeedableRandomSampler, records 5 became 4, seed 2 became 3; finish "
        "the epoch with what it had, after which it may change, or give another checkpoint folder",
        "ValueError: FSDP was asked for, and accelerate trains whole models (NO), as always on CPUs: "
        "train on GPUs, or leave FSDP out (fsdp=, fsdp_plugin=, ACCELERATE_USE_FSDP)",
        "ValueError: Elastic gives each worker records of its own, and 0.bias, 0.weight is divided in "
        "another way than by fully_shard (tensor, sequence or context parallel): workers that share it need "
        "the same records; use fully_shard alone, or a script of your own with Checkpoint",
    ]


def test_imports_of_the_warm_process_leave_nothing_that_forks_would_share() -> None:
    """No thread, no lock between processes, and no question to CUDA, which would break it in forks."""
    names = preloads(frozenset().union(*LOOPS.values()))
    told = subprocess.run([sys.executable, "-c", LEFT, *names], capture_output=True, text=True, check=True)
    assert json.loads(told.stdout.splitlines()[-1]) == {"missing": [], "threads": 1, "locks": 0, "asked": []}


LEFT = """
import gc, json, os, sys, torch
from multiprocessing.synchronize import SemLock
asked = []
for name in ("is_available", "device_count", "init", "_lazy_init"):
    was = getattr(torch.cuda, name)
    setattr(torch.cuda, name, lambda *_, name=name, was=was: asked.append(name) or was())
from elasticjob.trainer.agent.processes.warm import load
missing = load(sys.argv[1:])
gc.unfreeze()
locks = sum(isinstance(each, SemLock) for each in gc.get_objects())
threads = len(os.listdir("/proc/self/task"))
print(json.dumps({"missing": missing, "threads": threads, "locks": locks, "asked": asked}))
"""
