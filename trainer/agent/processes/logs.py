"""The output of workers: forwarded, written to files if asked, the last lines kept.

One thread per stream, because the reader of the agent's own output may be slow and must not block the agent.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import RawIOBase
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final

from elasticjob.trainer.agent.processes.reasons import Echoes, Passing, frame, reason

log = logging.getLogger("elasticjob.agent")

TAIL: Final = 200  # lines of error output that are remembered: torch's C++ code writes whole stacks
LONGEST: Final = 1 << 20  # bytes of a line; a longer one is forwarded in parts
END: Final = re.compile(rb"\r?\n|\r(?=[^\n])")  # progress bars end their lines by \r alone


class Stream:
    """Reads one pipe to its end; `ended` is called in the reading thread.

    Lines are forwarded with a `prefix`; without one everything is forwarded at once, whole lines or not. With
    `echo` tracebacks of lost peers are not forwarded, and `echo` is called instead.
    """

    def __init__(
        self,
        *,
        sink: BinaryIO | None,
        file: Path | None,
        prefix: Callable[[], bytes] | None,
        ended: Callable[[], None],
        echo: Callable[[], None] | None = None,
    ) -> None:
        self._echoes = Echoes(echo) if echo else None
        self._passing = Passing(self._echoes) if self._echoes else None
        self._sink = sink
        self._file = file
        self._kept: RawIOBase | None = None
        self._prefix = prefix
        self._ended = ended
        self._tail: deque[bytes] = deque(maxlen=TAIL)
        self._read, self.write = os.pipe()
        self._thread = threading.Thread(target=self._run, daemon=True, name="elasticjob-log")
        self._thread.start()

    def on_start(self) -> None:
        """Close our copy of the writing end after the worker has started, so that EOF marks its end."""
        os.close(self.write)

    @property
    def reason(self) -> str:
        """The line that says why the worker ended."""
        return reason(self._last_lines)

    @property
    def frame(self) -> str:
        """The frame in which it raised its last exception, empty without one."""
        return frame(self._last_lines)

    @property
    def _last_lines(self) -> list[str]:
        return [line.decode(errors="replace") for line in self._tail]

    def drain(self, patience: float) -> bool:
        """Wait until everything was forwarded; False if that takes longer than `patience` seconds."""
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        """Read to the end, whatever becomes of the output: a pipe without a reader ends the worker."""
        self._keep(b"")  # the file is there, even if it stays empty
        whole = True
        for line in lines(self._read, None if self._prefix else self._came):
            self._tail.append(line)
            self._keep(line)
            if self._prefix:
                shown = (self._prefix() if whole else b"") + line
                whole = line.endswith((b"\n", b"\r"))
                self._pass_on(self._echoes.feed(line, shown) if self._echoes else shown)
        if self._echoes is not None:
            self._pass_on(self._passing.end() if self._passing and not self._prefix else self._echoes.end())
        if self._kept is not None:
            self._kept.close()
        self._ended()

    def _came(self, text: bytes) -> None:
        """Pass on what has come."""
        self._pass_on(self._passing.feed(text) if self._passing else text)

    def _keep(self, line: bytes) -> None:
        """Append a line to the file; give up the file if that fails."""
        if self._file is None:
            return
        try:
            if self._kept is None:
                self._kept = self._file.open("ab", buffering=0)
            self._kept.write(line)
        except OSError as error:
            log.warning("%s gets no more of a worker's output: %s", self._file, error)
            self._file = None

    def _pass_on(self, text: bytes) -> None:
        """Write to the agent's own output; give it up if that fails, in silence if it was closed."""
        if self._sink is None:
            return
        try:
            self._sink.write(text)
            self._sink.flush()
        except (BrokenPipeError, ValueError):
            let_go(self._sink)
            self._sink = None
        except OSError as error:
            log.warning("a worker's output is not passed on any more: %s", error)
            self._sink = None


def let_go(sink: BinaryIO) -> None:
    """Have what is left in an output whose reader is gone go nowhere when it is flushed."""
    with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sink.fileno())


class OwnOutput:
    """The agent's own output as a worker's, so that a terminal stays one; nothing of it is kept."""

    reason, frame = "", ""

    def __init__(self, output: int) -> None:
        self.write = os.dup(output)

    def on_start(self) -> None:
        """Close the copy for the worker."""
        os.close(self.write)

    def drain(self, patience: float) -> bool:
        """Return True: nothing is on the way."""
        return True


def lines(fd: int, see: Callable[[bytes], None] | None) -> Iterator[bytes]:
    """Yield the lines of a pipe until EOF, and close it; the last one may lack a newline.

    `see` gets everything as it comes.
    """
    rest = b""
    with open(fd, "rb", buffering=0) as source:
        while received := source.read(LONGEST):
            if see is not None:
                see(received)
            whole, rest = cut(rest + received)
            yield from whole
    if rest:
        yield rest


def cut(text: bytes) -> tuple[list[bytes], bytes]:
    """Return the lines of `text` with their line ends, and the incomplete rest."""
    ends = [match.end() for match in END.finditer(text)]
    *whole, rest = [text[start:end] for start, end in pairwise((0, *ends, len(text)))]
    return ([*whole, rest], b"") if len(rest) > LONGEST else (whole, rest)
