"""Worker processes, their output and their folder: nothing is lost, grows without bound or hangs."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Self

import psutil
import pytest

from elasticjob.trainer.agent.group import Event, ProcessEnd, WarmReady
from elasticjob.trainer.agent.processes import warm
from elasticjob.trainer.agent.processes.folder import PREFIX, own_folder
from elasticjob.trainer.agent.processes.logs import LONGEST, Stream, cut
from elasticjob.trainer.agent.processes.workers import Workers
from elasticjob.trainer.agent.script import Script
from lab.waiting import PATIENCE, until


@pytest.mark.parametrize(
    ("text", "lines", "rest"),
    [
        (b"", [], b""),
        (b"one\ntwo\nthr", [b"one\n", b"two\n"], b"thr"),
        (b"10%\r20%\r30%", [b"10%\r", b"20%\r"], b"30%"),
        (b"dos\r\nunix\n\n", [b"dos\r\n", b"unix\n", b"\n"], b""),
        (b"what comes next?\r", [], b"what comes next?\r"),
        (b"x" * (LONGEST + 1), [b"x" * (LONGEST + 1)], b""),
    ],
)
def test_output_is_cut_at_line_ends_and_progress_bars(text: bytes, lines: list[bytes], rest: bytes) -> None:
    assert cut(text) == (lines, rest)


@pytest.mark.parametrize(
    ("prefixes", "output", "shown", "reason"),
    [
        ((b"[0]: ", b"[0]: "), b"one\nand two", b"[0]: one\n[0]: and two", "and two"),
        ((b"1 ", b"2 "), b"one\ntwo\n", b"1 one\n2 two\n", "two"),
    ],
    ids=["a line that does not end", "a rank that changes"],
)
def test_stream_passes_each_line_on_with_the_rank_that_the_worker_has_then(
    prefixes: tuple[bytes, ...], output: bytes, shown: bytes, reason: str
) -> None:
    sink, ended, ranks = io.BytesIO(), threading.Event(), iter(prefixes)
    stream = Stream(sink=sink, file=None, prefix=lambda: next(ranks), ended=ended.set)
    os.write(stream.write, output)
    stream.on_start()
    assert ended.wait(PATIENCE)
    assert (sink.getvalue(), stream.reason) == (shown, reason)


def test_full_disk_costs_the_output_and_not_the_worker(caplog: pytest.LogCaptureFixture) -> None:
    full, ended = Path("/dev/full"), threading.Event()
    with full.open("wb", buffering=0) as sink:
        stream = Stream(sink=sink, file=full, prefix=None, ended=ended.set)
        for _ in range(10):
            os.write(stream.write, b"x" * 60_000 + b"\n")
        os.write(stream.write, b"the end\n")
        stream.on_start()
        assert ended.wait(PATIENCE)
    assert stream.reason == "the end"
    assert sorted(record.getMessage() for record in caplog.records) == [
        "/dev/full gets no more of a worker's output: [Errno 28] No space left on device",
        "a worker's output is not passed on any more: [Errno 28] No space left on device",
    ]


def test_stream_without_a_prefix_passes_on_what_is_not_a_line_yet() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as sink, os.fdopen(reading, "rb", buffering=0) as terminal:
        stream = Stream(sink=sink, file=None, prefix=None, ended=lambda: None)
        os.write(stream.write, b"password: ")
        assert terminal.read(100) == b"password: "
        stream.on_start()
        assert stream.drain(PATIENCE)
        assert stream.reason == "password:"


LOGS = ("elasticjob.trainer.agent.processes.logs",)
"""What a warm process imports where that does not matter: little."""


class Node:
    """Workers of a script, and what they said: forks of a warm process with `preloads`, or started cold.

    With a `command` it is that which starts them. `environment` comes beside that of this process.
    """

    def __init__(
        self,
        folder: Path,
        source: str,
        *arguments: str,
        preloads: tuple[str, ...] | None = None,
        command: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.folder, self.environment = folder, {**os.environ, **(environment or {})}
        script = folder / "train.py"
        script.write_text(source)
        program = command or (*(() if preloads else (sys.executable,)), str(script), *arguments)
        self.workers = Workers(
            Script(program[0], program[1:], python=preloads is not None),
            emit=self.events.put_nowait,
            preloads=preloads,
            prefix=lambda _: "",
            log_file=lambda slot, name: folder / f"{slot}-{name}.log",
            shown=lambda _slot, _name: False,
            folder=folder,
        )

    async def __aenter__(self) -> Self:
        self.workers.prepare(self.environment)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.workers.close()

    def spawn(self, *slots: int, **variables: str) -> None:
        """Start workers."""
        for slot in slots:
            self.workers.spawn(slot, self.environment | variables, self.folder / f"error-{slot}.json")

    async def end(self) -> ProcessEnd:
        """Return how the next worker to end has ended."""
        async with asyncio.timeout(PATIENCE):
            while not isinstance(event := await self.events.get(), ProcessEnd):
                pass
        return event

    async def ends(self, many: int) -> set[tuple[int, int]]:
        """Return the slots and exit codes of `many` workers."""
        ended = [await self.end() for _ in range(many)]
        return {(each.slot, each.code) for each in ended}

    def output(self, slot: int) -> str:
        """Return what a worker has printed so far."""
        file = self.folder / f"{slot}-stdout.log"
        return file.read_text() if file.exists() else ""

    async def said(self, enough: str = "") -> list[str]:
        """Return the words that worker 0 has printed, once `enough` is among its lines."""
        await until(
            lambda: enough in self.output(0) and self.output(0).endswith("\n"), f"the worker says {enough}"
        )
        return self.output(0).split()


async def test_all_output_is_there_when_the_workers_are_closed(tmp_path: Path) -> None:
    async with Node(tmp_path, "for i in range(20000): print(i)") as node:
        assert isinstance(await node.events.get(), WarmReady)
        node.spawn(0)
        assert await node.events.get() == ProcessEnd(0, 0)
    assert node.output(0).split() == [str(i) for i in range(20000)]


async def test_warm_process_that_dies_at_once_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(command: list[str], **settings: object) -> subprocess.Popen[bytes]:
        return popen([sys.executable, "-c", "import os; os._exit(1)"], **settings)  # type: ignore[no-any-return,call-overload]  # as the caller has it

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", die)
    async with Node(tmp_path, "", preloads=("torch",)) as node:
        async with asyncio.timeout(PATIENCE):
            assert isinstance(await node.events.get(), WarmReady)
        node.spawn(0)
        assert (await node.end()).code == -9


async def test_warm_process_takes_many_orders_and_large_environments_while_it_is_busy(tmp_path: Path) -> None:
    large = {"PAD": "x" * 100_000, "PAD2": "y" * 100_000, "PAD3": "z" * 100_000}
    source, slots = "import os; print(len(os.environ['PAD']), flush=True)", range(80)
    async with Node(tmp_path, source, preloads=LOGS, environment=large) as node:
        node.spawn(*slots)  # before it has imported anything
        assert await node.ends(len(slots)) == {(slot, 0) for slot in slots}
    assert {node.output(slot) for slot in slots} == {"100000\n"}


@pytest.mark.parametrize(
    ("source", "cold"),
    [
        ("", False),
        ("import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()", True),
    ],
    ids=["an import without threads", "an import that starts one"],
)
async def test_no_worker_is_forked_from_a_process_with_threads(
    tmp_path: Path, source: str, cold: bool
) -> None:
    (tmp_path / "framework.py").write_text(source)
    script = (
        "import os, sys\n"
        "print('framework' in sys.modules, os.getpgid(0) == os.getpid(), sys.argv[1:])\n"
        "os.fstat(int(os.environ['ELASTICJOB_CHANNEL_FD']))\n"
        "sys.exit(3)"
    )
    path = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    async with Node(tmp_path, script, "--fast", preloads=("framework",), environment=path) as node:
        node.spawn(0, 1)
        assert await node.ends(2) == {(0, 3), (1, 3)}
    assert {node.output(slot) for slot in (0, 1)} == {f"{not cold} True ['--fast']\n"}


FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda number, frame: print("asked", own.poll(), flush=True))
own = subprocess.Popen(["sleep", "1000"])
others = [subprocess.Popen(["sleep", "1000"], **{how: 0 if how == "process_group" else True})
          for how in ("process_group", "start_new_session")]
daemon = int(subprocess.check_output(["sh", "-c", "setsid sleep 1000 >/dev/null & echo $!"]))
print(*(each.pid for each in (own, *others)), daemon, flush=True)
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
while True:
    time.sleep(1000)
"""
"""A worker with children in its group, in one and in a session of their own, and a daemon."""


