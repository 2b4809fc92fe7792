"""From samples to a table: quantiles, spreads, growth, and the machine on which they were taken."""

from __future__ import annotations

import math
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import linear_regression, median

from rich.console import Console
from rich.table import Table

NONE = "–"
NEVER = "not in time"
WIDTH = 1000
"""Columns where there is no terminal to ask: more than any table needs."""


def quantile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample such that `share` of all are no larger. Raises ValueError for none."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def growth(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return k of the best fit cost = c · size^k: 1 is linear, 0 constant, 2 quadratic.

    Raises ValueError for fewer than two sizes, or what is not positive.
    """
    if len(set(sizes)) < 2 or len(sizes) != len(costs) or min(*sizes, *costs) <= 0:
        raise ValueError(f"no growth in {list(zip(sizes, costs, strict=False))}")
    return linear_regression([*map(math.log, sizes)], [*map(math.log, costs)]).slope


def number(value: float) -> str:
    """Return three significant digits at most, thousands with commas."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return (
        f"{value:,.{min(digits, 3)}f}"
        if abs(value) < 1000
        else f"{round(value, -2 if abs(value) >= 1e4 else -1):,.0f}"
    )


def spread(samples: Sequence[float]) -> str:
    """Return the median, and the least and the most where there are several; – for none. NaN is no sample."""
    samples = [sample for sample in samples if not math.isnan(sample)]
    if not samples:
        return NONE
    if inf in samples:
        return NEVER
    if len(samples) == 1:
        return number(samples[0])
    return f"{number(median(samples))} ({number(min(samples))}–{number(max(samples))})"


class Samples(dict[str, dict[str, list[float]]]):
    """Samples by figure, then by system."""

    def add(self, figure: str, system: str, *samples: float) -> None:
        """Add samples of one system."""
        self.setdefault(figure, {}).setdefault(system, []).extend(samples)

    def rows(self, systems: Sequence[str]) -> list[list[str]]:
        """Return a row for each figure, with a cell for each of these systems."""
        return [
            [figure, *(spread(found.get(system, ())) for system in systems)] for figure, found in self.items()
        ]


@dataclass(frozen=True)
class Sheet:
    """A table to be: a title, the heads of its columns, rows of cells ([] is a rule), and notes below."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def show(sheet: Sheet, console: Console | None = None) -> None:
    """Print a sheet as people read it."""
    console = console or (Console() if sys.stdout.isatty() else Console(width=WIDTH))
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for at, head in enumerate(sheet.heads):
        table.add_column(head, justify="right" if at else "left", no_wrap=True)
    for row in sheet.rows:
        table.add_row(*(row or [""]))
    console.print(table)
    for note in sheet.notes:
        console.print(note, style="dim", soft_wrap=True, highlight=False)


def peak(pid: int | str = "self") -> int:
    """Return the most resident bytes that a process has had."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def made_by(began: float) -> str:
    """Return the machine, how long the figures took since the clock showed `began`, and their command."""
    return f"\n{machine()}; {time.monotonic() - began:.0f} s; made by\n{command()}"


def command() -> str:
    """Return the command of this process."""
    module = sys.modules["__main__"].__spec__
    name = module.name.removesuffix(".__main__") if module else sys.argv[0]
    return shlex.join(["python", "-m", name, *sys.argv[1:]])


def machine() -> str:
    """Return what the figures depend on besides the programs."""
    one, five, _ = os.getloadavg()
    version = ".".join(map(str, sys.version_info[:3]))
    return f"{os.cpu_count()} cores, load {one:.1f} now, {five:.1f} over five minutes, Python {version}"
