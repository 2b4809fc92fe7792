"""The whole demo as its user starts it: the first complete path through everything."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil
import pytest

from elasticjob.cli.story.acts import STORY

pytestmark = [pytest.mark.story, pytest.mark.timeout(1800)]

DEMO: Final = """
import signal
from elasticjob.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
main()
"""


async def start(folder: Path, *arguments: str) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader]:
    """Start a short demo; return where it prints lines."""
    report = ("--report", str(folder / "report.html"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DEMO, "demo", "--epochs", "30", *report, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)},
    )
    lines = process.stderr if "json" in arguments else process.stdout
    assert lines is not None
    return process, lines


async def reaches(lines: asyncio.StreamReader, act: str) -> None:
    """Return once the demo has begun an act, or has ended."""
    async for line in lines:
        if f"▶ {act}" in line.decode():
            return


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
    process, _ = await start(tmp_path, "--output", "json")
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
    report = (tmp_path / "report.html").read_text()
    assert all(shown in report for shown in ("<svg", "Where the time of the workers went"))
    assert left_in(tmp_path) == []


async def test_interrupted_demo_exits_with_130_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process, lines = await start(tmp_path, "--plain")
    await reaches(lines, STORY[0].title)
    process.send_signal(signal.SIGINT)
    await process.communicate()
    assert process.returncode == 130
    assert left_in(tmp_path) == []