async def nursery_dies(node: Node) -> None:
    (parent,) = {psutil.Process(pid).ppid() for pid in node.workers.pids}
    os.kill(psutil.Process(parent).ppid(), signal.SIGKILL)


async def parent_dies(node: Node) -> None:
    os.kill(psutil.Process(node.workers.pids[0]).ppid(), signal.SIGKILL)


async def killed(node: Node) -> None:
    node.workers.signal(0, signal.SIGKILL)


@pytest.mark.parametrize("preloads", [None, LOGS], ids=["cold", "warm"])
@pytest.mark.parametrize(
    ("arguments", "blow", "code"),
    [((), killed, -9), ((), parent_dies, -9), ((), nursery_dies, -9), (("3",), None, 3), (("0",), None, 0)],
    ids=["killed", "its parent killed", "the warm process killed", "failed", "ended well, after its grace"],
)
async def test_nothing_of_a_worker_outlives_it(
    tmp_path: Path,
    preloads: tuple[str, ...] | None,
    arguments: tuple[str, ...],
    blow: Callable[[Node], Awaitable[None]] | None,
    code: int,
) -> None:
    before = await asyncio.create_subprocess_exec("sleep", "1000")
    async with Node(tmp_path, FAMILY, *arguments, preloads=preloads) as node:
        node.spawn(0)
        family = [int(word) for word in await node.said()]
        if blow is not None:
            await blow(node)
        assert await node.ends(1) == {(0, code)}
        assert [pid for pid in family if psutil.pid_exists(pid)] == []
    assert before.returncode is None, "what ran before is none of ours"
    before.kill()
    await before.wait()


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "raise ValueError", "time.sleep(1000)"])
async def test_no_named_memory_of_a_worker_outlives_it(tmp_path: Path, end: str) -> None:
    source = (
        "import multiprocessing, os, time\n"
        "from multiprocessing.shared_memory import SharedMemory\n"
        "memory, lock = SharedMemory(create=True, size=4096), multiprocessing.get_context('spawn').Lock()\n"
        "print(memory.name, lock._semlock.name.replace('/', 'sem.'), flush=True)\n"
        f"{end}\n"
    )
    async with Node(tmp_path, source, preloads=("elasticjob",)) as node:
        node.spawn(0)
        names = [Path("/dev/shm", name) for name in await node.said("\n")]
        node.workers.signal(0, signal.SIGKILL)
        await node.ends(1)
        assert [name for name in names if name.exists()] == []


