"""Cores that the workers' process trees use, and what they do: compute, read, or wait."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from elasticjob.api.rpc.environment import CPUS

ROOT: Final = Path("/sys/fs/cgroup")
TICKS: Final = os.sysconf("SC_CLK_TCK")
LEAST_CPU: Final = 0.05  # cores: what threads use that only look whether there is something to do
LEAST_READ: Final = 256 * 1024  # bytes a second: the same, of those that measure the machine
STORAGE: Final = (b"request_wait_answer", b"fuse_", b"rpc_", b"nfs_", b"cifs_", b"ceph_", b"folio_")
"""Where the kernel waits for files, as /proc names it: some file systems can be interrupted in it."""
DATA: Final = (
    *(b"poll_schedule_timeout", b"do_select", b"do_epoll_wait", b"ep_poll", b"pipe_", b"anon_pipe_"),
    *(b"wait_woken", b"sk_wait_data", b"inet_csk_accept", b"unix_stream", b"do_wait"),
)
"""Where it waits for sockets, pipes and children; who waits for a lock is in futex_…"""


def limit(environment: Mapping[str, str], root: Path = ROOT) -> float | None:
    """Return the cores that this container may use: as the operator says (limit, else request), else by its
    cgroup; None where neither limits them.
    """
    with suppress(ValueError):
        return float(environment[CPUS]) if environment.get(CPUS) else _quota(root)
    return None


def _quota(root: Path) -> float | None:
    """Return the quota of a cgroup in cores; ValueError where there is none."""
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with suppress(OSError):
            quota, period = " ".join((root / file).read_text() for file in files).split()
            return int(quota) / int(period) if int(quota) > 0 else None
    return None


class Meter:
    """Samples process trees; cores are averaged since the previous sample."""

    def __init__(self) -> None:
        self._known: dict[int, psutil.Process] = {}

    def cores(self, roots: Iterable[int]) -> float:
        """Return the cores that `roots` and their descendants use; processes that end meanwhile use none."""
        trees = {process.pid: process for root in roots for process in tree(root)}
        self._known = {pid: self._known.get(pid, process) for pid, process in trees.items()}
        return round(sum(read(process) for process in self._known.values()), 3)


def look_at(pid: int) -> tuple[bool, float, int] | None:
    """Return whether a process is stopped (SIGSTOP), its seconds of CPU, and its pid; None if it ended."""
    found = stat(f"/proc/{pid}")
    return found and (found[0] == b"T", found[1], pid)


class Work(NamedTuple):
    """What a worker and its processes have done till now, and whether one waits for storage or for a core.

    `data`: the main thread waits for a socket, a pipe or a process.
    """

    pids: frozenset[int] = frozenset()
    cpu: float = 0.0  # seconds
    read: int = 0  # bytes
    storage: bool = False
    runs: bool = False
    data: bool = False

    def since(self, before: Work, seconds: float) -> bool:
        """Whether there was work since `before`, so many seconds ago."""
        if self.pids != before.pids or self.storage or self.runs:
            return True
        used, read = self.cpu - before.cpu, self.read - before.read
        return used >= LEAST_CPU * seconds or read >= LEAST_READ * seconds


def work_of(root: int) -> Work:
    """Return the work of a process and its descendants; those that end meanwhile are skipped.

    A millisecond or two for a hundred threads.
    """
    pids, cpu, bytes_, states, data = [root], 0.0, 0, set[bytes](), False
    for pid in pids:
        folder = f"/proc/{pid}"
        state, used = stat(folder) or (b"", 0.0)
        cpu, bytes_ = cpu + used, bytes_ + bytes_read(folder)
        waits = content(f"{folder}/wchan") if state == b"S" else b""
        states.add(b"D" if waits.startswith(STORAGE) else state)
        data = waits.startswith(DATA) if pid == root else data
        for thread in threads(folder):
            states.add((stat(thread) or (b"", 0.0))[0])
            pids += map(int, content(f"{thread}/children").split())
    return Work(frozenset(pids), cpu, bytes_, b"D" in states, b"R" in states, data)


def stat(folder: str) -> tuple[bytes, float] | None:
    """Return the state and the seconds of CPU of a process or thread, None if it ended."""
    text = content(f"{folder}/stat")
    fields = text[text.rfind(b")") + 2 :].split()
    return (fields[0], (int(fields[11]) + int(fields[12])) / TICKS) if text else None


def threads(folder: str) -> list[str]:
    """Return the folders of the threads of a process, none if it ended."""
    try:
        return [f"{folder}/task/{thread}" for thread in os.listdir(f"{folder}/task")]
    except OSError:
        return []


def bytes_read(folder: str) -> int:
    """Return how many bytes a process has read from files and devices, 0 where that may not be known."""
    counts = dict(line.split(b": ") for line in content(f"{folder}/io").splitlines())
    return int(counts.get(b"rchar", 0)) + int(counts.get(b"read_bytes", 0))


def content(path: str) -> bytes:
    """Return what a file of /proc says, empty without it or without the right to look."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(file, 65_536)
    except OSError:
        return b""
    finally:
        os.close(file)


def tree(root: int) -> list[psutil.Process]:
    """Return a process and its descendants."""
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def read(process: psutil.Process) -> float:
    """Return the cores that one process uses, 0 if it has ended."""
    try:
        return process.cpu_percent() / 100
    except psutil.NoSuchProcess:
        return 0.0
