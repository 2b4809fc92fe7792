"""Expected errors of commands: shown as one line, without a traceback.

Exit codes of every command: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes, the same for every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130


class Failure(Exception):
    """An expected error: the problem and, in `next_step`, its remedy."""

    def __init__(self, message: str, *, next_step: str = "", code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.next_step = next_step
        self.code = code

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}; {self.next_step}" if self.next_step else message