@pytest.mark.parametrize("preloads", [None, LOGS], ids=["cold", "warm"])
async def test_a_parent_has_the_workers_of_its_slot_one_after_the_other(
    tmp_path: Path, preloads: tuple[str, ...] | None
) -> None:
    source = "import os; print(os.environ['LIFE'] + ':', os.getppid(), len(os.listdir('/dev/fd')))"
    seen: list[tuple[int, int]] = []
    async with Node(tmp_path, source, preloads=preloads) as node:
        for life in range(4):
            if life == 3:
                os.kill(seen[-1][0], signal.SIGKILL)  # the parent, which has no worker
            node.spawn(0, LIFE=str(life))
            assert await node.ends(1) == {(0, 0)}
            its_parent, files = map(int, (await node.said(f"{life}: "))[-2:])
            seen.append((its_parent, files))
    first, again, third, other = seen
    assert first == again == third
    assert first[0] != other[0]
    assert first[1] == other[1], "a worker has descriptors of the one before"

    await until(lambda: not any(psutil.pid_exists(each) for each, _ in seen), "the parents have ended")


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_signal_is_for_the_script_whatever_wraps_it(tmp_path: Path, wrapped: bool) -> None:
    shell = ("sh", "-c", f"{sys.executable} {tmp_path}/train.py; true") if wrapped else ()
    preloads = None if wrapped else ("elasticjob",)
    async with Node(tmp_path, FAMILY, preloads=preloads, command=shell) as node:
        node.spawn(0)
        await node.said()
        node.workers.signal(0, signal.SIGTERM)
        if wrapped:
            assert "asked" in "".join(await node.said("asked"))
        else:
            assert (await node.said("asked"))[-2:] == ["asked", "None"], "its child lives"


async def test_a_worker_that_says_what_nobody_can_read_is_killed_and_it_is_said_why(tmp_path: Path) -> None:
    source = (
        "import os, socket, time\n"
        "channel = socket.socket(fileno=int(os.environ['ELASTICJOB_CHANNEL_FD']))\n"
        "channel.sendall(b'nonsense\\n')\n"
        "time.sleep(1000)"
    )
    async with Node(tmp_path, source) as node:
        node.spawn(0)
        event = await node.end()
    assert (event.slot, event.code) == (0, -9)
    assert event.message.startswith("killed: its agent cannot read what it says: JSON is malformed")


def with_a_short_line() -> str:
    """Start a warm process to whose line few orders fit; return how an agent finds it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the kernel makes it its minimum
    with theirs:
        theirs.set_inheritable(True)
        command = [sys.executable, "-m", warm.__name__, str(os.getpid()), str(theirs.fileno())]
        pid = os.posix_spawn(sys.executable, command, os.environ)
    return f"{ours.detach()}:{pid}"


async def test_orders_wait_while_the_line_to_the_warm_process_is_full(tmp_path: Path) -> None:
    beside, slots = {warm.BESIDE: with_a_short_line()}, range(20)
    async with Node(tmp_path, "", preloads=LOGS, environment=beside) as node:
        node.spawn(*slots)
        assert await node.ends(len(slots)) == {(slot, 0) for slot in slots}


def test_the_agents_folder_is_removed_with_its_files(tmp_path: Path) -> None:
    with own_folder(tmp_path) as folder:
        (folder / "error-0.json").write_text("{}")
    assert list(tmp_path.iterdir()) == []


def test_folders_of_killed_agents_are_swept_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    killed = tmp_path / f"{PREFIX}killed"
    killed.mkdir()
    (killed / "error-0.json").write_text("{}")
    (tmp_path / "else").mkdir()
    with own_folder(tmp_path) as first, own_folder(tmp_path) as second:
        assert {path.name for path in tmp_path.iterdir()} == {first.name, second.name, "else"}
