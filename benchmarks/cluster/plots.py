"""Plots of the cluster's benchmarks over virtual time, as SVG; a faint line is what stands beside ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from elasticjob.cli.report.plot import Figure, Panel, draw
from lab.processes import say

Line = Sequence[tuple[float, float]]


def plot(folder: Path, title: str, unit: str, lines: Sequence[tuple[str, Line, Line]]) -> None:
    """Write a picture with a panel for each title, our line, and the one beside it, over time in `unit`."""
    ours = [
        Panel(name, "world", "line", tuple(line), 140, faint=tuple(beside)) for name, line, beside in lines
    ]
    longest = max(at for _, line, beside in lines for at, _ in (*line, *beside))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{re.sub('[^a-z0-9.]+', '-', title.lower())}.svg"
    path.write_text(draw(Figure(longest, tuple(ours), unit=unit), title=title))
    say(f"wrote {path}")
