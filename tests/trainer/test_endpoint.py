"""Nodes that know only their command line, the same on each: they find each other and get their ranks."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from elasticjob.cli.laptop.ports import free_port
from lab.jobs.training.harness import HELD, Scenario, counted, scenario
from lab.jobs.training.warm import Warm

pytestmark = pytest.mark.story


def torchruns_line(nodes: str) -> tuple[str, ...]:
    """Return the usual flags of torchrun."""
    endpoint = f"--rdzv-endpoint=127.0.0.1:{free_port()}"  # no client gets it meanwhile
    return ("--nnodes", nodes, "--rdzv-backend", "c10d", endpoint, "--rdzv-id", "X")


def said(job: Scenario, text: str) -> list[str]:
    """Return the lines with this text."""
    return [line.text for line in job.lines if text in line.text]


async def test_nodes_with_the_same_command_line_train_together(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        flags = (*torchruns_line("2"), "--local-addr", socket.gethostname())
        agents = [await job.peer("counted.py", 3, flags=flags)]
        await job.until(lambda: said(job, "1 of at least 2 nodes joined"))
        agents.append(await job.peer("counted.py", 3, flags=flags))
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        assert {(step["world"], step["rank"]) for step in job.steps()} == {(2, 0), (2, 1)}
        assert counted(job.steps()) == [*range(1, 1 + len(counted(job.steps())))]


async def test_node_that_loses_the_master_before_the_first_world_holds_it(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        flags = torchruns_line("2")
        first = await job.peer("counted.py", 1, flags=flags)
        await job.until(lambda: said(job, "1 of at least 2 nodes joined"))
        first.kill(signal.SIGSTOP)  # so that the second finds the endpoint taken
        agents = [await job.peer("counted.py", 1, flags=flags)]
        await job.until(lambda: said(job, "has not answered"))
        first.kill()
        await job.until(lambda: said(job, "this node holds the master now"))
        agents.append(await job.peer("counted.py", 1, flags=flags))
        assert [await job.ends(agent) for agent in agents] == [0, 0]


async def test_another_node_takes_over_when_the_one_with_the_master_ends(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 3)) as job:
        flags = torchruns_line("1:3")
        agents = []
        for size in (1, 2, 3):
            agents.append(await job.peer("counted.py", HELD, flags=flags))
            await job.until(job.trains_with(size, after=5))
        before = job.last()
        agents[0].kill(signal.SIGTERM)
        assert await job.ends(agents.pop(0)) == 143
        await job.until(job.trains_in_a_round_after(before["round"]))
        await job.until(lambda: said(job, "this node holds the master now"))
        after = next(step for step in job.steps() if step["round"] > before["round"])
        assert after["world"] == 2
        assert after["step"] >= before["step"] - 1
        agents.append(await job.peer("counted.py", HELD, flags=flags))
        await job.until(job.trains_with(3, after=after["step"]))
        job.let_end()
        assert [await job.ends(agent) for agent in agents] == [0, 0, 0]
        assert len(said(job, "is gone; this node holds the master now")) == 1


async def test_master_returns_to_the_endpoint_with_a_node_that_comes_there(
    tmp_path: Path, warm: Warm
) -> None:
    async with scenario(tmp_path, warm, nodes=(1, 3)) as job:
        flags = torchruns_line("1:3")
        machines = [(*flags, f"--local-addr=127.0.0.{number}") for number in (1, 2, 3)]
        agents = []
        for size, there in enumerate(machines, 1):
            agents.append(await job.peer("counted.py", HELD, flags=there))
            await job.until(job.trains_with(size, after=5))
        before = job.last()
        agents.pop(0).kill()
        await job.until(job.trains_in_a_round_after(before["round"]))
        agents.append(await job.peer("counted.py", HELD, flags=machines[0]))
        await job.until(job.trains_with(3, after=job.last()["step"]))
        await job.until(lambda: said(job, "gives its own up"))
        job.let_end()
        assert [await job.ends(agent) for agent in agents] == [0, 0, 0]
        assert counted(job.steps())[-1] > before["step"]
