"""`.ci/steadily`: a test that fails once is listed and refuses nothing; one that fails again does, or six."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.paths import ROOT

ONCE = """
import pathlib, pytest

@pytest.mark.parametrize("number", range({tests}))
def test_of_a_race(number):
    seen = pathlib.Path(__file__).with_name(f"seen{{number}}")
    again = seen.exists()
    seen.touch()
    assert {holds}, "it came too late"
"""


@pytest.mark.parametrize(
    ("tests", "holds", "processes", "code", "listed"),
    [(2, "again", 2, 0, 2), (1, "False", 0, 1, 0), (6, "again", 0, 1, 0), (0, "] no syntax", 0, 2, 0)],
)
def test_second_try(tmp_path: Path, tests: int, holds: str, processes: int, code: int, listed: int) -> None:
    (tmp_path / "test_suite.py").write_text(ONCE.format(tests=tests, holds=holds))
    unsteady = tmp_path / "unsteady"
    unsteady.touch()
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin", "CI": "true"}
    environment |= {"UNSTEADY": str(unsteady), "VENV": sys.prefix, "PATH": os.environ["PATH"]}
    options = (
        f"-c /dev/null --rootdir={tmp_path} -n {processes} --dist loadfile --no-loadscope-reorder".split()
    )
    command = [str(ROOT / ".ci" / "steadily"), str(tmp_path), *options]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == code, done.stdout.decode()
    lines = unsteady.read_text().splitlines()
    assert len(lines) == listed
    assert all("test_of_a_race" in line and "it came too late" in line for line in lines)
