"""Nodes that know only their command line, the same on each: they find each other and get their ranks."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from elasticjob.cli.laptop.ports import free_port
from lab.jobs.training.harness import HELD, counted, scenario
from lab.jobs.training.warm import Warm

pytestmark = pytest.mark.story


def torchruns_line(nodes: str) -> tuple[str, ...]:
    """Return the usual flags of torchrun."""
    endpoint = f"--rdzv-endpoint=127.0.0.1:{free_port()}"  # no client gets it meanwhile
    return ("--nnodes", nodes, "--rdzv-backend", "c10d", endpoint, "--rdzv-id", "X")


async def test_nodes_with_the_same_command_line_train_together(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        flags = (*torchruns_line("2"), "--local-addr", socket.gethostname())
        agents = [await job.peer("counted.py", 3, flags=flags)]
        await job.until(lambda: job.said("1 of at least 2 nodes joined"))
        agents.append(await job.peer("counted.py", 3, flags=flags))
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        assert {(step["world"], step["rank"]) for step in job.steps()} == {(2, 0), (2, 1)}
        assert counted(job.steps()) == [*range(1, 1 + len(counted(job.steps())))]


async def test_node_that_loses_the_master_before_the_first_world_holds_it(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        flags = torchruns_line("2")
        first = await job.peer("counted.py", 1, flags=flags)
        await job.until(lambda: job.said("1 of at least 2 nodes joined"))
        first.kill(signal.SIGSTOP)  # so that the second finds the endpoint taken
        agents = [await job.peer("counted.py", 1, flags=flags)]
        await job.until(lambda: job.said("has not answered"))
        first.kill()
        await job.until(lambda: job.said("this node holds the master now"))
        agents.append(await job.peer("counted.py", 1, flags=flags))
        assert [await job.ends(agent) for agent in agents] == [0, 0]


@pytest.mark.parametrize(
    ("number", "addresses", "told"),
    [
        (signal.SIGTERM, [(), (), ()], "is gone; this node holds the master now"),
        (signal.SIGKILL, [(f"--local-addr=127.0.0.{each}",) for each in (1, 2, 3)], "gives its own up"),
    ],
    ids=["it leaves", "it is killed"],
)
async def test_another_node_takes_over_until_one_comes_to_the_endpoint(
    tmp_path: Path, warm: Warm, number: signal.Signals, addresses: list[tuple[str, ...]], told: str
) -> None:
    """On one machine each node is at the endpoint; on several it is the first one, and that in its place."""
    async with scenario(tmp_path, warm, nodes=(1, 3)) as job:
        flags, agents = torchruns_line("1:3"), []
        for size, address in enumerate(addresses, 1):
            agents.append(await job.peer("counted.py", HELD, flags=(*flags, *address)))
            await job.until(job.trains_with(size, after=5))
        before, first = job.last(), agents.pop(0)
        first.kill(number)
        await job.until(job.trains_in_a_round_after(before["round"]))
        await job.until(lambda: job.said("this node holds the master now"))
        after = next(step for step in job.steps() if step["round"] > before["round"])
        assert after["world"] == 2
        assert after["step"] >= before["step"] - 1
        agents.append(await job.peer("counted.py", HELD, flags=(*flags, *addresses[0])))
        await job.until(job.trains_with(3, after=job.last()["step"]))
        await job.until(lambda: job.said(told))
        job.let_end()
        assert [await job.ends(agent) for agent in agents] == [0, 0, 0]
        assert await job.ends(first) == (143 if number == signal.SIGTERM else -number)
        assert len(job.said("is gone; this node holds the master now")) == 1
        assert counted(job.steps())[-1] > before["step"]
