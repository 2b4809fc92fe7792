"""A script or a command line that starts a training, as a job. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Final

from elasticjob.api.v1alpha1.checks.launchers import PYTHON, SHELLS
from elasticjob.api.v1alpha1.checks.templates import IMAGE as IMAGE_NAME
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.convert import pods
from elasticjob.cli.convert.allocation import Allocation, allocation, pairs
from elasticjob.cli.convert.launchers.launch import Launch, Word, abridge, words_of
from elasticjob.cli.convert.launchers.shell import PRINTS, Call, assignments, calls, plain, split, words
from elasticjob.cli.convert.launchers.table import LEADING, found_in
from elasticjob.cli.convert.launchers.variables import expand
from elasticjob.cli.convert.system import Conversion, Note, Source, Unconvertible, Verdict
from elasticjob.cli.convert.training import NEEDS_MPI, NO_IMAGE, node_fields
from elasticjob.client.objects import IMAGE
from elasticjob.kube.objects.kinds import Manifest

IN_THE_IMAGE: Final = "the image has it: docs/own-image.md"
ELSEWHERE: Final = (
    "write it into the image, an init container, or a script that elasticjob run starts with --no-python"
)
NOT_NEEDED: Final = "it prints, waits or asks Slurm: the job does not need it"
CONTROL: Final = "conditions of a script are not evaluated: their lines are read as if they were true"
ONE_FOR_EACH: Final = "each round is a training: write a script for each, and convert them one by one"
NOT_SET: Final = "the script does not set it: write it in env of the container, or its value here"
ON_EACH: Final = "each node has its own value of it: write the value"
UNSET: Final = re.compile(
    r"(?<!\\)(?:\$\((?!\()[^()]*\)|`[^`]*`|\$\{?(?!SLURM_|PMI|OMPI_|NODE_RANK|NODE_NUM)[A-Za-z_]\w*\}?)"
)
"""What a word has that the shell puts in, but for variables of which references tell."""
OPENS: Final = {"for": True, "while": True, "until": True, "select": True, "if": False, "case": False}
"""Words that open a block, and whether it is a loop."""
AHEAD: Final = frozenset({"then", "else", "do", "{", "!", "time"})
LOOPED: Final = re.compile(r"\b(?:for\s+(?:\(\(\s*)?|read\s+(?:-\w+\s+)*)(\w+)")
"""The variable of a loop."""
CHAINED: Final = re.compile(r"(?:\[|\btest) .*(&&|\|\|)\s*$")
WRITES: Final = re.compile(r"[ \t]*>>?[ \t]*(?!&|/dev/)")
ANOTHER: Final = "the job is of the first training: convert this line by itself"
ONLY_THERE: Final = "its value is known only where the script runs"
POSITIONAL: Final = re.compile(r"\$\{?[@*1-9]")
WORDS: Final = re.compile(r"if|elif|for|while|until|case|\[|\[\[|test|function")
OF_THE_MACHINE: Final = re.compile(r"module|ml|source|\.|conda|micromamba|mamba|spack|pip|pip3|uv|apt-get")
WITHOUT_VALUE: Final = re.compile(
    r"-l|--label|-u|--unbuffered|-v|--verbose|--exclusive|-Q|--quiet|--no-kill|-K"
)
"""Flags of srun that no word follows."""
OF_MPI: Final = re.compile(r"mpirun|mpiexec|mpiexec\.hydra|orterun|prterun|horovodrun")
MESSAGE: Final = "no line starts a training: torchrun, accelerate launch, deepspeed, or srun python"


@dataclass
class _Block:
    """A loop, an if or a case: its first line, its place, and which of its branches is read."""

    text: str
    start: int
    is_loop: bool
    branch: int


@dataclass
class _Reading:
    """The state of reading a script from its first line to its last."""

    asked: Allocation
    variables: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    launch: Launch | None = None
    line: int | None = None
    """The place of the launch in the script."""
    refused: str = ""
    directory: str = ""
    blocks: list[_Block] = field(default_factory=list)


def job_of(source: Source, told: Allocation) -> Conversion:
    """Return the job of a script's first training. Raises Unconvertible if it starts none."""
    reading = _Reading(told, {**told.variables})
    for call in calls(source.text):
        _read(reading, call, source)
    launch = reading.launch
    if launch is None:
        raise Unconvertible(reading.refused or MESSAGE)
    if not launch.script:
        raise Unconvertible(f"{launch.launcher} names no script: write it behind the flags")
    if POSITIONAL.search(launch.script):
        raise Unconvertible(
            f"{launch.launcher} starts {launch.script}, and {ONLY_THERE}: write the script there"
        )
    asked_for = reading.asked
    if asked_for.nodes:
        launch = replace(launch, nodes=asked_for.nodes, wanted=None)
    container, notes = _container(reading, launch)
    flags = [replace(note, line=reading.line) for note in launch.all_notes]
    notes = [*asked_for.all_notes, *reading.notes, *flags, *notes]
    template: Manifest = {"spec": {"containers": [container]}}
    worker: Manifest = {**(launch.sizes() or {"replicas": 1}), "template": template}
    policy = {} if asked_for.requeued else pods.without_empty({"activeDeadlineSeconds": asked_for.seconds})
    name = pods.job_name(asked_for.name or PurePosixPath(plain(launch.script)).stem or "converted")
    if not asked_for.name:
        notes.append(Note(None, "metadata.name", Verdict.KEPT, f"{name}, after the script"))
    job: Manifest = {
        "apiVersion": ELASTICJOB.api_version,
        "kind": ELASTICJOB.name,
        "metadata": {"name": name},
        "spec": pods.without_empty(
            {**node_fields(launch), "replicaSpecs": {"worker": worker}, "runPolicy": policy}
        ),
    }
    return Conversion(job, tuple(sorted(notes, key=lambda note: (note.line is None, note.line or 0))))


