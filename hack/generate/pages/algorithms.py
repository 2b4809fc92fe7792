"""The table of docs/brain.md: what is asked for sizes, by whom and when."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from elasticjob.sizing.algorithm import Decider
from elasticjob.sizing.facts import Event
from elasticjob.sizing.table import ALGORITHMS
from hack.generate.pages import cell, filled, table

DECIDERS = {Decider.MASTER: "master", Decider.BRAIN: "Brain"}


def algorithms(page: Path) -> str:
    """Return the text of the page with the rows of ALGORITHMS, in their order."""
    return filled(
        page, {"algorithms": table(("name", "asked by", "events", "proposes"), _rows(page.read_text()))}
    )


def _rows(page: str) -> Iterator[tuple[str, ...]]:
    """The last cell is the page's own; that of a new row is the first line of its docstring."""
    said = dict(re.findall(r"^\| (`[\w-]+`) \| .* \| (.*) \|$", page, re.M))
    for row in ALGORITHMS:
        by = "both" if len(row.by) > 1 else DECIDERS[min(row.by)]
        events = [event.value for event in Event if event in row.events]
        when = "all" if len(events) == len(Event) else ", ".join(events)
        first = (inspect.getdoc(row.propose) or "").partition("\n")[0]
        yield f"`{row.name}`", by, when, said.get(f"`{row.name}`", cell(first))
