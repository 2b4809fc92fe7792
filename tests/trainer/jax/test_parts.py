"""The parts of the JAX library (`parts.py`), in a process of their own.

Once JAX has run in a process, each fork of it is a warning and may be a deadlock: other stories fork.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PARTS = Path(__file__).with_name("parts.py")


@pytest.mark.story
def test_the_parts_hold() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(PARTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
