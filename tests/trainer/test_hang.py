"""Real processes that hang: found, written down, killed, and the training goes on."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from lab.jobs.training.harness import AGES, Scenario, scenario
from lab.jobs.training.warm import Warm
from lab.waiting import until

pytestmark = pytest.mark.story

BOUND = 3.0  # seconds beyond 3 steps; who waits for a core on a busy machine is sooner back
STEP = 0.02


@dataclass
class Stalled:
    """A job of two nodes whose workers can be made to stall."""

    job: Scenario
    folder: Path

    async def steps(self, more: int) -> None:
        """Wait until both ranks have made so many more steps."""
        many = {rank: len(self.of(rank)) + more for rank in (0, 1)}
        await self.job.until(lambda: all(len(self.of(rank)) >= count for rank, count in many.items()))

    def of(self, rank: int) -> list[dict[str, float]]:
        return [step for step in self.job.steps() if step["rank"] == rank]

    def findings(self) -> list[str]:
        return [finding.message for finding in self.job.master.job.health.findings]

    async def rank_1_waits(self) -> bool:
        """Whether the master has known for longer than the bound that rank 1 waits."""
        told = self.job.master.job.nodes["job-worker-1"].told
        return bool(told and told.workers and told.workers[0].since > BOUND + 1)

    async def rank_0_waits(self) -> bool:
        """Whether the master has known for longer than the bound that rank 0 is in a collective."""
        told = self.job.master.job.nodes["job-worker-0"].told
        inside = told.workers[0].collective if told and told.workers else None
        return bool(inside and inside.since > BOUND + 1)

    async def round_ended(self) -> bool:
        """Whether the first round has ended."""
        job = self.job.master.job
        return job.ending is not None or any(each.round == 2 for each in job.training.changes)


@asynccontextmanager
async def stalled(folder: Path, warm: Warm, *flags: str, divided: bool = False) -> AsyncIterator[Stalled]:
    """Run the job, on one node if its model is divided; it trains when this begins."""
    nodes = 1 if divided else 2
    script = ("divided.py", folder) if divided else ("stalled.py", folder, STEP)
    async with scenario(folder, warm, nodes=(nodes, nodes)) as job:
        for index in range(nodes):
            await job.agent(index, *script, flags=(*flags, "--nproc-per-node", str(2 // nodes)))
        run = Stalled(job, folder)
        await run.steps(30)
        yield run
        await run.steps(5)
        (folder / "end").touch()
        assert [await job.ends(agent) for agent in job.agents] == [0] * nodes


def is_in(stacks: str, function: str) -> bool:
    """Whether a function is on a stack, as faulthandler or py-spy write it."""
    return re.search(rf"(in {function}$|^ +{function} \()", stacks, re.MULTILINE) is not None


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("stuck", "it neither computes nor reads in its step for"),
        ("stopped", "it is stopped (SIGSTOP) for "),
    ],
)
async def test_worker_that_hangs_is_named_and_killed_and_the_others_go_on(
    tmp_path: Path, warm: Warm, how: str, sentence: str
) -> None:
    flags = ("--log-dir", str(tmp_path / "logs"))
    async with stalled(tmp_path, warm, *flags) as run:
        hung = run.job.pid(1)
        (tmp_path / f"{how}-1").touch()
        if how == "stopped":
            os.kill(hung, signal.SIGSTOP)
        run.job.limit(hang=timedelta(seconds=BOUND))
        await run.job.until(lambda: run.job.said("killing worker 0"))
        run.job.limit(hang=AGES)
        (tmp_path / f"{how}-1").unlink()
        await run.job.until(lambda: run.job.pid(1) != hung)
        [finding] = run.findings()
        assert finding.startswith("rank 1 on job-worker-1 hangs: no step for ")
        assert sentence in finding
        assert "1 other waits for it; its last step was" in finding
        assert run.job.said("stacks of rank 0")
        kept = (tmp_path / "logs" / "job" / "0" / "stacks.log").read_text()
        assert is_in(kept, "reduce")
        assert is_in(kept, "stuck") is (how == "stuck")
        assert run.job.master.job.nodes["job-worker-1"].failure.endswith(finding)


@pytest.mark.parametrize("what", ["outside", "reading"])
async def test_long_evaluation_or_slow_records_are_no_hang(tmp_path: Path, warm: Warm, what: str) -> None:
    async with stalled(tmp_path, warm) as run:
        run.job.limit(hang=timedelta(seconds=BOUND))
        (tmp_path / f"{what}-0").touch()
        await until(run.rank_1_waits, "rank 1 waits for longer than the bound")
        (tmp_path / f"{what}-0").unlink()
        await run.steps(5)
        assert run.findings() == []


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("stopped", "it is stopped (SIGSTOP) for "),
        ("lock-forward", "it neither computes nor reads in its step for "),
        ("lock-backward", "it neither computes nor reads in its step for "),
        ("stopped-between", "it is stopped (SIGSTOP) for "),
    ],
)
async def test_worker_that_holds_up_its_node_is_named_and_training_goes_on(
    tmp_path: Path, warm: Warm, how: str, sentence: str
) -> None:
    async with stalled(tmp_path, warm, divided=True) as run:
        hung, stall = run.job.pid(1), tmp_path / f"{how}-1"
        if how == "stopped-between":
            stall = tmp_path / "busy-between-1"
            stall.touch()
            await until(run.rank_0_waits, "rank 0 waits in the script's own collective")
        run.job.limit(hang=timedelta(seconds=BOUND))
        if how.startswith("stopped"):
            os.kill(hung, signal.SIGSTOP)
        else:
            stall.touch()
        await run.job.until(lambda: run.job.said("killing worker 1"))
        run.job.limit(hang=AGES)
        stall.unlink(missing_ok=True)
        await run.job.until(lambda: run.job.pid(1) != hung)
        [finding] = run.findings()
        assert finding.startswith("rank 1 on job-worker-0 hangs: no step for ")
        assert sentence in finding
        assert re.search(r"while 1 other waits for it in \w+ of .* of ranks 0, 1 \(gloo\)", finding)


async def test_worker_that_computes_while_its_node_waits_is_named_and_not_killed(
    tmp_path: Path, warm: Warm
) -> None:
    async with stalled(tmp_path, warm, divided=True) as run:
        run.job.limit(hang=timedelta(seconds=BOUND))
        (tmp_path / "busy-forward-1").touch()
        await until(run.rank_0_waits, "rank 0 waits in its forward pass")
        (tmp_path / "busy-forward-1").unlink()
        await run.steps(5)
        assert run.findings() == []


@pytest.mark.parametrize("what", ["worker", "node"])
async def test_crash_and_silence_are_noticed(tmp_path: Path, warm: Warm, what: str) -> None:
    async with stalled(tmp_path, warm) as run:
        if what == "worker":
            os.kill(run.job.pid(1), signal.SIGKILL)
            await until(run.round_ended, "the loss of a worker is noticed")
        else:
            async with run.job.silent(run.job.agents[1]):
                await until(run.round_ended, "the loss of a node is noticed")
