"""Nodes that know only their command line, the same on each: they find each other and get their ranks."""

from __future__ import annotations

from pathlib import Path

from aiohttp.test_utils import unused_port

from tests.kit.harness import counted, scenario
from tests.kit.warm import Warm


def torchruns_line(nodes: str) -> tuple[str, ...]:
    """Return the usual flags of torchrun."""
    endpoint = f"--rdzv-endpoint=127.0.0.1:{unused_port()}"
    return ("--nnodes", nodes, "--rdzv-backend", "c10d", endpoint, "--rdzv-id", "X")


async def test_nodes_with_the_same_command_line_train_together(tmp_path: Path, warm: Warm) -> None:
    async with scenario(tmp_path, warm, nodes=(2, 2)) as job:
        flags = torchruns_line("2")
        agents = [await job.peer("counted.py", 3, flags=flags)]
        await job.until(lambda: any("1 of at least 2 nodes joined" in line.text for line in job.lines))
        agents.append(await job.peer("counted.py", 3, flags=flags))
        assert [await job.ends(agent) for agent in agents] == [0, 0]
        assert {(step["world"], step["rank"]) for step in job.steps()} == {(2, 0), (2, 1)}
        assert counted(job.steps()) == [*range(1, 1 + len(counted(job.steps())))]
