"""Whole jobs of real processes whose model fully_shard divides in each node: arithmetic stays exact."""

from __future__ import annotations

import json
import math
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from elasticjob.trainer.torch.records.data import permutation
from elasticjob.trainer.torch.records.sampler import Position, Sampler
from tests.kit.training.counted import BATCH, SIZE, problem
from tests.kit.training.harness import SCRIPTS, Agent, Scenario, counted, scenario
from tests.kit.training.warm import Warm
from tests.trainer.torch.test_elastic import lineage

CLIP, EPOCHS = 0.5, 20


def trained_alone(epochs: int) -> tuple[list[float], list[float]]:
    """Return the parameters after the same training in one process, and the norm of each step's gradient."""
    x, y, weight, bias, optimizer = problem()
    sampler, position, norms = Sampler(SIZE, BATCH, 1), Position(), list[float]()
    while position.epoch < epochs:
        order = permutation(SIZE, 0, position.epoch)
        window = order[sampler.window(position).places.start : sampler.window(position).places.stop]
        optimizer.zero_grad()
        torch.autograd.backward(F.cross_entropy(F.linear(x[window], weight, bias), y[window]))
        norms.append(float(torch.nn.utils.clip_grad_norm_([weight, bias], CLIP)))
        optimizer.step()
        position = sampler.following(sampler.window(position))
    return [*weight.flatten().tolist(), *bias.tolist()], norms


def check(job: Scenario, *, slots: int, epochs: int, lost: int = 0) -> None:
    """The count has no gap, each record counted once per epoch, and the model is the one of a single process.

    Of killed workers the last line may be missing: `lost` is how many lines at most.
    """
    parameters, norms = trained_alone(epochs)
    steps = lineage(job.recorded())
    assert sorted({step["step"] for step in steps}) == list(range(1, len(norms) + 1))
    assert len(set(counted(steps))) == len(counted(steps)), "rank 0 counted a step twice"
    missing = epochs * SIZE
    for epoch in range(epochs):
        taken = [records_of(step, slots) for step in steps if step["epoch"] == epoch]
        records = Counter(record for each in taken for record in each)
        assert not [record for record, times in records.items() if times > 1], f"epoch {epoch}"
        assert set(records) <= set(range(SIZE))
        missing -= len(records)
    assert 0 <= missing <= lost * BATCH
    for step in steps:
        assert step["norm"] == pytest.approx(norms[step["step"] - 1], abs=1e-6)
    results = job.results()
    assert results
    assert len({result["score"] for result in results}) == 1
    assert all(math.isfinite(result["score"]) for result in results)
    for result in results:
        assert result["parameters"] == pytest.approx(parameters, abs=1e-6)


def records_of(step: dict[str, Any], slots: int) -> list[int]:
    """Return the records of a step that count; the last ones may have been read to keep another company."""
    sampler = Sampler(SIZE, BATCH, slots)
    offset = (step["step"] - 1) % sampler.steps_left(Position(), 1) * BATCH
    pieces = sampler.window(Position(step["epoch"], offset)).of(step["rank"], step["world"])
    records: list[int] = step["records"][: sum(piece.count for piece in pieces)]
    return records


@pytest.mark.parametrize(("nodes", "workers"), [(1, 1), (1, 2), (2, 1), (2, 2)])
async def test_any_number_of_nodes_and_parts_computes_the_same(
    tmp_path: Path, warm: Warm, nodes: int, workers: int
) -> None:
    async with scenario(tmp_path, warm, nodes=(nodes, nodes)) as job:
        flags = ("--nproc-per-node", str(workers))
        agents = [await job.agent(index, "divided.py", 3, flags=flags) for index in range(nodes)]
        assert [await job.ends(agent) for agent in agents] == [0] * nodes
        check(job, slots=nodes * workers, epochs=3)


async def test_what_fully_shard_leaves_out_is_averaged_over_all_workers(tmp_path: Path, warm: Warm) -> None:
    process = await warm.run([str(SCRIPTS / "partly.py"), "3"], dict(os.environ))
    printed = (await process.stdout.read()).splitlines()
    alone = json.loads(next(line for line in printed if line.startswith(b"{")))
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        flags = ("--nproc-per-node", "2")
        agents = [await job.agent(index, "partly.py", 3, flags=flags) for index in (0, 1)]
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        results = job.results()
    assert len(results) == 4
    for result in results:
        assert result["parameters"] == pytest.approx(alone["parameters"], abs=1e-5)
        assert result["norms"] == pytest.approx(alone["norms"], abs=1e-5)
        assert result["seen"] == results[0]["seen"]


@pytest.mark.parametrize("workers", [1, 2])
async def test_survivors_of_a_lost_node_go_on_and_a_new_one_gets_their_parts(
    tmp_path: Path, warm: Warm, workers: int
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 3)) as job:

        async def node(index: int) -> Agent:
            return await job.agent(index, "divided.py", EPOCHS, flags=("--nproc-per-node", str(workers)))

        with job.slowly():
            agents = [await node(index) for index in (0, 1)]
            await job.until(job.trains_with(2 * workers, after=10))
            stay = pids(job, "job-worker-1")
            agents[0].kill()
            await job.until(job.trains_with(workers, after=job.last()["step"]))
            agents += [await node(index) for index in (2, 0)]
            await job.until(job.trains_with(3 * workers))
        assert [await job.ends(agent) for agent in agents[1:]] == [0] * 3
        assert pids(job, "job-worker-1") == stay
        check(job, slots=3 * workers, epochs=EPOCHS, lost=workers)


async def test_node_that_lost_a_worker_comes_back_as_a_new_one(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        with job.slowly():
            flags = ("--nproc-per-node", "2")
            agents = [await job.agent(index, "divided.py", EPOCHS, flags=flags) for index in (0, 1)]
            await job.until(job.trains_with(4, after=10))
            stay, broken = pids(job, "job-worker-1"), pids(job, "job-worker-0")
            before = job.last()["round"]
            os.kill(min(broken), signal.SIGKILL)
            await job.until(job.trains_in_a_round_after(before))
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        assert pids(job, "job-worker-1") == stay
        assert len(pids(job, "job-worker-0") - broken) == 2
        check(job, slots=4, epochs=EPOCHS, lost=2)


async def test_last_node_that_loses_a_worker_goes_on_from_memory_and_a_new_job_from_storage(
    tmp_path: Path, warm: Warm
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 1)) as job:

        async def node(workers: int) -> Agent:
            flags = ("--nproc-per-node", str(workers))
            return await job.agent(0, "divided.py", EPOCHS, tmp_path / "saved", flags=flags)

        with job.slowly():
            agent = await node(2)
            await job.until(job.trains_with(2, after=10))
            os.kill(min(pids(job, "job-worker-0")), signal.SIGKILL)
            await job.until(job.trains_in_a_round_after(1))
            lost = max(step["step"] for step in job.steps() if step["round"] == 1)
            await job.until(job.trains_with(2, after=lost))  # so that the last step is one of this round
            agent.kill(signal.SIGTERM)
        assert await job.ends(agent) == 143
        left = max(step["step"] for step in job.recorded())
        assert await job.ends(await node(1)) == 0
        started = [line.record["started"] for line in job.lines if "started" in line.record]
        assert started[:2] == [0, 0]
        assert started[2] == started[3]
        assert started[2] in range(10, left, 5)
        assert started[4:] == [left]
        check(job, slots=2, epochs=EPOCHS, lost=2)


def pids(job: Scenario, node: str) -> set[int]:
    """Return the processes that have counted steps on a node."""
    return {step["pid"] for step in job.steps(node)}
