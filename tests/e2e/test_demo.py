"""The whole demo as its user starts it: the first complete path through everything."""

from __future__ import annotations

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
from lab.processes import Process

pytestmark = [pytest.mark.story, pytest.mark.timeout(1800)]

DEMO: Final = """
import signal
from elasticjob.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores it
main()
"""


def demo(folder: Path, *arguments: str) -> Process:
    """Return a short demo."""
    report = ("--report", str(folder / "report.html"))
    command = (sys.executable, "-c", DEMO, "demo", "--epochs", "30", *report, *arguments)
    return Process("demo", command, folder, {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)})


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


def test_demo_tells_the_whole_story_and_leaves_nothing_behind(tmp_path: Path) -> None:
    program = demo(tmp_path, "--output", "json")
    ended = subprocess.run(program.words, env=program.environ, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
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
    program = demo(tmp_path, "--plain")
    program.spawn()
    program.wait_ready(lambda: f"▶ {STORY[0].title}" in program.output)
    program.send(signal.SIGINT)
    assert await program.wait() == 130
    assert left_in(tmp_path) == []
