"""Tests of frameworks that are no company for others, each file in a process of its own.

Once JAX has run in a process, each fork of it is a warning and may be a deadlock: other stories fork. One
that has imported TensorFlow aborts when it imports torch's compiler, as others here do.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab.waiting import PATIENCE


@pytest.mark.story
@pytest.mark.parametrize(
    ("file", "flags"), [("jax/parts.py", ()), ("tensorflow/sessions.py", ("-W", "default"))]
)
def test_they_hold_alone(file: str, flags: tuple[str, ...]) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *flags)
    path = Path(__file__).parent / file
    run = subprocess.run(
        (*command, str(path)), capture_output=True, text=True, timeout=4 * PATIENCE, check=False
    )
    assert run.returncode == 0, run.stdout[-8_000:] + run.stderr[-2_000:]
