"""Programs that we start: they end by who they are, and say why they did not start."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.processes import (
    Dialogue,
    Identity,
    Process,
    ProgramFailed,
    TooSlow,
    end_on_sigterm,
    identity_of,
    running,
    send,
)
from lab.waiting import PATIENCE

WAITS = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)"
STUBBORN = [sys.executable, "-c", f"{IGNORES}\nwhile True: signal.pause()"]
STARTER = """
import os, sys
from pathlib import Path
from lab.processes import Process
folder, outlive, *command = sys.argv[1:]
process = Process("a", command, Path(folder), ready="up", outlive=outlive == "1")
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Process]:
    found = Process("a", WAITS, tmp_path, ready="up")
    yield found
    found.stop(0.0)


def test_a_program_runs_until_it_is_stopped(program: Process) -> None:
    with program:
        found = program.identity
        assert found is not None
        assert program.pid == found.pid
        assert program.rss > 1 << 20
        assert program.works
        assert running([program]) == ("a",)
    assert identity_of(found.pid) is None
    assert running([program]) == ()
    assert program.code == -signal.SIGTERM
    program.stop()


def test_one_that_ignores_sigterm_is_killed(program: Process) -> None:
    program.command = STUBBORN
    program.start()
    program.stop(0.1)
    assert program.code == -signal.SIGKILL


def test_one_is_waited_for_beside_thousands_of_open_files(program: Process) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1100):
            stack.callback(os.close, os.dup(0))
        program.start()
        program.stop()
    assert program.code == -signal.SIGTERM


def test_sigterm_ends_what_a_shell_started_in_the_background() -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        end_on_sigterm()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def test_a_loop_goes_on_while_one_comes_goes_and_comes_again(program: Process) -> None:
    async with program:
        first = program.identity
        await program.again()
        assert program.identity != first
        assert program.starts == 2
        program.send(signal.SIGINT)
        assert await program.wait() in (-signal.SIGINT, 1)
        assert not program.works


def test_a_program_that_runs_is_not_started_twice(program: Process) -> None:
    program.start()
    found = program.identity
    program.start()
    assert (program.identity, program.starts) == (found, 1)


def test_a_word_of_an_earlier_start_does_not_make_it_ready(program: Process) -> None:
    program.start()
    program.kill()
    program.command = ["sh", "-c", "echo again"]
    with pytest.raises(ProgramFailed, match=r"a ended at once: its log .*\n  up\n  again"):
        program.start()
    assert program.output == "again\n"


def test_a_frozen_program_does_nothing_until_it_is_thawed(program: Process) -> None:
    program.command = ["sh", "-c", "echo up; read line < $0; echo more", str(program.folder / "gate")]
    os.mkfifo(program.folder / "gate")
    program.start()
    program.freeze()
    state = Path(f"/proc/{program.pid}/stat")
    program.wait_ready(lambda: state.read_text().rpartition(") ")[2][0] == "T")
    program.thaw()
    (program.folder / "gate").write_text("\n")
    program.wait_ready(lambda: "more" in program.output or program.code == 0)


def test_another_process_finds_and_ends_it(tmp_path: Path) -> None:
    program = Process("a", WAITS, tmp_path, ready="up", outlive=True)
    program.start()
    other = f"{STARTER}print(process.pid); process.kill()"
    done = subprocess.run(
        [sys.executable, "-c", other, str(tmp_path), "1"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 0
    assert program.code == -signal.SIGKILL


def test_a_stranger_with_the_same_pid_is_left_alone(program: Process, tmp_path: Path) -> None:
    program.start()
    stranger = program.identity
    assert stranger is not None
    earlier = {"pid": stranger.pid, "started": stranger.started - 1}
    (tmp_path / "b.json").write_text(json.dumps(earlier))
    other = Process("b", WAITS, tmp_path, outlive=True)
    assert other.identity is None
    other.stop(0.0)
    assert not send(Identity(**earlier), signal.SIGKILL)
    assert program.identity == stranger
    with pytest.raises(ProgramFailed, match="b does not run: start it first"):
        other.kill()


def test_one_that_ends_at_once_is_told_with_the_end_of_its_log(program: Process) -> None:
    program.command = ["sh", "-c", "seq 100; echo 'cannot listen' >&2; exit 3"]
    with pytest.raises(ProgramFailed) as failure:
        program.start()
    lines = str(failure.value).splitlines()
    assert lines[0] == f"a ended at once: its log {program.log} ends with"
    assert lines[-2:] == ["  100", "  cannot listen"]
    assert len(lines) == 16


def test_one_that_is_never_ready_is_told_with_its_log(program: Process) -> None:
    program.start()
    with pytest.raises(ProgramFailed, match=r"a was not ready after 0\.1 s: its log .* ends with\n  up"):
        program.wait_ready(lambda: False, 0.1)


def test_a_dialogue_is_line_by_line_and_ends_with_its_session(tmp_path: Path) -> None:
    script = "sleep 1000 >/dev/null & echo $!; read line; echo '[1]'; echo wrong >&2; exit 3"
    with Dialogue("a", ["sh", "-c", script], tmp_path) as program:
        child = int(program.line())
        with pytest.raises(TooSlow, match="a was not done after 0 s"):
            program.line(0.1)
        program.tell()
        assert program.result() == [1]
        with pytest.raises(ProgramFailed, match=r"a ended with 3: its log .* ends with\n  wrong"):
            program.line()
    wait_for_end(child)


def wait_for_end(pid: int) -> None:
    """Until the process of that pid has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([handle], [], [], PATIENCE)
    os.close(handle)
    assert ended, f"process {pid} lives on"


def test_programs_die_with_the_process_that_started_them(tmp_path: Path) -> None:
    starter = f"{STARTER}process.start(); print(process.pid, flush=True); os.kill(os.getpid(), 9)"
    done = subprocess.run(
        [sys.executable, "-c", starter, str(tmp_path), "0", *WAITS],
        capture_output=True,
        text=True,
        check=False,
    )
    wait_for_end(int(done.stdout))


def test_with_outlive_they_stay(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", f"{STARTER}process.spawn()", str(tmp_path), "1", *WAITS], check=True
    )
    program = Process("a", WAITS, tmp_path, outlive=True)
    assert program.identity
    program.kill()
