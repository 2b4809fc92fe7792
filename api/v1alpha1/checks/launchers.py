"""Launchers of other systems in a container's command: one table, with what to write in place of each.

Only what the command itself shows is read: the words of a program, or the script after `sh -c`. A script in
a file may start anything.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from posixpath import basename
from typing import Final

SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh"})
BEFORE: Final = frozenset(
    {"exec", "env", "nohup", "time", "sudo", "tini", "dumb-init", "then", "do", "else", "--"}
)
"""Words before a program that start it, or lead to it."""
SEPARATORS: Final = frozenset(";&|()\n")
ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
PYTHON: Final = re.compile(r"python[\d.]*")
OWN_RENDEZVOUS: Final = re.compile(
    r"(?<!\S)--(standalone(?!\S)|rdzv[-_]backend[= ](?!elasticjob)|master[-_]addr)"
)
RUN: Final = "write elasticjob run, with torchrun's flags and your script"

OF_A_FIXED_SIZE: Final = (
    f"starts a world of a fixed size, and the job's master learns nothing of it: {RUN}; Accelerator() finds "
    "its place by the environment"
)


@dataclass(frozen=True)
class Launcher:
    """A launcher: the programs and Python modules that it is called by, and the sentence about it."""

    names: tuple[str, ...]
    """Programs, or modules, where a trailing dot stands for all modules below."""
    why: str
    first: str = ""
    """The first argument, where the program does other things without it."""
    flags: re.Pattern[str] | None = None
    """Flags of which one is there, where the program is right without them."""

    def starts(self, words: Sequence[str]) -> bool:
        """Return whether these words, a program and its arguments, call it."""
        name, given = words[0], words[1:]
        if not any(name == each or (each.endswith(".") and name.startswith(each)) for each in self.names):
            return False
        if self.first and (not given or given[0] != self.first):
            return False
        return self.flags is None or self.flags.search(" ".join(given)) is not None


LAUNCHERS: Final[tuple[Launcher, ...]] = (
    Launcher(
        ("dlrover-run", "dlrover.trainer.", "dlrover.python."), f"cannot speak to this job's master: {RUN}"
    ),
    Launcher(
        ("torchrun", "torch.distributed.run", "torch.distributed.launch"),
        "makes a rendezvous of its own with these flags, and the job's master learns nothing of its world: "
        "leave them out, or write elasticjob run",
        flags=OWN_RENDEZVOUS,
    ),
    Launcher(("accelerate",), OF_A_FIXED_SIZE, first="launch"),
    Launcher(("accelerate-launch", "accelerate.commands.launch"), OF_A_FIXED_SIZE),
    Launcher(
        ("deepspeed", "deepspeed.launcher."),
        f"reaches other nodes by ssh and a hostfile, which pods of a job do not have: {RUN}; "
        "deepspeed.initialize() finds its place by the environment",
    ),
    Launcher(
        ("mpirun", "mpiexec", "orterun"),
        f"reaches other nodes by ssh and a hostfile, which pods of a job do not have: {RUN}",
    ),
    Launcher(
        ("horovodrun", "horovod.runner."),
        f"reaches other nodes by ssh, and the job's master learns nothing of its world: {RUN}",
    ),
)


def launcher_of(command: Sequence[str], args: Sequence[str] = ()) -> tuple[str, str] | None:
    """Return the first launcher that a container calls, and the sentence about it.

    `args` may be a command line of their own: that of an image's entrypoint, which starts what it is given.
    """
    for call in (*calls([*command, *args]), *calls(args)):
        for launcher in LAUNCHERS:
            if launcher.starts(call):
                return " ".join(filter(None, (call[0], launcher.first))), launcher.why
    return None


def calls(words: Sequence[str]) -> Iterator[list[str]]:
    """Find the programs that a command starts, each with its arguments; of Python, its module or script."""
    call = list(words)
    while call and (call[0] in BEFORE or ASSIGNMENT.match(call[0])):
        del call[0]
    if not call:
        return
    name = basename(call[0])
    if name in SHELLS:
        script = next((i for i, word in enumerate(call) if re.fullmatch(r"-\w*c", word)), None)
        for line in _commands(" ".join(call[script + 1 : script + 2])) if script is not None else ():
            yield from calls(line)
        return
    if PYTHON.fullmatch(name):
        rest = call[1:]
        while rest and rest[0].startswith("-") and rest[0] != "-m":
            del rest[0]
        if rest and rest[0] == "-m":
            del rest[0]
        if not rest:
            return
        name, call = basename(rest[0]), rest
    yield [name, *call[1:]]


def _commands(script: str) -> Iterator[list[str]]:
    """Find the simple commands of a shell script, as words."""
    script = script.replace("\\\n", " ")
    lexer = shlex.shlex(script, posix=True, punctuation_chars=";&|()\n")
    lexer.whitespace, lexer.whitespace_split = " \t\r", True
    found: list[str] = []
    try:
        for token in lexer:
            if token and SEPARATORS.issuperset(token):
                yield found
                found = []
            else:
                found.append(token)
    except ValueError:  # a quotation mark without its end: the shell will say so
        pass
    yield found
