"""`hack.steady`: what fails once is told and refuses no change; what fails again, or too often, does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.steady import MOST, main, without_processes

ONCE = """
import pathlib
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_of_a_race(number):
    seen = pathlib.Path(__file__).with_name(f"seen{{number}}")
    again = seen.exists()
    seen.touch()
    assert {holds}, "it came too late"

def test_that_holds():
    pass
"""


@pytest.mark.parametrize(
    ("tests", "holds", "code", "told"),
    [(1, "True", 0, 0), (2, "again", 0, 2), (1, "False", 1, 0), (MOST + 1, "again", 1, 0)],
)
def test_second_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tests: int, holds: str, code: int, told: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # plugins of others are most of pytest's start
    suite, unsteady = tmp_path / "test_suite.py", tmp_path / "unsteady"
    suite.write_text(ONCE.format(tests=tests, holds=holds))
    alone = ["-c", "/dev/null", f"--rootdir={tmp_path}", "-p", "no:cacheprovider"]
    assert main(["--unsteady", str(unsteady), "--", str(suite), *alone]) == code
    lines = unsteady.read_text().splitlines() if unsteady.exists() else []
    assert len(lines) == told
    assert all("test_of_a_race" in line and "it came too late" in line for line in lines)


def test_hung_run_is_red(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    assert main(["--unsteady", str(tmp_path / "unsteady"), "--longest", "0", "--", "--version"]) == 2


def test_second_try_runs_in_one_process_and_nothing_else() -> None:
    first = "tests/node -n 4 --dist loadfile --kube real --no-loadscope-reorder -m differs"
    assert [*without_processes(first.split(" "))] == ["--kube", "real", "-m", "differs"]
