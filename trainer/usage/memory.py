"""The memory of this container, by its cgroup: the limit, what is used, and whether the kernel killed for it.

With cgroups of version 1, or `singleProcessOOMKill` of the kubelet, the kernel kills one process, and the
container goes on: only the counter `oom_kill` tells that SIGKILL from any other. It rises before the process
dies. The file is `memory.events` in version 2, `memory.oom_control` in version 1.
"""

from __future__ import annotations

import re
import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RECENT: Final = 10.0
"""Seconds after a kill within which the end of a worker is explained by it."""
NEAR: Final = 0.8
"""The share of the limit from which on the termination message has what is used, in case of a kill."""
UNLIMITED: Final = 1 << 60
"""Version 1 writes a number about as large where there is no limit."""
KILLED: Final = frozenset({-signal.SIGKILL, 128 + signal.SIGKILL, 256 - signal.SIGKILL})
"""How a worker ends that was killed; the latter two if a shell or a wrapper passes it on."""
CHILD_KILLED: Final = re.compile(
    r"DataLoader worker .*(killed by signal: Killed|exited unexpectedly)|BrokenProcessPool"
)
"""The last line of a worker that failed because a process which it had started was killed."""
ROOT: Final = Path("/sys/fs/cgroup")
OWN: Final = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Cgroup:
    """The files of one cgroup."""

    events: Path
    most: Path

    def kills(self) -> int | None:
        """Return how many processes were killed in it for want of memory; None if it does not say."""
        found = re.search(r"^oom_kill (\d+)$", _text(self.events), re.MULTILINE)
        return int(found[1]) if found else None

    def limit(self) -> int | None:
        """Return its limit in bytes, None if it has none."""
        found = _number(self.most)
        return found if found is not None and found < UNLIMITED else None

    def working_set(self) -> int | None:
        """Return what is charged to it but for file pages that were not used lately, as the kubelet counts;
        None if it does not say.
        """
        charged = _number(self._file("memory.current", "memory.usage_in_bytes"))
        name = "inactive_file" if self._is_v2 else "total_inactive_file"
        unused = re.search(rf"^{name} (\d+)$", _text(self._file("memory.stat", "memory.stat")), re.MULTILINE)
        return None if charged is None or unused is None else max(0, charged - int(unused[1]))

    def peak(self) -> int | None:
        """Return the most that was ever charged to it, all page cache included; None before Linux 5.19, and
        with version 1.
        """
        return _number(self._file("memory.peak", "memory.peak"))

    def pids(self) -> frozenset[int]:
        """Return the processes in it and below it, none if it does not say."""
        texts = (_text(file) for file in self.most.parent.rglob("cgroup.procs"))
        return frozenset(int(line) for text in texts for line in text.split())

    @property
    def _is_v2(self) -> bool:
        return self.most.name == "memory.max"

    def _file(self, v2: str, v1: str) -> Path:
        return self.most.with_name(v2 if self._is_v2 else v1)


class Kills:
    """Whether the kernel killed in the last seconds; `look` is called every second or so."""

    def __init__(self, cgroup: Cgroup | None) -> None:
        self.cgroup = cgroup
        self._seen: deque[tuple[float, int]] = deque()

    def look(self, now: float) -> None:
        """Read the counter."""
        count = self.cgroup.kills() if self.cgroup else None
        if count is None:
            return
        self._seen.append((now, count))
        while len(self._seen) > 1 and self._seen[1][0] <= now - RECENT:
            self._seen.popleft()

    def recent(self, now: float) -> bool:
        """Whether there was a kill within RECENT, or since the first look."""
        self.look(now)
        return bool(self._seen) and self._seen[-1][1] > self._seen[0][1]


def cgroup(root: Path = ROOT, own: Path = OWN) -> Cgroup | None:
    """Return the cgroup of this process that limits memory; None where there is none that can be read."""
    return next((found for found in _candidates(root, own) if found.kills() is not None), None)


def is_by_kill(code: int, message: str) -> bool:
    """Whether a worker ended because it, or a process of its own, was killed."""
    return code in KILLED or (code > 0 and bool(CHILD_KILLED.search(message)))


def describe(used: int, limit: int | None) -> str:
    """Return what is used, in words."""
    return f"{_mebibytes(used)} of {_mebibytes(limit)}" if limit else _mebibytes(used)


def is_near(used: int, limit: int | None) -> bool:
    """Whether so much is used that a kill may follow."""
    return limit is not None and used >= NEAR * limit


def _candidates(root: Path, own: Path) -> Iterator[Cgroup]:
    """The places of this process' cgroup: by its path, and as containers see it, at the root of the mount."""
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        inside = path.lstrip("/")
        if "memory" in controllers.split(","):
            for folder in (root / "memory" / inside, root / "memory"):
                yield Cgroup(folder / "memory.oom_control", folder / "memory.limit_in_bytes")
        elif not controllers:
            for folder in (root / inside, root):
                yield Cgroup(folder / "memory.events", folder / "memory.max")


def _text(path: Path) -> str:
    """Return the text of a file, "" where it cannot be read: not every kernel has every file."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    """Return the number in a file, None where there is none."""
    text = _text(path).strip()
    return int(text) if text.isascii() and text.isdecimal() else None


def _mebibytes(amount: int) -> str:
    return f"{-(-amount >> 20)}Mi"
