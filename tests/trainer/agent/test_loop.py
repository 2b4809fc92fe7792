"""The agent's shell: what it does when a part of it, or its master, fails."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticjob.api.rpc.message import Empty
from elasticjob.api.rpc.nodes import Order, Orders, Watch
from elasticjob.api.rpc.rendezvous import Join, Member, World
from elasticjob.trainer.agent.actions import Exit
from elasticjob.trainer.agent.checkpoints.commits import Keeper
from elasticjob.trainer.agent.decide import LEFT
from elasticjob.trainer.agent.loop import Agent, last_calls
from elasticjob.trainer.agent.script import Script
from elasticjob.trainer.agent.seeing.memory import Cgroup
from elasticjob.trainer.agent.settings import Place, Settings, Start
from elasticjob.trainer.link.master import MasterClient
from tests.kit.waiting import PATIENCE


class Wrong(MasterClient):
    """A client with a bug."""

    async def call(self, request: Any, *, patience: float | None = None) -> Any:
        raise LookupError("a bug of ours")


class Alone(MasterClient):
    """A master of this node alone."""

    async def call(self, request: Any, *, patience: float | None = None) -> Any:
        match request:
            case Watch():
                await asyncio.Future()  # until it is cancelled
            case Join(node=node, incarnation=incarnation):
                member = Member(
                    node=node, incarnation=incarnation, slots=1, address="127.0.0.1", port=7000, since=1
                )
                return World(round=1, members=(member,), batch_slots=1)
        return Empty()


def keeper(folder: Path) -> Keeper:
    return Keeper(folder, "a", "", "127.0.0.1")


def settings(folder: Path, *command: str, pod: str = "") -> Settings:
    place = Place(
        node="a",
        role="worker",
        index=0,
        pod=pod,
        address="127.0.0.1",
        job="job",
        master="127.0.0.1:1",
        termination_log=folder / "words",
    )
    return Settings(place, Script(command[0], command[1:], python=False), start=Start.COLD)


async def test_agent_whose_own_task_fails_ends_with_that_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = settings(tmp_path, "sleep", "600")
    async with asyncio.timeout(PATIENCE):
        assert await Agent(given, os.environ, Wrong("127.0.0.1:1"), tmp_path, keeper(tmp_path)).run() == 1
    words = json.loads((tmp_path / "words").read_text())
    assert words["message"] == "LookupError: a bug of ours"
    assert "Traceback" in caplog.text
    assert caplog.text.count(words["message"]) == 2  # with its traceback, and as the reason of the end


class Answers(Alone):
    """A master that responds to the first two heartbeats."""

    beats = 0

    async def call(self, request: Any, *, patience: float | None = None) -> Any:
        self.beats += isinstance(request, Watch)
        if isinstance(request, Watch) and self.beats <= 2:
            return Orders(version=self.beats, order=Order.TRAIN, round=0, reason="")
        return await super().call(request, patience=patience)


async def test_a_node_says_once_that_it_has_found_the_master(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "elasticjob.agent")
    given, master = settings(tmp_path, "sleep", "0.1"), Answers("127.0.0.1:1")
    async with asyncio.timeout(PATIENCE):
        await Agent(given, os.environ, master, tmp_path, keeper(tmp_path)).run()
    assert master.beats == 3
    assert caplog.messages.count("found the master at 127.0.0.1:1") == 1


@pytest.mark.parametrize(("counted", "reason"), [("1", "OOMKilled"), ("0", "WorkerFailed")])
async def test_worker_that_the_kernel_killed_for_memory_is_told_from_another(
    tmp_path: Path, counted: str, reason: str
) -> None:
    cgroup = Cgroup(tmp_path / "memory.events", tmp_path / "memory.max")
    cgroup.events.write_text("oom_kill 0\n")
    cgroup.most.write_text("167772160\n")
    dies = f"echo oom_kill {counted} > {cgroup.events}; kill -9 $$"
    given = replace(settings(tmp_path, "sh", "-c", dies, pod="a-0"), max_restarts=0)
    async with asyncio.timeout(PATIENCE):
        agent = Agent(given, os.environ, Alone("127.0.0.1:1"), tmp_path, keeper(tmp_path), cgroup=cgroup)
        assert await agent.run() == 137
    words = json.loads((tmp_path / "words").read_text())
    assert words["reason"] == reason
    assert ("of 160Mi up to a second before" in words["message"]) is (reason == "OOMKilled")


@pytest.mark.parametrize("reason", ["Completed", "WorkerFailed"])
def test_who_leaves_waits_a_second_and_who_has_a_result_longer(reason: str) -> None:
    assert last_calls(Exit(0, LEFT, "")) == 1.0 < last_calls(Exit(0, reason, ""))
