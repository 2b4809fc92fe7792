"""How much memory a node uses of what its container may use: agent, warm process and workers together.

- In a cgroup of its own, as in a pod, that is the working set, by which the kubelet evicts: all that is
  charged, page cache too, but for file pages that were not used lately. The kernel's peak counts these, too.
- Elsewhere (a laptop, devcluster) it is the sum over the processes. Pages that forks share count once (Pss).
  To read that takes 10 to 30 ms for a process with torch, so it is read rarely: between, and in the first
  seconds, it is estimated from the resident sets, which are an upper bound.

What cannot be read is None, and never 0.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from elasticjob.trainer.usage.memory import Cgroup

PROC: Final = Path("/proc")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
KEEPER: Final = "ELASTICJOB_KEEPER"
"""Names the process above all of a container whose cgroup is not its own: devcluster's, which limits the sum
over the processes below it."""
IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
"""Every kubelet gives it to every container."""
PATIENCE: Final = 10.0
"""Seconds before shared pages are told apart for the first time."""
COST: Final = 0.01
"""The share of time that may be spent on that."""
PSS: Final = re.compile(rb"^Pss:\s+(\d+) kB$", re.MULTILINE)


class Unknown(Exception):
    """A file that must be there cannot be read."""


class Footprint:
    """Reads what is used; `peak` is the most that it has read, None as long as it knows upper bounds only."""

    def __init__(
        self,
        cgroup: Cgroup | None,
        environment: Mapping[str, str],
        *,
        proc: Path = PROC,
        clock: Callable[[], float] = time.monotonic,
        me: int | None = None,
    ) -> None:
        self.peak: int | None = None
        keeper, me = environment.get(KEEPER, ""), me or os.getpid()
        self._proc, self._clock = proc, clock
        self._root, self._above = (int(keeper), True) if keeper.isdecimal() else (me, False)
        in_pod = IN_CLUSTER in environment
        is_ours = cgroup is not None and not self._above and is_own(cgroup, me, proc, in_pod=in_pod)
        self._cgroup = cgroup if is_ours else None
        self._next = clock() + PATIENCE
        self._ratio: float | None = None

    def read(self) -> int | None:
        """Return the bytes that are used now."""
        if self._cgroup is not None:
            used = exact = self._cgroup.working_set()
        else:
            used, exact = self._of_processes()
        if exact is not None:
            self.peak = max(exact, self.peak or 0)
        return used

    @property
    def kernel_peak(self) -> int | None:
        """The most that was ever charged to the cgroup, all page cache included."""
        return self._cgroup.peak() if self._cgroup is not None else None

    def _of_processes(self) -> tuple[int | None, int | None]:
        """What is used, and the same if it is no estimate."""
        try:
            sets = {pid: found for pid in self._pids() if (found := resident(self._proc, pid)) is not None}
        except Unknown:
            return None, None
        total = sum(sets.values())
        if not total:
            return None, None  # not even this process is there
        if (began := self._clock()) < self._next:
            return (total, None) if self._ratio is None else (round(total * self._ratio), None)
        used = sum(min(proportional(self._proc, pid) or size, size) for pid, size in sets.items())
        ended = self._clock()
        self._ratio, self._next = used / total, ended + (ended - began) / COST
        return used, used

    def _pids(self) -> Iterator[int]:
        found = tree(self._root, self._proc)
        if self._above:
            next(found)  # the keeper
        return found


def is_own(cgroup: Cgroup, me: int, proc: Path = PROC, *, in_pod: bool) -> bool:
    """Whether a cgroup is that of a container: it has the first process of its PID namespace. In a pod whose
    containers share that, or are in the machine's, it has the processes around this one, and no others.
    """
    pids = cgroup.pids()
    return 1 in pids or (in_pod and bool(pids) and pids <= {*tree(me, proc), *above(me, proc)})


def tree(root: int, proc: Path = PROC) -> Iterator[int]:
    """Return a process and its descendants, nearest first."""
    found = [root]
    for pid in found:
        yield pid
        found += children(proc, pid)


def above(pid: int, proc: Path = PROC) -> Iterator[int]:
    """Return the ancestors of a process, nearest first."""
    while text := _content(proc / str(pid) / "stat"):
        pid = int(text[text.rfind(b")") + 2 :].split()[1])
        if pid == 0:
            return
        yield pid


def children(proc: Path, pid: int) -> list[int]:
    """Return the children of all threads of a process, none if it has ended."""
    try:
        threads = os.listdir(proc / str(pid) / "task")
    except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
        return []
    except OSError as error:
        raise Unknown(str(error)) from error
    folder = proc / str(pid) / "task"
    return [int(child) for thread in threads for child in _content(folder / thread / "children").split()]


def resident(proc: Path, pid: int) -> int | None:
    """Return the resident set of a process in bytes, None if it has ended. Raises Unknown."""
    fields = _content(proc / str(pid) / "statm").split()
    return int(fields[1]) * PAGE if len(fields) > 1 else None


def proportional(proc: Path, pid: int) -> int | None:
    """Return the same with its part of what is shared; None if that may not be read, or it has ended."""
    try:
        found = PSS.search(_content(proc / str(pid) / "smaps_rollup"))
    except Unknown:
        return None
    return int(found[1]) * 1024 if found else None


def _content(path: Path) -> bytes:
    """What a file of /proc says, empty once its process has ended. Raises Unknown."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
    except OSError as error:
        raise Unknown(str(error)) from error
