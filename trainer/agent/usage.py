"""Cores and resident memory used by the workers' process trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import psutil

from elasticjob.api.rpc.nodes import Usage


class Meter:
    """Samples process trees; cores are averaged since the previous sample."""

    def __init__(self) -> None:
        self._known: dict[int, psutil.Process] = {}

    def sample(self, roots: Iterable[int]) -> Usage:
        """Return the usage of `roots` and their descendants; processes that end meanwhile are skipped."""
        trees = {process.pid: process for root in roots for process in tree(root)}
        self._known = {pid: self._known.get(pid, process) for pid, process in trees.items()}
        samples = [reading for process in self._known.values() if (reading := read(process))]
        return Usage(
            cpu=round(sum(cpu for cpu, _ in samples), 3), memory=sum(memory for _, memory in samples)
        )


def stopped_among(pids: Mapping[int, int]) -> frozenset[int]:
    """Return the slots whose process is stopped (SIGSTOP, a debugger)."""
    return frozenset(slot for slot, pid in pids.items() if is_stopped(pid))


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped; False if it has ended."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.NoSuchProcess:
        return False


def tree(root: int) -> list[psutil.Process]:
    """Return a process and its descendants."""
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def read(process: psutil.Process) -> tuple[float, int] | None:
    """Return cores and resident bytes of one process, None if it has ended."""
    try:
        with process.oneshot():
            return process.cpu_percent() / 100, process.memory_info().rss
    except psutil.NoSuchProcess:
        return None
