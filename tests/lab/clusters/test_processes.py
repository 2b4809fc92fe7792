"""Programs that we start: they end by who they are, and say why they did not start."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.processes import Identity, ProgramFailed, Programs, identity_of, send
from lab.waiting import PATIENCE

WAITS = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)"
STUBBORN = [sys.executable, "-c", f"{IGNORES}\nwhile True: signal.pause()"]


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    found = Programs(tmp_path)
    yield found
    for name in found.names():
        found.stop(name, 0.0)


def started(programs: Programs, name: str, command: list[str]) -> Identity:
    """Start it, and wait until it said that it is up."""
    programs.start(name, command)
    programs.wait_ready(name, lambda: "up" in programs.log(name).read_text())
    found = programs.identity(name)
    assert found is not None
    return found


def test_a_program_runs_until_it_is_stopped(programs: Programs) -> None:
    found = started(programs, "a", WAITS)
    assert programs.pid("a") == found.pid
    assert programs.rss("a") > 1 << 20
    assert programs.names() == ("a",)
    programs.stop("a")
    assert identity_of(found.pid) is None
    assert programs.names() == ()
    programs.stop("a")


def test_one_that_ignores_sigterm_is_killed(programs: Programs) -> None:
    found = started(programs, "a", STUBBORN)
    programs.stop("a", 0.1)
    assert identity_of(found.pid) is None


def test_a_program_that_runs_is_not_started_twice(programs: Programs) -> None:
    found = started(programs, "a", WAITS)
    assert started(programs, "a", WAITS) == found


def test_one_that_was_killed_is_started_again(programs: Programs) -> None:
    first = started(programs, "a", WAITS)
    programs.kill("a")
    programs.log("a").unlink()
    assert started(programs, "a", WAITS) != first


def test_another_process_finds_and_ends_it(programs: Programs, tmp_path: Path) -> None:
    found = started(programs, "a", WAITS)
    other = "import sys; from pathlib import Path; from lab.processes import Programs\n"
    other += "programs = Programs(Path(sys.argv[1])); print(programs.pid('a')); programs.kill('a')"
    done = subprocess.run(
        [sys.executable, "-c", other, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == found.pid
    assert programs.identity("a") is None


def test_a_stranger_with_the_same_pid_is_left_alone(programs: Programs, tmp_path: Path) -> None:
    stranger = started(programs, "stranger", WAITS)
    earlier = {"pid": stranger.pid, "started": stranger.started - 1}
    (tmp_path / "a.json").write_text(json.dumps(earlier))
    assert programs.identity("a") is None
    programs.stop("a", 0.0)
    assert not send(Identity(**earlier), signal.SIGKILL)
    assert identity_of(stranger.pid) == stranger
    with pytest.raises(ProgramFailed, match="a does not run: start it first"):
        programs.kill("a")


def test_one_that_ends_at_once_is_told_with_the_end_of_its_log(programs: Programs) -> None:
    programs.start("a", ["sh", "-c", "seq 100; echo 'cannot listen' >&2; exit 3"])
    with pytest.raises(ProgramFailed) as failure:
        programs.wait_ready("a", lambda: False)
    lines = str(failure.value).splitlines()
    assert lines[0] == f"a ended at once: its log {programs.log('a')} ends with"
    assert lines[-2:] == ["  100", "  cannot listen"]
    assert len(lines) == 16


def test_one_that_is_never_ready_is_told_with_its_log(programs: Programs) -> None:
    started(programs, "a", WAITS)
    with pytest.raises(ProgramFailed, match=r"a was not ready after 0\.1 s: its log .* ends with\n  up"):
        programs.wait_ready("a", lambda: False, 0.1)


def test_programs_die_with_the_process_that_started_them(tmp_path: Path) -> None:
    starter = "import os, sys; from pathlib import Path; from lab.processes import Programs\n"
    starter += "programs = Programs(Path(sys.argv[1])); programs.start('a', sys.argv[2:])\n"
    starter += "programs.wait_ready('a', lambda: 'up' in programs.log('a').read_text())\n"
    starter += "print(programs.pid('a'), flush=True); os.kill(os.getpid(), 9)"
    done = subprocess.run(
        [sys.executable, "-c", starter, str(tmp_path), *WAITS], capture_output=True, text=True, check=False
    )
    wait_for_end(int(done.stdout))


def wait_for_end(pid: int) -> None:
    """Until the process of that pid has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([handle], [], [], PATIENCE)
    os.close(handle)
    assert ended, f"process {pid} lives on"


def test_with_outlive_they_stay(tmp_path: Path) -> None:
    starter = "import sys; from pathlib import Path; from lab.processes import Programs\n"
    starter += "Programs(Path(sys.argv[1]), outlive=True).start('a', sys.argv[2:])"
    subprocess.run([sys.executable, "-c", starter, str(tmp_path), *WAITS], check=True)
    programs = Programs(tmp_path)
    assert programs.names() == ("a",)
    programs.kill("a")
