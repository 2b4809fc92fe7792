"""Whole jobs of real processes with the elastic library: kills, joins, leaves; arithmetic stays exact."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.nn.functional as F

from elasticjob.trainer.agent.decide import STUCK
from elasticjob.trainer.torch.records.data import permutation
from elasticjob.trainer.torch.records.sampler import Position, Sampler
from tests.kit.training.counted import BATCH, SIZE, problem
from tests.kit.training.harness import SCRIPTS, Agent, Scenario, counted, scenario
from tests.kit.training.warm import Warm


def trained_alone(epochs: int) -> list[float]:
    """Return the parameters after the same training in one process, without any of our library's loop."""
    x, y, weight, bias, optimizer = problem()
    sampler, position = Sampler(SIZE, BATCH, 1), Position()
    while position.epoch < epochs:
        order = permutation(SIZE, 0, position.epoch)
        window = order[sampler.window(position).places.start : sampler.window(position).places.stop]
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(F.linear(x[window], weight, bias), y[window]))
        optimizer.step()
        position = sampler.following(sampler.window(position))
    return [*weight.flatten().tolist(), *bias.tolist()]


def check(job: Scenario, *, slots: int, epochs: int, lost: int = 0) -> None:
    """The count has no gap, each record counted once per epoch, and the model is the one of a single process.

    Of a killed worker the last line may be missing: `lost` is how many lines at most.
    """
    total = Sampler(SIZE, BATCH, slots).steps_left(Position(), epochs)
    steps = lineage(job.recorded())
    assert sorted({step["step"] for step in steps}) == list(range(1, total + 1))
    assert len(set(counted(steps))) == len(counted(steps)), "rank 0 counted a step twice"
    for pid in job.seen:
        own = [step["step"] for step in steps if step["pid"] == pid]
        assert own == sorted(own), f"process {pid} counted backwards"
    taken = [step for step in steps if not is_idle(step, slots)]
    for epoch in range(epochs):
        records = Counter(record for step in taken if step["epoch"] == epoch for record in step["records"])
        assert not [record for record, times in records.items() if times > 1], f"epoch {epoch}"
        assert set(records) <= set(range(SIZE))
    missing = epochs * SIZE - sum(len(step["records"]) for step in taken)
    assert 0 <= missing <= lost * BATCH
    expected = trained_alone(epochs)
    assert job.results()
    for result in job.results():
        assert result["parameters"] == pytest.approx(expected, abs=1e-6)


def is_idle(step: dict[str, Any], slots: int) -> bool:
    """Whether a worker had no records at the end of an epoch: it computes some others' with weight 0."""
    sampler = Sampler(SIZE, BATCH, slots)
    offset = (step["step"] - 1) % sampler.steps_left(Position(), 1) * BATCH
    pieces = sampler.window(Position(step["epoch"], offset)).of(step["rank"], step["world"])
    return not any(piece.count for piece in pieces)