def starts_a_training(text: str) -> bool:
    """Whether a line of a script calls a launcher."""
    return any(
        found_in(call.words) is not None or _after_srun(call.words) is not None for call in calls(text)
    )


def is_a_command(given: Sequence[str]) -> bool:
    """Whether words are a launcher and its arguments, or a command under srun."""
    called = words_of(given)
    return found_in(called) is not None or _after_srun(called) is not None


def _read(reading: _Reading, call: Call, source: Source, *, ranked: bool = False) -> None:
    line = source.first + source.text.count("\n", 0, call.starts[0])
    call = _within(reading, call, source.text)
    if set_here := assignments(call, reading.variables):
        _assign(reading, call, set_here, line, _branch(reading, source.text[: call.starts[0]]))
        return
    given = split(call.words, reading.variables)
    started = _after_srun(given)
    rest, ranked = given if started is None else started, ranked or started is not None
    if started is not None:
        _srun(reading, given[: len(given) - len(started)], line)
    script = _inner(rest, reading.variables)
    if script is not None:
        inner = replace(source, text=script, first=line)
        for one in calls(script):
            _read(reading, one, inner, ranked=True)
        return
    launch = _launch(reading, rest, source, ranked=ranked or _is_line(source.text))
    if launch is not None and any(POSITIONAL.search(word) for word in launch.arguments):
        reading.notes.append(Note(line, "$@", Verdict.CHANGED, f"{ONLY_THERE}: write the arguments there"))
    if launch is None:
        writes = WRITES.match(source.text, call.end) is not None
        reading.notes.append(_left_out(reading, rest, line, writes=writes))
    elif reading.launch is not None:
        reading.notes.append(Note(line, abridge(rest), Verdict.DROPPED, ANOTHER))
    elif (loop := _loop(reading, call, launch)) is not None:
        raise Unconvertible(f"line {line} is in the loop {loop.text!r}: {ONE_FOR_EACH}")
    else:
        reading.launch = launch
        why = f"elasticjob run in place of {launch.launcher}"
        reading.notes.append(Note(line, abridge(rest), Verdict.KEPT, why))
        reading.line = line


def _within(reading: _Reading, call: Call, text: str) -> Call:
    """Follow the blocks of a script; return a command without words such as then in front of it."""
    blocks, start = reading.blocks, call.starts[0]
    pattern = re.match(r"[ \t]*\)", text[call.end :]) is not None
    if blocks and blocks[-1].text.startswith("case") and pattern:
        blocks[-1].branch += 1
    while (name := call.words[0].plain) not in OPENS:
        if name in ("done", "fi", "esac") and blocks:
            blocks.pop()
        if name in ("else", "elif") and blocks:
            blocks[-1].branch += 1
        if name not in AHEAD or not call.words[1:]:
            return call
        call = replace(call, words=call.words[1:], starts=call.starts[1:])
    first = re.split("[\n;]", text[start:], maxsplit=1)[0].strip()
    blocks.append(_Block(first, call.starts[0], OPENS[name], -1 if name == "case" and not pattern else 0))
    return call


