"""Stacks of a process that runs: whole, whoever reads them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

import pytest

from elasticjob.trainer.agent.seeing import stacks
from elasticjob.trainer.link import stacks as worker
from lab.processes import Process
from lab.waiting import PATIENCE

READS: Final = 6
BUSY: Final = """
import os
from elasticjob.trainer.link import stacks

stacks.register(os.environ)


def outermost():
    print("here", flush=True)
    while True:
        any(deep(4) for _ in range(8))


def deep(more):
    return more and deep(more - 1)


outermost()
"""


@pytest.mark.parametrize("reader", ["py-spy", "faulthandler"])
async def test_stacks_of_a_busy_process_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    for name, seconds in (("PY_SPY", PATIENCE), ("WRITTEN", PATIENCE), ("QUIET", 0.3)):  # for a busy machine
        monkeypatch.setattr(stacks, name, seconds)
    if reader == "py-spy" and shutil.which(reader) is None:
        pytest.skip("py-spy is not on PATH")
    file = tmp_path / "stacks.txt"
    environment = {**os.environ, worker.FILE: str(file)}
    async with Process("busy", [sys.executable, "-c", BUSY], tmp_path, environment, ready="here") as process:
        for _ in range(READS):
            if reader == "py-spy":
                text = await stacks.by_py_spy(process.pid, stopped=False)
            else:
                text = await stacks.by_faulthandler(process.pid, file)
            assert {"outermost", "<module>"} <= set(text.split())
