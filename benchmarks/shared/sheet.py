"""From the runs of all scenarios to a table, and to JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.figures import NONE, Samples, Sheet, show
from benchmarks.shared.scene import Taken

REFUSED = "refused"


@dataclass
class Runs:
    """The runs of one scenario with one system; `refusals` are its own words, or what did not come."""

    taken: list[Taken] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


Results = Mapping[str, Mapping[str, Runs]]
"""By scenario's title, by system's name."""


def sheet(results: Results, systems: Sequence[str]) -> Sheet:
    """A row for each figure of each scenario; a refusal is a cell of its own, its words a note."""
    rows: list[list[str]] = []
    notes: list[str] = []
    for title, by_system in results.items():
        rows.append([title, *(_refused(by_system.get(name), notes, title, name) for name in systems)])
        samples = Samples()
        for name, runs in by_system.items():
            for taken in runs.taken:
                for figure, value in taken.figures().items():
                    samples.add(f"  {figure}", name, value)
        rows += samples.rows(systems)
    return Sheet(["", *systems], rows, notes)


def _refused(runs: Runs | None, notes: list[str], title: str, name: str) -> str:
    if runs is None:
        return NONE
    refusals = [*runs.refusals, *(taken.refused for taken in runs.taken if taken.refused)]
    if not refusals:
        return ""
    alike = {re.sub(r"\d+", "#", words): words for words in reversed(refusals)}  # the first of each
    notes += [f"{name}, {title}: {words}" for words in alike.values()]
    return f"{REFUSED} {len(refusals)} of {len(runs.refusals) + len(runs.taken)}"


def as_json(results: Results) -> dict[str, Any]:
    """All samples, and who wrote how often."""
    return {
        title: {name: asdict(runs) for name, runs in by_system.items()}
        for title, by_system in results.items()
    }


def tell(results: Results, systems: Sequence[str], file: Path | None) -> None:
    """Print the table; write all samples to `file`, too."""
    show(sheet(results, systems))
    if file:
        file.write_text(json.dumps(as_json(results), indent=1))
