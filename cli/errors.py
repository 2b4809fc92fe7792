"""Expected errors of commands: shown as one line, without a traceback.

Exit codes of every command: 0 done, 1 failed (also: the job failed), 2 wrong usage, 3 not found, 4 no cluster
or no answer, 5 not in time, 6 refused by the cluster, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """Exit codes, the same for every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    TIMED_OUT = 5
    REFUSED = 6
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """What it says of a command, in a few words."""
        return MEANINGS[self]


MEANINGS: Final[Mapping[Exit, str]] = {
    Exit.DONE: "done; of commands that wait: the job is what was waited for",
    Exit.FAILED: "the command failed, or the job did",
    Exit.USAGE: "wrong usage: an unknown flag, or a value that makes no sense",
    Exit.NOT_FOUND: "there is no such job or namespace, or the cluster does not know ElasticJobs",
    Exit.UNREACHABLE: "no cluster, or no answer from it",
    Exit.TIMED_OUT: "what was waited for did not happen in time",
    Exit.REFUSED: "the cluster refuses: an invalid field, a taken name, a missing right, an expired token",
    Exit.INTERRUPTED: "Ctrl-C",
}
CODES: Final[Mapping[str, Exit]] = {
    "NotFound": Exit.NOT_FOUND,
    "Unreachable": Exit.UNREACHABLE,
    "ConfigError": Exit.UNREACHABLE,
    "TimedOut": Exit.TIMED_OUT,
    "Refused": Exit.REFUSED,
    "Denied": Exit.REFUSED,
    "AlreadyThere": Exit.REFUSED,
    "Unusable": Exit.USAGE,
}
"""Exit codes by the names of classes in elasticjob.client and elasticjob.kube, which stay unimported."""


FLAGS: Final[Mapping[str, str]] = {
    **{name: f"--{name}" for name in ("files", "for", "namespace", "workers")},
    "volumes": "--volume or --checkpoint",
}
"""Of fields that the client names in its own words."""


def expected() -> tuple[type[Exception], ...]:
    """Return the expected error classes, shown without traceback: those that are imported."""
    roots = {"elasticjob.kube.errors": "KubeError", "elasticjob.client.errors": "ClientError"}
    loaded = [getattr(sys.modules[name], root) for name, root in roots.items() if name in sys.modules]
    return (Failure, *loaded)


def sentence(error: Exception) -> str:
    """Return an expected error as one line, which begins with the flag that was wrong."""
    flag = FLAGS.get(getattr(error, "field", "")) if code_of(error) is Exit.USAGE else None
    return f"{flag}: " * bool(flag) + " ".join(str(error).split())


def code_of(error: BaseException) -> Exit:
    """Return the exit code of an expected error."""
    if isinstance(error, Failure):
        return error.code
    return next((CODES[one.__name__] for one in type(error).__mro__ if one.__name__ in CODES), Exit.FAILED)


class Failure(Exception):
    """An expected error: the problem and, in `next_step`, its remedy."""

    def __init__(self, message: str, *, next_step: str = "", code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.next_step = next_step
        self.code = code

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}; {self.next_step}" if self.next_step else message
