"""The cost of a run of tests in CPU seconds, which other load hardly moves: a plugin (see pyproject.toml).

Each test's report carries the CPU time of its process and of the children that were waited for meanwhile, so
a process that several tests share counts for the one at whose end it ends. The run's sum has all of them.
"""

from __future__ import annotations

import gc
import resource
import time
from collections import Counter
from collections.abc import Generator
from typing import Final

import pytest

CPU: Final = "cpu"
SHOWN: Final = 10
BEFORE: Final = pytest.StashKey[float]()
LAST: Final = pytest.StashKey[float]()
began: Final = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--budget",
        metavar="CPU:WALL",
        help="seconds that the run should cost, to be printed beside what it did",
    )
    parser.addoption("--costs", type=int, default=SHOWN, help="how many files to list by CPU time")


def spent() -> float:
    """CPU seconds of this process and of its children that were waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start to count: the first test of a process did not cost what collecting all of them did.

    Objects made by the collection live to the end, so they are frozen: a full garbage collection took half a
    CPU second without that, in which no test and no server of the process went on.
    """
    gc.collect()
    gc.freeze()
    session.stash[LAST] = spent()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what the test has cost up to here; the teardown's report has all of it."""
    report = yield
    if call.when == "setup":
        item.stash[BEFORE] = item.session.stash[LAST]
    if call.when == "teardown":
        item.session.stash[LAST] = now = spent()
        report.user_properties.append((CPU, now - item.stash[BEFORE]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The dearest files, and the sum beside the budget."""
    files: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, seconds in getattr(report, "user_properties", ()):
                if name == CPU:
                    files[report.nodeid.partition("::")[0]] += seconds
    if shown := files.most_common(config.getoption("--costs")):
        terminalreporter.section("files by CPU time")
        for file, seconds in shown:
            terminalreporter.write_line(f"{seconds:7.1f} s  {file}")
    terminalreporter.write_line(told(spent(), time.monotonic() - began, config.getoption("--budget")))


def told(cpu: float, wall: float, budget: str | None) -> str:
    """The sentence that sums up a run."""
    if not budget:
        return f"cost: {cpu:.0f} CPU seconds, {wall:.0f} s"
    most_cpu, most_wall = map(float, budget.split(":"))
    over = " and ".join(
        name for name, used, most in (("CPU", cpu, most_cpu), ("time", wall, most_wall)) if used > most
    )
    sentence = f"cost: {cpu:.0f} of {most_cpu:g} CPU seconds, {wall:.0f} of {most_wall:g} s"
    return f"{sentence}; over budget: {over}" if over else sentence
