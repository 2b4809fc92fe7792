"""The known launchers: the programs and modules that call them, and the parsers of their arguments. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from posixpath import basename
from typing import Final

from elasticjob.api.v1alpha1.checks.launchers import ASSIGNMENT, BEFORE, PYTHON
from elasticjob.cli.convert.launchers import accelerate, deepspeed, mpi, torchrun
from elasticjob.cli.convert.launchers.launch import Flag, Launch, Word, name_of, one_of, read
from elasticjob.cli.convert.system import Verdict

File = Callable[[str], str | None]
"""The text of a file that a line names; None where it cannot be read."""

LEADING: Final = BEFORE | {"if", "elif", "while", "until", "!", "{", "command"}
WRAPPERS: Final = re.compile(
    r"apptainer|conda|enroot|ncu|nice|nsys|numactl|pipenv|poetry|singularity|stdbuf|timeout|uv|xvfb-run"
)
"""Programs that run another command, which follows their own flags."""
WHICH: Final = re.compile(r"(?:\$\(|`)\s*(?:which|command -v)\s+([\w.-]+)\s*(?:\)|`)")
OF_PYTHON: Final = frozenset(["W", "X"])
"""Flags of Python that a word follows."""

OF_RANKS: Final = (
    "each worker finds its place by RANK, WORLD_SIZE and LOCAL_RANK in the environment: a script that calls "
    "MPI or Horovod must call torch.distributed instead"
)


def no_file(path: str) -> None:
    """No file can be read."""


@dataclass(frozen=True)
class Launcher:
    """A launcher: its program names, and the parser of its arguments."""

    names: tuple[str, ...]
    """Programs, or modules, where a trailing dot stands for all modules below."""
    read: Callable[[Launch, Sequence[Word], File], Launch]
    first: str = ""
    """The first argument, where the program does other things without it."""


def by(flags: Mapping[str, Flag]) -> Callable[[Launch, Sequence[Word], File], Launch]:
    """Read the words by a table of flags alone."""
    return lambda launch, words, _: read(launch, words, one_of(flags))


def _launch(launch: Launch, words: Sequence[Word], file: File) -> Launch:
    """torch.distributed.launch gives scripts an argument, where torchrun sets a variable."""
    read_it = by(torchrun.TORCHRUN)(launch, words, file)
    if any(name_of(word.plain) == "use-env" for word in words):
        return read_it
    return read_it.note("torch.distributed.launch", Verdict.CHANGED, deepspeed.LOCAL_RANK)


def _accelerate(launch: Launch, words: Sequence[Word], file: File) -> Launch:
    path = _value(words, "config-file")
    if path:
        launch = accelerate.read_configuration(launch, path, file)
    said = Flag(lambda launch, _flag, _value: launch)
    launch = read(launch, words, lambda name: said if name == "config-file" else accelerate.flag_of(name))
    if path or launch.total is not None or "ACCELERATE_USE_CPU" in launch.environment:
        return launch
    return launch.note(launch.launcher, Verdict.CHANGED, accelerate.BY_MACHINE)


def _deepspeed(launch: Launch, words: Sequence[Word], file: File) -> Launch:
    path = _value(words, "hostfile") or _value(words, "H")
    said = Flag(lambda launch, _flag, _value: launch)
    launch = read(launch, words, one_of({**deepspeed.FLAGS, "hostfile": said, "H": said}))
    launch = deepspeed.with_hostfile(launch, path, file) if path else launch
    if not launch.processes:
        launch = launch.note("--num_gpus", Verdict.CHANGED, deepspeed.ALL_GPUS)
    if any(name_of(word.plain) == "no-local-rank" for word in words):
        return launch
    return launch.note("deepspeed", Verdict.CHANGED, deepspeed.LOCAL_RANK)


def _mpi(flags: Mapping[str, Flag]) -> Callable[[Launch, Sequence[Word], File], Launch]:
    def act(launch: Launch, words: Sequence[Word], file: File) -> Launch:
        launch = read(launch, words, one_of(flags))
        if any(name_of(word.plain.partition("=")[0]) in mpi.BOUNDS for word in words):
            launch = _in_nodes(launch)
        launch = launch.note(launch.launcher, Verdict.CHANGED, OF_RANKS)
        texts = [launch.script, *launch.arguments]
        if not launch.script or not PYTHON.fullmatch(basename(launch.script)):
            return replace(launch, python=False)
        return python(launch, [Word(text, text) for text in texts[1:]])

    return act


def _in_nodes(launch: Launch) -> Launch:
    """Bounds that are given in ranks, as nodes that have several each."""
    each = int(launch.processes) if launch.processes.isdecimal() else 1
    if launch.nodes is None or each < 2:
        return launch
    least, most = launch.nodes
    return replace(launch, nodes=(-(-least // each), max(most // each, 1)))


def python(launch: Launch, words: Sequence[Word]) -> Launch:
    """Return the launch of Python's own words: a script, a module, or code."""
    at = 0
    while at < len(words) and words[at].plain.startswith("-") and words[at].plain not in ("-m", "-c", "-"):
        at += 2 if words[at].plain.lstrip("-") in OF_PYTHON else 1
    rest = [word.raw for word in words[at:]]
    if not rest:
        return launch
    if rest[0] == "-m":
        return replace(launch, module=True, script=rest[1] if rest[1:] else "", arguments=tuple(rest[2:]))
    if rest[0].startswith("-"):
        return replace(launch, python=False, script="python3", arguments=tuple(word.raw for word in words))
    return replace(launch, script=rest[0], arguments=tuple(rest[1:]))


