"""The agents of a launch: their output is passed on, their ends are told apart."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from elasticjob.api.logs import read

TAIL: Final = 30  # lines of output that an error has
LAST_LINES: Final = 2.0  # seconds that the rest of the output may take
OWN: Final = "elasticjob "
"""The beginning of the lines that agents and masters say on a terminal."""


@contextmanager
def output() -> Iterator[tuple[int, int]]:
    """Lend a pipe for the output of all agents; the writing end is closed by whoever got it."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        yield reading, writing
    finally:
        os.close(reading)
        with suppress(OSError):
            os.close(writing)


@dataclass
class Running:
    """The agents of a job, and the output of all of them."""

    reading: int
    folder: Path
    agents: list[int] = field(default_factory=list)
    ended: dict[int, int] = field(default_factory=dict)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL))
    _rest: str = ""

    def wait(self) -> None:
        """Pass the output on until all agents have ended."""
        with pidfds(self.agents) as watched:
            self._pass_on_until(lambda: not watched, watched, None)
        self._pass_on_until(lambda: False, {}, time.monotonic() + LAST_LINES)

    def stop(self, why: str) -> None:
        """End all agents, which end their workers in their own grace; another interrupt kills them."""
        left = [pid for pid in self.agents if pid not in self.ended]
        for pid in left:
            os.kill(pid, signal.SIGTERM)
        if left:
            print(f"{OWN.strip()}: the launch ends, with all its workers ({why})", flush=True)
        with pidfds(left) as watched:
            with suppress(KeyboardInterrupt):
                self._pass_on_until(lambda: not watched, watched, None)
            for pid in watched.values():
                os.kill(pid, signal.SIGKILL)
                self.ended[pid] = os.waitpid(pid, 0)[1]

    def reason(self, returned: bool) -> str:
        """Return why the job failed, empty if it did not: rank 0 has `returned`, and an agent says so."""
        words = [last_words(self.folder / f"end-{node}") for node in range(len(self.agents))]
        completed = any(each.get("reason") == "Completed" for each in words)
        if returned and completed:
            return ""
        well = (None, "Stopped", "Completed")
        failed = (str(each["message"]) for each in words if each.get("reason") not in well)
        codes = ", ".join(str(os.waitstatus_to_exitcode(each)) for each in self.ended.values())
        ended = "the agents of this launch" if len(self.agents) > 1 else "the agent"
        how = f"{ended} ended with exit code {codes}"
        return next(
            failed, f"rank 0 has not returned: it was killed, or ended itself; {how}" if completed else how
        )

    def _pass_on_until(
        self, over: Callable[[], bool], watched: dict[int, int], deadline: float | None
    ) -> None:
        """Pass output on until it ends, or `over` is True; reap the agents that are `watched`."""
        poll = select.poll()
        for each in (self.reading, *watched):
            poll.register(each, select.POLLIN)
        while not over() and (deadline is None or time.monotonic() < deadline):
            patience = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            for ready, _ in poll.poll(patience):
                if ready == self.reading:
                    if not self._read():
                        poll.unregister(self.reading)
                        if not watched:
                            return
                elif ready in watched:
                    pid = watched.pop(ready)
                    self.ended[pid] = os.waitpid(pid, 0)[1]
                    poll.unregister(ready)
                    os.close(ready)

    def _read(self) -> bool:
        """Pass on what has come; False at the end."""
        received = os.read(self.reading, 1 << 16)
        text = received.decode(errors="replace")
        sys.stdout.write(text)
        sys.stdout.flush()
        *lines, self._rest = (self._rest + text).split("\n")
        self.tail.extend(line for line in lines if not line.startswith(OWN) and read(line) is None)
        return bool(received)


@contextmanager
def pidfds(pids: Sequence[int]) -> Iterator[dict[int, int]]:
    """Lend descriptors that are readable when the processes end, with their pids; used ones are taken out."""
    watched = {os.pidfd_open(pid): pid for pid in pids}
    try:
        yield watched
    finally:
        for each in watched:
            os.close(each)


def last_words(path: Path) -> Mapping[str, Any]:
    """Return an agent's last words, nothing if it had none."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
