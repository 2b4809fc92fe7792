"""What error output says about a worker's end: its reason, and which tracebacks are only echoes.

The reason is the exception's last line; without a traceback, the last line that the program itself wrote.
Logs of torch's C++ code, warnings and the frames after them are none: healthy workers have them, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from os.path import basename
from typing import Final

from elasticjob.trainer.agent.group import PEERS

RANK: Final = re.compile(r"^(?:\[rank\d+\]: ?)+")  # torch's, before each line of a traceback
LOGS: Final = re.compile(
    r"^(?:\[rank\d+\]:)?\[?[EWIVF]\d{4} [\d:.]+ .*\]"  # glog: [E1127 12:00:00.123 Some.cpp:7] [c10d] …
    r"|^[A-Z]+:\d{4}-\d\d-\d\d [\d:]+ \d+:\d+ \S+\.cpp:\d+\]"  # kineto: USDT:2026-11-27 …
    r"|^\S+:\d+: \w*Warning: "
    r"|^Extension modules: "
)
DETAILS: Final = re.compile(
    r"^(?:frame #\d+: |#\d+ |Exception raised from |C\+\+ CapturedTraceback:|nccl\w+Error: |Last error:)"
)
"""Lines that torch adds to its errors, after the one that says what went wrong."""
TRACEBACK: Final = "Traceback (most recent call last)"
FATAL: Final = ("Fatal Python error: ", "RuntimeError: DataLoader worker")
LINKS: Final = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
CAUGHT: Final = re.compile(r"Caught \w+ in DataLoader worker")
LONGEST: Final = 400  # lines of a traceback that are held back
FRAME: Final = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')
OTHERS: Final = re.compile(r"/(?:site|dist)-packages/|/lib/python3|^<frozen |/elasticjob/trainer/")
"""Files whose frames are not the program's own."""


def without_rank(line: str) -> str:
    """Return a line without the rank that torch writes before it."""
    return RANK.sub("", line)


def is_noise(line: str) -> bool:
    """Whether a line is not the program's own."""
    return bool(LOGS.match(line) or DETAILS.match(line)) or not line.strip()


def reason(lines: Sequence[str]) -> str:
    """Return the line of error output that says why a program ended, empty if there is none."""
    own = [line.rstrip() for line in map(without_rank, lines) if not is_noise(line)]
    for at in range(len(own) - 1, -1, -1):
        if own[at].startswith(FATAL):
            return own[at]
        if own[at].startswith(TRACEBACK):
            ends = [line for line in own[at + 1 :] if not line[0].isspace()]
            return with_detail(ends[0], own[own.index(ends[0], at + 1) + 1 :]) if ends else own[-1].strip()
    left = [line for line in own if not line[0].isspace()] or own
    return left[-1].strip() if left else ""


def frame(lines: Sequence[str]) -> str:
    """Return the last frame of the last traceback that is the program's own, empty without a traceback."""
    own = [without_rank(line).rstrip() for line in lines]
    starts = [at for at, line in enumerate(own) if line.startswith(TRACEBACK)]
    after = own[starts[-1] + 1 :] if starts else []
    end = next((at for at, line in enumerate(after) if line and not line[0].isspace()), len(after))
    frames = [found for line in after[:end] if (found := FRAME.match(line))]
    mine = [each for each in frames if not OTHERS.search(each["file"])] or frames
    return f"{basename(mine[-1]['file'])}:{mine[-1]['line']} in {mine[-1]['function']}" if mine else ""


def with_detail(error: str, after: Sequence[str]) -> str:
    """Return an error with what it only announces: the line after a colon, the error of a reading process."""
    if CAUGHT.search(error):
        inner = [
            line for line in after if not line[0].isspace() and not line.startswith(("Original", TRACEBACK))
        ]
        return f"{error} {inner[0]}" if inner else error
    return f"{error} {after[0].strip()}" if error.endswith(":") and after else error


def headline(error: str) -> str:
    """Return the line of an error's text that names its class: of a SyntaxError it comes after the source."""
    lines = [line.rstrip() for line in error.splitlines() if line.strip()]
    named = (line for line in lines if not line[0].isspace() and not line.startswith('File "'))
    return next(named, lines[-1].strip() if lines else "")


class Echoes:
    """Takes tracebacks of workers that only lost their peers out of error output; `echo` is called for each.

    What is fed are lines, each with the bytes to show for it; what comes back is to be shown now. A traceback
    is held back until its last line is there.
    """

    def __init__(self, echo: Callable[[], None]) -> None:
        self._echo = echo
        self._held: list[bytes] | None = None
        self._since: list[bytes] | None = None  # shown bytes since a traceback that was taken out

    @property
    def holds(self) -> bool:
        """Whether whole lines are needed to know what to show."""
        return self._held is not None or self._since is not None

    def feed(self, line: bytes, shown: bytes) -> bytes:
        """Return what to show after one more line."""
        text = without_rank(line.decode(errors="replace"))
        if self._held is None:
            return self._between(text, shown)
        self._held.append(shown)
        if (text[:1].isspace() or text.startswith(TRACEBACK)) and len(self._held) < LONGEST:
            return b""
        block, self._held = b"".join(self._held), None
        if not PEERS.search(text):
            return self._release() + block
        if self._since is None:
            self._echo()
        self._since = []
        return b""

    def end(self) -> bytes:
        """Return what is held back, at the end of the output."""
        held, self._held = self._held or [], None
        return self._release() + b"".join(held)

    def _between(self, text: str, shown: bytes) -> bytes:
        if text.startswith(TRACEBACK):
            self._held = [shown]
            return b""
        if self._since is None:
            return shown
        if text.strip() in ("", *LINKS):
            self._since.append(shown)
            return b""
        if DETAILS.match(text):
            return b""
        return self._release() + shown

    def _release(self) -> bytes:
        """Return what came between two tracebacks, of which the second is to be shown."""
        since, self._since = self._since or [], None
        return b"".join(since)


class Passing:
    """The same for output that is passed on as it comes, whole lines or not."""

    def __init__(self, echoes: Echoes) -> None:
        self._echoes = echoes
        self._partial = b""  # of a line that may begin a traceback
        self._begun = False  # the beginning of this line was passed on

    def feed(self, text: bytes) -> bytes:
        """Return what to pass on after some more bytes."""
        passed, (*lines, rest) = b"", text.split(b"\n")
        for line in (each + b"\n" for each in lines):
            whole, self._partial = self._partial + line, b""
            passed += line if self._begun else self._echoes.feed(whole, whole)
            self._begun = False
        if not rest:
            return passed
        if not self._begun and (self._echoes.holds or may_begin(self._partial + rest)) and b"\r" not in rest:
            self._partial += rest
            return passed
        passed, self._partial, self._begun = passed + self._partial + rest, b"", True
        return passed

    def end(self) -> bytes:
        """Return what is held back, at the end of the output."""
        left, self._partial = self._partial, b""
        return self._echoes.end() + left


def may_begin(text: bytes) -> bool:
    """Whether the beginning of a line may be that of a traceback."""
    begun = without_rank(text.decode(errors="replace"))
    return begun.startswith((TRACEBACK, "[rank"[: len(begun)])) or TRACEBACK.startswith(begun)
