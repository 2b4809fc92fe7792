"""TensorFlow's sessions over servers that change, in a process that imports no torch (see sessions.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

INSIDE = Path(__file__).with_name("sessions.py")


@pytest.mark.story
def test_sessions_follow_servers_that_change() -> None:
    """One process that has imported TensorFlow aborts when it imports torch's compiler, as others here do."""
    command = (sys.executable, "-m", "pytest", "-q", "-n", "0", "-W", "default", str(INSIDE))
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-8_000:] + run.stderr[-2_000:]