LAUNCHERS: Final[tuple[Launcher, ...]] = (
    Launcher(("torchrun", "torch.distributed.run", "torch.distributed.run.py"), by(torchrun.TORCHRUN)),
    Launcher(("torchelastic.distributed.launch",), by(torchrun.TORCHRUN)),
    Launcher(("torch.distributed.launch",), _launch),
    Launcher(("dlrover-run", "dlrover.trainer.torch."), by(torchrun.DLROVER_RUN)),
    Launcher(("hyperpodrun",), by(torchrun.HYPERPODRUN)),
    Launcher(("elasticjob",), by(torchrun.ELASTICJOB_RUN), first="run"),
    Launcher(("accelerate",), _accelerate, first="launch"),
    Launcher(("accelerate-launch", "accelerate.commands.launch"), _accelerate),
    Launcher(("deepspeed", "ds", "deepspeed.launcher."), _deepspeed),
    Launcher(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"), _mpi(mpi.MPIRUN)),
    Launcher(("horovodrun", "horovod.runner.", "horovod.run"), _mpi(mpi.HOROVODRUN)),
)


@dataclass(frozen=True)
class Match:
    """A launcher within a command: its launch, and how many words are before it."""

    launch: Launch
    before: int


def found_in(
    words: Sequence[Word],
    *,
    variables: Mapping[str, str] | None = None,
    file: File = no_file,
    plainly: bool = False,
) -> Match | None:
    """Return the launcher that a simple command calls; None if it calls none.

    `plainly`: Python without a launcher counts, too, for systems that start it on each node with its rank.
    """
    before = 0
    while before < len(words) and (words[before].plain in LEADING or ASSIGNMENT.match(words[before].plain)):
        before += 1
    if before < len(words) and WRAPPERS.fullmatch(basename(words[before].plain)):
        before = _unwrap(words, before)
    rest = words[before:]
    if not rest:
        return None
    start = Launch(_name(rest[0]), variables=variables or {})
    if PYTHON.fullmatch(start.launcher):
        return _of_python(start, rest[1:], before, file, plainly)
    launch = _by_name(start, rest[1:], file)
    return Match(launch, before) if launch is not None else None


def _unwrap(words: Sequence[Word], before: int) -> int:
    """Return where the launcher is that a wrapper starts; the wrapper's own place if there is none."""
    known = {name for launcher in LAUNCHERS for name in launcher.names}
    for at, word in enumerate(words[before + 1 :], start=before + 1):
        name = _name(word)
        if name in known or (PYTHON.fullmatch(name) and words[at + 1 : at + 2]):
            return at
    return before


def _of_python(start: Launch, words: Sequence[Word], before: int, file: File, plainly: bool) -> Match | None:
    at = next(
        (i for i, word in enumerate(words) if not word.plain.startswith("-") or word.plain == "-m"), None
    )
    if at is not None:
        name = at + (words[at].plain == "-m")
        if words[name:]:
            called = replace(start, launcher=_name(words[name]))
            if launch := _by_name(called, words[name + 1 :], file):
                return Match(launch, before)
    if not plainly or not words:
        return None
    return Match(python(start, words), before)


def _by_name(launch: Launch, words: Sequence[Word], file: File) -> Launch | None:
    for launcher in LAUNCHERS:
        if not any(
            launch.launcher == name or (name.endswith(".") and launch.launcher.startswith(name))
            for name in launcher.names
        ):
            continue
        if launcher.first:
            if not words or words[0].plain != launcher.first:
                return None
            words = words[1:]
            launch = replace(launch, launcher=f"{launch.launcher} {launcher.first}")
        return launcher.read(launch, words, file)
    return None


def _name(word: Word) -> str:
    which = WHICH.fullmatch(word.raw.strip("\"'"))
    return which[1] if which else basename(word.plain)


def _value(words: Sequence[Word], name: str) -> str:
    """Return the value of a flag, "" if it is not there."""
    for at, word in enumerate(words):
        flag, equals, value = word.plain.partition("=")
        if flag.startswith("-") and name_of(flag) == name:
            return value if equals else "".join(each.plain for each in words[at + 1 : at + 2])
    return ""
