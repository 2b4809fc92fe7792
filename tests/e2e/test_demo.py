"""The whole demo as its user starts it: the first complete path through everything."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from elasticjob.cli.story.acts import STORY

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


async def start(*arguments: str, report: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "elasticjob.cli", "demo", "--report", str(report), *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(report.parent)},
    )


def left_in(folder: Path) -> list[str]:
    """Return the command lines of processes that a demo with this TMPDIR started and left."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR") == str(folder):
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


async def test_demo_tells_the_whole_story_and_leaves_nothing_behind(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    process = await start("--output", "json", "--epochs", "80", report=report)
    printed, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    result = json.loads(printed)
    assert [line["act"] for line in result["timeline"]] == [act.title for act in STORY]
    assert result["accuracy"] >= 0.97
    assert "stood still" in result["sentence"]
    stood = {line["act"]: line["stoodStill"] for line in result["timeline"]}
    assert all(
        stood[act] for act in ("SIGKILL a worker", "delete a pod", "scale 2 → 3", "scale 3 → 1", "resume")
    )
    assert all(shown in report.read_text() for shown in ("<svg", "Where the time of the workers went"))
    assert left_in(tmp_path) == []


async def test_interrupted_demo_exits_with_130_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process = await start("--plain", report=tmp_path / "report.html")
    assert process.stdout is not None
    async for line in process.stdout:
        if b"apply" in line:
            break
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert process.returncode == 130
    assert left_in(tmp_path) == []
