"""Validation of a history's lines: each field is one of its row, with its type, range and words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from inspect import Parameter, signature
from typing import Any, Final, get_type_hints

from lab.simulation.acts import OF_A_JOB, OF_A_ROLE, OWNED
from lab.simulation.connection import BRAIN, MASTERS, OPERATOR
from lab.simulation.faults import ERRORS, KINDS
from lab.simulation.history import Line, Misspelt, Value
from lab.virtual.cluster import MACHINES

YES: Final = ("yes", "no")
OF_A_NEW_JOB: Final[Mapping[str, type]] = {
    **dict.fromkeys(("job", "strategy", "policy", "clean", "queue", "mode", "manager", "trains"), str),
    **dict.fromkeys(
        ("workers", "least", "most", "unit", "exit", "restarts", "ttl", "deadline", "history"), int
    ),
    "seconds": float,
}
OF_AN_EDIT: Final[Mapping[str, type]] = {
    **dict.fromkeys(OF_A_ROLE, int),
    **dict.fromkeys((*OF_A_JOB, "image"), str),
}
OPEN: Final[Mapping[str, Mapping[str, type]]] = {
    **dict.fromkeys(("submit", "again", "gitops"), OF_A_NEW_JOB),
    **dict.fromkeys(("edit", "remake"), OF_AN_EDIT),
}
"""The fields of rows that take any: of a new job, or of a job that is edited."""
NEEDED: Final = frozenset({"job", "workers", "least"})
WORDS: Final[Mapping[str, Collection[Value]]] = {
    **dict.fromkeys(("on", "done", "manual", "network"), YES),
    "machine": MACHINES,
    "queue": ("a", "b"),
    "when": ("before", "after"),
    "strategy": ("Local", "Allreduce"),
    "policy": ("Always", "OnFailure", "Never", "ExitCode"),
    "clean": ("All", "None", "Running"),
    "mode": ("manual", "single-job", "cluster"),
    "trains": ("yes", "plain"),
    "program": (OPERATOR, MASTERS, BRAIN),
}
OF_A_ROW: Final[Mapping[tuple[str, str], Collection[Value]]] = {
    **{(row, "kind"): KINDS for row in ("stale", "drop", "double", "late", "relist")},
    ("take-away", "kind"): OWNED,
    ("deny", "kind"): (*KINDS, "configmaps"),
    ("squat", "kind"): ("pods", "services"),
    ("remove", "kind"): ("training", "dijob"),
    ("enqueue", "kind"): ("job", "training", "dijob"),
    ("refuse", "code"): ERRORS,
}
DAY: Final = 86_400
LOWEST: Final = {"priority": -1000, "step": -DAY}
LARGEST: Final = {
    **dict.fromkeys(("step", "back", "seconds"), DAY),
    **dict.fromkeys(("priority", "write"), 1000),
    **dict.fromkeys(("workers", "versions"), 50),
}
MOST: Final = 3600
"""Of other numbers, which are counts or seconds."""


def check(line: Line, row: Callable[..., object]) -> None:
    """Raise Misspelt unless a row takes the fields of a line."""
    types, needed = fields(line.name, row)
    if unknown := line.given.keys() - types.keys():
        raise Misspelt(f"{line}: {line.name} has no {', '.join(sorted(unknown))}, but {', '.join(types)}")
    if missing := needed - line.given.keys():
        raise Misspelt(f"{line}: give {', '.join(sorted(missing))}")
    for name, value in line.given.items():
        if why := _wrong(line.name, name, value, types[name]):
            raise Misspelt(f"{line}: {name} is {value!r}: {why}")


@cache
def fields(name: str, row: Callable[..., object]) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return the types of the fields of a row, and the names of those that it needs."""
    _, *rest = signature(row).parameters.values()
    own = [each for each in rest if each.kind is not Parameter.VAR_KEYWORD]
    hints = get_type_hints(row, localns={"World": object, "Place": object})
    types = {**{each.name: hints[each.name] for each in own}, **OPEN.get(name, {})}
    needed = {each.name for each in own if each.default is Parameter.empty}
    return types, frozenset(needed | (NEEDED if OPEN.get(name) is OF_A_NEW_JOB else frozenset()))


def _wrong(row: str, name: str, value: Value, of: type) -> str:
    words = OF_A_ROW.get((row, name), WORDS.get(name))
    if words is not None:
        return "" if value in words else f"give one of {', '.join(map(str, words))}"
    if of is str:
        return "" if isinstance(value, str) else "give a word"
    if isinstance(value, str) or (of is int and not isinstance(value, int)):
        return "give a whole number" if of is int else "give a number"
    least, most = LOWEST.get(name, 1 if name == "write" else 0), LARGEST.get(name, MOST)
    return "" if least <= value <= most else f"give {least} to {most}"
