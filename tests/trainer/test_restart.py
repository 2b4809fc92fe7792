"""Jobs of scripts that know nothing of us: restarted when the world changes, given up when hopeless."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from lab.jobs.training.harness import HELD, scenario
from lab.jobs.training.warm import Warm
from lab.paths import EXAMPLES
from lab.processes import run
from lab.waiting import PATIENCE

PLAIN = EXAMPLES / "digits" / "plain_ddp.py"


STARTS = "rank 0 of"
"""The first line of the plain script, from rank 0."""


def waiting(folder: Path, epoch: int) -> Path:
    """Return the plain script, which waits at the start of an epoch until the job is let end."""
    loop = "    sampler.set_epoch(epoch)\n"
    gate = f"""
    while epoch == {epoch} and not os.path.exists(os.environ["COUNTED"] + "/open"):
        __import__("time").sleep(0.01)
"""
    text, script = PLAIN.read_text(), folder / "plain.py"
    assert loop in text
    script.write_text(text.replace(loop, loop + gate))
    return script


@pytest.mark.story
async def test_killed_worker_of_a_plain_script_goes_on_from_its_checkpoint(
    tmp_path: Path, warm: Warm
) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        script, arguments = waiting(tmp_path, 2), ("--epochs", 4, "--checkpoint", tmp_path / "digits.pt")
        agents = [await job.agent(index, script, *arguments) for index in (0, 1)]
        await job.until(lambda: job.said("epoch 1:"))
        workers = [process for process in agents[1].tree() if os.getpgid(process.pid) == process.pid]
        os.kill(workers[-1].pid, signal.SIGKILL)
        await job.until(lambda: len(job.said(STARTS)) == 2)
        job.let_end()
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        assert job.said(STARTS)[0] == "rank 0 of 2 starts with epoch 0"
        assert len(job.said(STARTS)) == 2
        assert not job.said(STARTS)[1].endswith("epoch 0")
        assert job.said("done:")


@pytest.mark.story
async def test_newer_incarnation_replaces_the_older_which_says_run_me_again(
    tmp_path: Path, warm: Warm
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        old = await job.agent(0, "counted.py", HELD)
        await job.until(lambda: job.last()["step"] > 5)
        new = await job.agent(0, "counted.py", 1)
        assert await job.ends(old) == 75
        assert old.last_words()["reason"] == "Replaced"
        assert await job.ends(new) == 0


MEETS = """
import os, time
import torch.distributed as dist
dist.init_process_group("gloo")
print(f"rank {dist.get_rank()} of {dist.get_world_size()}", flush=True)
while not os.path.exists(os.environ["COUNTED"] + "/open"):
    time.sleep(0.01)
dist.barrier()
print("done:", flush=True)
"""


@pytest.mark.story
async def test_torchrun_finds_our_rendezvous(tmp_path: Path, warm: Warm) -> None:
    script = tmp_path / "meets.py"
    script.write_text(MEETS)
    async with scenario(tmp_path, warm, nodes=(1, 2)) as job:
        nodes = [await job.torchrun(0, script)]
        await job.until(lambda: job.said(STARTS))
        nodes.append(await job.torchrun(1, script))
        await job.until(lambda: len(job.said(STARTS)) == 2)
        job.let_end()
        assert [await job.ends(node) for node in nodes] == [0, 0]
        assert [text.split("]:")[-1].strip() for text in job.said(STARTS)] == ["rank 0 of 1", "rank 0 of 2"]
        assert job.said("done:")


@pytest.mark.story
async def test_workers_of_one_node_have_one_thread_each_though_torch_was_imported_before(
    tmp_path: Path,
) -> None:
    script = tmp_path / "threads.py"
    script.write_text("import torch; print('threads:', torch.get_num_threads(), flush=True)")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "MKL_"))}
    command = (sys.executable, "-m", "elasticjob.cli", "run", "--nproc-per-node", "2", str(script))
    _, output = await run(*command, environ=environment)
    threads = sorted(line for line in output.splitlines() if "threads" in line)
    assert threads == ["[default0]:threads: 1", "[default1]:threads: 1"]


ORPHANS = """
import subprocess, sys, time, psutil
left = [int(subprocess.check_output(["sh", "-c", "sleep 0.1 >/dev/null & echo $!"])) for _ in range(3)]
deadline = time.monotonic() + float(sys.argv[1])
while any(map(psutil.pid_exists, left)):
    if time.monotonic() > deadline:
        sys.exit(f"not reaped: {[psutil.Process(pid).status() for pid in left]}")
    time.sleep(0.01)
"""


async def test_agent_reaps_what_its_workers_leave_behind(tmp_path: Path) -> None:
    """As PID 1 of a container, or as any process that inherits orphans."""
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    inherit = (
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    once = ("run", "--start-method", "spawn", "--max-restarts", "0", script, str(PATIENCE))
    code, output = await run(sys.executable, "-c", inherit, sys.executable, "-m", "elasticjob.cli", *once)
    assert code == 0, output
