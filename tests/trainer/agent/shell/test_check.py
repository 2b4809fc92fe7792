"""Nodes are checked before they train: real agents and payloads, one of them broken and one slow."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from elasticjob.api.rpc.check import Peer
from elasticjob.master.handlers import nodes
from elasticjob.master.handlers.check import sentence
from elasticjob.trainer.agent.shell import check
from elasticjob.trainer.agent.shell.check import Bench, Result, Task, reserve, together
from lab.jobs.training.harness import scenario
from lab.jobs.training.warm import Warm
from lab.paths import TRAINED
from lab.virtual.master import pod
from lab.waiting import PATIENCE


@pytest.mark.story
async def test_a_broken_node_does_not_train_and_a_slow_one_is_named(
    tmp_path: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHECK_PAYLOAD", f"{sys.executable} -P {TRAINED / 'payload.py'}")
    monkeypatch.setenv("PATIENCE", str(PATIENCE))
    monkeypatch.setenv("CUT", "job-worker-2")
    monkeypatch.setenv("SLOW", "job-worker-1")
    async with scenario(tmp_path, warm, nodes=(3, 4)) as job:
        pods = [pod(f"job-worker-{index}") for index in range(4)]
        job.master.observe(lambda state, now: nodes.observe(state, pods, now))
        agents = [await job.agent(index, "counted.py", 2, flags=("--network-check",)) for index in range(4)]
        assert await job.ends(agents[2]) == 201
        words = agents[2].last_words()
        assert words["reason"] == "NodeCheckFailed"
        assert "job-worker-2 fails with others: " in words["message"]
        codes = [await job.ends(agents[index]) for index in (0, 1, 3)]
        assert codes == [0, 0, 0], [line.text for line in job.lines if "node check" in line.text]
        assert job.trains_with(3)()
        assert "job-worker-1 is slow alone" in sentence(job.master.job)


ECHO = """
import json, sys, time
for line in sys.stdin:
    task = json.loads(line)
    if task["local"] == {stuck}:
        time.sleep(1e6)
    print(json.dumps({{"seconds": task["local"] + 1.0, "error": "", "device": "cpu"}}), flush=True)
    if task["local"] == {ending}:
        break
"""


@asynccontextmanager
async def bench(
    slots: int, *, stuck: int = -1, ending: int = -1, limit: float = PATIENCE
) -> AsyncIterator[Bench]:
    """A bench with a payload that measures nothing."""
    command = (sys.executable, "-c", ECHO.format(stuck=stuck, ending=ending))
    made = Bench(command, slots, os.environ, limit=limit)
    try:
        yield made
    finally:
        made.close()


def tasks(slots: int) -> Sequence[Task]:
    return check.alone(slots, "127.0.0.1", 1)


async def test_a_turn_is_as_slow_as_its_slowest_process_and_the_processes_stay() -> None:
    async with bench(2) as made:
        assert await made.run(tasks(2)) == Result(seconds=2.0, device="cpu")
        assert await made.run(tasks(2)) == Result(seconds=2.0, device="cpu")


async def test_a_payload_that_is_stuck_or_ends_is_an_error() -> None:
    async with bench(2, stuck=1, limit=1.0) as made:
        assert (await made.run(tasks(2))).error == "no result within 1 s"
    async with bench(1, ending=0) as made:
        assert await made.run(tasks(1)) == Result(seconds=1.0, device="cpu")
        assert "the payload gave no result" in (await made.run(tasks(1))).error
        assert await made.run(tasks(1)) == Result(seconds=1.0, device="cpu")


@pytest.mark.story
async def test_our_payload_measures_two_nodes_together_and_one_alone() -> None:
    made = [Bench(check.PAYLOAD, 1, os.environ, limit=PATIENCE) for _ in range(2)]
    try:
        with reserve("127.0.0.1") as port:
            peers = [Peer(node=name, address="127.0.0.1", port=port, slots=1) for name in "AB"]
            both = [one.run(together(peers, peer.node)) for one, peer in zip(made, peers, strict=True)]
            results = await asyncio.gather(*both)
        assert [(result.error, result.device) for result in results] == [("", "cpu")] * 2
        assert all(0 < result.seconds < PATIENCE for result in results)
        with reserve("127.0.0.1") as port:
            alone = await made[0].run(check.alone(1, "127.0.0.1", port))
        assert alone.error == ""
    finally:
        for one in made:
            one.close()
