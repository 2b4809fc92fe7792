"""The agent's shell: what it does when a part of it, or its master, fails."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticjob.api.rpc.message import Empty
from elasticjob.api.rpc.nodes import Order, Orders, Report, Usage, Watch
from elasticjob.api.rpc.rendezvous import Join, Member, World
from elasticjob.trainer.agent.actions import Exit
from elasticjob.trainer.agent.checkpoints.commits import Keeper
from elasticjob.trainer.agent.decide import LEFT
from elasticjob.trainer.agent.loop import Agent, last_calls
from elasticjob.trainer.agent.script import Script
from elasticjob.trainer.agent.settings import Place, Settings, Start
from elasticjob.trainer.link.master import MasterClient
from elasticjob.trainer.usage.memory import Cgroup
from lab.waiting import PATIENCE


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


def agent(given: Settings, master: MasterClient, folder: Path, **more: Any) -> Agent:
    """Return an agent of these settings."""
    return Agent(given, os.environ, master, folder, Keeper(folder, "a", "", "127.0.0.1"), **more)


async def test_agent_whose_own_task_fails_ends_with_that_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "elasticjob.agent")
    given = settings(tmp_path, "sleep", "600")
    async with asyncio.timeout(PATIENCE):
        assert await agent(given, Wrong("127.0.0.1:1"), tmp_path).run() == 1
    words = json.loads((tmp_path / "words").read_text())
    assert words["message"] == "LookupError: a bug of ours"
    assert "Traceback" in caplog.text
    failed = caplog.messages.count("a task of the agent failed")  # two may fail before the agent ends
    assert caplog.text.count(words["message"]) == failed + 1  # with tracebacks, and as the reason of the end


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
        await agent(given, master, tmp_path).run()
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
        assert await agent(given, Alone("127.0.0.1:1"), tmp_path, cgroup=cgroup).run() == 137
    words = json.loads((tmp_path / "words").read_text())
    assert words["reason"] == reason
    assert ("of 160Mi up to a second before" in words["message"]) is (reason == "OOMKilled")


class Hears(Alone):
    """A master that keeps the first usage that it is told."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.usage: asyncio.Future[Usage] = asyncio.get_running_loop().create_future()

    async def call(self, request: Any, *, patience: float | None = None) -> Any:
        if isinstance(request, Report) and request.usage and not self.usage.done():
            self.usage.set_result(request.usage)
        return await super().call(request, patience=patience)


@pytest.mark.parametrize("in_container", [True, False])
async def test_the_memory_of_the_agent_itself_is_reported(tmp_path: Path, in_container: bool) -> None:
    """The worker has a megabyte, the agent fifty and more: Brain sizes the pod, which has both."""
    cgroup = Cgroup(tmp_path / "memory.events", tmp_path / "memory.max")
    for name, text in (
        ("cgroup.procs", "1\n" if in_container else "2\n"),
        ("memory.current", f"{900 << 20}\n"),
        ("memory.stat", f"anon 5\ninactive_file {300 << 20}\n"),
        ("memory.peak", f"{950 << 20}\n"),
    ):
        (tmp_path / name).write_text(text)
    given, master = settings(tmp_path, "sleep", "600"), Hears("127.0.0.1:1")
    running = asyncio.create_task(agent(given, master, tmp_path, cgroup=cgroup).run())
    async with asyncio.timeout(PATIENCE):
        usage = await master.usage
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    if in_container:
        assert (usage.memory, usage.peak, usage.kernel_peak) == (600 << 20, 600 << 20, 950 << 20)
    else:
        assert usage.memory > psutil.Process().memory_info().rss / 2 > 25 << 20
        assert usage.kernel_peak is None


@pytest.mark.parametrize("reason", ["Completed", "WorkerFailed"])
def test_who_leaves_waits_a_second_and_who_has_a_result_longer(reason: str) -> None:
    assert last_calls(Exit(0, LEFT, "")) == 1.0 < last_calls(Exit(0, reason, ""))
