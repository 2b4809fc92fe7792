"""`elasticjob dashboard`: what it refuses before it serves anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (
            ("--masters", "telepathy"),
            2,
            "--masters telepathy is unknown; give one of auto, proxy, direct, none",
        ),
        (("--kubeconfig", "nowhere"), 4, "nowhere"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    tmp_path: Path, flags: tuple[str, ...], code: int, said: str
) -> None:
    command = [sys.executable, "-m", "elasticjob.cli", "dashboard", *flags]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (code, "")
    assert said in found.stderr.splitlines()[-1]
    assert "Traceback" not in found.stderr
