"""docs/troubles.md and the table of ElasticJobPending's runbook: causes of troubles, as CAUSES has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from elasticjob.api.troubles.causes import CAUSES, Cause
from elasticjob.api.troubles.cluster import INSTALL
from hack.generate.pages import cell, filled, table
from lab.paths import DOCS

PAGE: Final = DOCS / "troubles.md"
PENDING: Final = DOCS / "runbooks" / "ElasticJobPending.md"
WORDS: Final = {
    "job": "JOB -n NAMESPACE",
    "object": "elasticjob/JOB -n NAMESPACE",
    "name": "JOB",
    "namespace": "NAMESPACE",
    "pods": "-n NAMESPACE -l elasticjob.dlrover/name=JOB",
    "pod": "POD",
    "install": INSTALL,
}
FIRST, LAST = "NameTaken", "InitContainerFailed"
"""The rows for which nodes do not start."""
MARKS: Final = {"wrong": "a person acts", "doubtful": "look", "unknown": "–"}


def troubles() -> str:
    """Return the page of all causes."""
    return filled(PAGE, {"table: causes": _table(CAUSES)})


def pending() -> str:
    """Return the runbook with the causes for which nodes do not start."""
    names = [*CAUSES]
    return filled(PENDING, {"table: causes": _table(names[names.index(FIRST) : names.index(LAST) + 1])})


def _table(names: Iterable[str]) -> str:
    head = ("REASON", "what it is", "what you do", "commands")
    return table(head, (_row(name, CAUSES[name]) for name in names if CAUSES[name].title))


def _row(name: str, cause: Cause) -> tuple[str, ...]:
    commands = "<br>".join(f"`{command.format(**WORDS)}`" for command in cause.commands)
    act = cause.act.format(**WORDS)
    return f"`{name}`", cell(cause.title), cell(act) or MARKS[cause.grade], commands or "–"
