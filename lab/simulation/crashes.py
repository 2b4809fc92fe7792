"""A crash before and after each write of some histories, one at a time: the end is as without it.

And old reads at each of their lines: all truths hold.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2s
from itertools import cycle, product
from pathlib import Path
from typing import Final

from rich.table import Table

from elasticjob.kube.objects.views import POD
from lab.simulation.connection import BRAIN, MASTERS, OPERATOR, Write, program_of
from lab.simulation.history import History, Line, Value
from lab.simulation.normal import differences, normal
from lab.simulation.play import Outcome, play

ENDS: Final = Path(__file__).with_name("ends.json")
WHENS: Final = ("before", "after")
BLIND: Final[Mapping[str, Mapping[str, Value]]] = {
    "stale": {"versions": 2, "seconds": 4},
    "drop": {"seconds": 4},
}
"""For less long than a controller waits for what it has written itself."""
KINDS: Final = ("pods", "elasticjobs", "jobresources", "scaleplans")
"""Of which reads are old, or events are lost."""
REFUSALS: Final[tuple[tuple[str, Mapping[str, Value]], ...]] = (
    ("refuse", {"code": 409}),
    ("cut", {"done": "yes"}),
    ("refuse", {"code": 500}),
    ("cut", {"done": "no"}),
)
HOLDERS: Final = (OPERATOR, MASTERS)
"""Programs that write to what they have read."""
WRITERS: Final = (*HOLDERS, BRAIN)
HISTORIES: Final[Mapping[str, str]] = {
    "a job of 2, 3 and 1 workers": """
        0 submit job=a strategy=Local workers=2 least=1 most=4
        5 scale job=a workers=3
        12 scale job=a workers=1""",
    "a job with a master, of 2 and 3 workers": """
        0 submit job=a strategy=Allreduce workers=2 least=1 most=4
        5 scale job=a workers=3
        9 delete job=a""",
    "a job that is over, and deleted after its time": """
        0 submit job=a strategy=Local workers=2 least=1 seconds=12 ttl=10""",
    "a job that is over, and cleaned up": """
        0 submit job=a strategy=Local workers=2 least=1 most=4 seconds=12 clean=All
        5 plan job=a workers=4 manual=yes
        30 plan job=a workers=1 manual=yes""",
    "failures, and a deleted pod": """
        0 submit job=a strategy=Allreduce workers=3 least=1 restarts=2
        5 end-pod job=a index=0 code=3
        8 end-pod job=a index=1 code=143
        12 delete-pod job=a index=2
        20 end-pod job=a index=0 code=1
        26 end-pod job=a index=2 code=1
        34 scale job=a workers=2""",
    "a job that fails": """
        0 submit job=a strategy=Local workers=2 least=2 seconds=2 exit=1 restarts=1 clean=All
        40 take-away job=a kind=jobresources""",
    "nodes that succeeded or failed, and deleted pods": """
        0 submit job=a strategy=Local workers=3 least=1 restarts=0 policy=OnFailure
        4 end-pod job=a index=0 code=0
        5 end-pod job=a index=1 code=1
        9 delete-pod job=a index=0
        9 delete-pod job=a index=1""",
    "a job that fails by one of two nodes": """
        0 submit job=a strategy=Local workers=2 least=2 restarts=1 policy=OnFailure clean=All
        4 end-pod job=a index=0 code=1
        20 end-pod job=a index=0 code=1""",
    "a lost machine": """
        0 submit job=a strategy=Allreduce workers=3 least=1
        6 lose machine=n1 seconds=20
        9 lose machine=n2 seconds=20
        12 lose machine=n3 seconds=20""",
    "a machine that stays away": """
        0 submit job=a strategy=Local workers=3 least=1
        16 lose machine=n1 seconds=20
        36 cordon machine=n1 on=no""",
    "plans of programs and users": """
        0 submit job=a strategy=Local workers=2 least=1 most=5 mode=single-job
        4 plan job=a workers=3 manual=no
        4.1 plan job=a workers=4 manual=yes
        4.2 plan job=a workers=2 manual=no cpu=2
        12 autoscale job=a workers=5""",
    "a plan between two allowed sizes": """
        0 submit job=a strategy=Local workers=2 least=2 most=6 unit=2 history=1
        5 plan job=a workers=3 manual=yes
        15 plan job=a workers=5 manual=yes
        25 plan job=a workers=9 manual=yes""",
    "scaled twice within a second": """
        0 submit job=a strategy=Local workers=1 least=1 most=4
        7 late kind=jobresources seconds=2
        8.1 scale job=a workers=2
        8.15 scale job=a workers=3
        8.6 scale job=a workers=2""",
    "no plan is kept": """
        0 submit job=a strategy=Local workers=2 least=1 most=4 history=0
        5 plan job=a workers=3 manual=yes
        12 plan job=a workers=2 manual=yes
        20 plan job=a workers=3 manual=yes
        30 cordon machine=n1 on=no""",
    "a success that is seen late": """
        0 submit job=a strategy=Local workers=1 least=1
        5 late kind=pods seconds=4
        6 end-pod job=a index=0 code=0
        6.5 suspend job=a on=yes
        20 suspend job=a on=no""",
    "the master's snapshot is taken away": """
        0 submit job=a strategy=Allreduce workers=2 least=1 trains=yes
        10 take-away job=a kind=configmaps
        30 cordon machine=n1 on=no""",
    "asked for again": """
        0 submit job=a strategy=Local workers=2 least=1 most=4 mode=single-job
        5 scale job=a workers=3
        15 plan job=a workers=2 manual=no
        25 scale job=a workers=3""",
    "a minimum, and no room": """
        0 submit job=a strategy=Allreduce workers=3 least=2
        6 cordon machine=n1 on=yes
        6 cordon machine=n2 on=yes
        6 cordon machine=n3 on=yes
        8 end-pod job=a index=1 code=137
        12 scale job=a workers=4""",
    "suspended, edited, resumed": """
        0 submit job=a strategy=Allreduce workers=2 least=1
        5 suspend job=a on=yes
        10 edit job=a image=v2
        12 edit job=a workers=3
        15 suspend job=a on=no
        30 restart back=2
        30.5 remake job=a env=x
        50 edit job=a network=no""",
    "suspended before there is room": """
        0 cordon machine=n1 on=yes
        0 cordon machine=n2 on=yes
        0 cordon machine=n3 on=yes
        0.1 submit job=a strategy=Local workers=2 least=1
        4 suspend job=a on=yes
        25 cordon machine=n1 on=no""",
    "suspended for long, and a deadline": """
        0 submit job=a strategy=Allreduce workers=2 least=1 deadline=30
        10 suspend job=a on=yes
        700 suspend job=a on=no""",
    "a webhook of others": """
        0 halve on=yes
        0 submit job=a strategy=Local workers=2 least=1 most=3
        8 scale job=a workers=3
        90 scale job=a workers=2""",
    "a webhook of others, and more CPUs": """
        0 submit job=a strategy=Local workers=1 least=1
        3 suspend job=a on=yes
        10 halve on=yes
        12 plan job=a workers=1 manual=yes cpu=2
        16 suspend job=a on=no""",
    "with a NetworkPolicy, or without": """
        0 submit job=a strategy=Local workers=1 least=1
        4 edit job=a network=no
        8 edit job=a network=yes""",
    "what may not change": """
        0 submit job=a strategy=Local workers=2 least=1 most=5
        4 edit job=a strategy=Allreduce
        6 plan job=a workers=4 manual=no
        6 edit-plan job=a workers=3
        12 edit job=a most=3
        14 edit job=a image=v2
        16 edit job=a env=x""",
    "made again under its name": """
        0 submit job=a strategy=Allreduce workers=2 least=1
        5 again job=a strategy=Local workers=3 least=1 seconds=6""",
    "made again while the collector is behind": """
        0 submit job=a strategy=Allreduce workers=2 least=1 most=5
        0 dijob name=d
        5 cordon machine=n1 on=yes
        5 cordon machine=n2 on=yes
        5 cordon machine=n3 on=yes
        6 plan job=a workers=4 manual=yes
        8 collector after=10 seconds=30
        8 again job=a strategy=Allreduce workers=2 least=1 most=5
        8 again-dijob name=d
        14 cordon machine=n1 on=no""",
    "what others take away": """
        0 submit job=a strategy=Allreduce workers=2 least=1
        40 take-away job=a kind=services
        80 take-away job=a kind=secrets
        120 take-away job=a kind=networkpolicies
        160 take-away job=a kind=services only=a-master""",
    "in a queue": """
        0 submit job=a strategy=Local workers=2 least=1 queue=a
        6 scale job=a workers=3
        10 come name=f queue=a cpu=2 priority=5
        20 scale job=a workers=1
        25 go name=f
        30 scale job=a workers=3""",
    "made again, and asked at once": """
        0 submit job=a strategy=Local workers=2 least=1 most=4
        6 again job=a strategy=Local workers=2 least=1 most=4
        6.05 plan job=a workers=3 manual=yes""",
    "in a queue, made again": """
        0 submit job=a strategy=Local workers=2 least=2 queue=a
        6 again job=a strategy=Local workers=3 least=3 queue=a""",
    "in a queue, fewer than it began with": """
        0 submit job=a strategy=Local workers=3 least=3 queue=a
        6 edit job=a least=1
        10 scale job=a workers=1""",
    "in a queue, suspended at once, and resumed": """
        0 submit job=a strategy=Local workers=2 least=2 queue=a
        0.6 suspend job=a on=yes
        3 come name=f queue=a cpu=4 priority=0
        8 go name=f
        9 suspend job=a on=no""",
    "in a queue, and out of time": """
        0 submit job=a strategy=Local workers=2 least=2 queue=a deadline=6
        3 submit job=b strategy=Local workers=3 least=3 queue=a""",
    "in queues, smaller, or suspended": """
        0 submit job=a strategy=Local workers=2 least=1 queue=a
        0 submit job=b strategy=Local workers=2 least=1 queue=b
        8 scale job=a workers=1
        8 suspend job=b on=yes""",
    "in a queue, and a part is done": """
        0 submit job=a strategy=Local workers=2 least=1 queue=a
        6 end-pod job=a index=0 code=0
        9 come name=f queue=a cpu=4 priority=0
        12 scale job=a workers=4""",
    "in a queue, suspended, and over": """
        0 submit job=a strategy=Allreduce workers=2 least=1 queue=b
        6 suspend job=a on=yes
        12 suspend job=a on=no
        18 end-pod job=a index=0 code=0
        24 delete job=a""",
    "a DIJob and its players": """
        0 dijob name=d queue=a
        6 players name=d many=2
        10 delete-players name=d
        14 remove kind=dijob name=d""",
    "a DIJob that ends": """
        0 dijob name=d clean=All
        6 finish name=d code=0""",
    "a DIJob that fails with its players": """
        0 dijob name=d clean=All
        4 players name=d many=2
        10 finish name=d code=1""",
    "a DIJob that gives way, and whose players are deleted": """
        0 dijob name=d queue=a
        6 players name=d many=2
        12 come name=f queue=a cpu=3 priority=5
        12 come name=g queue=a cpu=2 priority=5
        22 go name=f
        22 go name=g
        30 players name=d many=1
        36 delete-players name=d""",
    "a TrainingJob": """
        0 train name=t least=1 most=3
        8 remove kind=training name=t""",
    "a TrainingJob that is edited": """
        0 come name=f queue=a cpu=2 priority=5
        0 come name=g queue=a cpu=2 priority=5
        1 train name=t least=1 most=3 queue=a
        4 retrain name=t least=1 most=2
        8 enqueue kind=training name=t queue=b""",
    "a training, and a killed worker": """
        0 submit job=a strategy=Allreduce workers=2 least=1 most=3 trains=yes seconds=20
        8 end-pod job=a index=0 code=137""",
    "copies of pods": """
        0 submit job=a strategy=Local workers=2 least=1 most=4
        0 dijob name=d
        6 copy-pod job=a
        6 copy-pod job=d
        8 scale job=a workers=3
        14 scale job=a workers=1
        20 finish name=d code=0""",
    "a TrainingJob of the name of a job": """
        0 submit job=a strategy=Local workers=2 least=1
        2 train name=a least=1 most=3
        8 retrain name=a least=1 most=2""",
    "asked before it is seen": """
        0 late kind=elasticjobs seconds=4
        0.1 submit job=a strategy=Local workers=2 least=1 most=4
        0.2 plan job=a workers=3 manual=yes""",
    "a name that is taken": """
        0 squat job=a kind=pods
        0 submit job=a strategy=Allreduce workers=4 least=1""",
    "another manager's": """
        0 submit job=a strategy=Allreduce workers=2 least=1 manager=kueue.x-k8s.io/multikueue""",
    "Brain": """
        0 submit job=a strategy=Allreduce workers=0 least=1 most=4 mode=cluster trains=yes
        0.5 brain
        30 end-pod job=a index=0 code=137
        36 scale job=a workers=3
        45 cordon machine=n1 on=no""",
}


@dataclass(frozen=True)
class Crash:
    """One history with a crash at one write, and what is wrong then."""

    write: Write
    when: str
    wrong: str


def crashes(text: str, back: float = 1.0, *, few: bool = False) -> Iterator[Crash]:
    """Yield what a crash before and after each write of a history leads to.

    A `few`: before the first of alike writes and after the last. Raises ValueError for a history that is
    wrong without a crash.
    """
    history = History.parse(text)
    usual = play(history, ends=False)
    if usual.wrong:
        raise ValueError(f"without a crash: {usual.wrong}\n{history}")
    for write, when in _turning_points(usual.written) if few else product(usual.written, WHENS):
        if (program := program_of(write.program)) in WRITERS:
            given: dict[str, Value] = {"write": write.number, "when": when, "back": back}
            found = _with(history, Line(0.0, "crash", {**given, "program": program}))
            is_counted = program == MASTERS  # it is a restart, which the status says
            yield Crash(write, when, found.wrong if is_counted else _compared(usual, found))


def refused(text: str) -> Iterator[tuple[str, str]]:
    """Yield a refusal of the first of alike writes, and what is wrong with the end then."""
    history, faults = History.parse(text), cycle(REFUSALS)
    usual = play(history, ends=False)
    for write, *_ in _edges(usual.written):
        if (program := program_of(write.program)) in WRITERS:
            name, given = next(faults)
            fault = Line(0.0, name, {"write": write.number, **given, "program": program})
            found = _with(history, fault)
            yield f"{fault}, {write.verb} {write.kind} {write.name}", _compared(usual, found)


def blinded(text: str, *, few: bool = False) -> Iterator[tuple[str, str]]:
    """Yield faults of watches, each at one line of a history, and what is wrong then, "" if nothing is.

    A `few`: both faults of pods and one of each other kind at each line.
    """
    history = History.parse(text)
    has_plans = any(line.name in ("plan", "scale", "brain") for line in history.lines)
    kinds = KINDS if has_plans or not few else KINDS[:-1]
    if any("queue" in line.given for line in history.lines):
        kinds = (*kinds, "workloads")
    for number, line in enumerate(history.lines):
        for place, (kind, name) in enumerate(product(kinds, BLIND)):
            if few and kind != KINDS[0] and (number + place // len(BLIND) + place) % len(BLIND):
                continue
            fault = Line(line.at, name, {"kind": kind, **BLIND[name]})
            yield str(fault), play(replace(history, lines=_before(history, line, fault))).wrong


def _edges(written: Sequence[Write]) -> list[tuple[Write, ...]]:
    """Of the writes of a controller that are alike, the first and the last, or the only one."""
    alike = dict[tuple[str, ...], list[Write]]()
    for write in written:
        what = program_of(write.program), write.controller, write.verb, write.kind
        alike.setdefault(what, []).append(write)
    return [tuple(dict.fromkeys((every[0], every[-1]))) for every in alike.values()]


def _turning_points(written: Sequence[Write]) -> Iterator[tuple[Write, str]]:
    """A crash beside each pod that comes or goes, and beside the first and the last of alike writes."""
    yield from ((write, "after") for write in written if write.verb == "delete")
    yield from ((write, "before") for write in written if (write.verb, write.kind) == ("create", POD.name))
    for *first, last in _edges(written):
        yield last, "after"
        yield from ((write, "before") for write in first)


def held(text: str, *, few: bool = False) -> Iterator[tuple[str, str]]:
    """Yield each write that is long on its way, and what is wrong then: while its job is made again, or not.

    A `few`: the first of alike writes while its job is made again, and the last one alone.
    """
    history = History.parse(text)
    written = play(history, ends=False).written
    for first, *last in _edges(written) if few else ((write, write) for write in written):
        if program_of(first.program) not in HOLDERS or first.verb == "create":
            continue
        if again := _made(history, first):
            yield f"{first} while its job is made again", _held(history, first, again).wrong
        for write in last:
            yield str(write), _held(history, write).wrong  # acts meanwhile may find another state


def _held(history: History, write: Write, again: Sequence[Line] = ()) -> Outcome:
    slow = Line(0.0, "slow", {"write": write.number, "seconds": 8, "program": program_of(write.program)})
    return _with(history, slow, *(replace(line, at=write.at + 1.0) for line in again))


def _with(history: History, *more: Line) -> Outcome:
    """Play a history until it rests, with more lines."""
    lines = sorted((*more, *history.lines), key=lambda line: line.at)
    return play(replace(history, lines=tuple(lines)), ends=False)


def _made(history: History, write: Write) -> tuple[Line, ...]:
    """The lines that make the job of a write again; none where that is a job of no line."""
    for line in history.lines:
        name = str(line.given.get("job") or line.given.get("name"))
        if line.at <= write.at and name in write.name.split("-"):
            match line.name:
                case "submit":
                    return (replace(line, name="again"),)
                case "dijob":
                    return (replace(line, name="again-dijob"),)
                case "train":
                    gone = Line(line.at, "remove", {"kind": "training", "name": name})
                    return gone, line
    return ()


def _before(history: History, line: Line, fault: Line) -> tuple[Line, ...]:
    place = history.lines.index(line)
    return (*history.lines[:place], fault, *history.lines[place:])


def ended(name: str) -> tuple[str, dict[str, str]]:
    """Play a history without a fault; return what is wrong, and a digest of each object at its end.

    A digest that differs from the recorded one is wrong: `--record` keeps an end that was looked at.
    """
    outcome = play(History.parse(HISTORIES[name]), ends=False)
    found = {what: _digest(each) for what, each in normal(outcome.objects or {}).items()}
    known = recorded().get(name, {})
    unlike = [what for what in sorted({*found, *known}) if found.get(what) != known.get(what)]
    return outcome.wrong or (f"at rest: as-recorded: {', '.join(unlike)}" if unlike else ""), found


def recorded() -> dict[str, dict[str, str]]:
    """Return the digests of the ends of HISTORIES, by name and object."""
    found: dict[str, dict[str, str]] = json.loads(ENDS.read_text()) if ENDS.exists() else {}
    return found


def record() -> None:
    """Keep the ends of HISTORIES as they are now."""
    ENDS.write_text(json.dumps({name: ended(name)[1] for name in HISTORIES}, indent=0) + "\n")


def _digest(found: object) -> str:
    return blake2s(json.dumps(found, sort_keys=True).encode(), digest_size=5).hexdigest()


def _compared(usual: Outcome, found: Outcome) -> str:
    if found.wrong:
        return found.wrong
    unlike = list(differences(normal(usual.objects or {}), normal(found.objects or {})))
    return f"at rest: as-without-it: {'; '.join(unlike)}" if unlike else ""


def table(every: Iterable[Crash]) -> Table:
    """Return a row for each controller, verb and kind: how many crashes, and how many that were wrong."""
    rows, wrong = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str, str]]()
    for each in every:
        write = each.write
        program = program_of(write.program)
        row = write.controller or (program if program != OPERATOR else "in line"), write.verb, write.kind
        rows[row] += 1
        wrong[(*row, each.when)] += bool(each.wrong)
    made = Table("controller", "verb", "kind", "crashes", "wrong before", "wrong after", box=None)
    for row, many in sorted(rows.items()):
        made.add_row(*row, str(many), *(str(wrong[(*row, when)]) for when in WHENS))
    return made
