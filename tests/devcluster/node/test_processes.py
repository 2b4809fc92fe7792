"""The supervisor: what it starts, what it reports, and that nothing outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from elasticjob.devcluster.node.container import supervisor
from elasticjob.devcluster.node.container.logs import plain
from elasticjob.devcluster.node.container.processes import LOST, CannotStart, End, Nursery, Order, Process
from elasticjob.trainer.usage.footprint import KEEPER, PATIENCE, Footprint
from lab.waiting import until
from tests.kit.devcluster.live import is_alive


@pytest.fixture
async def nursery() -> AsyncIterator[Nursery]:
    async with Nursery() as running:
        yield running


async def start(nursery: Nursery, log: Path, *argv: str, memory: int = 0, cwd: str = "/") -> Process:
    env = {"PATH": "/usr/bin:/bin"}
    return await nursery.start(Order(argv=argv, env=env, cwd=cwd, log=str(log), memory=memory))


def logged(log: Path) -> bytes:
    return b"".join(plain(log.read_bytes().splitlines()))


@pytest.mark.parametrize(
    ("script", "end"),
    [("exit 0", End(0)), ("exit 7", End(7)), ("kill -9 $$", End(137)), ("kill -2 $$", End(130))],
)
async def test_ends(nursery: Nursery, tmp_path: Path, script: str, end: End) -> None:
    process = await start(nursery, tmp_path / "log", "sh", "-c", script)
    assert await process.ended == end


async def test_log_is_complete_when_the_end_is_told(nursery: Nursery, tmp_path: Path) -> None:
    process = await start(nursery, tmp_path / "log", "sh", "-c", "seq 1 20000; printf end")
    assert await process.ended == End(0)
    assert logged(tmp_path / "log") == b"".join(b"%d\n" % n for n in range(1, 20001)) + b"end"


async def test_long_lines_are_written_in_parts(nursery: Nursery, tmp_path: Path) -> None:
    process = await start(nursery, tmp_path / "log", sys.executable, "-c", "print('x' * 100_000)")
    await process.ended
    assert logged(tmp_path / "log") == b"x" * 100_000 + b"\n"


async def test_log_that_grows_too_long_begins_anew(nursery: Nursery, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = "for n in range(5000): print('x' * 100, n)"
    order = Order(argv=(sys.executable, "-c", script), env={}, cwd="/", log=str(log), log_limit=200_000)
    await (await nursery.start(order)).ended
    assert logged(log).endswith(b" 4999\n")
    assert log.stat().st_size <= 200_000
    assert (tmp_path / "log.old").stat().st_size <= 200_000


@pytest.mark.parametrize(
    ("argv", "cwd", "message"),
    [
        (("no-such",), "/", 'exec: "no-such": executable file not found in \\$PATH'),
        (("/no/such",), "/", 'exec: "/no/such": No such file or directory'),
        (("/etc",), "/", 'exec: "/etc": Permission denied'),
        (("true",), "/no/folder", 'working directory "/no/folder" does not exist'),
    ],
)
async def test_what_cannot_start(
    nursery: Nursery, tmp_path: Path, argv: tuple[str, ...], cwd: str, message: str
) -> None:
    with pytest.raises(CannotStart, match=message):
        await start(nursery, tmp_path / "log", *argv, cwd=cwd)


async def test_descendants_end_with_the_first_process(nursery: Nursery, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"(setsid sleep 600 & echo $! > {pids}); exit 0"
    process = await start(nursery, tmp_path / "log", "sh", "-c", script)
    assert await process.ended == End(0)
    assert not is_alive(int(pids.read_text()))


async def test_signals_go_to_the_first_process(nursery: Nursery, tmp_path: Path) -> None:
    process = await start(nursery, tmp_path / "log", "sleep", "600")
    process.signal(signal.SIGTERM)
    assert await process.ended == End(143)


async def test_an_end_is_told_to_who_speaks_to_the_ended(nursery: Nursery, tmp_path: Path) -> None:
    process = await start(nursery, tmp_path / "log", "sleep", "600")
    keeper = parent_of(process.pid)
    os.kill(process.pid, signal.SIGINT)
    while is_alive(keeper):
        time.sleep(0.01)  # noqa: ASYNC251 - the event loop is to hear nothing meanwhile
    process.kill()
    assert await process.ended == End(130)


async def test_an_order_that_comes_with_the_start_is_followed(nursery: Nursery, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        order = Order(
            argv=("sleep", "600"), env={"PATH": "/usr/bin:/bin"}, cwd="/", log=str(tmp_path / "log")
        )
        ours.sendall(msgspec.json.encode(order) + b'\n{"kill": true}\n')
        keeping = await asyncio.create_subprocess_exec(
            sys.executable, "-c", KEEP, str(theirs.fileno()), pass_fds=(theirs.fileno(),)
        )
        assert await keeping.wait() == 0
        assert b'"code": 137' in ours.recv(4096)


KEEP = "import socket, sys; from elasticjob.devcluster.node.container.supervisor import keep; "
KEEP += "keep(socket.socket(fileno=int(sys.argv[1])), lambda argv, env: None)"


async def test_leaving_the_nursery_kills_everything(tmp_path: Path) -> None:
    async with Nursery() as nursery:
        process = await start(nursery, tmp_path / "log", "sh", "-c", "trap '' TERM; sleep 600")
        pid = process.pid
    assert await process.ended == End(137)
    assert not is_alive(pid)


async def test_container_dies_with_its_supervisor(nursery: Nursery, tmp_path: Path) -> None:
    process = await start(nursery, tmp_path / "log", "sleep", "600")
    os.kill(parent_of(process.pid), signal.SIGKILL)
    assert await process.ended == LOST
    await until(lambda: not is_alive(process.pid))


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def variables_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_text().split("\0")


async def test_memory_limit(nursery: Nursery, tmp_path: Path) -> None:
    script = "held = bytearray(100 << 20)\nimport time; time.sleep(600)"
    process = await start(nursery, tmp_path / "log", sys.executable, "-c", script, memory=50 << 20)
    assert await process.ended == End(137, oom=True)


async def test_an_agent_counts_the_memory_that_the_limit_counts(nursery: Nursery, tmp_path: Path) -> None:
    """All of a container, also what an agent in it has not started: its keeper is named to it."""
    script = "sleep 600 & sleep 600 & echo started; wait"
    process = await start(nursery, tmp_path / "log", "sh", "-c", script, memory=1 << 30)

    await until(lambda: len(list(supervisor.tree(process.pid))) == 2, "both run")
    keeper = parent_of(process.pid)
    assert f"{KEEPER}={keeper}" in variables_of(process.pid)
    environment = {KEEPER: str(keeper)}
    times = iter((0.0, PATIENCE, PATIENCE))
    used = Footprint(None, environment, clock=times.__next__, me=max(supervisor.tree(process.pid))).read()
    by_limit = sum(supervisor.proportional(pid) for pid in supervisor.tree(keeper))
    assert used is not None
    assert abs(used - by_limit) < 1 << 20
    assert used > 3 * 50_000
    process.kill()
    await process.ended


async def test_limit_below_use_is_refused_and_changes_nothing(nursery: Nursery, tmp_path: Path) -> None:
    process = await start(nursery, tmp_path / "log", "sleep", "600", memory=1 << 30)
    assert await process.limit(1) is False
    assert await process.limit(1 << 29) is True
    process.kill()
    await process.ended
    assert await process.limit(1) is False


LIBC_OWN = 0b11 << 31
"""Signals 32 and 33 belong to the C library: nobody can set them, they stay as our starter left them."""


async def test_signals_ignored_by_us_are_not_ignored_by_containers(nursery: Nursery, tmp_path: Path) -> None:
    status = "grep SigIgn /proc/self/status"
    process = await start(nursery, tmp_path / "log", "sh", "-c", status)
    await process.ended
    ignored = int(logged(tmp_path / "log").split()[1], 16)
    assert ignored & ~LIBC_OWN == 0