def _branch(reading: _Reading, before: str) -> int | None:
    """Return the branch of a condition in which a command is; None if no condition decides on it."""
    if chained := CHAINED.search(before.rpartition("\n")[2]):
        return int(chained[1] == "||")
    return max((block.branch for block in reading.blocks if not block.is_loop), default=None)


def _loop(reading: _Reading, call: Call, launch: Launch) -> _Block | None:
    """Return the loop that starts one training after another, and not one training's nodes."""
    for block in reading.blocks:
        name = re.escape("".join(LOOPED.findall(block.text)[:1]) or "?")
        by_name, own = re.compile(rf"\$\{{?{name}\b"), " ".join([launch.script, *launch.arguments])
        of_nodes = by_name.search(" ".join(word.raw for word in call.words)) and not by_name.search(own)
        if block.is_loop and block.start != call.starts[0] and not of_nodes:
            return block
    return None


def _launch(reading: _Reading, given: Sequence[Word], source: Source, *, ranked: bool) -> Launch | None:
    found = found_in(given, variables=reading.variables, file=source.files.get, plainly=ranked)
    if found is None:
        return None
    before = (word.plain.partition("=") for word in given[: found.before] if "=" in word.plain)
    reading.environment |= {name: expand(value, reading.variables) for name, _, value in before}
    if not found.launch.python and OF_MPI.fullmatch(found.launch.launcher):
        reading.refused = f"{abridge(given)} starts {found.launch.script or 'nothing'}, {NEEDS_MPI}"
        return None
    return found.launch


def _assign(reading: _Reading, call: Call, found: Mapping[str, str], line: int, branch: int | None) -> None:
    """Take variables: exported ones are those of the workers, the others are put in where they are used."""
    exported = call.words[0].plain == "export"
    for name, value in found.items():
        before, sure = reading.variables.get(name), branch is None
        if branch is not None and before != value:
            value, other = (before, value) if branch > 0 and before is not None else (value, before)
            instead = "" if other is None else f", not {other!r}"
            reading.notes.append(Note(line, name, Verdict.CHANGED, f"is {value!r} now{instead}: {CONTROL}"))
        reading.variables[name] = value
        known = not re.search(r"[$`]", value)
        if exported and known:
            reading.environment[name] = value
            if sure or before == value:
                reading.notes.append(Note(line, name, Verdict.KEPT, "in the environment of the container"))
        elif not known:
            why = f"{ONLY_THERE}: write it in env of the container, if the script reads it"
            reading.notes.append(Note(line, name, Verdict.DROPPED, why, harmless=not exported))


def _srun(reading: _Reading, flags: Sequence[Word], line: int) -> None:
    """Add the flags of srun to the directives of sbatch."""
    at = [PurePosixPath(word.plain).name for word in flags].index("srun")
    told = pairs([expand(word.plain, reading.variables) for word in flags[at + 1 :]])
    found = allocation((line, *pair) for pair in told if not WITHOUT_VALUE.fullmatch(pair[0]))
    apart = {"notes", "nodes", "tasks"} if any(block.is_loop for block in reading.blocks) else {"notes"}
    merged = {name: value for name, value in vars(found).items() if value and name not in apart}
    reading.asked = replace(reading.asked, **merged, notes=(*reading.asked.notes, *found.notes))


def _after_srun(given: Sequence[Word]) -> list[Word] | None:
    """Return the words of the command that srun starts; None if this is no srun."""
    names = [PurePosixPath(word.plain).name for word in given]
    at = next((at for at, name in enumerate(names) if name not in LEADING and "=" not in name), None)
    if at is None or names[at] != "srun":
        return None
    at += 1
    while at < len(given) and given[at].plain.startswith("-"):
        name, equals, _ = given[at].plain.partition("=")
        at += 1 if equals or WITHOUT_VALUE.fullmatch(name) or re.fullmatch(r"-[A-Za-z]\S+", name) else 2
    return list(given[at:])


