"""Lines of JSON in which trainings say what they do: printed, or in a file of the process that tells."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any, Final, TextIO

FOLDER: Final = Path(os.environ.get("COUNTED", "."))
"""The folder in which a test says what is to happen."""


class Lines:
    """A file of this process in a folder; a line is one write, so that no kill takes it along."""

    def __init__(self, folder: Path = FOLDER, life: int = 1) -> None:
        folder.mkdir(exist_ok=True)
        self._always = {"life": life, "pid": os.getpid()}
        name = f"{life}-{os.getpid()}-{time.monotonic_ns()}.jsonl"
        self._file = (folder / name).open("ab", buffering=0)

    def say(self, *, prints: bool = False, **line: Any) -> None:
        """Write a line, and print it for those who wait for it, if that is wanted."""
        told = {**line, **self._always, "at": time.monotonic()}
        self._file.write(json.dumps(told).encode() + b"\n")
        if prints:
            say(**told)


def say(**line: Any) -> None:
    """Print a line, in one piece, with the process that tells."""
    print(json.dumps({"pid": os.getpid(), **line}) + "\n", end="", flush=True, file=output())


def stand(place: str, of: object) -> None:
    """Wait to be killed at a place, if there is a file for it and this worker or node; it is gone then."""
    mark = FOLDER / f"{place}-{of}"
    if mark.exists():
        mark.unlink()
        say(stands=place)
        signal.pause()


@cache
def output() -> TextIO:
    """Return the standard output, or $BENCH_TOLD where a launcher keeps that for itself."""
    return open(os.environ["BENCH_TOLD"], "w") if "BENCH_TOLD" in os.environ else sys.stdout
