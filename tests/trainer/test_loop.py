"""The agent's shell: what it does when a part of it, or its master, fails."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from elasticjob.trainer.agent.loop import Agent
from elasticjob.trainer.agent.script import Script
from elasticjob.trainer.agent.settings import Place, Settings, Start
from elasticjob.trainer.master import MasterClient


class Wrong(MasterClient):
    """A client with a bug."""

    async def call(self, request: Any, *, patience: float | None = None) -> Any:
        raise LookupError("a bug of ours")


def settings(folder: Path, *command: str) -> Settings:
    place = Place(
        node="a",
        role="worker",
        index=0,
        pod="",
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
    async with asyncio.timeout(60):
        assert await Agent(given, os.environ, Wrong("127.0.0.1:1"), tmp_path).run() == 1
    words = json.loads((tmp_path / "words").read_text())
    assert words["message"] == "LookupError: a bug of ours"
    assert "Traceback" in caplog.text
