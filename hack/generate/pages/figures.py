"""Figures of README.md: rows and cells of the tables of docs/performance.md, each by the name of its row."""

from __future__ import annotations

from typing import Final

from hack.generate.pages import filled, table
from lab.paths import ROOT

README: Final = ROOT / "README.md"
MEASURED: Final = ROOT / "docs" / "performance.md"
STANDSTILL: Final = (
    "SIGKILL of a worker → next step, s",
    "node lost → next step, s",
    "node silent → next step, s",
    "400 MB: SIGKILL of a worker → next step, s",
    "goodput (share of time spent on steps that count), a worker killed every 30 s †",
)
CACHED, KEPT, RUNNING = "5,000 pods cached: seconds", "… memory kept, MB", "all pods run, s"


def figures() -> str:
    """Return the text of README.md with the figures as they were measured."""
    lines = MEASURED.read_text().splitlines()
    rows = [row(lines, name) for name in STANDSTILL]
    seconds, memory, start = (row(lines, name) for name in (CACHED, KEPT, RUNNING))
    ours, others = "elasticjob", "kubernetes_asyncio"
    client = (
        "`make bench-kube` (10 minutes), on a real API server that shares 2 cores with each client: ours\n"
        f"caches 5,000 pods in {seconds[ours]} s and {memory[ours]} MB; kubernetes_asyncio takes "
        f"{seconds[others]} s and {memory[others]} MB.\n"
    )
    plane = (
        "`make bench-scale` (9 minutes), with the whole control plane on 2 cores and simulated nodes: 1,000\n"
        f"jobs of 4 pods run after {start['now']} s, 1,000 batch/v1 Jobs after "
        f"{start['1,000 batch/v1 Jobs']} s, 4,000 bare pods after {start['4,000 bare pods']} s.\n"
    )
    standstill = table([*rows[0]], ([*each.values()] for each in rows))
    return filled(README, {"table: standstill": standstill, "figures: control plane": f"{client}\n{plane}"})


def row(lines: list[str], name: str) -> dict[str, str]:
    """Return the cells of the one row of that name, by the head of its table.

    Raises ValueError if there is no such row, or several.
    """
    found = [number for number, line in enumerate(lines) if line.startswith(f"| {name} |")]
    if len(found) != 1:
        raise ValueError(f"{MEASURED.name} has {len(found)} rows {name!r}; {__name__} needs one")
    rule = max(at for at in range(found[0]) if lines[at].startswith("| --- "))
    return dict(zip(_cells(lines[rule - 1]), _cells(lines[found[0]]), strict=True))


def _cells(line: str) -> list[str]:
    return [each.strip() for each in line.strip("|").split("|")]
