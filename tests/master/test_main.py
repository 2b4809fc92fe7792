"""The master as a process: settings, last words, exit codes."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from elasticjob.cli.commands.master import master as command
from elasticjob.cli.errors import Failure
from elasticjob.master.cluster.settings import Settings
from elasticjob.master.main import last_words
from lab.processes import Process
from lab.virtual.master import Played, failure, finish, join, played, report, watch


def test_settings_come_from_the_environment_of_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "ELASTICJOB_NAME": "digits",
        "ELASTICJOB_NAMESPACE": "training",
        "POD_IP": "10.1.2.3",
        "ELASTICJOB_TOKEN_FILE": "/token",
        "ELASTICJOB_TERMINATION_LOG": "/last",
        "ELASTICJOB_MASTER__SILENCE": "7",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert (settings.job, settings.namespace, settings.host) == ("digits", "training", "10.1.2.3")
    assert (settings.token_file, settings.termination_log) == (Path("/token"), Path("/last"))
    assert (settings.port, settings.limits.silence) == (50001, timedelta(seconds=7))


@pytest.mark.parametrize("service", ["ELASTICJOB", "ELASTICJOB_MASTER"])
def test_no_service_of_a_job_sets_a_master_up(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Settings()
    link = {"PORT": "tcp://10.96.0.7:50001", "SERVICE_HOST": "10.96.0.7", "SERVICE_PORT": "50001"}
    for ending, value in link.items():  # as a kubelet does for each Service of the namespace
        monkeypatch.setenv(f"{service}_{ending}", value)
    assert Settings() == before


def test_last_words_of_a_verdict() -> None:
    game = played("node-0")
    game.tick()
    game.wait(2, "node-0")
    game.ask(report("node-0", 1, 9), finish("node-0", 1))
    words = msgspec.to_builtins(last_words(game.job))
    assert words == {
        "verdict": "Succeeded",
        "reason": "Finished",
        "message": "the node of round 1 finished after step 9",
        "progress": {"step": 9},
        "account": {"productive": 2.0},
    }


def test_last_words_without_a_verdict_do_not_end_the_job() -> None:
    assert last_words(Played().job)["verdict"] == "Stopped"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nnodes": "two"}, "--nnodes is 'two'; give N or MIN:MAX"),
        ({"nnodes": "3:3", "node_unit": 2}, "no multiple of nodeUnit 2 lies from 3 to 3 nodes"),
        (
            {"nnodes": "1", "token_file": Path("/nowhere")},
            "/nowhere does not exist; give --token-file a file",
        ),
    ],
)
def test_wrong_flags_are_named_with_the_next_step(given: dict[str, Any], message: str) -> None:
    with pytest.raises(Failure, match=re.escape(message)):
        command(**given)


@dataclass
class Running:
    """A master process, and a session with its token."""

    process: Process
    address: str
    session: aiohttp.ClientSession
    words: Path

    async def ask(self, request: Any) -> Any:
        url = f"http://{self.address}/v1/{request.PATH}"
        async with self.session.post(url, data=msgspec.json.encode(request)) as response:
            assert response.status == 200, await response.text()
            return msgspec.json.decode(await response.read())

    async def end(self) -> tuple[int, dict[str, Any]]:
        """Return the exit code and the last words."""
        code = await self.process.wait()
        return code, msgspec.json.decode(self.words.read_bytes())


@asynccontextmanager
async def running(folder: Path, nnodes: str = "1") -> AsyncIterator[Running]:
    (folder / "token").write_text("secret\n")
    words = folder / "words"
    arguments = ["--nnodes", nnodes, "--port", "0", "--token-file", str(folder / "token")]
    command = [sys.executable, "-m", "elasticjob.cli", "master", *arguments, "--state", str(folder / "state")]
    environ = {**os.environ, "ELASTICJOB_TERMINATION_LOG": str(words), "POD_IP": "127.0.0.1"}
    async with (
        Process("master", command, folder, environ, ready="listens on") as process,
        aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session,
    ):
        (address,) = re.findall(r"listens on ([\d.:]+)", process.output)
        yield Running(process, address, session, words)


async def test_success_exits_with_0_once_the_agent_has_been_told(tmp_path: Path) -> None:
    async with running(tmp_path) as master:
        await master.ask(watch("node-0"))
        await master.ask(join("node-0"))
        await master.ask(finish("node-0", 1))
        assert (await master.ask(watch("node-0")))["order"] == "stop"
        code, words = await master.end()
    assert (code, words["verdict"]) == (0, "Succeeded")


async def test_failure_exits_with_1_and_says_why(tmp_path: Path) -> None:
    async with running(tmp_path) as master:
        await master.ask(watch("node-0"))
        await master.ask(join("node-0"))
        await master.ask(failure("node-0"))
        code, words = await master.end()
    assert (code, words["verdict"], words["reason"]) == (1, "Failed", "RestartsSpent")
    assert "ValueError: no" in words["message"]


async def test_a_stopped_master_leaves_the_job_to_its_successor(tmp_path: Path) -> None:
    async with running(tmp_path) as master:
        await master.ask(watch("node-0"))
        await master.ask(join("node-0"))
        master.process.send(signal.SIGTERM)
        code, words = await master.end()
    assert (code, words["verdict"]) == (0, "Stopped")
    async with running(tmp_path) as master:
        orders = await master.ask(watch("node-0", round=1, seen=1))
        assert (orders["order"], orders["round"]) == ("train", 1)
