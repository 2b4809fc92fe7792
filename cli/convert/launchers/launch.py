"""A launcher's command line as a value, and how the flags of a launcher are read into it. Pure.

A launcher is a table of flags; each has its counterpart under `elasticjob run` in a pod of a job, where
the job gives the number of nodes and its master is the rendezvous.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from elasticjob.cli.convert.launchers.variables import expand
from elasticjob.cli.convert.system import Note, Verdict
from elasticjob.cli.errors import Failure
from elasticjob.cli.standalone.torchrun import node_range
from elasticjob.trainer.agent.settings import stated_count

Sizes = tuple[tuple[str, int], ...]
"""Sizes of the role worker by their names: replicas, minReplicas, maxReplicas."""
LONGEST: Final = 60


class Word(NamedTuple):
    """A word of a command line: its value, and its text with quotation marks."""

    plain: str
    raw: str


def words_of(texts: Sequence[object]) -> list[Word]:
    """Return the words of a command that no shell reads."""
    return [Word(str(text), str(text)) for text in texts]


def abridge(given: Sequence[Word]) -> str:
    """Return the beginning of a command."""
    text = " ".join(" ".join(word.raw for word in given).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]} …"


@dataclass(frozen=True)
class Launch:
    """The parsed command line of a launcher."""

    launcher: str
    """Its name: torchrun, accelerate launch."""
    script: str = ""
    """As it is written: script and arguments may be quoted for a shell."""
    arguments: tuple[str, ...] = ()
    module: bool = False
    python: bool = True
    nodes: tuple[int, int] | None = None
    """The least and the largest number of nodes; None where the line does not say."""
    wanted: int | None = None
    """The number of nodes at first, where it is not the largest."""
    processes: str = ""
    """Of each node: a number, auto, cpu or gpu; "" where the line does not say."""
    total: int | None = None
    """Processes of all nodes together, where the line counts them so."""
    slots: str = ""
    """Processes of each node, where the system around the line says them: they hold for a total, too."""
    flags: tuple[str, ...] = ()
    """Further flags of elasticjob run."""
    environment: Mapping[str, str] = field(default_factory=dict)
    check: str = ""
    """spec.nodeCheck, where the line asks for a check of nodes."""
    unit: int = 1
    """spec.nodeUnit."""
    notes: tuple[Note, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    """The values of shell variables, as far as they are known."""

    def note(
        self, flag: str, verdict: Verdict, why: str, *, harmless: bool = False, sizes: Sizes = ()
    ) -> Launch:
        """Add a note on a flag, and on the sizes of the role that it gives."""
        note = Note(None, flag, verdict, why, harmless, sizes)
        return replace(self, notes=(*self.notes, note))

    def with_variable(self, name: str, value: str) -> Launch:
        """Set a variable of the script's environment."""
        return replace(self, environment={**self.environment, name: value})

    @property
    def per_node(self) -> str:
        """The processes of each node; "" where the line does not say."""
        if self.processes or self.slots or self.total is None:
            return self.processes or self.slots
        nodes = self.nodes[1] if self.nodes else 1
        return str(max(self.total // max(nodes, 1), 1))

    @property
    def all_notes(self) -> tuple[Note, ...]:
        """The notes on flags; a total of processes that nodes cannot share evenly is changed."""
        least, most = self.nodes or (1, 1)
        each = int(self.per_node) if self.per_node.isdecimal() else 0
        if self.total is None or not each or self.total in range(each * least, each * most + 1, each):
            return self.notes
        why = f"is {each * most} now: {each} on each of {most} nodes"
        changed = (replace(note, verdict=Verdict.CHANGED, why=why) for note in self.notes)
        return tuple(new if old.why == COUNTED else old for old, new in zip(self.notes, changed, strict=True))

    def sizes(self) -> dict[str, int]:
        """Return replicas, minReplicas and maxReplicas of the role worker, as far as the line says them."""
        if self.nodes is None:
            return {}
        least, most = self.nodes
        wanted = min(max(self.wanted or most, least), most)
        return (
            {"replicas": wanted}
            if least == most
            else {"replicas": wanted, "minReplicas": least, "maxReplicas": most}
        )

    def command(self, *, quoted: bool = False) -> list[str]:
        """Return the words of elasticjob run, for a container's command or (`quoted`) for a shell."""
        processes = self.per_node
        ours = [
            *(["--nproc-per-node", processes] if processes not in ("", "1") else []),
            *self.flags,
            *(["--module"] if self.module else []),
            *([] if self.python else ["--no-python"]),
        ]
        return [
            "elasticjob",
            "run",
            *(map(shlex.quote, ours) if quoted else ours),
            self.script,
            *self.arguments,
        ]


Act = Callable[[Launch, str, str], Launch]
"""The effect of a flag: (launch so far, flag as written, value) → launch."""


@dataclass(frozen=True)
class Flag:
    """A flag of a launcher: its effect, and the number of words that follow it."""

    act: Act
    values: int = 1


Flags = Mapping[str, Flag]
"""Flags by their names without dashes at the front, and with - for _."""

COUNTED: Final = "counted for each node: --nproc-per-node of elasticjob run times replicas"
SIZES_OF_WORKERS: Final = "minReplicas, replicas and maxReplicas of the role worker"


def name_of(flag: str) -> str:
    """Return the name by which a flag stands in a table: --nproc_per_node is nproc-per-node."""
    return flag.lstrip("-").replace("_", "-")


def read(launch: Launch, words: Sequence[Word], flags: Callable[[str], Flag | None]) -> Launch:
    """Return the launch that flags, a script and its arguments ask for."""
    at = 0
    while at < len(words):
        word = words[at].plain
        if word == "--":
            at += 1
            break
        if not word.startswith("-") or word == "-":
            break
        flag, equals, value = word.partition("=")
        at += 1
        known = flags(name_of(flag))
        if known is None:
            follows = not equals and at + 1 < len(words) and _is_value(words[at].plain)
            launch = launch.note(
                flag, Verdict.DROPPED, f"{launch.launcher} has no such flag: check its purpose"
            )
            at += follows
            continue
        if not equals and known.values:
            value = " ".join(word.plain for word in words[at : at + known.values])
            at += known.values
        launch = known.act(launch, flag, expand(value, launch.variables))
    rest = [word.raw for word in words[at:]]
    return replace(launch, script=rest[0] if rest else "", arguments=tuple(rest[1:]))


def _is_value(word: str) -> bool:
    """Whether a word after an unknown flag is its value, and not the script."""
    return not word.startswith("-") and not word.endswith((".py", ".sh")) and "/" not in word


def one_of(flags: Flags) -> Callable[[str], Flag | None]:
    """Find flags of a table by name, or by the beginning of one name alone, as argparse does."""

    def find(name: str) -> Flag | None:
        if name in flags:
            return flags[name]
        longer = [each for each in flags if len(name) > 1 and each.startswith(name)]
        return flags[longer[0]] if len(longer) == 1 else None

    return find


def each(names: str, flag: Flag) -> Flags:
    """Give several flags, by their names, the same effect."""
    return dict.fromkeys(names.split(), flag)


def change(why: str) -> Act:
    """A flag whose effect comes about in another way."""
    return lambda launch, flag, _: launch.note(flag, Verdict.CHANGED, why)


def drop(why: str, *, harmless: bool = False) -> Act:
    """A flag without a counterpart, and what to do instead."""
    return lambda launch, flag, _: launch.note(flag, Verdict.DROPPED, why, harmless=harmless)


def needless(why: str) -> Act:
    """A flag that sets the default, or has no meaning in a pod."""
    return drop(why, harmless=True)


def same(name: str, *, valued: bool = True) -> Act:
    """A flag that elasticjob run has, too."""

    def act(launch: Launch, flag: str, value: str) -> Launch:
        told = (f"--{name}", value) if valued else (f"--{name}",)
        return replace(launch, flags=(*launch.flags, *told)).note(
            flag, Verdict.KEPT, f"--{name} of elasticjob run"
        )

    return act


def variable(name: str, value: str = "", *, lower: bool = False) -> Act:
    """A flag that the launcher turns into a variable of the script's environment."""

    def act(launch: Launch, flag: str, given: str) -> Launch:
        told = value or (given.lower() if lower and given in ("True", "False") else given)
        return launch.with_variable(name, told).note(flag, Verdict.KEPT, f"{name}={told} in the environment")

    return act


def nodes(launch: Launch, flag: str, value: str) -> Launch:
    """A number of nodes, or MIN:MAX."""
    try:
        least, most = node_range(value)
    except Failure:
        return launch.note(flag, Verdict.DROPPED, wrong(value, SIZES_OF_WORKERS))
    sizes = {"replicas": most} if least == most else {"minReplicas": least, "maxReplicas": most}
    told = ", ".join(f"{name}: {size}" for name, size in sizes.items())
    launch = replace(launch, nodes=(least, most), wanted=most)
    return launch.note(flag, Verdict.KEPT, f"{told} of the role worker", sizes=tuple(sizes.items()))


def one_bound(place: int, *, of_ranks: bool = False) -> Act:
    """The least (0) or the largest (1) number of nodes, or of ranks, alone; the other one follows."""
    field, other = ("minReplicas", "maxReplicas") if place == 0 else ("maxReplicas", "minReplicas")

    def act(launch: Launch, flag: str, value: str) -> Launch:
        if not is_count(value):
            return nodes(launch, flag, value)
        given = int(value)
        bounds = list(launch.nodes or (given, given))
        bounds[place] = given
        told = (
            f"{field}, with as many workers on a node as before"
            if of_ranks
            else f"{field}: {given} of the role worker"
        )
        verdict = Verdict.KEPT
        if bounds[0] > bounds[1]:
            bounds[1 - place] = given
            told, verdict = f"{told}, and {other} is {given} now", Verdict.CHANGED
        launch = replace(launch, nodes=(bounds[0], bounds[1]))
        return launch.note(flag, verdict, told, sizes=() if of_ranks else ((field, given),))

    return act


def processes(launch: Launch, flag: str, value: str) -> Launch:
    """The processes of each node."""
    try:
        stated_count(value)
    except ValueError:
        return launch.note(
            flag, Verdict.DROPPED, wrong(value, "--nproc-per-node NUMBER, or auto for all GPUs")
        )
    told = "--nproc-per-node of elasticjob run" + (", whose default is 1" if value == "1" else "")
    return replace(launch, processes=value).note(flag, Verdict.KEPT, told)


def total(launch: Launch, flag: str, value: str) -> Launch:
    """The processes of all nodes together."""
    if not is_count(value):
        return launch.note(flag, Verdict.DROPPED, wrong(value, "--nproc-per-node, and replicas"))
    return replace(launch, total=int(value)).note(flag, Verdict.KEPT, COUNTED)


def is_count(value: str) -> bool:
    """Whether a text is a whole number of at least 1."""
    return value.isdecimal() and 0 < int(value) < 1_000_000


def wrong(value: str, instead: str) -> str:
    """Return why a flag's value is not taken, and what to write."""
    why = (
        "its value is known only where the line runs"
        if "$" in value or "`" in value
        else f"{value!r} is no size"
    )
    return f"{why}: write {instead}"


def marked(name: str, **changes: bool) -> Act:
    """A flag without a value that elasticjob run has, too."""

    def act(launch: Launch, flag: str, value: str) -> Launch:
        changed = replace(launch, **changes)  # type: ignore[arg-type]  # by name
        return changed.note(flag, Verdict.KEPT, f"--{name} of elasticjob run")

    return act


as_module: Final = marked("module", module=True)
no_python: Final = marked("no-python", python=False)
MASTER: Final = "the job's master is the rendezvous, and pods find it by themselves"
OF_SSH: Final = (
    "no node is reached by ssh: each runs elasticjob run, and meets the others at the job's master"
)
