"""What an agent sees of a worker that is late: whether its processes compute, read, wait, or do nothing."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elasticjob.trainer.agent.seeing.health import ASLEEP, EVERY, Sight, Watcher
from elasticjob.trainer.link.pulse import Phase, Pulse
from elasticjob.trainer.usage.cores import Work, content, look_at, work_of
from lab.processes import Process
from lab.waiting import until

PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
NOTHING = "import threading; print(flush=True); threading.Event().wait()"
COMPUTES = "print(flush=True)\nwhile True: pass"
READS = "import sys; print(flush=True)\nwhile True: open(sys.executable, 'rb').read()"


@contextmanager
def parent_of(code: str) -> Iterator[int]:
    """The pid of a process that waits for a child, which runs `code`."""
    command = [sys.executable, "-c", PARENT, code]
    with (
        tempfile.TemporaryDirectory() as folder,
        Process("parent", command, Path(folder), ready="\n") as process,
    ):
        yield process.pid
        process.kill_all()


@pytest.mark.parametrize(("code", "grows"), [(COMPUTES, "cpu"), (READS, "read")])
async def test_work_of_a_workers_processes_is_its_own(code: str, grows: str) -> None:
    with parent_of(code) as pid:
        before = work_of(pid)
        assert len(before.pids) == 2

        await until(lambda: getattr(work_of(pid), grows) > getattr(before, grows), f"the child {grows}")


async def test_process_that_waits_does_no_work_and_one_that_is_stopped_is_seen() -> None:
    with parent_of(NOTHING) as pid:
        await until(lambda: not work_of(pid).since(work_of(pid), 1.0), "both wait")
        [child] = work_of(pid).pids - {pid}
        if content(f"/proc/{pid}/wchan") not in (b"", b"0"):  # some kernels do not tell
            assert work_of(pid).data, "the parent waits for its child"
        assert not work_of(child).data, "the child waits for a lock"
        os.kill(pid, signal.SIGSTOP)

        await until(lambda: (seen := look_at(pid)) and seen[0], "the parent is stopped")


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (Work(frozenset({1}), 10.0, 1000), False),
        (Work(frozenset({1}), 10.02, 100_000), False),
        (Work(frozenset({1, 2}), 10.0, 1000), True),
        (Work(frozenset({1}), 10.1, 1000), True),
        (Work(frozenset({1}), 10.0, 10_000_000), True),
        (Work(frozenset({1}), 10.0, 1000, storage=True), True),
        (Work(frozenset({1}), 10.0, 1000, runs=True), True),
    ],
)
def test_a_little_work_is_none(after: Work, expected: bool) -> None:
    assert after.since(Work(frozenset({1}), 10.0, 1000), 1.0) is expected


def test_time_in_which_the_agent_saw_nothing_is_no_stillness() -> None:
    watcher, now = Watcher(closer=lambda pid: Work()), 100.0
    sight = Sight(Pulse(Phase.COMPUTING, 5, 100.0, 0.1, 99.9), pid=1)

    def go(seconds: float) -> float:
        nonlocal now
        for _ in range(round(seconds / EVERY)):
            now += EVERY
            watcher.look({0: 1}, {0: sight}, now)
        [state] = watcher.states(now)
        assert state.still is not None
        return state.still

    assert go(6) > 4
    now += 60 + ASLEEP
    assert go(0.1) == 0.0
    assert go(3) > 2
