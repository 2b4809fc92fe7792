"""Tests that failed run once more, alone, after the others: noise refuses no change, and no race is hidden.

    python -m hack.steady --unsteady FILE -- [PATH…] [OPTION OF PYTEST…]

A test that passes then is unsteady: the run is green, and FILE gets a line with the first failure's message.
It is a fault to be mended at once, with a row in tests/UNSTEADY.md. The run is red if a test fails again, if
more than MOST failed, if pytest ended otherwise than by failed tests, or if it has not ended for --longest.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from itertools import dropwhile
from pathlib import Path
from typing import Final

import pytest

MOST: Final = 5
FAILED: Final = pytest.ExitCode.TESTS_FAILED
LONGEST: Final = 2400
"""Seconds, several times what a tier takes: pytest waits for ever for a process of xdist that crashed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run pytest, and what failed once more; return the exit code."""
    parser = ArgumentParser(prog="python -m hack.steady", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--unsteady", type=Path, required=True, help="what passes only alone is added to this file"
    )
    parser.add_argument("--longest", type=float, default=LONGEST, help="seconds for one run of pytest")
    parser.add_argument("pytest", nargs="+", help="arguments of pytest, after --")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        code, failures = run(given.pytest, Path(folder) / "first.jsonl", given.longest)
        if code != FAILED or not failures:
            return code
        if len(failures) > MOST:
            print(f"=== {len(failures)} tests failed, more than {MOST}: they are not run again")
            return code
        print(f"=== {len(failures)} failed: once more, alone", flush=True)
        again = [*without_processes(given.pytest), *failures]
        code, _ = run(again, Path(folder) / "second.jsonl", given.longest)
    if code == 0:
        with given.unsteady.open("a") as file:
            file.writelines(f"{test}: {message}\n" for test, message in failures.items())
    return code


def run(arguments: Sequence[str], report: Path, longest: float) -> tuple[int, dict[str, str]]:
    """Return pytest's exit code, and the message of each test that failed, by its node id."""
    command = [sys.executable, "-m", "pytest", "-p", "hack.steady", f"--failures={report}", *arguments]
    try:
        code = subprocess.run(command, check=False, timeout=longest).returncode
    except subprocess.TimeoutExpired:
        print(f"=== pytest has not ended after {longest:g} s: a test or a process hangs")
        return pytest.ExitCode.INTERRUPTED, {}
    lines = report.read_text().splitlines() if report.exists() else []
    return code, dict(reversed([json.loads(line) for line in lines]))  # of each test the first failure


def without_processes(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments without paths, which come first, and without those that distribute tests."""
    words = dropwhile(lambda word: not word.startswith("-"), arguments)
    for word in words:
        if word in ("-n", "--dist"):
            next(words, "")
        elif word != "--no-loadscope-reorder":
            yield word


def pytest_addoption(parser: pytest.Parser) -> None:
    """Of the plugin that this module is for the run itself."""
    parser.addoption("--failures", type=Path, help="a file for the failures, one JSON line each")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Note failures in the process that has them all, not in those of pytest-xdist."""
    if (report := config.getoption("--failures")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Noting(report))


class _Noting:
    def __init__(self, report: Path) -> None:
        self._report = report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            line = [report.nodeid, _message(report)]
            with self._report.open("a") as file:
                file.write(json.dumps(line) + "\n")


def _message(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longrepr).strip().split("\n")[0][:300]


if __name__ == "__main__":
    sys.exit(main())