def _inner(given: Sequence[Word], variables: Mapping[str, str]) -> str | None:
    """Return the script of bash -c, as the shell would hand it over."""
    if not given or given[0].plain not in SHELLS:
        return None
    at = next((at for at, word in enumerate(given[:-1]) if re.fullmatch(r"-\w*c", word.plain)), None)
    if at is None:
        return None
    raw, own = given[at + 1].raw, given[at + 3 :]  # the word behind the script is its $0
    parts = re.findall("'([^']*)'|([^']+)", raw) if raw[:1] == "'" else [("", raw.strip('"'))]
    text = "".join(literal or expand(part, variables) for literal, part in parts)

    def put_in(found: re.Match[str]) -> str:
        given = own if found[1] in "@*" else own[int(found[1]) - 1 :][:1]
        return " ".join(word.raw for word in given) or found[0]

    return re.sub(r"\"?\$\{?([1-9@*])\}?\"?", put_in, text)


def _left_out(reading: _Reading, given: Sequence[Word], line: int, *, writes: bool) -> Note:
    """Return a note on a command that starts no training; `writes`: into a file."""
    name = given[0].plain if given else ""
    if name == "cd" and given[1:]:
        before, branch = reading.directory, _branch(reading, "")
        there = str(PurePosixPath(before, expand(given[1].plain, reading.variables)))
        verdict = Verdict.DROPPED if "$" in there else Verdict.KEPT if branch is None else Verdict.CHANGED
        reading.directory = "" if "$" in there else before if before and branch else there
        why = f"is {reading.directory} now: {CONTROL}" if verdict is Verdict.CHANGED else "of the container"
        return Note(line, abridge(given), verdict, f"workingDir {why}")
    if OF_THE_MACHINE.fullmatch(name):
        return Note(line, abridge(given), Verdict.DROPPED, IN_THE_IMAGE)
    if [word.plain for word in given[:2]] == ["scontrol", "requeue"]:
        reading.asked = replace(reading.asked, requeued=True)
    if PRINTS.fullmatch(name) and not writes:
        return Note(line, abridge(given), Verdict.DROPPED, NOT_NEEDED, harmless=True)
    return Note(line, abridge(given), Verdict.DROPPED, CONTROL if WORDS.fullmatch(name) else ELSEWHERE)


def _container(reading: _Reading, launch: Launch) -> tuple[Manifest, list[Note]]:
    asked_for, notes = reading.asked, list[Note]()
    workers = asked_for.workers if PYTHON.fullmatch(launch.launcher) else None
    known = replace(launch, processes=launch.processes or ("" if launch.total else str(workers or "")))
    told = [known.script, *known.arguments]
    told = [word if word[:1] == "'" else expand(word, reading.variables) for word in told]
    known = replace(known, script=told[0], arguments=tuple(told[1:]))
    for unset in dict.fromkeys(one for word in told if word[:1] != "'" for one in UNSET.findall(word)):
        why = ON_EACH if unset.startswith(("$(", "`")) else NOT_SET
        notes.append(Note(reading.line, unset, Verdict.CHANGED, why))
    if any(re.search(r"(?<!\\)[$`]", word) and word[:1] != "'" for word in told):
        command = ["sh", "-c", "exec " + " ".join(known.command(quoted=True))]
    else:
        known = replace(known, script=plain(told[0]), arguments=tuple(map(plain, told[1:])))
        command = known.command()
    image = asked_for.image.replace("#", "/", 1).removeprefix("docker://")
    if IMAGE_NAME.fullmatch(image) is None or image.startswith("/"):
        notes.append(Note(None, "image", Verdict.CHANGED, NO_IMAGE))
        image = IMAGE
    env = {**reading.environment, **launch.environment}
    if not asked_for.resources and known.per_node not in ("", "1") and "ACCELERATE_USE_CPU" not in env:
        why = f"are not said: write nvidia.com/gpu: {known.per_node} in limits, if the workers use GPUs"
        notes.append(Note(None, "resources", Verdict.CHANGED, why))
    made: Manifest = {
        "name": "main",
        "image": image,
        "command": command,
        "workingDir": asked_for.directory if asked_for.directory not in ("", ".") else reading.directory,
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "resources": asked_for.resources,
    }
    return pods.without_empty(made), notes


def _is_line(text: str) -> bool:
    """Whether a text is one command, and not a script."""
    return len(list(calls(text))) == 1 and not words(text)[0].plain.startswith("#")