def lineage(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps that shaped the model: a lost worker may count one more, which the others repeat."""
    newest = {step["step"]: 0 for step in steps}
    for step in steps:
        newest[step["step"]] = max(newest[step["step"]], step["round"])
    return [step for step in steps if step["round"] == newest[step["step"]]]


@pytest.mark.parametrize("workers", [1, 2, 3])
async def test_any_number_of_workers_computes_the_same(tmp_path: Path, warm: Warm, workers: int) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        agent = await job.agent(0, "counted.py", 3, flags=("--nproc-per-node", str(workers)))
        assert await job.ends(agent) == 0
        check(job, slots=workers, epochs=3)
        assert job.last()["world"] == workers


async def test_killed_workers_are_replaced_and_nothing_is_lost(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        with job.slowly():
            agents = [await job.agent(index, "counted.py", 20) for index in (0, 1)]
            for rank in (1, 0):  # without rank 0 the next oldest has the state
                at = job.last()["step"]
                await job.until(job.trains_with(2, after=at + 10))
                last = next(
                    step for step in reversed(job.steps()) if (step["world"], step["rank"]) == (2, rank)
                )
                os.kill(last["pid"], signal.SIGKILL)
                await job.until(job.trains_in_a_round_after(last["round"]))
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        check(job, slots=2, epochs=20, lost=2)
        assert job.last()["world"] == 2
        assert len(job.seen) == 4, "who survived goes on in its process"


async def test_stopped_worker_is_found_to_hang_and_replaced(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        limits = job.master.job.spec.limits.but(hang=timedelta(seconds=3))
        job.master.observe(lambda state, _: state.but(spec=state.spec.but(limits=limits)))
        with job.slowly():
            agents = [await job.agent(index, "counted.py", 20) for index in (0, 1)]
            await job.until(job.trains_with(2, after=10))
            before = job.last()
            os.kill(next(step["pid"] for step in reversed(job.steps()) if step["rank"] == 1), signal.SIGSTOP)
            await job.until(job.trains_in_a_round_after(before["round"]))
            await job.until(job.trains_with(2, after=job.last()["step"]))
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        check(job, slots=2, epochs=20, lost=1)
        finding = job.master.job.health.findings[0]
        assert re.match(r"rank 1 on job-worker-1 hangs: .* it is stopped \(SIGSTOP\) for", finding.message)
        assert any("stacks of rank 0" in line.text for line in job.lines)


async def test_survivor_that_evaluates_is_not_taken_for_stuck(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        with job.slowly():
            agent = await job.agent(0, "counted.py", 20, flags=("--nproc-per-node", "2"))
            await job.until(job.trains_with(2, after=5))
            (job.counted / "seconds").write_text(str(STUCK + 1))
            (job.counted / "seconds").rename(job.counted / "evaluation")  # no worker reads half of it
            await job.until(lambda: any("evaluating" in line.text for line in job.lines))
            before = job.last()
            os.kill(next(step["pid"] for step in job.steps() if step["rank"] == 1), signal.SIGKILL)
            await job.until(job.trains_in_a_round_after(before["round"]))
        assert await job.ends(agent) == 0
        check(job, slots=2, epochs=20, lost=1)
        assert len({step["pid"] for step in job.steps() if step["rank"] == 0}) == 1


async def test_late_node_is_cut_in_at_a_step_boundary_and_an_old_one_leaves_at_one(
    tmp_path: Path, warm: Warm
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 2)) as job:
        with job.slowly():
            first = await job.agent(0, "counted.py", 20)
            await job.until(job.trains_with(1, after=5))
            second = await job.agent(1, "counted.py", 20)
            await job.until(lambda: job.steps("job-worker-1"))
            joined = job.steps("job-worker-1")[0]
            assert (joined["rank"], joined["world"]) == (1, 2)
            assert [change.lost for change in job.master.job.training.changes] == [(), ()]
            first.kill(signal.SIGTERM)
            assert await job.ends(first) == 143
        assert first.last_words()["reason"] == "Left"
        assert await job.ends(second) == 0
        check(job, slots=2, epochs=20)
        assert job.last()["world"] == 1


async def test_newcomers_enter_while_another_one_starts(tmp_path: Path, warm: Warm) -> None:
    """Scripts that are not known to be elastic take seconds to enter; the others wait for them in vain."""
    async with scenario(tmp_path, warm, nodes=(1, 4)) as job:

        async def node(index: int) -> Agent:
            script = (sys.executable, SCRIPTS / "counted.py", 20)
            return await job.agent(index, *script, flags=("--no-python",))

        with job.slowly():
            agents = [await node(0)]
            await job.until(job.trains_with(1))
            agents.append(await node(1))
            await job.until(lambda: any("2 worker(s)" in line.text for line in job.lines))
            agents += [await node(index) for index in (2, 3)]
            await job.until(job.trains_with(4))
        assert [await job.ends(agent) for agent in agents] == [0] * 4
        check(job, slots=4, epochs=20)


async def test_killed_agent_takes_its_worker_along_and_the_other_goes_on(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 2)) as job:
        with job.slowly():
            agents = [await job.agent(index, "counted.py", 20) for index in (0, 1)]
            await job.until(job.trains_with(2, after=20))
            family = agents[0].tree()
            agents[0].kill()
        assert psutil.wait_procs(family[1:], timeout=60)[1] == []
        assert await job.ends(agents[1]) == 0
        check(job, slots=2, epochs=20, lost=1)


async def test_silent_node_is_left_behind_and_comes_back(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 2), silence=5.0) as job:
        with job.slowly():
            agents = [await job.agent(index, "counted.py", 20) for index in (0, 1)]
            await job.until(job.trains_with(2, after=20))
            stopped = agents[0].tree()
            for process in stopped:
                process.suspend()
            await job.until(job.trains_with(1, after=job.last()["step"]))
            for process in stopped:
                process.resume()
            at = job.last()["step"]
            await job.until(job.trains_with(2, after=at))
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        check(job, slots=2, epochs=20, lost=1)


async def test_all_leave_and_a_new_job_goes_on_from_the_checkpoint(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:
        with job.slowly():
            agent = await job.agent(0, "counted.py", 20, tmp_path / "saved")
            await job.until(lambda: job.last()["step"] > 20)
            agent.kill(signal.SIGTERM)
        assert await job.ends(agent) == 143
        left = job.last()["step"]
        again = await job.agent(0, "counted.py", 20, tmp_path / "saved")
        assert await job.ends(again) == 0
        started = [line.record["started"] for line in job.lines if "started" in line.record]
        assert started == [0, left]
        check(job, slots=1, epochs=20)


async def test_master_that_restarts_costs_no_step(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        with job.slowly():
            agents = [await job.agent(index, "counted.py", 20) for index in (0, 1)]
            await job.until(job.trains_with(2, after=20))
            await job.restart_master()
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        check(job, slots=2, epochs=20)
        assert {step["round"] for step in job.steps()} == {1}
        assert job.master.job.verdict is not None


async def test_elastic_script_under_another_launcher_says_what_to_do(warm: Warm) -> None:
    launched = {**os.environ, "WORLD_SIZE": "2", "RANK": "0"}
    process = await warm.run([str(SCRIPTS / "counted.py"), "1"], launched)
    assert b"start it with `elasticjob run`" in await process.stdout.read()
    assert await process.wait() == 1


async def test_script_trains_alone_without_an_agent(tmp_path: Path, warm: Warm) -> None:
    process = await warm.run([str(SCRIPTS / "counted.py"), "2"], {**os.environ, "COUNTED": str(tmp_path)})
    output = await process.stdout.read()
    result = json.loads(output.splitlines()[-1])
    assert result["parameters"] == pytest.approx(trained_alone(2), abs=1e-6)
