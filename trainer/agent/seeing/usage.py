"""Cores and resident memory used by the workers' process trees."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil

from elasticjob.api.rpc.nodes import Usage

TICKS: Final = os.sysconf("SC_CLK_TCK")


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


def look_at(pid: int) -> tuple[bool, float] | None:
    """Return whether a process is stopped (SIGSTOP), and its seconds of CPU; None if it ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[0] == b"T", (int(fields[11]) + int(fields[12])) / TICKS


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
